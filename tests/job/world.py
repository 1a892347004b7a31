"""A cloud, a ledger and a person, for tests of the engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from costgpu.clock import ManualClock
from costgpu.errors import LedgerConflict, RunNotFound
from costgpu.job.adopt import adopt_job, collect_finished
from costgpu.job.drive.context import Services
from costgpu.job.drive.job import JobDriver
from costgpu.job.files.selection import FileSelection
from costgpu.job.find_run import load_run
from costgpu.job.launch import launch
from costgpu.job.reap import end_orphans, find_orphans
from costgpu.job.state.attempts import attempts_of_job
from costgpu.job.state.observer import Answer, NullObserver
from costgpu.models.instance import Identity
from costgpu.models.job import FileEntry, JobOrder, LogStream, Recovery
from costgpu.models.offer import Accelerator
from costgpu.models.reap import ReapFindings
from costgpu.models.run import EventKind, Plan, RunEvent, RunState, RunView
from costgpu.providers.base import TAG_GROUP
from tests.fake_cloud import FakeCloud, JobScript, MachineScript
from tests.fake_cloud.instance import FakeInstance
from tests.fake_cloud.script import PROGRESS
from tests.job.examples import START, option, spec

JOB = JobScript(
    setup_seconds=5,
    seconds=600,
    stdout=[(1, b"one\n"), (599, b"two\n")],
    stderr=[(2, b"oops\n")],
    outputs={"model.pt": b"weights"},
    checkpoint={"model.pt": b"half"},
)
SAVING = JobScript(seconds=1000, saves=100, stdout=[(1, b"one\n")], outputs={"model.pt": b"weights", PROGRESS: b"all"})
MACHINE = MachineScript(pending_seconds=2.0, boot_seconds=3.0)
RUN = "r1"
ENVIRONMENT = {"TOKEN": "x"}
RECOVERS = Recovery(most=5, checkpoints=(PROGRESS,), resume_args=("--resume", "{latest}"))
LOOK_SECONDS = 20.0  # how often the cloud looks for machines to take back


class MemoryBook:
    """A ledger that outlives its clients."""

    def __init__(self) -> None:
        self.rows: dict[str, list[RunEvent]] = {}

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        if admit is not None:
            admit()
        rows = self.rows.setdefault(event.run_id, [])
        if event.sequence != len(rows):
            raise LedgerConflict(f"{event.run_id} {event.sequence}")
        rows.append(event)

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        return tuple(self.rows.get(run_id, ()))

    def open_runs(self) -> tuple[str, ...]:
        return tuple(run_id for run_id, rows in self.rows.items() if rows[-1].kind.value != "closed")

    def recent_runs(self, limit: int = 50) -> tuple[str, ...]:
        return tuple(reversed(self.rows))[:limit]

    def resolve(self, text: str) -> tuple[str, ...]:
        return tuple(run_id for run_id in self.rows if run_id.startswith(text))


def tools(cloud: FakeCloud, folder: Path) -> Services:
    """Everything of a client's that talks to the outside."""
    return Services(
        provider=lambda name: cloud.provider(),
        connect=cloud.connect,
        clock=cloud.clock,
        folder=folder / "runs",
        select=selection,
        allow_from=lambda name: "192.0.2.1/32",
    )


def selection(view: RunView) -> FileSelection:
    return FileSelection(root=Path(view.spec.workdir), files=(FileEntry(path="train.py", size=5, sha256="0" * 64),))


