"""The engine against the fake cloud: one thing goes wrong at a time, and the machine is ended all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.errors import (
    AuthError,
    BootFailed,
    CapTooSmall,
    CostGpuError,
    HostKeyMismatch,
    InstanceLost,
    LedgerDamaged,
    LedgerError,
    MachineUnusable,
    NoCapacity,
    OutputsDamaged,
    OutputsMissing,
    Preempted,
    ProviderError,
    QuotaExceeded,
    RunCancelled,
    RunError,
    SyncRefused,
    TerminationUnconfirmed,
    Throttled,
    Unreachable,
)
from costgpu.job import EndedBy, EndReason, EventKind, Instance, RunEvent, RunState, Stream
from costgpu.providers.fake import FakeCloud, JobScript, MachineScript
from costgpu.providers.fake.script import NEVER
from costgpu.run import RunView
from costgpu.runner.engine import Detached, Driver, Hangup, Tools
from costgpu.runner.host import Selection
from costgpu.runner.observer import Answer
from costgpu.runner.outcome import error_for
from costgpu.runner.service import collect_finished, driver_for, launch, load
from tests.runner.mortal import Life, MemoryBook, Mortal, plan, tools

JOB = JobScript(
    setup_seconds=5, seconds=600, stdout=[(1, b"one\n"), (599, b"two\n")], stderr=[(2, b"oops\n")],
    outputs={"model.pt": b"weights"}, checkpoint={"model.pt": b"half"},
)  # fmt: skip
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
    heard: dict[Stream, bytes] = field(default_factory=lambda: {Stream.STDOUT: b"", Stream.STDERR: b""})
    on_output: Callable[[bytes], None] = lambda data: None

    def changed(self, view: RunView) -> None:
        self.states.append(view.state)
        if pressed := self.at.pop(view.state, None):
            raise pressed

    def waiting(self, view: RunView, what: str) -> None:
        assert what

    def output(self, stream: Stream, data: bytes) -> None:
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

    def launch(self, *, detach: bool = False, kit: Tools | None = None, book: Any = None, **changes: Any) -> Driver:
        return launch(
            plan(self.work, **changes), book or self.book, kit or self.tools, self.who, owner="me@here",
            environment={"TOKEN": "x"}, detach=detach, run_id=RUN,
        )  # fmt: skip

    def resume(self, secrets: dict[str, str] | None = None) -> Driver:
        driver = driver_for(self.view, self.book, self.tools, self.who, secrets)
        driver.drive()
        return driver

    @property
    def view(self) -> RunView:
        return load(self.book, RUN)

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


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def press() -> None:
    raise KeyboardInterrupt


class TestProvisioning:
    def test_zones_first_then_regions_each_with_a_token_of_its_own(self, world: World) -> None:
        world.cloud.no_capacity(region="us-east-1")
        world.cloud.no_capacity(zone="us-west-2a")
        driver = world.launch()
        assert world.creations() == [
            ("r1-1", "us-east-1a"), ("r1-2", "us-east-1b"), ("r1-3", "us-east-1c"), ("r1-4", "us-west-2a"),
            ("r1-5", "us-west-2b"),
        ]  # fmt: skip
        assert driver.error is None
        assert world.cloud.instances_of(RUN)[0].zone == "us-west-2b"
        assert len([note for note in world.who.notes if "has no" in note]) == 4
        world.check_over()

    def test_no_capacity_anywhere(self, world: World) -> None:
        world.cloud.no_capacity()
        driver = world.launch()
        assert isinstance(driver.error, NoCapacity)
        assert "any of 6 places" in driver.error.message
        assert driver.error.hint
        assert world.view.reason is EndReason.NO_CAPACITY
        assert world.view.receipt is not None
        assert world.view.receipt.instance is None
        world.check_over()

    @pytest.mark.parametrize(
        "error",
        [
            QuotaExceeded("quota", hint="ask"), AuthError("denied", hint="log in"), ProviderError("on fire"),
        ],
    )  # fmt: skip
    def test_other_refusals_are_final_and_keep_their_name(self, world: World, error: ProviderError) -> None:
        world.cloud.faults.next("create", error=error)
        driver = world.launch()
        assert type(driver.error) is type(error)
        assert len(world.creations()) == 1
        assert world.view.reason is EndReason.PROVISION_FAILED
        world.check_over()

    def test_a_real_quota(self, world: World) -> None:
        world.cloud.quota_vcpus = 2
        driver = world.launch()
        assert isinstance(driver.error, QuotaExceeded)
        assert driver.error.hint
        assert not world.cloud.instances_of(RUN)

    def test_throttling_is_waited_out(self, world: World) -> None:
        world.cloud.faults.next("create", error=Throttled("slow down"), times=5)
        assert world.launch().error is None
        assert len(world.creations()) == 1

    def test_an_answer_that_is_lost_again_and_again_makes_one_machine_and_ends_it(self, world: World) -> None:
        world.cloud.faults.next("create", error=Unreachable("no answer"), after=True, times=1000)
        driver = world.launch()
        assert isinstance(driver.error, Unreachable)
        assert len(world.cloud.instances_of(RUN)) == 1
        world.check_over()

    def test_a_provider_that_never_answers(self, world: World) -> None:
        world.cloud.faults.next("create", error=Unreachable("no answer"), times=1000)
        driver = world.launch()
        assert isinstance(driver.error, Unreachable)
        assert not world.cloud.instances_of(RUN)
        assert "making sure" not in " ".join(world.who.notes)
        world.check_over()

    def test_credentials_that_expire_leave_the_machine_to_its_guards_and_come_back(self, world: World) -> None:
        world.cloud.credentials_expire_at = world.cloud.clock.now() + timedelta(seconds=3)
        with pytest.raises(AuthError) as caught:
            world.launch()
        assert f"costgpu attach {RUN}" in caught.value.hint
        assert world.view.state is RunState.BOOTING
        world.cloud.credentials_expire_at = None
        world.resume({"TOKEN": "x"})
        assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()


class TestBoot:
    @pytest.mark.parametrize("machine", [MachineScript(ssh=False), MachineScript(boots=False)])
    def test_a_machine_that_never_answers_shows_its_console(self, tmp_path: Path, machine: MachineScript) -> None:
        world = World(tmp_path, machine=machine)
        driver = world.launch()
        assert isinstance(driver.error, BootFailed)
        assert "did not answer within 10 min" in driver.error.message
        assert "kernel started" in driver.error.message
        assert world.view.reason is EndReason.BOOT_FAILED
        world.check_over()

    def test_another_host_key_is_believed_after_no_time_at_all(self, tmp_path: Path) -> None:
        world = World(tmp_path, machine=MachineScript(host_key_matches=False))
        driver = world.launch()
        assert isinstance(driver.error, HostKeyMismatch)
        assert "install" not in [call.method for call in world.cloud.calls]
        assert world.view.reason is EndReason.HOST_KEY_MISMATCH
        world.check_over()

    @pytest.mark.parametrize(("seconds", "accepted"), [(30.0, True), (60.0, False)])
    def test_an_image_may_show_its_own_key_until_its_boot_script_has_run(
        self, world: World, seconds: float, accepted: bool
    ) -> None:
        first: list[float] = []
        connect = world.tools.connect

        def guarded(instance: Instance, keys: Any) -> Any:
            host = connect(instance, keys)
            first.append(world.cloud.time())
            if world.cloud.time() - first[0] < seconds:
                raise HostKeyMismatch("The image's own key.")
            return host

        world.tools.connect = guarded
        driver = world.launch()
        assert (driver.error is None) is accepted
        world.check_over()

    def test_a_machine_that_somebody_ends_while_it_boots(self, tmp_path: Path) -> None:
        world = World(tmp_path, machine=MachineScript(boot_seconds=60))
        world.cloud.schedule(20, lambda: world.cloud.terminate_by_somebody(world.machine_id))
        driver = world.launch()
        assert isinstance(driver.error, InstanceLost)
        assert world.view.receipt is not None
        assert world.view.receipt.ended_by is EndedBy.SOMEBODY_ELSE
        world.check_over()

    def test_a_stopped_machine_is_terminated_for_its_disk(self, tmp_path: Path) -> None:
        world = World(tmp_path, machine=MachineScript(boot_seconds=60))
        world.cloud.schedule(20, lambda: world.cloud.stop_by_somebody(world.machine_id))
        driver = world.launch()
        assert isinstance(driver.error, InstanceLost)
        assert "stopped" in driver.error.message
        assert world.cloud.instances_of(RUN)[0].terminate_calls == 1
        world.check_over()


class TestSync:
    def test_an_image_without_python(self, tmp_path: Path) -> None:
        world = World(tmp_path, machine=MachineScript(python=False))
        driver = world.launch()
        assert isinstance(driver.error, MachineUnusable)
        assert world.view.reason is EndReason.MACHINE_UNUSABLE
        world.check_over()

    @pytest.mark.parametrize("error", [SyncRefused("too large"), OSError(13, "Permission denied")])
    def test_files_that_cannot_be_sent(self, world: World, error: Exception) -> None:
        def refuse(view: RunView) -> Selection:
            raise error

        world.tools.select = refuse
        driver = world.launch()
        assert isinstance(driver.error, RunError)
        assert str(error) in driver.error.message
        assert world.view.reason is EndReason.SYNC_FAILED
        world.check_over()

    def test_variables_that_only_a_dead_client_knew(self, world: World) -> None:
        world.who.at[RunState.SYNCING] = SystemError("the client dies")
        with pytest.raises(SystemError):
            world.launch(env_names=("TOKEN",))
        driver = world.resume(None)
        assert isinstance(driver.error, RunCancelled)
        assert "TOKEN" in driver.error.message
        assert world.view.reason is EndReason.UNCLAIMED
        world.check_over()

    def test_variables_that_the_next_client_has_too(self, world: World) -> None:
        world.who.at[RunState.SYNCING] = SystemError("the client dies")
        with pytest.raises(SystemError):
            world.launch(env_names=("TOKEN",))
        assert world.resume({"TOKEN": "x"}).error is None
        world.check_over()


class TestRunning:
    def test_both_streams_arrive_whole_and_apart(self, world: World) -> None:
        world.launch()
        assert world.who.heard == {Stream.STDOUT: b"one\ntwo\n", Stream.STDERR: b"oops\n"}

    def test_a_lost_connection_costs_no_output(self, world: World) -> None:
        world.during(100, lambda: world.cloud.cut_network(200))
        assert world.launch().error is None
        assert world.who.heard[Stream.STDOUT] == b"one\ntwo\n"
        world.check_over()

    @pytest.mark.parametrize("code", [0, 3])
    def test_the_jobs_end_is_the_runs(self, tmp_path: Path, code: int) -> None:
        world = World(tmp_path, JobScript(seconds=5, exit_code=code, outputs={"a": b"1"}))
        driver = world.launch()
        assert driver.error is None
        assert error_for(driver.view) is None
        assert driver.view.status is not None
        assert driver.view.status.exit_code == code
        assert (world.work / "a").exists()
        world.check_over()

    def test_preempted_is_not_lost(self, world: World) -> None:
        world.during(100, lambda: world.cloud.preempt(world.machine_id))
        driver = world.launch()
        assert isinstance(driver.error, Preempted)
        assert driver.view.reason is EndReason.PREEMPTED
        assert driver.view.receipt is not None
        assert driver.view.receipt.ended_by is EndedBy.PROVIDER
        world.check_over()

    def test_lost_is_not_preempted(self, world: World) -> None:
        world.during(100, lambda: world.cloud.terminate_by_somebody(world.machine_id))
        driver = world.launch()
        assert type(driver.error) is InstanceLost
        assert driver.view.reason is EndReason.INSTANCE_LOST
        assert driver.view.receipt is not None
        assert driver.view.receipt.ended_by is EndedBy.SOMEBODY_ELSE
        assert driver.view.receipt.requested_at is None
        world.check_over()

    def test_a_machine_that_somebody_stops_is_terminated(self, world: World) -> None:
        world.during(100, lambda: world.cloud.stop_by_somebody(world.machine_id))
        driver = world.launch()
        assert isinstance(driver.error, InstanceLost)
        assert world.cloud.instances_of(RUN)[0].terminate_calls == 1
        world.check_over()

    def test_the_deadline(self, tmp_path: Path) -> None:
        world = World(tmp_path, JobScript(seconds=NEVER, checkpoint={"c": b"1"}))
        driver = world.launch(max_cost="0.50")
        assert driver.view.reason is EndReason.DEADLINE
        assert (world.work / "c").exists()
        assert not world.cloud.past_lease()
        world.check_over()

    def test_a_detached_run_is_left_when_its_job_runs_and_not_before(self, world: World) -> None:
        with pytest.raises(Detached):
            world.launch(detach=True)
        assert world.view.state is RunState.RUNNING
        assert world.view.detached
        assert world.who.heard[Stream.STDOUT] == b""
        world.resume()
        assert world.who.heard[Stream.STDOUT] == b"one\ntwo\n"
        world.check_over()


class TestCollecting:
    def test_what_cannot_be_written_at_home_keeps_the_machine_and_says_so(self, world: World) -> None:
        def in_the_way() -> None:
            world.work.rmdir()
            world.work.write_text("in the way")

        world.during(1, in_the_way)
        with pytest.raises(RunError) as caught:
            world.launch()
        assert str(world.work) in caught.value.message
        assert f"costgpu fetch {RUN}" in caught.value.hint
        assert "UTC, when it is ended" in caught.value.hint
        assert world.view.state is RunState.COLLECTING
        assert world.view.detached
        assert len(world.cloud.alive()) == 1
        world.work.unlink()
        assert world.resume().error is None
        assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()

    def test_logs_that_cannot_be_written_keep_it_too(self, world: World) -> None:
        logs = world.tools.folder / RUN / "stdout.log"
        world.during(1, logs.mkdir)
        with pytest.raises(RunError) as caught:
            world.launch()
        assert f"costgpu fetch {RUN}" in caught.value.hint
        assert len(world.cloud.alive()) == 1
        logs.rmdir()
        world.resume()
        world.check_over()

    def test_a_file_that_arrives_damaged_keeps_it_too(self, world: World) -> None:
        world.cloud.damage_transfers("model.pt", times=1)
        with pytest.raises(OutputsDamaged):
            world.launch()
        assert len(world.cloud.alive()) == 1
        world.resume()
        assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()

    def test_outputs_that_are_not_there_are_an_error_and_the_others_come_home(self, world: World) -> None:
        driver = world.launch(outputs=("model.pt", "log.csv"))
        assert isinstance(driver.error, OutputsMissing)
        assert "log.csv" in driver.error.message
        assert (world.work / "model.pt").exists()
        world.check_over()

    def test_without_auto_shutdown_the_machine_stays_until_its_lease(self, world: World) -> None:
        with pytest.raises(Detached):
            world.launch(auto_shutdown=False)
        assert (world.work / "model.pt").exists()
        (instance,) = world.cloud.alive()
        lease = world.view.lease_until
        assert lease is not None
        world.cloud.clock.sleep((lease - world.cloud.clock.now()).total_seconds() - 10)
        assert world.cloud.alive()
        world.cloud.clock.sleep(80)
        assert not world.cloud.alive()
        assert not world.cloud.past_lease(slack_seconds=60)
        assert collect_finished(world.book, world.tools, world.who) == [RUN]
        assert world.view.receipt is not None
        assert world.view.receipt.ended_by in (EndedBy.AGENT, EndedBy.WATCHDOG)
        assert instance.terminate_calls <= 1
        world.check_over()

    def test_without_auto_shutdown_it_can_still_be_cancelled(self, world: World) -> None:
        with pytest.raises(Detached):
            world.launch(auto_shutdown=False)
        driver_for(world.view, world.book, world.tools, world.who, None).cancel()
        world.check_over()


class TestTerminating:
    @pytest.mark.parametrize("error", [AuthError("denied"), ProviderError("protected"), Unreachable("no answer")])
    def test_a_refused_end_is_loud_and_names_the_machine(self, world: World, error: ProviderError) -> None:
        world.cloud.faults.next("terminate", error=error, times=1000)
        with pytest.raises(TerminationUnconfirmed) as caught:
            world.launch()
        assert world.machine_id in caught.value.message
        assert f"costgpu cancel {world.machine_id}" in caught.value.hint
        assert world.view.state is RunState.TERMINATING
        assert (world.work / "model.pt").exists()
        world.cloud.faults.clear()
        world.resume()
        world.check_over()

    def test_an_end_that_never_comes_is_no_success(self, world: World) -> None:
        world.cloud.terminating_seconds = NEVER
        with pytest.raises(TerminationUnconfirmed) as caught:
            world.launch()
        assert "terminating" in caught.value.message
        assert world.view.state is RunState.TERMINATING
        world.cloud.unstick()
        world.resume()
        world.check_over()


STATES = [
    RunState.INTENT, RunState.PROVISIONING, RunState.BOOTING, RunState.SYNCING, RunState.RUNNING, RunState.COLLECTING,
    RunState.TERMINATING,
]  # fmt: skip
CAN_LEAVE = (RunState.RUNNING, RunState.COLLECTING)


class TestInterrupts:
    @pytest.mark.parametrize("state", STATES[1:])
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

    @pytest.mark.parametrize("state", STATES[1:])
    def test_ctrl_c_and_going_on(self, world: World, state: RunState) -> None:
        world.who.at[state] = KeyboardInterrupt()
        world.who.answers = [Answer.CONTINUE]
        driver = world.launch()
        assert driver.error is None
        assert (world.work / "model.pt").read_bytes() == b"weights"
        assert world.who.heard[Stream.STDOUT] == b"one\ntwo\n"
        world.check_over()

    @pytest.mark.parametrize("state", STATES[1:])
    def test_ctrl_c_and_detach_where_the_run_can_do_without(self, world: World, state: RunState) -> None:
        world.who.at[state] = KeyboardInterrupt()
        world.who.answers = [Answer.DETACH]
        if state in CAN_LEAVE:
            with pytest.raises(Detached):
                world.launch()
            assert world.view.state is state
            assert len(world.cloud.alive()) == 1
            world.resume()
        else:
            world.launch()
        assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()

    @pytest.mark.parametrize("state", STATES[1:])
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
            raise Hangup(1) if hangs_up else KeyboardInterrupt

        world.who.on_output = interrupt
        world.who.answers = [Answer.CONTINUE]
        if hangs_up:
            with pytest.raises(Detached):
                world.launch()
            world.resume()
            return
        world.launch()
        assert world.who.heard[Stream.STDOUT] == b"one\ntwo\n"  # counted before it was shown: nothing twice
        world.check_over()

    @pytest.mark.parametrize("state", STATES[1:])
    def test_a_hang_up(self, world: World, state: RunState) -> None:
        world.who.at[state] = Hangup(15)
        if state in CAN_LEAVE:
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
        world.who.at = {RunState.RUNNING: KeyboardInterrupt(), RunState.COLLECTING: Hangup(1)}
        world.launch()
        assert (world.work / "model.pt").read_bytes() == b"half"
        world.check_over()

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, Hangup])
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
                    assert kind is Hangup, what
                    assert world.view.state in CAN_LEAVE, what
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
        for state in STATES[1:-1]:
            world = World(tmp_path / state)
            second: list[RunView] = []

            def cancel(world: World = world, second: list[RunView] = second) -> None:
                driver = driver_for(world.view, world.book, tools(world.cloud, world.folder), Watcher(), None)
                second.append(driver.cancel())

            at = Elsewhere(world.who, state, cancel)
            launch(
                plan(world.work), world.book, world.tools, at, owner="me", environment={}, run_id=RUN,
            )  # fmt: skip
            assert second[0].state is RunState.CLOSED, state
            world.check_over()

    def test_what_the_user_wants_holds_whatever_was_written_meanwhile(self, world: World) -> None:
        """Ctrl-C, cancel, and just then somebody else appends."""
        book = Meddled(world.book, None, EventKind.NOTED)

        def meddle() -> None:
            book.at = len(world.book.rows[RUN])

        world.who.at[RunState.BOOTING] = KeyboardInterrupt()
        at = Elsewhere(world.who, RunState.BOOTING, meddle)
        driver = launch(plan(world.work), book, world.tools, at, owner="me", environment={}, run_id=RUN)
        assert book.meddled
        assert isinstance(driver.error, RunCancelled)
        world.check_over()


class Meddled(MemoryBook):
    """A ledger in which somebody else is faster, once."""

    def __init__(self, book: MemoryBook, at: int | None, kind: EventKind) -> None:
        super().__init__()
        self.rows, self.at, self.kind, self.meddled = book.rows, at, kind, False

    def append(self, event: RunEvent) -> None:
        if event.sequence == self.at and not self.meddled:
            self.meddled = True
            data = {"reason": "cancelled", "by": "client"} if self.kind is EventKind.ENDING else {}
            other = RunEvent(run_id=event.run_id, sequence=event.sequence, at=event.at, kind=self.kind, data=data)
            with contextlib.suppress(CostGpuError):
                load(self, RUN)
                legal = MemoryBook()
                legal.rows[RUN] = [*self.rows[RUN], other]
                load(legal, RUN)
                super().append(other)
        super().append(event)


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
    """A ledger that works until an event, and then never again."""

    def __init__(self, breaks_at: int, *, reads: bool) -> None:
        super().__init__()
        self.breaks_at, self.reads, self.broken = breaks_at, reads, False

    def append(self, event: RunEvent) -> None:
        self.broken = self.broken or event.sequence >= self.breaks_at
        if self.broken:
            raise LedgerError("The disk is full.")
        super().append(event)

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        if self.broken and not self.reads:
            raise LedgerDamaged("The disk is gone.")
        return super().events(run_id)


class TestBrokenLedger:
    @pytest.mark.parametrize("reads", [True, False])
    def test_before_every_event(self, tmp_path: Path, reads: bool) -> None:
        whole = World(tmp_path / "whole")
        whole.launch()
        kinds = [event.kind for event in whole.book.rows[RUN]]
        for sequence, kind in enumerate(kinds):
            world = World(tmp_path / f"{sequence}")
            book = Broken(sequence, reads=reads)
            if kind in (EventKind.INTENDED, EventKind.ATTEMPTED):
                with pytest.raises(LedgerError):
                    world.launch(book=book)
                assert not world.cloud.instances_of(RUN)
                continue
            driver = world.launch(book=book)
            assert driver.record.broken is not None, kind
            assert driver.view.state is RunState.CLOSED, kind
            assert (world.work / "model.pt").read_bytes() == b"weights", kind
            assert not world.cloud.alive(), kind

    def test_a_ledger_that_breaks_while_nothing_is_written(self, tmp_path: Path) -> None:
        """The driver looks again now and then whether somebody else has written."""
        world = World(tmp_path, machine=MachineScript(boot_seconds=60))
        book = Broken(1000, reads=False)

        def breaks() -> None:
            book.broken = True

        world.cloud.schedule(20, breaks)
        driver = world.launch(book=book)
        assert driver.record.broken is not None
        assert not world.cloud.alive()
        assert (world.work / "model.pt").read_bytes() == b"weights"


@contextlib.contextmanager
def somewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("world")


@settings(max_examples=6, deadline=None)
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
    tmp_path_factory: pytest.TempPathFactory, cap: Decimal, boot: float, setup: float, seconds: float, sigterm: float,
    terminating: float, agent: bool, cut: float | None,
) -> None:  # fmt: skip
    """What is metered never exceeds the cap by more than one billing minute, whatever takes how long."""
    script = JobScript(setup_seconds=setup, seconds=seconds, sigterm_seconds=sigterm, outputs={"a": b"1"})
    with somewhere(tmp_path_factory) as folder:
        world = World(folder, script, MachineScript(boot_seconds=boot))
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
