"""The client is killed before and after every call that it makes; then only time passes, and reap runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from costgpu.errors import CostGpuError
from costgpu.job.adopt import adopt_job
from costgpu.job.find_run import load_run
from costgpu.job.state.observer import NullObserver
from costgpu.models.offer import Accelerator
from costgpu.models.run import RunState
from tests.fake_cloud import JobScript, MachineScript
from tests.job.mortal import Killed, Life, tools
from tests.job.world import World

MINUTE = 60.0
GPU = Accelerator(name="T4", count=1, memory_gib=16)
JOB = JobScript(
    setup_seconds=30, seconds=600, stdout=[(1, b"one\n"), (599, b"two\n")], outputs={"model.pt": b"weights"}
)


def new_world(folder: Path) -> World:
    return World(folder, JOB, MachineScript(pending_seconds=0.5, boot_seconds=0.5))


def killed(folder: Path, *, dies_at: int, after: bool, **switches: bool) -> World:
    """The world in which a client was killed at one of its calls."""
    world = new_world(folder)
    for name, on in switches.items():
        setattr(world.cloud, name, on)
    with pytest.raises(Killed):
        world.launch(life=Life(dies_at=dies_at, after=after), gpu=GPU)
    return world


def calls_of_a_journey(folder: Path) -> list[str]:
    life = Life()
    world = new_world(folder)
    driver = world.launch(life=life, gpu=GPU)
    assert driver.view.state is RunState.CLOSED
    assert (world.work / "model.pt").read_bytes() == b"weights"
    world.check_over("nobody killed")
    return life.calls


def deaths(folder: Path) -> Iterator[tuple[str, World]]:
    """Worlds in which a client was killed, once before and once after each of its calls; and what has happened."""
    for number, call in enumerate(calls_of_a_journey(folder / "whole"), 1):
        for after in (False, True):
            what = f"killed {'after' if after else 'before'} call {number}, {call}"
            yield what, killed(folder / f"{number}{after}", dies_at=number, after=after)


def test_the_client_killed_before_and_after_every_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kills, homes, kinds = 0, 0, set()
    for what, world in deaths(tmp_path):
        kills += 1
        kinds.add(what.rpartition(" ")[2].partition(".")[0])
        for _ in range(4):  # the job takes ten minutes: cron comes by now and then
            world.clock.sleep(10 * MINUTE)
            world.reap()
        if world.book.rows and load_run(world.book, "r1").started_at is not None:
            assert (world.work / "model.pt").read_bytes() == b"weights", what
            homes += 1
        world.clock.sleep(130 * MINUTE)
        world.reap()
        world.check_over(what)
    assert kinds == {"ledger", "provider", "host"}
    with capsys.disabled():
        words = f"killed {kills} times, before and after each of {kills // 2} calls"
        print(f"\n  {words}: 0 machines left, outputs of {homes} jobs home")


def test_nobody_comes_by_at_all(tmp_path: Path) -> None:
    for what, world in deaths(tmp_path):
        world.clock.sleep(200 * MINUTE)
        assert not world.cloud.alive(), what
        assert not world.cloud.past_lease(slack_seconds=60), what
        assert len(world.cloud.instances_of("r1")) <= 1, what


def test_without_watchdog_and_agent_the_reaper_alone_ends_it(tmp_path: Path) -> None:
    calls = calls_of_a_journey(tmp_path / "whole")
    reaped = 0
    for number in range(1, len(calls) + 1):
        no_guards = {"watchdog_works": False, "agent_works": False}
        world = killed(tmp_path / str(number), dies_at=number, after=True, **no_guards)
        world.book.rows.clear()  # and the ledger is lost as well: tags are all there is
        world.clock.sleep(200 * MINUTE)
        reaped += len(world.reap().ended)
        assert not world.cloud.alive(), calls[number - 1]
        assert world.cloud.foreign_untouched()
    assert reaped > 5


def test_a_second_client_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    for what, world in deaths(tmp_path):
        if not world.book.rows:
            assert not world.cloud.instances_of("r1"), what
            continue
        view = load_run(world.book, "r1")
        try:
            adopt_job(view, world.book, tools(world.cloud, world.folder), NullObserver(), {}).drive()
        except CostGpuError as error:
            raise AssertionError(what) from error
        assert (world.work / "model.pt").read_bytes() == b"weights", what
        world.check_over(what)
