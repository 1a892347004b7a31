"""The engine and what people and computers do to it: Ctrl-C at every call, two drivers, a ledger that fails, caps."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import CostGpuError, LedgerDamaged, LedgerError, RunCancelled
from costgpu.job.adopt import adopt_job
from costgpu.job.drive.context import Detached
from costgpu.job.drive.machine import StopSignal
from costgpu.job.find_run import load_run
from costgpu.job.state.observer import Answer
from costgpu.models.job import LogStream
from costgpu.models.run import EventKind, RunEvent, RunState, RunView
from tests.fake_cloud import MachineScript
from tests.job.world import RUN, MemoryBook, Watcher, World, tools

STATES = [state for state in RunState if state not in (RunState.INTENT, RunState.CLOSED)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestInterrupts:
    @pytest.mark.parametrize("hangs_up", [False, True])
    def test_while_the_job_writes(self, world: World, hangs_up: bool) -> None:
        def interrupt(data: bytes) -> None:
            world.who.on_output = lambda data: None
            raise StopSignal(1) if hangs_up else KeyboardInterrupt

        world.who.on_output = interrupt
        world.who.answers = [Answer.CONTINUE]
        if hangs_up:
            with pytest.raises(Detached):
                world.launch()
            world.resume()
            return
        world.launch()
        assert world.who.heard[LogStream.STDOUT] == b"one\ntwo\n"  # counted before it was shown: nothing twice
        world.check_over()


class TestTwoDrivers:
    """The lock keeps two drivers of one computer apart; the ledger those of two computers."""

    @pytest.mark.parametrize("kind", [EventKind.NOTED, EventKind.ENDING])
    def test_somebody_else_writes_before_every_event(self, tmp_path: Path, kind: EventKind) -> None:
        whole = World(tmp_path / "whole")
        whole.launch()
        for sequence in range(1, len(whole.book.rows[RUN])):
            world = World(tmp_path / f"{sequence}")
            book = Meddled(world.book, sequence, kind)
            world.launch(book=book)
            assert book.meddled
            if kind is EventKind.NOTED:
                assert (world.work / "model.pt").read_bytes() == b"weights"
            world.check_over()

    def test_cancelled_from_another_computer_in_every_state(self, tmp_path: Path) -> None:
        for state in STATES[:-1]:
            world = World(tmp_path / state)
            second: list[RunView] = []

            def cancel(world: World = world, second: list[RunView] = second) -> None:
                driver = adopt_job(world.view, world.book, tools(world.cloud, world.folder), Watcher(), None)
                second.append(driver.cancel())

            at = Elsewhere(world.who, state, cancel)
            world.launch(observer=at)
            assert second[0].state is RunState.CLOSED, state
            world.check_over()

    def test_what_the_user_wants_holds_whatever_was_written_meanwhile(self, world: World) -> None:
        """Ctrl-C, cancel, and just then somebody else appends."""
        book = Meddled(world.book, None, EventKind.NOTED)

        def meddle() -> None:
            book.at = len(world.book.rows[RUN])

        world.who.at[RunState.BOOTING] = KeyboardInterrupt()
        at = Elsewhere(world.who, RunState.BOOTING, meddle)
        driver = world.launch(book=book, observer=at)
        assert book.meddled
        assert isinstance(driver.error, RunCancelled)
        world.check_over()


class Meddled(MemoryBook):
    """A ledger in which somebody else is faster, once."""

    def __init__(self, book: MemoryBook, at: int | None, kind: EventKind) -> None:
        super().__init__()
        self.rows, self.at, self.kind, self.meddled = book.rows, at, kind, False

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        if event.sequence == self.at and not self.meddled:
            self.meddled = True
            data = {"reason": "cancelled", "by": "client"} if self.kind is EventKind.ENDING else {}
            other = RunEvent(run_id=event.run_id, sequence=event.sequence, at=event.at, kind=self.kind, data=data)
            with contextlib.suppress(CostGpuError):
                load_run(self, RUN)
                legal = MemoryBook()
                legal.rows[RUN] = [*self.rows[RUN], other]
                load_run(legal, RUN)
                super().append(other)
        super().append(event, admit)


class Elsewhere:
    """Does something on another computer when a state is reached."""

    def __init__(self, who: Watcher, state: RunState, act: Callable[[], None]) -> None:
        self._who, self._state, self._act = who, state, act

    def changed(self, view: RunView) -> None:
        if view.state is self._state:
            self._state = RunState.CLOSED
            self._act()
        self._who.changed(view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._who, name)


class Broken(MemoryBook):
    """A ledger that works until an event, and then can never again be written, or read."""

    def __init__(self, breaks_at: int, *, writes: bool = False, reads: bool = False) -> None:
        super().__init__()
        self.breaks_at, self.writes, self.reads, self.broken = breaks_at, writes, reads, False

    def append(self, event: RunEvent, admit: Callable[[], None] | None = None, /) -> None:
        self.broken = self.broken or event.sequence >= self.breaks_at
        if self.broken and not self.writes:
            raise LedgerError("The disk is full.")
        super().append(event, admit)

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        if self.broken and not self.reads:
            raise LedgerDamaged("The disk is gone.")
        return super().events(run_id)


class TestBrokenLedger:
    @pytest.mark.parametrize("works", ["reads", "writes", None])
    def test_before_every_event(self, tmp_path: Path, works: str | None) -> None:
        whole = World(tmp_path / "whole")
        whole.launch()
        kinds = [event.kind for event in whole.book.rows[RUN]]
        for sequence, kind in enumerate(kinds):
            world = World(tmp_path / f"{sequence}")
            book = Broken(sequence, **{works: True} if works else {})
            if kind in (EventKind.INTENDED, EventKind.ATTEMPTED):
                with pytest.raises(LedgerError):
                    world.launch(book=book)
                assert not world.cloud.instances_of(RUN)
                continue
            driver = world.launch(book=book)
            assert driver.context.journal.ledger_error is not None or works == "writes", kind
            assert driver.view.state is RunState.CLOSED, kind
            assert (world.work / "model.pt").read_bytes() == b"weights", kind
            assert not world.cloud.alive(), kind
            assert not world.cloud.past_lease(slack_seconds=60), kind

    def test_without_a_ledger_no_second_place_is_tried(self, world: World) -> None:
        world.cloud.no_capacity(region="us-east-1")
        with pytest.raises(LedgerError):
            world.launch(book=Broken(2, reads=True))
        assert not world.cloud.instances_of(RUN)

    def test_a_ledger_that_breaks_while_nothing_is_written(self, tmp_path: Path) -> None:
        """The driver looks again now and then whether somebody else has written."""
        world = World(tmp_path, machine=MachineScript(boot_seconds=60))
        book = Broken(1000)

        def breaks() -> None:
            book.broken = True

        world.cloud.schedule(20, breaks)
        driver = world.launch(book=book)
        assert driver.context.journal.ledger_error is not None
        assert not world.cloud.alive()
        assert (world.work / "model.pt").read_bytes() == b"weights"
