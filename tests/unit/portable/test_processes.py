"""Processes as they really are: found, told apart, ended with all that they started."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from costgpu.portable import processes, supervise
from costgpu.portable.processes import Process, descendants, gone, is_alive, process, send
from tests.until import until

FAMILY = "sleep 1000 & sh -c 'sleep 1001 & wait' & wait"


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sh", "-c", FAMILY], start_new_session=True, env={**os.environ, "FAMILY": "one"})
    until(lambda: len(descendants(child.pid)) == 3)
    yield child
    supervise.signal_group(child.pid, signal.SIGKILL)
    child.wait()


def test_a_family_is_found_both_ways(family: subprocess.Popen[bytes]) -> None:
    below = descendants(family.pid)
    assert {one.session for one in below} == {family.pid}
    assert sorted(processes.some_descendants(family.pid)) == sorted(one.pid for one in below)
    assert set(processes.children(family.pid)) == {one.pid for one in below if one.parent == family.pid}
    assert processes.arguments_of(family.pid).startswith("sh -c sleep 1000 &")
    assert all(processes.has_variable(one.pid, "FAMILY=one") for one in below)
    assert not processes.has_variable(below[0].pid, "FAMILY=o")


def test_a_number_that_is_used_again_is_another_process(family: subprocess.Popen[bytes]) -> None:
    one = process(family.pid)
    assert one is not None
    assert is_alive(one.pid, one.started)
    assert is_alive(one.pid, int(one.started)), "as earlier versions have written it"
    before = one._replace(started="1")
    assert not send(before, signal.SIGKILL)
    assert gone(before)
    assert process(family.pid) == one


def test_the_dead_do_not_live() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert process(child.pid) is None
    assert child.pid not in processes.processes()
    assert supervise.reap()[child.pid] == 0
    assert processes.read(child.pid, "stat") == b""
    child.returncode = 0


def test_nothing_forks_away(tmp_path: Path) -> None:
    """Each of them starts others all the time, and none of them waits for any."""
    script = f"while :; do sh -c 'sleep 0.2; sleep 1000' & echo >> {tmp_path / 'runs'}; sleep 0.01; done"
    child = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    until(lambda: (tmp_path / "runs").exists() and len((tmp_path / "runs").read_text()) > 20)

    def find(_: Sequence[Process]) -> list[Process]:
        return [one for one in processes.processes().values() if one.session == child.pid]

    assert supervise.end_all(find) == []
    child.wait()
    assert find([]) == []


@pytest.mark.parametrize(("trap", "status"), [("", -signal.SIGTERM), ("trap '' TERM; ", -signal.SIGKILL)])
def test_a_child_is_asked_before_it_is_killed(trap: str, status: int) -> None:
    child = subprocess.Popen(
        ["sh", "-c", f"{trap}sleep 1000 & echo; wait"], start_new_session=True, stdout=subprocess.PIPE
    )
    waits: list[float] = []
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        below = descendants(child.pid)
        supervise.end_group(child, 0.05, waits.append)
        assert child.returncode == status
        assert waits or not trap
        assert below
        assert all(gone(one) for one in below)
        supervise.end_group(child, 0.0)  # again: nothing
