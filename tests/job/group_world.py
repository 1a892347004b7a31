"""A job on several machines of the fake cloud."""

from pathlib import Path
from typing import Any

from costgpu.job.adopt import adopt_job
from costgpu.job.drive.context import Services
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import load_run
from costgpu.job.launch import launch
from costgpu.models.job import JobOrder
from costgpu.models.run import RunState, RunView
from costgpu.providers.base import TAG_GROUP
from tests.fake_cloud import JobScript, MachineScript
from tests.fake_cloud.instance import FakeInstance
from tests.job.mortal import Life, Mortal, plan, tools
from tests.job.world import JOB, MACHINE, RUN, World


class GroupWorld(World):
    """A cloud, a ledger, a person, and a job on `nodes` machines."""

    def __init__(
        self, folder: Path, script: JobScript = JOB, machine: MachineScript = MACHINE, *, nodes: int = 2
    ) -> None:
        super().__init__(folder, script, machine)
        self.nodes = nodes

    def launch_group(self, *, life: Life | None = None, detach: bool = False, **changes: Any) -> JobDriver:
        """A client of its own if it has a life, which may end."""
        kit: Services = self.tools if life is None else tools(self.cloud, self.folder, life)
        book: Any = self.book if life is None else Mortal(self.book, life, "ledger")
        return launch(
            plan(self.work, nodes=self.nodes, **changes),
            book,
            kit,
            self.who,
            owner="me@here",
            environment={"TOKEN": "x"},
            detach=detach,
            run_id=RUN,
        )

    def resume_group(self, life: Life | None = None) -> JobDriver:
        """A second client, which knows the job's environment."""
        kit = self.tools if life is None else tools(self.cloud, self.folder, life)
        driver = adopt_job(self.view, self.book, kit, self.who, {"TOKEN": "x"})
        driver.drive()
        return driver

    @property
    def views(self) -> list[RunView]:
        """All runs, those of the first machine first."""
        return [load_run(self.book, run_id) for run_id in self.book.rows]

    def machines(self) -> list[FakeInstance]:
        """All of ours that ever were, in the order of their creation."""
        return [one for one in self.cloud.instances.values() if one.ours]

    def orders(self) -> list[JobOrder]:
        """What the machines were told to run."""
        jobs = [one.guest.job for one in self.machines() if one.guest is not None]
        return [job.order for job in jobs if job is not None]

    def most_at_once(self) -> int:
        """Machines that lived at the same time."""
        changes = [(one.created_at, 1) for one in self.machines()]
        changes += [(one.terminated_at, -1) for one in self.machines() if one.terminated_at is not None]
        alive = most = 0
        for _, change in sorted(changes):
            alive += change
            most = max(most, alive)
        return most

    def check_group_over(self, what: str = "") -> None:
        """Closed, nothing left in the cloud, and never more machines than were asked for."""
        assert not self.cloud.alive(), what
        assert not self.cloud.past_lease(slack_seconds=60), what
        assert not [one for one in self.cloud.leftovers() if one.run_id in self.book.rows], what
        assert self.most_at_once() <= self.nodes, what
        for run_id in self.book.rows:
            assert len(self.cloud.instances_of(run_id)) <= 1, what
            assert load_run(self.book, run_id).state is RunState.CLOSED, what
        groups = {one.tags[TAG_GROUP] for one in self.machines()}
        assert groups <= set(self.book.rows), what
        assert self.cloud.foreign_untouched(), what
