"""The client of a job on two machines is killed before and after every call that it makes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from costgpu.errors import CostGpuError
from costgpu.job.drive.context import Detached
from costgpu.models.run import RunState
from tests.fake_cloud import JobScript, MachineScript
from tests.job.group_world import GroupWorld
from tests.job.mortal import Killed, Life

MINUTE = 60.0
JOB = JobScript(
    setup_seconds=30, seconds=600, stdout=[(1, b"one\n"), (599, b"two\n")], outputs={"model.pt": b"weights"}
)


def new_world(folder: Path) -> GroupWorld:
    return GroupWorld(folder, JOB, MachineScript(pending_seconds=0.5, boot_seconds=0.5))


def calls_of_a_journey(folder: Path) -> list[str]:
    life = Life()
    world = new_world(folder)
    world.launch_group(life=life)
    assert (world.work / "model.pt").read_bytes() == b"weights"
    world.check_group_over("nobody killed")
    return life.calls


def deaths(folder: Path) -> Iterator[tuple[str, GroupWorld]]:
    """Worlds in which a client was killed, once before and once after each of its calls; and what has happened."""
    for number, call in enumerate(calls_of_a_journey(folder / "whole"), 1):
        for after in (False, True):
            what = f"killed {'after' if after else 'before'} call {number}, {call}"
            world = new_world(folder / f"{number}{after}")
            with pytest.raises(Killed):
                world.launch_group(life=Life(dies_at=number, after=after))
            yield what, world


def started(world: GroupWorld) -> bool:
    return len(world.orders()) == 2


def test_the_reaper_comes_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kills = homes = 0
    for what, world in deaths(tmp_path):
        kills += 1
        ran = started(world)
        for _ in range(4):
            world.clock.sleep(10 * MINUTE)
            world.reap()
        if ran and all(view.started_at is not None for view in world.views):
            assert (world.work / "model.pt").read_bytes() == b"weights", what
            homes += 1
        world.clock.sleep(130 * MINUTE)
        world.reap()
        world.check_group_over(what)
    with capsys.disabled():
        print(f"\n  two machines: killed {kills} times: 0 machines left, never a third; outputs of {homes} jobs home")


def test_nobody_comes_by_at_all(tmp_path: Path) -> None:
    for what, world in deaths(tmp_path):
        world.clock.sleep(200 * MINUTE)
        assert not world.cloud.alive(), what
        assert not world.cloud.past_lease(slack_seconds=60), what
        assert world.most_at_once() <= 2, what


def test_a_second_client_goes_on(tmp_path: Path) -> None:
    for what, world in deaths(tmp_path):
        if "r1" not in world.book.rows:
            assert not world.machines(), what
            continue
        try:
            world.resume_group()
        except (CostGpuError, Detached):
            world.clock.sleep(130 * MINUTE)
            world.reap()
        assert world.most_at_once() <= 2, what
        if len(world.book.rows) == 2 and world.views[0].state is RunState.CLOSED:
            assert (world.work / "model.pt").read_bytes() == b"weights", what
        world.reap()
        world.check_group_over(what)


def test_tags_alone_are_enough(tmp_path: Path) -> None:
    for number in range(1, len(calls_of_a_journey(tmp_path / "whole")) + 1, 3):
        world = new_world(tmp_path / str(number))
        world.cloud.watchdog_works = world.cloud.agent_works = False
        with pytest.raises(Killed):
            world.launch_group(life=Life(dies_at=number, after=True))
        world.book.rows.clear()  # the ledger is lost as well
        world.clock.sleep(200 * MINUTE)
        world.reap()
        assert not world.cloud.alive(), number
        assert not [one for one in world.cloud.leftovers() if one.lease_until is not None], number
