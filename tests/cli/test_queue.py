"""Runs that wait: `costgpu run --queue` and `costgpu queue`, on this machine."""

from __future__ import annotations

import json
import sys

import pytest

from costgpu.job.state.lock import lock_run
from tests.cli.here import LOCAL, Here, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this machine as a machine needs Linux")
QUEUED = (*LOCAL, "--max-duration", "5m", "--queue", "-y")
GATED = """\
import os, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
open(sys.argv[1], "w").write(open("version.txt").read())
"""


@pytest.fixture(autouse=True)
def scripts(here: Here) -> None:
    here.write("train.py", GATED)
    here.write("version.txt", "first")


def put(here: Here, name: str, *options: str) -> str:
    """Queues a run that waits for the gate to open and then makes a file of its name; what it said."""
    gate = str(here.project.parent / "gate")
    return here.told(*QUEUED, "-n", name, *options, "train.py", name, gate).check(0).err


def names(here: Here) -> list[str]:
    """The jobs that wait, in order."""
    return [each["run"]["name"] for each in waiting(here)]


def waiting(here: Here) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = json.loads(here.told("queue", "--json").check(0).out)["waiting"]
    return found


def over(here: Here, name: str) -> bool:
    """Whether the job has made its file on its machine."""
    return any(here.data.rglob(f"work/{name}"))


def test_runs_start_in_their_order_when_there_is_room(here: Here) -> None:
    assert "runs. costgpu attach" in put(here, "one")
    assert "number 1 in the queue" in put(here, "two")
    assert "number 2 in the queue" in put(here, "three")
    here.write("version.txt", "edited meanwhile")
    listed = here.told("queue").check(0, out=["waits for room: 1 of 1 machines are in use (max_machines)"]).out
    assert "waits for the runs before it" in listed or listed.count("waits for room") == 2
    assert max(map(len, listed.splitlines())) <= 80
    here.told("jobs").check(0, out=["waiting", "running"])
    assert names(here) == ["two", "three"]

    (here.project.parent / "gate").touch()
    for name, after in (("one", "two"), ("two", "three")):
        until(lambda name=name: over(here, name))  # type: ignore[misc]
        said = here.told("queue", "--start").check(0).err
        assert "1 file" in said
        assert f"({after}) runs" in said
        assert (here.project / name).read_text() == "first"
    until(lambda: over(here, "three"))
    here.told("queue", "--start").check(0)
    here.told("queue").check(0, out="Nothing waits.")
    assert (here.project / "three").read_text() == "first"  # as it was when it was queued
    assert not list(here.data.rglob("sent"))


def test_another_process_is_at_it_then_there_is_more_room_and_a_run_is_taken_out(here: Here) -> None:
    put(here, "one")
    put(here, "two")
    folder = next(path for path in here.data.rglob("runs") if path.is_dir())
    with lock_run(folder / "queue"):
        here.told("queue", "--start").check(0, err="Another process is starting what waits.")
    assert names(here) == ["two"]
    here.environment["COSTGPU_MAX_MACHINES"] = "2"
    here.told("queue", "--start").check(0, err="(two) runs")
    assert "number 1 in the queue" in put(here, "three")
    run_id = waiting(here)[0]["run"]["run_id"]
    here.told("fetch", run_id).check(50, err="waits for a machine, and nothing of its job is kept here")
    here.told("cancel", "-y", run_id).check(0, err="nothing was created, nothing is billed")
    assert names(here) == []
    (here.project.parent / "gate").touch()


def test_a_run_whose_variables_are_not_set_waits_and_holds_nobody_back(here: Here) -> None:
    here.environment["TOKEN"] = "secret"
    put(here, "one")
    put(here, "two", "-e", "TOKEN")
    put(here, "three")
    del here.environment["TOKEN"]
    (here.project.parent / "gate").touch()
    until(lambda: over(here, "one"))
    assert "(three) runs" in here.told("queue", "--start").check(0).err
    here.told("queue").check(0, out="waits for variables that are not set here: TOKEN")
    until(lambda: over(here, "three"))
    here.environment["TOKEN"] = "secret"
    assert "(two) runs" in here.told("queue", "--start").check(0).err
    until(lambda: over(here, "two"))
    here.told("queue", "--start").check(0)
