"""A provider on which a machine that powers itself off is only stopped: whoever sees that must end it for its disk."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.errors import InstanceLost
from costgpu.job.adopt import adopt_job, collect_finished
from costgpu.job.agent import limits
from costgpu.job.agent.power import watchdog_delay
from costgpu.job.agent.state_files import Home
from costgpu.job.drive.collect import DownloadedOutputs
from costgpu.job.drive.context import Detached
from costgpu.job.drive.provision import create_request
from costgpu.job.machine.keys import make_keys
from costgpu.models.instance import InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, RunState
from costgpu.providers import registry
from tests.fake_cloud import JobScript
from tests.fake_cloud.provider import FakeProvider
from tests.fake_cloud.script import NEVER
from tests.job.examples import START, option, spec
from tests.job.world import RUN, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, JobScript(seconds=NEVER, stdout=[(1, b"one\n")], checkpoint={"c": b"1"}))
    made.cloud.power_off_stops = True
    return made


def away(world: World, seconds: float) -> None:
    """Nobody is there for a while."""
    with pytest.raises(Detached):
        world.launch(detach=True)
    world.cloud.clock.sleep(seconds)


def test_what_a_machine_says_last_tells_when_it_has_ended(world: World) -> None:
    """Where power-off terminates, and the provider does not say when that was."""
    world.cloud.power_off_stops, world.cloud.tells_end = False, False
    world.who.at[RunState.BOOTING] = SystemError("the client dies")
    with pytest.raises(SystemError):
        world.launch()
    world.cloud.clock.sleep(2000)
    (machine,) = world.cloud.instances_of(RUN)
    receipt = world.resume().view.receipt
    assert receipt is not None
    assert (receipt.reason, receipt.ended_by, receipt.metered_at_most) == (
        EndReason.UNCLAIMED,
        EndedBy.WATCHDOG,
        False,
    )
    assert machine.terminating_at is not None
    assert receipt.metered_seconds == pytest.approx(machine.terminating_at - machine.created_at, abs=5)


@pytest.mark.parametrize("wall", ["0", "99999999999", "99999999999999", "1e9", ""])
def test_a_time_on_the_console_that_cannot_be_is_not_believed(
    world: World, monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    """The job is root there and may write what it likes; a serial line may be garbled, and a clock wrong."""
    world.cloud.power_off_stops, world.cloud.tells_end = False, False
    said = f"costgpu: agent idle: powering off (wall {wall})"
    monkeypatch.setattr(FakeProvider, "console", lambda *_: said)
    away(world, 300)
    world.cloud.power_off(world.machine_id)
    world.cloud.clock.sleep(60)
    receipt = world.resume().view.receipt
    assert receipt is not None
    assert receipt.reason is EndReason.IDLE
    assert receipt.metered_at_most
    assert 300 < receipt.metered_seconds < 400
    world.check_over()


def test_while_the_client_looks_on(world: World) -> None:
    world.during(100, lambda: world.cloud.known(world.machine_id).switch_off(world.cloud.time(), EndedBy.AGENT))
    driver = world.launch()
    assert isinstance(driver.error, InstanceLost)
    assert "switched off by its guest" in driver.error.message
    assert driver.view.receipt is not None
    assert driver.view.receipt.ended_by is EndedBy.AGENT
    assert world.cloud.instances_of(RUN)[0].terminate_calls == 1
    world.check_over()


def test_stopped_by_hand_is_somebody_elses_doing(world: World) -> None:
    world.during(100, lambda: world.cloud.stop_by_somebody(world.machine_id))
    driver = world.launch()
    assert isinstance(driver.error, InstanceLost)
    assert "stopped by somebody" in driver.error.message
    assert driver.view.receipt is not None
    assert driver.view.receipt.ended_by is EndedBy.CLIENT
    world.check_over()


def stopped_with_outputs(tmp_path: Path) -> World:
    """A job has finished, its client has died before it fetched anything, and somebody has stopped the machine."""
    world = World(tmp_path)
    world.cloud.power_off_stops = True
    world.who.at[RunState.COLLECTING] = SystemError("the client dies")
    with pytest.raises(SystemError):
        world.launch()
    world.cloud.stop_by_somebody(world.machine_id)
    world.cloud.clock.sleep(30)
    return world


def test_outputs_on_the_disk_of_a_machine_that_somebody_stopped_are_kept(tmp_path: Path) -> None:
    world = stopped_with_outputs(tmp_path)
    (machine,) = world.cloud.instances_of(RUN)
    with pytest.raises(InstanceLost) as caught:
        world.resume()
    assert f"costgpu fetch {RUN}" in caught.value.hint
    assert f"costgpu cancel --now {RUN}" in caught.value.hint
    assert (machine.state, machine.terminate_calls) == (InstanceState.STOPPED, 0)
    assert collect_finished(world.book, world.tools, world.who) == []
    assert (machine.state, machine.terminate_calls) == (InstanceState.STOPPED, 0)
    driver = adopt_job(world.view, world.book, world.tools, world.who, None)
    driver.context.end(EndReason.CANCELLED)  # cancel --now
    driver.drive()
    world.check_over()


def test_outputs_that_are_in_the_bucket_need_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = stopped_with_outputs(tmp_path)
    there: Any = SimpleNamespace(recover=lambda view, folder: (view.status, (), DownloadedOutputs()))
    monkeypatch.setattr(world.tools, "bucket", there)
    assert world.resume().error is None
    assert world.view.collected
    world.check_over()


@pytest.mark.parametrize(("provider", "later"), [("aws", 0), ("gcp", 60)])
def test_googles_own_deadline_comes_before_the_machines(tmp_path: Path, provider: str, later: int) -> None:
    """Else the machine would switch itself off, and Google would keep its disk."""
    chosen = option(provider=provider)
    tried = SimpleNamespace(lease_until=START, token=f"{RUN}-1", zone=None, allow_from="192.0.2.1/32")
    view: Any = SimpleNamespace(
        create_call=tried, option=chosen, run_id=RUN, name="train", owner="me", spec=spec("/w"), has_peers=False
    )
    request = create_request(view, make_keys(tmp_path))
    script = request.boot_script
    assert f"\ndeadline={int(START.timestamp()) + later}\n" in script
    assert f"\nlifetime={math.ceil(chosen.lease.lifetime_seconds) + later}\n" in script
    assert request.lease_until == START
    assert registry.spec("gcp").watchdog_delay_seconds > 30  # Google's own delay


@pytest.mark.parametrize(("provider", "before"), [("aws", 10.0), ("local", 10.0), ("gcp", -45.0)])
def test_the_agent_waits_for_googles_deadline(tmp_path: Path, provider: str, before: float) -> None:
    """It knows of it by the deadline of the boot script, which is later."""
    delay = registry.spec(provider).watchdog_delay_seconds
    (tmp_path / "limits").write_text(f"{math.floor(2e9 + delay)} 7200 900")
    seen = watchdog_delay(Home(str(tmp_path)), 2e9)
    assert limits.last_seconds(seen, 7200.0) == before
    assert before > -max(delay, 1.0)
