"""What a measurement ends: what its script has left behind, and nothing that others have started meanwhile."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from costgpu.measure.process_tree import end_everything

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs sh")


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A child from before that starts one of its own when it is told to."""
    script = "read line; sleep 60 & echo $!; wait"
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        for each in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()


def test_what_a_child_from_before_starts_meanwhile_lives_on(worker: subprocess.Popen[str]) -> None:
    before = {process.pid for process in psutil.Process().children()}
    with subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"]) as script:
        assert worker.stdin is not None
        assert worker.stdout is not None
        print("now", file=worker.stdin, flush=True)
        theirs = psutil.Process(int(worker.stdout.readline()))
        left_behind = subprocess.Popen(["sleep", "60"])  # as a daemon that was adopted
        ended = end_everything(script.pid, "no-such-marker", before)
    assert not psutil.pid_exists(left_behind.pid)
    left_behind.wait()  # says 0: it was waited for already
    assert ended >= 1
    assert theirs.is_running()
    assert theirs.status() != psutil.STATUS_ZOMBIE
