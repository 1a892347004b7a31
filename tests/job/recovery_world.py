"""A cloud that takes machines back, for tests of jobs that go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from costgpu.job.adopt import adopt_job
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import load_run
from costgpu.job.launch import launch
from costgpu.job.state.attempts import attempts_of_job
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import NullObserver
from costgpu.models.job import Recovery
from costgpu.models.run import RunState, RunView
from tests.fake_cloud import JobScript
from tests.fake_cloud.script import PROGRESS
from tests.job.mortal import Life, Mortal, plan, tools
from tests.job.world import MACHINE, RUN, World

LOOK_SECONDS = 20.0  # how often the cloud looks for machines to take back
SAVING = JobScript(seconds=1000, saves=100, stdout=[(1, b"one\n")], outputs={"model.pt": b"weights", PROGRESS: b"all"})


class RecoveryWorld(World):
    """Machines are taken back after so many seconds, one after the other; those after them stay."""

    def __init__(self, folder: Path, takes_back: Sequence[float], script: JobScript = SAVING) -> None:
        super().__init__(folder, script, MACHINE)
        self._takes_back = list(takes_back)
        self._seen: set[str] = set()
        self.most_alive = 0
        (self.work / "train.py").write_text("train")
        self._look()

    def _look(self) -> None:
        alive = self.cloud.alive()
        self.most_alive = max(self.most_alive, len(alive))
        for instance in alive:
            instance_id = instance.ref.instance_id
            if instance_id not in self._seen:
                self._seen.add(instance_id)
                if self._takes_back:
                    self.cloud.preempt(instance_id, after=self._takes_back.pop(0))
        self.cloud.schedule(LOOK_SECONDS, self._look)

    def run(self, *, life: Life | None = None, most: int = 5, max_cost: str = "2.00", **changes: Any) -> JobDriver:
        kit, book = (self.tools, self.book) if life is None else (self._kit(life), Mortal(self.book, life, "ledger"))
        regions = changes.pop("regions", ("us-east-1", "us-west-2"))
        detach = changes.pop("detach", False)
        changes.setdefault(
            "recovery", Recovery(most=most, checkpoints=(PROGRESS,), resume_args=("--resume", "{latest}"))
        )
        changes.setdefault("max_cost_usd", Decimal(max_cost))
        price = changes.pop("spot_price", None)
        what = plan(self.work, max_cost=max_cost, spot=True, regions=regions, **changes)
        if price is not None:  # less than the rate of the lease
            cheap = [
                replace(each, offer=replace(each.offer, price_usd_per_hour=Decimal(price))) for each in what.options
            ]
            what = replace(what, options=tuple(cheap))
        return launch(
            what,
            book,
            kit,
            self.who if life is None else NullObserver(),
            owner="me@here",
            environment={"TOKEN": "x"},
            run_id=RUN,
            detach=detach,
        )

    def resume(self, secrets: dict[str, str] | None = None, life: Life | None = None) -> JobDriver:
        """Another client goes on with the job."""
        kit, book = (self.tools, self.book) if life is None else (self._kit(life), Mortal(self.book, life, "ledger"))
        view = self.attempts()[-1]
        with lock_run(self.folder / "runs" / RUN):
            driver = adopt_job(view, book, kit, self.who if life is None else NullObserver(), secrets or {})
            driver.drive()
        return driver

    def attempts(self) -> tuple[RunView, ...]:
        return tuple(each[0] for each in attempts_of_job(self.book, load_run(self.book, RUN)))

    def check_job(self, what: str = "") -> None:
        """All is over: the result is home, nothing is left running, and no two machines were there at once."""
        self.check_over(what)
        assert self.most_alive <= 1, what
        assert all(view.state is RunState.CLOSED for view in self.attempts()), what

    def _kit(self, life: Life) -> Any:
        return tools(self.cloud, self.folder, life)
