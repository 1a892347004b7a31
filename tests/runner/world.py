"""A cloud, a ledger and a person, for tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costgpu.clock import ManualClock
from costgpu.models.job import LogStream
from costgpu.models.run import EventKind, RunState, RunView
from costgpu.runner.adopt import adopt
from costgpu.runner.drive.context import Services
from costgpu.runner.drive.loop import Driver
from costgpu.runner.find_run import load_run
from costgpu.runner.launch import launch
from costgpu.runner.state.observer import Answer
from tests.fake_cloud import FakeCloud, JobScript, MachineScript
from tests.runner.mortal import MemoryBook, plan, tools

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
    """A cloud, a ledger, a person."""

    def __init__(self, folder: Path, script: JobScript = JOB, machine: MachineScript = MACHINE) -> None:
        self.cloud = FakeCloud(ManualClock(), script=script, machine=machine)
        self.cloud.terminating_seconds = 2.0
        self.cloud.leaves_rules = True
        self.cloud.add_foreign()
        self.book = MemoryBook()
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.who = Watcher()
        self.tools = tools(self.cloud, folder)

    def launch(self, *, detach: bool = False, kit: Services | None = None, book: Any = None, **changes: Any) -> Driver:
        return launch(
            plan(self.work, **changes),
            book or self.book,
            kit or self.tools,
            self.who,
            owner="me@here",
            environment={"TOKEN": "x"},
            detach=detach,
            run_id=RUN,
        )

    def resume(self, secrets: dict[str, str] | None = None) -> Driver:
        driver = adopt(self.view, self.book, self.tools, self.who, secrets)
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

    def check_over(self) -> None:
        """Closed, and nothing of it is left in the cloud."""
        assert self.view.state is RunState.CLOSED
        assert not self.cloud.alive()
        assert not self.cloud.leftovers(RUN)
        assert len(self.cloud.instances_of(RUN)) <= 1
        assert self.cloud.foreign_untouched()

    def during(self, seconds: float, happens: Callable[[], None]) -> None:
        """Lets something happen so long after the job's first line."""

        def heard(_: bytes) -> None:
            self.who.on_output = lambda data: None
            self.cloud.schedule(seconds, happens)

        self.who.on_output = heard


def press() -> None:
    raise KeyboardInterrupt
