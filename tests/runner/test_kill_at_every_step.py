"""The client is killed before and after every call that it makes; then only time passes, and reap runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from costgpu.clock import ManualClock
from costgpu.errors import CostGpuError, RunNotFound
from costgpu.models.reap import ReapFindings
from costgpu.models.run import RunState, RunView
from costgpu.runner.adopt import adopt, collect_finished
from costgpu.runner.drive.loop import Driver
from costgpu.runner.find_run import load_run
from costgpu.runner.launch import launch
from costgpu.runner.reap import end_orphans, look
from costgpu.runner.state.observer import NullObserver
from tests.fake_cloud import FakeCloud, JobScript, MachineScript
from tests.runner.mortal import Killed, Life, MemoryBook, Mortal, plan, tools

MINUTE = 60.0
JOB = JobScript(
    setup_seconds=30, seconds=600, stdout=[(1, b"one\n"), (599, b"two\n")], outputs={"model.pt": b"weights"}
)


@dataclass
class World:
    """A cloud, a ledger, a folder: all that outlives a client."""

    clock: ManualClock
    cloud: FakeCloud
    book: MemoryBook
    folder: Path

    @classmethod
    def new(cls, folder: Path) -> World:
        clock = ManualClock()
        cloud = FakeCloud(clock, script=JOB, machine=MachineScript(pending_seconds=0.5, boot_seconds=0.5))
        cloud.terminating_seconds = 2.0
        cloud.add_foreign()
        cloud.add_foreign_resource("somebody")
        cloud.leaves_rules = True
        (folder / "work").mkdir(parents=True)
        return cls(clock, cloud, MemoryBook(), folder)

    def start(self, life: Life) -> Driver:
        book = Mortal(self.book, life, "ledger")
        work = self.folder / "work"
        return launch(
            plan(work),
            book,
            tools(self.cloud, self.folder, life),
            NullObserver(),
            owner="me@here",
            environment={},
            run_id="r1",
        )

    def reap(self) -> ReapFindings:
        """What cron does, in a new process."""
        fresh = tools(self.cloud, self.folder)
        collect_finished(self.book, fresh, NullObserver())

        def known(run_id: str) -> RunView | None:
            try:
                return load_run(self.book, run_id)
            except RunNotFound:
                return None

        found = look([self.cloud.provider()], None, self.clock.now(), known)
        end_orphans(found, fresh.provider, self.clock)
        return found

    def check(self, what: str) -> None:
        assert not self.cloud.past_lease(slack_seconds=60), what
        assert not self.cloud.alive(), what
        assert len(self.cloud.instances_of("r1")) <= 1, what
        assert self.cloud.foreign_untouched(), what
        assert not self.cloud.leftovers("r1"), what
        for run_id in self.book.rows:
            assert load_run(self.book, run_id).state is RunState.CLOSED, what


def calls_of_a_journey(folder: Path) -> list[str]:
    life = Life()
    world = World.new(folder)
    driver = world.start(life)
    assert driver.view.state is RunState.CLOSED
    assert (world.folder / "work" / "model.pt").read_bytes() == b"weights"
    world.check("nobody killed")
    return life.calls


def test_the_client_killed_before_and_after_every_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = calls_of_a_journey(tmp_path / "whole")
    kinds = {name.partition(".")[0] for name in calls}
    assert kinds == {"ledger", "provider", "host"}
    homes = 0
    for number in range(1, len(calls) + 1):
        for after in (False, True):
            what = f"killed {'after' if after else 'before'} call {number}, {calls[number - 1]}"
            world = World.new(tmp_path / f"{number}{after}")
            with pytest.raises(Killed):
                world.start(Life(dies_at=number, after=after))
            for _ in range(4):  # the job takes ten minutes: cron comes by now and then
                world.clock.sleep(10 * MINUTE)
                world.reap()
            started = bool(world.book.rows) and load_run(world.book, "r1").started_at is not None
            if started:
                assert (world.folder / "work" / "model.pt").read_bytes() == b"weights", what
                homes += 1
            world.clock.sleep(130 * MINUTE)
            world.reap()
            world.check(what)
    with capsys.disabled():
        kills = f"killed {2 * len(calls)} times, before and after each of {len(calls)} calls"
        print(f"\n  {kills}: 0 machines left, outputs of {homes} jobs home")


def test_nobody_comes_by_at_all(tmp_path: Path) -> None:
    calls = calls_of_a_journey(tmp_path / "whole")
    for number in range(1, len(calls) + 1):
        for after in (False, True):
            what = f"killed {'after' if after else 'before'} call {number}, {calls[number - 1]}"
            world = World.new(tmp_path / f"{number}{after}")
            with pytest.raises(Killed):
                world.start(Life(dies_at=number, after=after))
            world.clock.sleep(200 * MINUTE)
            assert not world.cloud.alive(), what
            assert not world.cloud.past_lease(slack_seconds=60), what
            assert len(world.cloud.instances_of("r1")) <= 1, what


def test_without_watchdog_and_agent_the_reaper_alone_ends_it(tmp_path: Path) -> None:
    calls = calls_of_a_journey(tmp_path / "whole")
    reaped = 0
    for number in range(1, len(calls) + 1):
        world = World.new(tmp_path / str(number))
        world.cloud.watchdog_works = world.cloud.agent_works = False
        with pytest.raises(Killed):
            world.start(Life(dies_at=number, after=True))
        world.book.rows.clear()  # and the ledger is lost as well: tags are all there is
        world.clock.sleep(200 * MINUTE)
        reaped += len(world.reap().ended)
        assert not world.cloud.alive(), calls[number - 1]
        assert world.cloud.foreign_untouched()
    assert reaped > 5


def test_a_second_client_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    calls = calls_of_a_journey(tmp_path / "whole")
    for number in range(1, len(calls) + 1):
        for after in (False, True):
            what = f"killed {'after' if after else 'before'} call {number}, {calls[number - 1]}"
            world = World.new(tmp_path / f"{number}{after}")
            with pytest.raises(Killed):
                world.start(Life(dies_at=number, after=after))
            if not world.book.rows:
                assert not world.cloud.instances_of("r1"), what
                continue
            fresh = tools(world.cloud, world.folder)
            view = load_run(world.book, "r1")
            try:
                adopt(view, world.book, fresh, NullObserver(), {}).drive()
            except CostGpuError as error:
                raise AssertionError(what) from error
            assert (world.folder / "work" / "model.pt").read_bytes() == b"weights", what
            world.check(what)
