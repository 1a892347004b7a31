"""A job on several machines: all of them or none, together to the end."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.errors import (
    DriverFailed,
    InstanceLost,
    LedgerDamaged,
    RefusedHere,
    TerminationUnconfirmed,
    Unreachable,
)
from costgpu.job.drive.context import Detached
from costgpu.job.find_run import load_run
from costgpu.job.state.outcome import exit_code
from costgpu.models.job import EndReason, LogStream
from costgpu.models.offer import Accelerator
from costgpu.models.run import RunEvent, RunState
from costgpu.providers.base import TAG_RUN
from costgpu.render.text.receipt import receipts_text
from costgpu.workflows.runs.cancel import cancel
from tests.fake_cloud import JobScript, MachineScript
from tests.fake_cloud.provider import FakeProvider
from tests.fake_cloud.script import NEVER, PROGRESS
from tests.job.world import ENVIRONMENT, JOB, RECOVERS, SAVING, MemoryBook, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, nodes=2)


def test_the_whole_journey(world: World) -> None:
    driver = world.launch()
    first, second = world.machines()
    assert (first.zone, first.instance_type) == (second.zone, second.instance_type)
    one, other = world.orders()
    assert one.rendezvous is not None
    assert other.rendezvous is not None
    assert (one.rendezvous.node, other.rendezvous.node) == (0, 1)
    assert one.rendezvous.address == other.rendezvous.address == one.rendezvous.own_address
    assert other.rendezvous.own_address not in ("", one.rendezvous.address)
    assert (one.keep_outputs, other.keep_outputs) == (True, False)
    assert driver.error is None
    assert exit_code(driver.decisive) == 0
    assert world.who.heard[LogStream.STDOUT] == b"one\ntwo\n"  # of machine 0
    assert (world.work / "model.pt").read_bytes() == b"weights"
    assert [view.reason for view in driver.views] == [EndReason.SUCCEEDED] * 2
    world.check_over()


def test_a_machine_that_is_long_in_ending_keeps_nobody_from_the_outputs(tmp_path: Path) -> None:
    script = JobScript(setup_seconds=20, seconds=300, stdout=[(1.0, b"hello\n")], outputs={"model.pt": b"weights"})
    world = World(tmp_path, script, nodes=2)
    world.cloud.terminating_seconds = 1200.0
    with pytest.raises(TerminationUnconfirmed):
        world.launch()
    assert (world.work / "model.pt").read_bytes() == b"weights"
    ended = [world.cloud.billing_seconds(one.ref.instance_id) for one in world.machines()]
    assert max(ended) < script.seconds + 120, "the other one is asked to end at once"


@pytest.mark.parametrize("unheard", [False, True])
def test_a_damaged_record_of_one_machine_does_not_keep_others_from_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unheard: bool
) -> None:
    """Nor does one whose end the provider does not confirm."""
    world = World(tmp_path, replace(JOB, seconds=5000.0), nodes=3)
    with pytest.raises(Detached):
        world.launch(detach=True)
    first, second, third = world.views
    read = MemoryBook.events

    def events(book: MemoryBook, run_id: str) -> tuple[RunEvent, ...]:
        if run_id == second.run_id:
            raise LedgerDamaged("It cannot be read.")
        return read(book, run_id)

    monkeypatch.setattr(MemoryBook, "events", events)
    context: Any = SimpleNamespace(ledger=world.book, tools=world.tools)
    if unheard:
        machine = world.machines()[0].ref.instance_id
        world.cloud.faults.next("terminate", error=Unreachable("no answer"), subject=machine, times=1000)
    with pytest.raises(TerminationUnconfirmed if unheard else LedgerDamaged) as caught:
        cancel(context, first, world.who)
    assert (f"costgpu cancel {second.run_id}" in caught.value.hint) is not unheard
    ended = [third] if unheard else [first, third]
    for view in ended:
        closed = load_run(world.book, view.run_id)
        assert (closed.state, closed.reason) == (RunState.CLOSED, EndReason.CANCELLED)
    assert second.run_id in {one.tags[TAG_RUN] for one in world.cloud.alive()}


@pytest.mark.parametrize("number", [0, 1])
def test_a_machine_that_ends_while_it_is_launched_leaves_the_place_for_the_next(world: World, number: int) -> None:
    dies = MachineScript(refusal=RefusedHere("an error while it was launched"))
    world.cloud.machines += [MachineScript()] * number + [dies]
    driver = world.launch()
    assert driver.error is None
    assert [one.zone for one in world.machines()][-2:] == ["us-east-1b"] * 2
    assert (world.work / "model.pt").read_bytes() == b"weights"
    world.check_over()


def test_a_refusal_of_the_type_is_told_when_no_place_is_left(world: World) -> None:
    refusal = RefusedHere("Placement is not supported for this type.", hint="Use another type.")

    def second(method: str, subject: str) -> None:
        if method == "create" and subject.startswith(tuple(view.run_id for view in world.views[1::2])):
            world.cloud.faults.next("create", error=refusal, subject=subject)

    world.cloud.faults.on_call = second
    driver = world.launch()
    assert isinstance(driver.error, RefusedHere)
    assert refusal.message in driver.error.message
    assert driver.error.hint == refusal.hint
    world.check_over()


def test_a_zone_that_the_provider_chose_is_not_asked_for_by_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    named = FakeProvider.zones
    monkeypatch.setattr(FakeProvider, "zones", lambda provider, offer: (None, *named(provider, offer)))
    world.cloud.no_capacity(region="us-east-1", zone="us-east-1a", skip=1)
    driver = world.launch()
    assert driver.error is None
    assert [one.zone for one in world.machines()] == ["us-east-1a", "us-east-1b", "us-east-1b"]
    assert world.views[2].refusals == ()
    world.check_over()


def test_gpus_of_one_machine_that_do_not_answer_end_all(world: World) -> None:
    def second_has_none() -> None:
        world.cloud.machine = replace(world.cloud.machine, driver_seconds=NEVER)

    world.cloud.faults.on_call = lambda method, subject: second_has_none() if len(world.machines()) == 1 else None
    driver = world.launch(gpu=Accelerator(name="T4", count=1, memory_gib=16))
    assert isinstance(driver.error, DriverFailed)
    assert not world.orders()
    assert "send" not in [call.method for call in world.cloud.calls], "no machine, before all have their GPUs"
    assert any("has GPUs that do not answer; the others are ended" in note for note in world.who.notes)
    world.check_over()


def taken_back_for_good(tmp_path: Path) -> World:
    """A job that may not go on when machine 1 is taken back, while machine 0 has newer outputs than the folder here."""
    world = World(tmp_path, SAVING, nodes=2)
    (world.work / PROGRESS).write_text("stale")
    world.during(300, lambda: world.cloud.preempt(world.machines()[1].ref.instance_id))
    return world


def test_outputs_come_home_from_the_machine_that_is_left_if_nothing_follows(tmp_path: Path) -> None:
    world = taken_back_for_good(tmp_path)
    driver = world.launch(spot=True, recovery=RECOVERS, max_duration_seconds=310.0)
    assert len(driver.views) == 2
    assert float((world.work / PROGRESS).read_bytes()) > 250
    assert [path.read_text() for path in (world.work / ".costgpu/replaced").rglob(PROGRESS)] == ["stale"]
    assert driver.view.outputs_home
    world.check_over()


def test_what_was_kept_for_an_attempt_that_could_not_be_recorded_comes_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costgpu.job.drive.receipt.record_next_attempt", lambda *_: False)
    world = taken_back_for_good(tmp_path)
    driver = world.launch(spot=True, recovery=RECOVERS)
    assert len(driver.views) == 2
    assert not driver.view.outputs_home  # they were kept for the next attempt
    assert float((world.work / PROGRESS).read_bytes()) > 250
    assert [path.read_text() for path in (world.work / ".costgpu/replaced").rglob(PROGRESS)] == ["stale"]
    world.check_over()


def test_what_cannot_be_kept_for_the_next_attempt_comes_home_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("costgpu.job.files.checkpoint_store.CheckpointStore.keep", full)
    world = taken_back_for_good(tmp_path)
    driver = world.launch(spot=True, recovery=RECOVERS)
    assert len(driver.views) == 4  # it goes on, from its beginning
    assert (world.work / PROGRESS).read_bytes() == b"all"
    replaced = [path.read_text() for path in (world.work / ".costgpu/replaced").rglob(f"{PROGRESS}*")]
    assert len(replaced) == 2
    assert "stale" in replaced
    assert max(float(text) for text in replaced if text != "stale") > 250  # what the first attempt had made
    world.check_over()


def test_torchrun_goes_on_without_one_if_it_was_asked_to(world: World) -> None:
    world.during(100, lambda: world.cloud.preempt(world.machines()[1].ref.instance_id))
    driver = world.launch(spot=True, min_nodes=1)
    assert (world.work / "model.pt").read_bytes() == b"weights"
    assert any("torchrun goes on with 1" in note for note in world.who.notes)
    assert driver.error is None
    assert exit_code(driver.decisive) == 0
    assert driver.view.reason is EndReason.SUCCEEDED
    world.check_over()


def test_machine_0_cannot_be_gone_without(world: World) -> None:
    world.during(100, lambda: world.cloud.terminate_by_somebody(world.machines()[0].ref.instance_id))
    driver = world.launch(min_nodes=1)
    assert isinstance(driver.error, InstanceLost)
    world.check_over()


# -- trouble ---------------------------------------------------------------------------------------------------------


def machine(world: World, number: int) -> str:
    return world.machines()[number].ref.instance_id


def test_a_machine_that_hangs_does_not_hold_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, replace(JOB, seconds=6000), nodes=2)

    def hangs() -> None:
        world.cloud.cut_network(instance_id=machine(world, 1))
        guest = world.machines()[0].guest
        assert guest is not None
        guest._finish(world.cloud.time(), EndReason.JOB_FAILED, 3, {"model.pt": b"half"})

    world.during(100, hangs)
    driver = world.launch()
    assert (world.work / "model.pt").read_bytes() == b"half"
    assert isinstance(driver.error, InstanceLost)
    assert "did not answer for 10 min" in driver.error.message
    assert max(world.cloud.billing_seconds(machine(world, number)) for number in (0, 1)) < 100 + 600 + 200
    world.check_over()


def test_a_machine_with_outputs_that_is_out_of_reach_is_waited_for(tmp_path: Path) -> None:
    """The job has ended well on the other one: as far as anybody knows, it is done here, too."""
    world = World(tmp_path, replace(JOB, seconds=900), nodes=2)

    def out_of_reach() -> None:
        world.cloud.cut_network(3000, instance_id=machine(world, 0))
        guest = world.machines()[1].guest
        assert guest is not None
        guest._finish(world.cloud.time(), EndReason.SUCCEEDED, 0, {})

    world.during(100, out_of_reach)
    assert world.launch().error is None
    assert (world.work / "model.pt").read_bytes() == b"weights"
    world.check_over()


def test_slow_downloads_are_no_reason_to_miss_what_nobody_wants(world: World) -> None:
    world.cloud.faults.next("fetch_file", delay_seconds=400.0)
    driver = world.launch()
    assert driver.error is None
    assert exit_code(driver.decisive) == 0
    world.check_over()


def test_a_machine_whose_console_says_nothing_has_ended_by_itself(world: World) -> None:
    with pytest.raises(Detached):
        world.launch(detach=True)
    world.clock.sleep(JOB.seconds + 300)
    world.cloud.faults.next("console", error=Unreachable("no console"), times=100)
    driver = world.resume(ENVIRONMENT)
    assert driver.error is None
    assert exit_code(driver.decisive) == 0
    assert (world.work / "model.pt").read_bytes() == b"weights"
    world.check_over()


def test_an_outage_after_the_first_machine_is_told_with_its_name(world: World) -> None:
    def outage(method: str, _subject: str) -> None:
        if len(world.machines()) == 1:
            raise Unreachable("no answer")

    world.cloud.faults.on_call = outage
    with pytest.raises(TerminationUnconfirmed) as told:
        world.launch()
    assert machine(world, 0) in told.value.message
    world.cloud.faults.on_call = None
    world.reap()
    world.check_over()


def test_an_elastic_job_may_finish_on_one_machine_after_the_other(tmp_path: Path) -> None:
    world = World(tmp_path, replace(JOB, seconds=5000.0), nodes=3)

    def third_is_lost() -> None:
        world.cloud.terminate_by_somebody(machine(world, 2))
        world.cloud.schedule(60, second_is_done)

    def second_is_done() -> None:
        guest = world.machines()[1].guest
        assert guest is not None
        guest._finish(world.cloud.time(), EndReason.SUCCEEDED, 0, {})

    world.during(100, third_is_lost)
    driver = world.launch(min_nodes=2)
    assert driver.error is None
    assert exit_code(driver.decisive) == 0
    assert (world.work / "model.pt").read_bytes() == b"weights"
    world.check_over()


@pytest.mark.parametrize("nodes", [1, 2])
def test_machines_are_looked_for_until_there_are_some(tmp_path: Path, nodes: int) -> None:
    world = World(tmp_path, nodes=nodes)
    for region in ("us-east-1", "us-west-2"):
        world.cloud.no_capacity(region=region, times=12)
    driver = world.launch(retry_until_up=True)
    assert driver.error is None
    assert len(driver.views) == nodes  # however often they were looked for
    assert driver.view.spec.attempt is not None
    assert driver.view.spec.attempt.searches > 3
    assert any("A machine is there" in note for note in world.who.notes)
    assert receipts_text(driver.views).count("Receipt") == nodes
    assert not world.cloud.alive()
