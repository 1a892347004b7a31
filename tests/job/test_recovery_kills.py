"""The client of a job that goes on is killed at every call that it makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from costgpu.errors import CostGpuError
from costgpu.models.job import EndReason
from costgpu.models.run import RunState
from tests.fake_cloud import JobScript
from tests.fake_cloud.script import PROGRESS
from tests.job.mortal import Killed, Life
from tests.job.recovery_world import RecoveryWorld

JOB = JobScript(seconds=250, saves=50, outputs={"model.pt": b"weights", PROGRESS: b"all"})
TAKEN = (200.0, 200.0)  # seconds after which a machine is taken back; it is told 120 s before
MINUTE = 60.0
EVERY = bool(os.environ.get("FULL"))
"""Whether before and after each call, rather than at every twelfth, by turns before and after it."""


def new_world(folder: Path) -> RecoveryWorld:
    return RecoveryWorld(folder, TAKEN, JOB)


def calls_of_a_journey(folder: Path) -> list[str]:
    life, world = Life(), new_world(folder)
    world.run(life=life)
    world.check_job("nobody killed")
    assert len(world.attempts()) == 3
    return life.calls


def deaths(folder: Path, first: int) -> Iterator[tuple[str, RecoveryWorld]]:
    """Yield worlds in which a client was killed before or after one of its calls, and what has happened.

    Args:
        first: The first call of the sample, so that each test has others.
    """
    for number, call in enumerate(calls_of_a_journey(folder / "whole"), 1):
        for after in (False, True) if EVERY else (number % 24 == first,) if number % 12 == first else ():
            world = new_world(folder / f"{number}{after}")
            with pytest.raises(Killed):
                world.run(life=Life(dies_at=number, after=after))
            yield f"killed {'after' if after else 'before'} call {number}, {call}", world


def test_somebody_comes_and_goes_on(tmp_path: Path) -> None:
    for what, world in deaths(tmp_path, 4):
        if not world.book.rows:
            assert not world.cloud.alive(), what
            continue
        try:
            world.resume({"TOKEN": "x"})
        except CostGpuError as error:
            raise AssertionError(what) from error
        assert (world.work / "model.pt").read_bytes() == b"weights", what
        world.check_job(what)


def test_somebody_comes_late(tmp_path: Path) -> None:
    """Reap has closed what it could; a job that waits is still there, and goes on."""
    waited = 0
    for what, world in deaths(tmp_path, 8):
        if not world.book.rows:
            continue
        for _ in range(4):
            world.clock.sleep(10 * MINUTE)
            world.reap()
        assert not world.cloud.alive(), what
        last = world.attempts()[-1]
        if last.state is RunState.CLOSED:
            continue
        assert last.waits, what
        waited += 1
        world.resume({"TOKEN": "x"})
        assert (world.work / "model.pt").read_bytes() == b"weights", what
        world.check_job(what)
    assert waited > 2


def test_nobody_comes(tmp_path: Path) -> None:
    for what, world in deaths(tmp_path, 0):
        world.clock.sleep(200 * MINUTE)
        assert not world.cloud.alive(), what
        assert not world.cloud.past_lease(slack_seconds=60), what
        assert world.most_alive <= 1, what


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Each client makes a few calls more than the one before it; the job comes to its end, with one machine at a time."""
    world = new_world(tmp_path)
    with pytest.raises(Killed):
        world.run(life=Life(dies_at=12, after=True))
    for clients in range(200):
        try:
            world.resume({"TOKEN": "x"}, life=Life(dies_at=25 + clients % 11, after=clients % 2 == 0))
        except Killed:
            continue
        break
    world.check_job()
    assert world.attempts()[-1].reason in (EndReason.SUCCEEDED, EndReason.UNCLAIMED)
