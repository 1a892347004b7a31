"""A cloud, a ledger and a person, for tests of the engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costgpu.clock import ManualClock
from costgpu.errors import RunNotFound
from costgpu.job.adopt import adopt_job, collect_finished
from costgpu.job.drive.context import Services
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import load_run
from costgpu.job.launch import launch
from costgpu.job.reap import end_orphans, find_orphans
from costgpu.job.state.observer import Answer, NullObserver
from costgpu.models.job import LogStream
from costgpu.models.reap import ReapFindings
from costgpu.models.run import EventKind, RunState, RunView
from tests.fake_cloud import FakeCloud, JobScript, MachineScript
from tests.job.mortal import Life, MemoryBook, Mortal, plan, tools

JOB = JobScript(
    setup_seconds=5,
    seconds=600,
    stdout=[(1, b"one\n"), (599, b"two\n")],
    stderr=[(2, b"oops\n")],
    outputs={"model.pt": b"weights"},
    checkpoint={"model.pt": b"half"},
)
MACHINE = MachineScript(pending_seconds=2.0, boot_seconds=3.0)
RUN = "r1"


@dataclass
class Watcher:
    """An observer that remembers, and presses keys.

    Attributes:
        answers: To Ctrl-C, one after the other; then cancel. An exception is raised instead.
        at: State -> what to raise when it is reached.
    """

    answers: list[Answer | BaseException] = field(default_factory=list)
    at: dict[RunState, BaseException] = field(default_factory=dict)
    states: list[RunState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    asked: list[RunState] = field(default_factory=list)
    heard: dict[LogStream, bytes] = field(default_factory=lambda: {LogStream.STDOUT: b"", LogStream.STDERR: b""})
    on_output: Callable[[bytes], None] = lambda data: None

    def changed(self, view: RunView) -> None:
        self.states.append(view.state)
        if pressed := self.at.pop(view.state, None):
            raise pressed

    def waiting(self, view: RunView, what: str) -> None:
        assert what

    def output(self, stream: LogStream, data: bytes) -> None:
        self.heard[stream] += data
        self.on_output(data)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def interrupted(self, view: RunView) -> Answer:
        self.asked.append(view.state)
        answer = self.answers.pop(0) if self.answers else Answer.CANCEL
        if isinstance(answer, BaseException):
            raise answer
        return answer


class World:
    """A cloud, a ledger, a person: all that outlives a client."""

    def __init__(
        self, folder: Path, script: JobScript = JOB, machine: MachineScript = MACHINE, book: MemoryBook | None = None
    ) -> None:
        self.clock = ManualClock()
        self.cloud = FakeCloud(self.clock, script=script, machine=machine)
        self.cloud.terminating_seconds = 2.0
        self.cloud.leaves_rules = True
        self.cloud.add_foreign()
        self.cloud.add_foreign_resource("somebody")
        self.book = book or MemoryBook()
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.who = Watcher()
        self.tools = tools(self.cloud, folder)

    def launch(
        self,
        *,
        life: Life | None = None,
        kit: Services | None = None,
        book: Any = None,
        observer: Any = None,
        run_id: str = RUN,
        detach: bool = False,
        **changes: Any,
    ) -> JobDriver:
        """A client of its own if it has a life, which may end."""
        if life is not None:
            kit, book = tools(self.cloud, self.folder, life), Mortal(self.book, life, "ledger")
        return launch(
            plan(self.work, **changes),
            book or self.book,
            kit or self.tools,
            observer or self.who,
            owner="me@here",
            environment={"TOKEN": "x"},
            detach=detach,
            run_id=run_id,
        )

    def reap(self, life: Life | None = None) -> ReapFindings:
        """What cron does, in a new process."""
        kit = tools(self.cloud, self.folder, life)
        book = Mortal(self.book, life or Life(), "ledger")

        def known(run_id: str) -> RunView | None:
            try:
                return load_run(book, run_id)
            except RunNotFound:
                return None

        collect_finished(book, kit, NullObserver())
        found = find_orphans([kit.provider("fake")], None, self.clock.now(), known)
        end_orphans(found, kit.provider, self.clock)
        return found

    def resume(self, secrets: dict[str, str] | None = None) -> JobDriver:
        driver = adopt_job(self.view, self.book, self.tools, self.who, secrets)
        driver.drive()
        return driver

    @property
    def view(self) -> RunView:
        return load_run(self.book, RUN)

    @property
    def machine_id(self) -> str:
        return self.cloud.instances_of(RUN)[0].ref.instance_id

    def creations(self) -> list[tuple[str, str | None]]:
        return [
            (event.data["token"], event.data["zone"])
            for event in self.book.rows[RUN]
            if event.kind is EventKind.ATTEMPTED
        ]

    def check_over(self, what: str = "") -> None:
        """Closed, and nothing of it is left in the cloud."""
        if not self.cloud.power_off_stops:  # else its disk outlives the lease
            assert not self.cloud.past_lease(slack_seconds=60), what
        assert not self.cloud.alive(), what
        assert not self.cloud.leftovers(RUN), what
        assert len([one for one in self.cloud.instances_of(RUN) if one.refusal is None]) <= 1, what
        assert self.cloud.foreign_untouched(), what
        for run_id in self.book.rows:
            assert load_run(self.book, run_id).state is RunState.CLOSED, what

    def during(self, seconds: float, happens: Callable[[], None]) -> None:
        """Lets something happen so long after the job's first line."""

        def heard(_: bytes) -> None:
            self.who.on_output = lambda data: None
            self.cloud.schedule(seconds, happens)

        self.who.on_output = heard


def press() -> None:
    raise KeyboardInterrupt