def plan(
    workdir: Path,
    *,
    max_cost: str = "2.00",
    regions: tuple[str, ...] = ("us-east-1", "us-west-2"),
    spot: bool = False,
    gpu: Accelerator | None = None,
    **changes: Any,
) -> Plan:
    options = [option(region, max_cost=max_cost, spot=spot) for region in regions]
    return Plan(
        spec=spec(str(workdir), **changes),
        options=tuple(replace(each, offer=replace(each.offer, accelerator=gpu)) for each in options),
        prediction=None,
        verdict="",
        identity=Identity(provider="fake", account="000000000000", principal="me"),
        layers=(),
        files=1,
        bytes=5,
        left_out={},
        price_as_of=START.date(),
    )


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
    """A cloud, a ledger, a person: all that outlives a client.

    Args:
        nodes: Machines that the person's job has at a time.
        takes_back: Seconds after which the cloud takes back machines, one after the other; those after them stay.
    """

    def __init__(
        self,
        folder: Path,
        script: JobScript = JOB,
        machine: MachineScript = MACHINE,
        *,
        book: MemoryBook | None = None,
        nodes: int = 1,
        takes_back: Sequence[float] = (),
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
        (self.work / "train.py").write_text("train")
        self.who = Watcher()
        self.tools = tools(self.cloud, folder)
        self.nodes = nodes
        self._takes_back = list(takes_back)
        self._taken: set[str] = set()
        if takes_back:
            self._take_back()

    def _take_back(self) -> None:
        for instance in self.cloud.alive():
            instance_id = instance.ref.instance_id
            if instance_id not in self._taken and self._takes_back:
                self._taken.add(instance_id)
                self.cloud.preempt(instance_id, after=self._takes_back.pop(0))
        self.cloud.schedule(LOOK_SECONDS, self._take_back)

    def launch(
        self,
        *,
        kit: Services | None = None,
        book: Any = None,
        observer: Any = None,
        run_id: str = RUN,
        detach: bool = False,
        **changes: Any,
    ) -> JobDriver:
        return launch(
            plan(self.work, nodes=self.nodes, **changes),
            book or self.book,
            kit or self.tools,
            observer or self.who,
            owner="me@here",
            environment=ENVIRONMENT,
            detach=detach,
            run_id=run_id,
        )

    def reap(self) -> ReapFindings:
        """What cron does, in a new process."""

        def known(run_id: str) -> RunView | None:
            try:
                return load_run(self.book, run_id)
            except RunNotFound:
                return None

        collect_finished(self.book, self.tools, NullObserver())
        found = find_orphans([self.cloud.provider()], None, self.clock.now(), known)
        end_orphans(found, self.tools.provider, self.clock)
        return found

    def resume(self, secrets: dict[str, str] | None = None) -> JobDriver:
        """Another client goes on with the job."""
        driver = adopt_job(self.view, self.book, self.tools, self.who, secrets)
        driver.drive()
        return driver

    @property
    def view(self) -> RunView:
        """The first machine's run of the newest attempt."""
        return self.attempts()[-1]

    def attempts(self) -> tuple[RunView, ...]:
        """Their first machines' runs."""
        return tuple(each[0] for each in attempts_of_job(self.book, load_run(self.book, RUN)))

    @property
    def views(self) -> list[RunView]:
        """All runs, those of the first attempt first."""
        return [load_run(self.book, run_id) for run_id in self.book.rows]

    @property
    def machine_id(self) -> str:
        return self.machines()[0].ref.instance_id

    def machines(self) -> list[FakeInstance]:
        """All of ours that ever were, in the order of their creation."""
        return [one for one in self.cloud.instances.values() if one.ours]

    def orders(self) -> list[JobOrder]:
        """What the machines were told to run."""
        jobs = [one.guest.job for one in self.machines() if one.guest is not None]
        return [job.order for job in jobs if job is not None]

    def creations(self) -> list[tuple[str, str | None]]:
        return [
            (event.data["token"], event.data["zone"])
            for event in self.book.rows[RUN]
            if event.kind is EventKind.ATTEMPTED
        ]

    def most_at_once(self) -> int:
        """Machines that lived at the same time."""
        changes = [(one.created_at, 1) for one in self.machines()]
        changes += [(one.terminated_at, -1) for one in self.machines() if one.terminated_at is not None]
        alive = most = 0
        for _, change in sorted(changes):
            alive += change
            most = max(most, alive)
        return most

    def check_over(self, what: str = "") -> None:
        """Closed, nothing of it is left in the cloud, and there were never more machines than were asked for."""
        if not self.cloud.power_off_stops:  # else its disk outlives the lease
            assert not self.cloud.past_lease(slack_seconds=60), what
        assert not self.cloud.alive(), what
        assert not [one for one in self.cloud.leftovers() if one.run_id in self.book.rows], what
        assert self.most_at_once() <= self.nodes, what
        assert {one.tags[TAG_GROUP] for one in self.machines() if TAG_GROUP in one.tags} <= set(self.book.rows), what
        assert self.cloud.foreign_untouched(), what
        for view in self.views:
            machines = [one for one in self.cloud.instances_of(view.run_id) if one.refusal is None]
            assert len(machines) <= 1, what
            assert view.state is RunState.CLOSED, what

    def during(self, seconds: float, happens: Callable[[], None]) -> None:
        """Lets something happen so long after the job's first line."""

        def heard(_: bytes) -> None:
            self.who.on_output = lambda data: None
            self.cloud.schedule(seconds, happens)

        self.who.on_output = heard


def press() -> None:
    raise KeyboardInterrupt
