"""What is not known is not taken for gone: lost answers, other accounts, and clients killed between two steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.errors import AuthError, TerminationUnconfirmed, Unreachable
from costgpu.job.adopt import adopt_job, collect_finished
from costgpu.job.find_run import load_run
from costgpu.job.state.observer import NullObserver
from costgpu.models.run import RunState
from tests.fake_cloud import FakeCloud, JobScript
from tests.job.world import World, tools

JOB = JobScript(seconds=600, outputs={"model.pt": b"weights"})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, JOB)


def killed_in(world: World, state: RunState) -> None:
    """A client that dies as soon as it has recorded this state."""
    world.who.at[state] = SystemError("the client dies")
    with pytest.raises(SystemError):
        world.launch()


def somebody_elses(world: World, monkeypatch: pytest.MonkeyPatch) -> FakeCloud:
    """Another account: it knows nothing of ours."""
    other = FakeCloud(world.clock)
    provider = type(other.provider())
    identity = provider.identity

    def stranger(self: object) -> object:
        mine = identity(self)  # type: ignore[arg-type]
        return replace(mine, account="999999999999") if self.cloud is other else mine  # type: ignore[attr-defined]

    monkeypatch.setattr(provider, "identity", stranger)
    return other


def test_an_end_that_nobody_can_be_asked_for_is_loud(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_in(world, RunState.TERMINATING)
    theirs = tools(somebody_elses(world, monkeypatch), world.folder)
    with pytest.raises(TerminationUnconfirmed, match="may be billing") as caught:
        adopt_job(load_run(world.book, "r1"), world.book, theirs, NullObserver(), {}).drive()
    (machine,) = world.cloud.alive()
    assert machine.ref.instance_id in caught.value.message
    assert machine.ref.instance_id in caught.value.hint


def test_another_accounts_credentials_prove_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_in(world, RunState.RUNNING)
    world.clock.sleep(200)
    theirs = tools(somebody_elses(world, monkeypatch), world.folder)
    with pytest.raises(AuthError, match="belongs to fake account 000000000000"):
        adopt_job(load_run(world.book, "r1"), world.book, theirs, NullObserver(), {}).cancel()
    assert collect_finished(world.book, theirs, NullObserver()) == []
    assert load_run(world.book, "r1").state is RunState.RUNNING
    assert len(world.cloud.alive()) == 1
    world.clock.sleep(900)
    world.reap()
    assert (world.work / "model.pt").exists()
    world.check_over("reaped with the right credentials")


def test_nobody_who_could_be_asked_is_said_loudly(world: World) -> None:
    world.cloud.faults.next("create", error=Unreachable("no answer"), after=True)
    world.cloud.faults.next("create", error=AuthError("expired"), without_effect=True)
    world.cloud.faults.next("find", error=AuthError("expired"), times=9)
    with pytest.raises(TerminationUnconfirmed, match="Whether a machine was created for run r1") as caught:
        world.launch()
    assert "costgpu cancel r1" in caught.value.hint
    assert load_run(world.book, "r1").state is not RunState.CLOSED
    world.cloud.faults.clear()
    world.reap()
    world.check_over("ended once somebody could be asked")


def test_a_client_that_comes_when_the_lease_is_nearly_over_creates_nothing(world: World) -> None:
    killed_in(world, RunState.PROVISIONING)
    lease = load_run(world.book, "r1").lease_until
    assert lease is not None
    world.clock.sleep((lease - world.clock.now()).total_seconds() - 30)
    adopt_job(load_run(world.book, "r1"), world.book, tools(world.cloud, world.folder), NullObserver(), {}).drive()
    assert not world.cloud.instances_of("r1")
    world.check_over("only looked for")
