"""The engine against the fake cloud: one thing goes wrong at a time, and the machine is ended all the same.

One file of more than 400 lines: the faults share one fake cloud, and are read beside each other.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import (
    AuthError,
    BootFailed,
    CostGpuError,
    DriverFailed,
    HostKeyMismatch,
    HostUnreachable,
    InstanceLost,
    LimitReached,
    NoCapacity,
    OutputsMissing,
    Preempted,
    ProviderError,
    QuotaExceeded,
    RefusedHere,
    RunCancelled,
    RunError,
    Throttled,
    Unreachable,
)
from costgpu.job.adopt import adopt_job
from costgpu.job.files.selection import FileSelection
from costgpu.job.state.outcome import error_for
from costgpu.models.job import EndReason, LogStream
from costgpu.models.offer import Accelerator, Offer
from costgpu.models.run import EndedBy, EventKind, RunState, RunView
from costgpu.providers import registry
from tests.fake_cloud import SPEC, FakeProvider, JobScript, MachineScript
from tests.fake_cloud.script import NEVER
from tests.job.world import RUN, Watcher, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


R = EndReason
Act = Callable[[World], object]


def fails(method: str, error: Exception, **how: Any) -> Act:
    return lambda world: world.cloud.faults.next(method, error=error, **how)


def cloud(**facts: Any) -> Act:
    return lambda world: vars(world.cloud).update(facts)


def machine(**facts: Any) -> Act:
    return cloud(machine=MachineScript(**facts))


def unsendable(error: Exception) -> Act:
    def refuse(view: RunView) -> FileSelection:
        raise error

    return lambda world: setattr(world.tools, "select", refuse)


def running(what: str) -> Act:
    return lambda world: world.during(100, lambda: getattr(world.cloud, what)(world.machine_id))


def booting(what: str) -> Act:
    def arrange(world: World) -> None:
        machine(boot_seconds=60)(world)
        world.cloud.schedule(20, lambda: getattr(world.cloud, what)(world.machine_id))

    return arrange


SILENT, CONSOLE = Unreachable("no answer"), "kernel started"
# Who has ended the machine, how many there were, and how often they were asked to end.
NOTHING, BY_US, BY_OTHERS = (EndedBy.NOTHING_CREATED, 0, 0), (EndedBy.CLIENT, 1, 1), (EndedBy.SOMEBODY_ELSE, 1, 0)
LOST = (EndedBy.NOTHING_CREATED, 1, 0)  # ended while it was being launched: nothing of it is the run's
# What goes wrong -> how the run ends: the error and a part of its message, the reason, the machine.
TROUBLES: dict[str, tuple[Act, type[CostGpuError], str, EndReason, tuple[EndedBy, int, int]]] = {
    "refused there": (
        fails("create", RefusedHere("not here"), times=6),
        RefusedHere,
        "not here",
        R.NO_CAPACITY,
        NOTHING,
    ),
    "a full disk quota": (
        machine(refusal=QuotaExceeded("volumes")),
        QuotaExceeded,
        "volumes",
        R.PROVISION_FAILED,
        LOST,
    ),
    "a quota": (fails("create", QuotaExceeded("quota")), QuotaExceeded, "quota", R.PROVISION_FAILED, NOTHING),
    "credentials": (fails("create", AuthError("denied")), AuthError, "denied", R.PROVISION_FAILED, NOTHING),
    "a refusal": (fails("create", ProviderError("on fire")), ProviderError, "on fire", R.PROVISION_FAILED, NOTHING),
    "never an answer": (fails("create", SILENT, times=999), Unreachable, "", R.PROVISION_FAILED, NOTHING),
    "answers lost": (fails("create", SILENT, after=True, times=999), Unreachable, "", R.PROVISION_FAILED, BY_US),
    "a console": (machine(ssh=False), BootFailed, CONSOLE, R.BOOT_FAILED, BY_US),
    "no boot": (machine(boots=False), BootFailed, CONSOLE, R.BOOT_FAILED, BY_US),
    "another host key": (machine(host_key_matches=False), HostKeyMismatch, "", R.HOST_KEY_MISMATCH, BY_US),
    "not readable": (unsendable(OSError(13, "not yours")), RunError, "not yours", R.SYNC_FAILED, BY_US),
    "ended early": (booting("terminate_by_somebody"), InstanceLost, "", R.INSTANCE_LOST, BY_OTHERS),
    "stopped early": (booting("stop_by_somebody"), InstanceLost, "stopped", R.INSTANCE_LOST, BY_US),  # for its disk
    "stopped": (running("stop_by_somebody"), InstanceLost, "", R.INSTANCE_LOST, BY_US),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_machine_is_ended_and_the_person_told(world: World, trouble: str) -> None:
    arrange, error, says, reason, (by, count, asked) = TROUBLES[trouble]
    arrange(world)
    driver = world.launch()
    assert driver.error is not None
    assert (type(driver.error), says in driver.error.message) == (error, True)
    receipt = world.view.receipt
    assert receipt is not None
    has_machine = by is not EndedBy.NOTHING_CREATED
    assert (world.view.reason, receipt.ended_by, receipt.instance is not None) == (reason, by, has_machine)
    assert receipt.requested_at is None or by is not EndedBy.SOMEBODY_ELSE
    machines = world.cloud.instances_of(RUN)
    assert (len(machines), sum(each.terminate_calls for each in machines)) == (count, asked)
    assert len(world.creations()) == (6 if reason is R.NO_CAPACITY else 1)
    if error is HostKeyMismatch:
        assert "install" not in [call.method for call in world.cloud.calls], "it is believed after no time at all"
    world.check_over()


@pytest.mark.parametrize(("shown", "patience"), [(30.0, 45.0), (60.0, 45.0), (300.0, 600.0)])
def test_the_key_of_the_image_is_waited_for_until_the_boot_script_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: float, patience: float
) -> None:
    world = World(tmp_path, JobScript(outputs={"model.pt": b"weights"}), MachineScript(image_key_seconds=shown))
    monkeypatch.setattr(registry, "spec", lambda _: replace(SPEC, host_key_seconds=patience))
    driver = world.launch()
    assert (driver.error is None) is (patience > shown)
    assert (world.work / "model.pt").exists() is (patience > shown)
    assert isinstance(driver.error, HostKeyMismatch) is not (patience > shown)
    world.check_over()


class TestDriver:
    V100 = Accelerator(name="V100", count=8, memory_gib=16)

    @staticmethod
    def calls(world: World, *names: str) -> list[str]:
        return [call.method for call in world.cloud.calls if call.method in names]

    @staticmethod
    def waited(world: World) -> timedelta:
        at = {event.kind: event.at for event in world.book.rows[RUN]}
        return at[EventKind.ENDING] - at[EventKind.REACHED]

    def test_a_driver_that_is_late_is_waited_for(self, world: World) -> None:
        machine(driver_seconds=80)(world)
        assert world.launch(gpu=self.V100).error is None
        assert len(self.calls(world, "driver")) > 10
        world.check_over()

    def test_one_that_is_there_is_asked_once(self, world: World) -> None:
        assert world.launch(gpu=self.V100).error is None
        assert self.calls(world, "driver", "send") == ["driver", "send"]

    @pytest.mark.parametrize("gpu", [None, Accelerator(name="MI100", count=1, memory_gib=8)])  # none, and AMD's
    def test_without_a_gpu_of_nvidia_nobody_asks(self, world: World, gpu: Accelerator | None) -> None:
        machine(driver_seconds=NEVER)(world)
        assert world.launch(gpu=gpu).error is None
        assert self.calls(world, "driver") == []

    def test_a_cancellation_by_another_process_is_heard_meanwhile(self, world: World) -> None:
        machine(driver_seconds=NEVER)(world)
        other, began = Watcher(), world.clock.now()

        def cancelled() -> None:
            adopt_job(world.view, world.book, world.tools, other, None).attempt.cancel()

        world.cloud.schedule(60, cancelled)
        world.launch(gpu=self.V100)
        assert world.view.reason is R.CANCELLED
        assert world.clock.now() - began < timedelta(seconds=75)
        world.check_over()

    @pytest.mark.parametrize("times", [20, 10**6])
    def test_a_lost_connection_does_not_prolong_it(self, world: World, times: int) -> None:
        machine(driver_seconds=NEVER)(world)
        world.cloud.faults.next("driver", error=HostUnreachable("reset"), times=times)
        assert type(world.launch(gpu=self.V100).error) is DriverFailed
        assert self.waited(world) < timedelta(minutes=2)


class TestProvisioning:
    def test_zones_first_then_regions_each_with_a_token_of_its_own(self, world: World) -> None:
        world.cloud.no_capacity(region="us-east-1")
        world.cloud.no_capacity(zone="us-west-2a")
        driver = world.launch()
        assert world.creations() == [
            ("r1-1", "us-east-1a"),
            ("r1-2", "us-east-1b"),
            ("r1-3", "us-east-1c"),
            ("r1-4", "us-west-2a"),
            ("r1-5", "us-west-2b"),
        ]
        assert driver.error is None
        assert world.cloud.instances_of(RUN)[0].zone == "us-west-2b"
        assert len([note for note in world.who.notes if "has no" in note]) == 4
        world.check_over()

    @pytest.mark.parametrize("refusal", [RefusedHere("an error while it was launched"), NoCapacity("none is free")])
    def test_a_machine_that_ends_while_it_is_launched_is_a_refusal(self, world: World, refusal: ProviderError) -> None:
        world.cloud.machines.append(MachineScript(refusal=refusal))
        driver = world.launch()
        assert driver.error is None
        first, second = world.cloud.instances_of(RUN)
        assert (first.zone, second.zone, first.terminate_calls) == ("us-east-1a", "us-east-1b", 0)
        assert [message for _, _, message in world.view.refusals] == [refusal.message]
        receipt = world.view.receipt
        assert receipt is not None
        assert receipt.instance == second.ref
        assert receipt.metered_seconds <= world.cloud.billing_seconds(second.ref.instance_id) + 3
        assert (world.work / "model.pt").read_bytes() == b"weights"
        world.check_over()

    def test_a_later_client_without_the_environment_asks_for_no_further_machine(self, world: World) -> None:
        """The one that knew it was killed while its machine booted, and the provider then ended that one."""
        world.cloud.machines.append(MachineScript(pending_seconds=60, refusal=NoCapacity("none is free")))
        world.who.at[RunState.BOOTING] = SystemError("the client dies")
        with pytest.raises(SystemError):
            world.launch(env_names=("TOKEN",))
        world.cloud.clock.sleep(100)
        driver = world.resume()
        assert isinstance(driver.error, RunCancelled)
        assert "TOKEN" in driver.error.message
        assert len(world.cloud.instances_of(RUN)) == 1
        world.check_over()

    def test_a_run_of_the_queue_waits_for_a_client_with_its_environment(self, world: World) -> None:
        world.cloud.machines.append(MachineScript(pending_seconds=60, refusal=NoCapacity("none is free")))
        world.who.at[RunState.BOOTING] = SystemError("the client dies")
        with pytest.raises(SystemError):
            world.launch(env_names=("TOKEN",), queued=True)
        world.cloud.clock.sleep(100)
        with pytest.raises(RunCancelled, match="TOKEN"):
            world.resume()
        assert world.view.waits
        assert len(world.cloud.instances_of(RUN)) == 1
        assert not world.cloud.alive()

    def test_ctrl_c_while_a_run_of_the_queue_looks_for_a_place_is_heard(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def zones(provider: FakeProvider, offer: Offer) -> tuple[str | None, ...]:
            if world.view.refusals and not world.who.asked:
                raise KeyboardInterrupt
            return named(provider, offer)

        named = FakeProvider.zones
        monkeypatch.setattr(FakeProvider, "zones", zones)
        world.cloud.no_capacity(region="us-east-1", times=1)
        driver = world.launch(queued=True)
        assert isinstance(driver.error, RunCancelled)
        assert world.who.asked == [RunState.INTENT]
        assert not world.cloud.instances_of(RUN)

    def test_a_place_that_refuses_to_tell_its_zones_is_passed_over(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def zones(provider: FakeProvider, offer: Offer) -> tuple[str | None, ...]:
            if offer.region == "us-east-1":
                raise RefusedHere("The type is not known there.")
            return named(provider, offer)

        named = FakeProvider.zones
        monkeypatch.setattr(FakeProvider, "zones", zones)
        assert world.launch().error is None
        assert world.cloud.instances_of(RUN)[0].zone == "us-west-2a"
        assert "The type is not known there." in world.who.notes

    def test_throttling_is_waited_out(self, world: World) -> None:
        world.cloud.faults.next("create", error=Throttled("slow down"), times=5)
        assert world.launch().error is None
        assert len(world.creations()) == 1

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


class TestRunning:
    def test_both_streams_arrive_whole_and_apart(self, world: World) -> None:
        world.launch()
        assert world.who.heard == {LogStream.STDOUT: b"one\ntwo\n", LogStream.STDERR: b"oops\n"}

    def test_a_lost_connection_costs_no_output(self, world: World) -> None:
        world.during(100, lambda: world.cloud.cut_network(200))
        assert world.launch().error is None
        assert world.who.heard[LogStream.STDOUT] == b"one\ntwo\n"
        world.check_over()

    @pytest.mark.parametrize(("code", "by_shutdown"), [(0, False), (143, False), (0, True)])
    def test_a_job_that_is_told_to_stop_has_not_ended_well_whatever_it_calls_it(
        self, tmp_path: Path, code: int, by_shutdown: bool
    ) -> None:
        """The machine is taken back, with its outputs, before they came home: that is what the person is told."""
        world = World(tmp_path, JobScript(seconds=NEVER, sigterm_exit_code=code, checkpoint={"c": b"1"}))
        if by_shutdown:
            world.cloud.schedule(90, lambda: world.cloud.shut_down_job(world.machine_id))
        world.cloud.schedule(100, lambda: world.cloud.preempt(world.machine_id, after=120))
        world.cloud.faults.next("outputs", delay_seconds=300, error=HostUnreachable("It is gone."))
        driver = world.launch(spot=True)
        assert driver.view.status is not None
        assert (driver.view.status.exit_code, driver.view.collected) == (code, False)
        assert type(driver.error or error_for(driver.view)) is Preempted
        assert f"{world.machine_id} was ended before its outputs came home." in world.who.notes
        world.check_over()

    def test_the_deadline_in_the_middle_of_the_installation(self, world: World) -> None:
        world.cloud.faults.next("install", delay_seconds=7200, error=HostUnreachable("The machine ended the command."))
        assert isinstance(world.launch(max_cost="0.50").error, LimitReached)
        assert world.view.reason is EndReason.DEADLINE
        world.check_over()


class TestCollecting:
    def test_what_cannot_be_written_at_home_keeps_the_machine_and_says_so(self, world: World) -> None:
        def in_the_way() -> None:
            world.work.rename(world.folder / "moved")
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

    def test_what_cannot_be_read_there_keeps_it_and_the_others_come_home(self, tmp_path: Path) -> None:
        locked = {"logs/": "Permission denied"}
        world = World(tmp_path, JobScript(outputs={"model.pt": b"weights"}, unreadable=locked))
        with pytest.raises(OutputsMissing) as caught:
            world.launch()
        assert "logs/ (Permission denied)" in caught.value.message
        assert caught.value.hint.startswith("All others are home.")
        assert f"costgpu fetch {RUN}" in caught.value.hint
        assert (world.work / "model.pt").read_bytes() == b"weights"
        assert not world.view.collected
        assert len(world.cloud.alive()) == 1
        locked.clear()
        assert world.resume().error is None
        world.check_over()

    def test_a_job_that_worked_and_made_nothing_keeps_it_until_somebody_gives_up(self, tmp_path: Path) -> None:
        world = World(tmp_path, JobScript(seconds=600))
        with pytest.raises(OutputsMissing, match="600 s and has left no outputs") as caught:
            world.launch()
        assert caught.value.hint.startswith("--outputs none says")
        assert f"costgpu cancel --now {RUN}" in caught.value.hint
        assert len(world.cloud.alive()) == 1
        with pytest.raises(OutputsMissing):
            world.resume()
        assert not world.view.collected

    def test_a_job_from_which_nothing_is_expected_ends(self, tmp_path: Path) -> None:
        world = World(tmp_path, JobScript(seconds=600, outputs={"model.pt": b"weights"}))
        assert world.launch(outputs=("none",)).error is None
        assert "No outputs are brought home (--outputs none)." in world.who.notes
        assert not (world.work / "model.pt").exists()
        world.check_over()
