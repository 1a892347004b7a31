"""The engine and what people and computers do to it: Ctrl-C at every call, two drivers, a ledger that fails, caps."""

import contextlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import CapTooSmall, CostGpuError, LedgerDamaged, LedgerError, RunCancelled
from costgpu.job.adopt import adopt_job, collect_finished
from costgpu.job.drive.context import CAN_DETACH, Detached
from costgpu.job.drive.machine import StopSignal
from costgpu.job.find_run import load_run
from costgpu.job.launch import launch
from costgpu.job.state.observer import Answer
from costgpu.models.job import LogStream
from costgpu.models.run import EventKind, RunEvent, RunState, RunView
from tests.fake_cloud import JobScript, MachineScript
from tests.fake_cloud.script import NEVER
from tests.job.mortal import Life, MemoryBook, Mortal, plan, tools
from tests.job.world import RUN, Watcher, World, press
from tests.properties import examples

STATES = [state for state in RunState if state not in (RunState.INTENT, RunState.CLOSED)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestInterrupts:
    @pytest.mark.parametrize("state", STATES)
    def test_ctrl_c_and_cancel(self, world: World, state: RunState) -> None:
        world.who.at[state] = KeyboardInterrupt()
        driver = world.launch()
        asked = [] if state is RunState.TERMINATING else [state]
        assert world.who.asked == asked
        assert isinstance(driver.error, RunCancelled) is bool(asked)
        if state is RunState.RUNNING:
            assert (world.work / "model.pt").read_bytes() == b"half"
            assert any("has 30 s" in note for note in world.who.notes)
        if state is RunState.COLLECTING:
            assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()

    @pytest.mark.parametrize("state", STATES)
    def test_ctrl_c_and_going_on(self, world: World, state: RunState) -> None:
        world.who.at[state] = KeyboardInterrupt()
        world.who.answers = [Answer.CONTINUE]
        driver = world.launch()
        assert driver.error is None
        assert (world.work / "model.pt").read_bytes() == b"weights"
        assert world.who.heard[LogStream.STDOUT] == b"one\ntwo\n"
        world.check_over()

    @pytest.mark.parametrize("state", STATES)
    def test_ctrl_c_and_detach_where_the_run_can_do_without(self, world: World, state: RunState) -> None:
        world.who.at[state] = KeyboardInterrupt()
        world.who.answers = [Answer.DETACH]
        if state in CAN_DETACH:
            with pytest.raises(Detached):
                world.launch()
            assert world.view.state is state
            assert len(world.cloud.alive()) == 1
            world.resume()
        else:
            world.launch()
        assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()

    @pytest.mark.parametrize("state", STATES)
    def test_ctrl_c_twice(self, world: World, state: RunState) -> None:
        world.who.at[state] = KeyboardInterrupt()
        world.who.answers = [KeyboardInterrupt()]
        driver = world.launch()
        assert isinstance(driver.error, RunCancelled) is (state is not RunState.TERMINATING)
        world.check_over()

    def test_cancelling_again_does_not_wait_for_the_job(self, tmp_path: Path) -> None:
        world = World(tmp_path, JobScript(seconds=NEVER, sigterm_seconds=NEVER))
        world.who.at[RunState.RUNNING] = KeyboardInterrupt()
        world.cloud.schedule(30, press)
        started = world.cloud.time()
        world.launch(grace_seconds=600.0)
        assert len(world.who.asked) == 2
        assert world.cloud.time() - started < 60
        world.check_over()

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

    @pytest.mark.parametrize("state", STATES)
    def test_a_hang_up(self, world: World, state: RunState) -> None:
        world.who.at[state] = StopSignal(15)
        if state in CAN_DETACH:
            with pytest.raises(Detached):
                world.launch()
            assert world.view.state is state
            assert world.view.detached
            assert len(world.cloud.alive()) == 1
            world.resume()
            assert (world.work / "model.pt").read_bytes() == b"weights"
        else:
            driver = world.launch()
            assert isinstance(driver.error, RunCancelled) is (state is not RunState.TERMINATING)
        world.check_over()

    def test_a_hang_up_after_cancelling_does_not_leave_a_machine(self, world: World) -> None:
        world.who.at = {RunState.RUNNING: KeyboardInterrupt(), RunState.COLLECTING: StopSignal(1)}
        world.launch()
        assert (world.work / "model.pt").read_bytes() == b"half"
        world.check_over()

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, StopSignal])
    @pytest.mark.parametrize("again_after", [None, 2])
    def test_at_every_call(
        self, tmp_path: Path, kind: type[BaseException], again_after: int | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whatever is going on, nothing but a run that was left on purpose keeps its machine."""
        calls, left = calls_of(World(tmp_path / "whole"), Presses(kind, set())), 0
        numbers = [
            number for number, call in enumerate(calls, 1) if calls[:number].count(call) <= 6
        ]  # many only repeat
        for number in numbers:
            for after in (False, True):
                world = World(tmp_path / f"{number}{after}")
                at = {number} if again_after is None else {number, number + again_after}
                what = f"{kind.__name__} {'after' if after else 'before'} calls {at}"
                try:
                    calls_of(world, Presses(kind, at, after=after))
                except Detached:
                    assert kind is StopSignal, what
                    assert world.view.state in CAN_DETACH, what
                    assert world.view.detached, what
                    left += 1
                    world.resume()
                    assert (world.work / "model.pt").read_bytes() == b"weights", what
                except kind:
                    assert not world.book.rows or world.view.state is RunState.INTENT, what  # before it has begun
                    assert not world.cloud.instances_of(RUN), what
                    continue
                assert world.view.state is RunState.CLOSED, what
                world.check_over()
        with capsys.disabled():
            print(f"\n  {kind.__name__} at each of {len(numbers)} calls: 0 machines left, {left} runs left on purpose")


class Presses(Life):
    """Ctrl-C or a hang-up at some of a client's calls."""

    def __init__(self, kind: type[BaseException], at: set[int], *, after: bool = False) -> None:
        super().__init__(after=after)
        self.kind, self.at = kind, at

    def call(self, what: str, carry_out: Callable[[], Any]) -> Any:
        self.calls.append(what)
        if len(self.calls) in self.at:
            if self.after:
                carry_out()
            raise self.kind
        return carry_out()


def calls_of(world: World, life: Life) -> list[str]:
    """Everything that a client calls, the clock included."""
    clock: Any = Mortal(world.cloud.clock, life, "clock", free=("now", "monotonic"))
    world.launch(kit=tools(world.cloud, world.folder, life, clock), book=Mortal(world.book, life, "ledger"))
    return life.calls


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


@examples(24)
@given(
    cap=st.decimals("0.02", "20", places=2),
    boot=st.sampled_from([1.0, 60.0, 500.0, NEVER]),
    setup=st.sampled_from([0.0, 300.0, 5000.0]),
    seconds=st.sampled_from([1.0, 1000.0, 40000.0, NEVER]),
    sigterm=st.sampled_from([1.0, 20.0, NEVER]),
    terminating=st.sampled_from([0.0, 40.0, 300.0]),
    agent=st.booleans(),
    cut=st.sampled_from([None, 0.0, 400.0]),
)
def test_the_cap_holds(
    tmp_path_factory: pytest.TempPathFactory,
    cap: Decimal,
    boot: float,
    setup: float,
    seconds: float,
    sigterm: float,
    terminating: float,
    agent: bool,
    cut: float | None,
) -> None:
    """What is metered never exceeds the cap by more than one billing minute, whatever takes how long."""
    script = JobScript(setup_seconds=setup, seconds=seconds, sigterm_seconds=sigterm, outputs={"a": b"1"})
    world = World(tmp_path_factory.mktemp("world"), script, MachineScript(boot_seconds=boot))
    world.cloud.terminating_seconds = terminating
    world.cloud.agent_works = agent
    if cut is not None:
        world.cloud.cut_network(after=cut)
    try:
        work = plan(world.work, max_cost=str(cap), setup="make")
    except CapTooSmall:
        return
    with contextlib.suppress(CostGpuError):
        launch(work, world.book, world.tools, world.who, owner="me", environment={}, run_id=RUN)
    for _ in range(4):
        world.cloud.clock.sleep(900)
        collect_finished(world.book, world.tools, world.who)
    view = world.view
    assert view.state is RunState.CLOSED
    price = Decimal(1)
    (instance,) = world.cloud.instances_of(RUN)
    billed = Decimal(max(60.0, world.cloud.billing_seconds(instance.ref.instance_id))) * price / 3600
    assert billed <= cap + price / 60
    assert view.receipt is not None
    assert view.receipt.metered_cost_usd >= billed - price / 60
    assert not world.cloud.alive()
