"""Runs the whole suite as two pytest processes at once: the tests on the emulated clouds mostly wait, and so do others.

    python -m tests.side_by_side [pytest arguments]

The second lane's output streams; that of the first follows. With arguments that choose tests there is only one process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

import psutil

PYTEST = [sys.executable, "-m", "pytest"]
# More at once on two cores make tests late that watch the time. A lane runs its parts one after the other; the lanes
# take about as long as each other.
APART = ("tests/measure", "tests/packaging", "tests/unit")
LANES = (
    (("-m", "emulator"), ("-m", "not emulator", *APART)),
    (("-m", "not emulator", *(f"--ignore={folder}" for folder in APART)),),
)


def run(lane: int, arguments: list[str]) -> int:
    """The parts of a lane; the exit code of one that failed."""
    codes = [subprocess.call([*PYTEST, *part, *arguments]) for part in LANES[lane]]
    return max(codes, key=abs)


def main() -> int:
    """The exit code of one that failed."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--lane"]:
        return run(int(arguments[1]), arguments[2:])
    if any(not argument.startswith("-") for argument in arguments):
        return subprocess.call([*PYTEST, *arguments])
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "tests.side_by_side", "--lane", "0", *arguments]
        first = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            codes = [run(1, arguments), first.wait()]
        finally:
            if first.poll() is None:
                for child in psutil.Process(first.pid).children():
                    child.terminate()
                first.terminate()
        log.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(log.read())
    print(f"All of it took {time.monotonic() - began:.0f} s.", flush=True)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
