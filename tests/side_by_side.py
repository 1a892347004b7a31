"""Runs the whole suite as two pytest processes at once: the tests on the emulated cloud mostly wait, and so do others.

    python -m tests.side_by_side [pytest arguments]

The first one's output streams; the other's follows. With arguments that choose tests there is only one process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

PYTEST = [sys.executable, "-m", "pytest"]


def main() -> int:
    """The exit code of whichever failed."""
    arguments = sys.argv[1:]
    if any(not argument.startswith("-") for argument in arguments):
        return subprocess.call([*PYTEST, *arguments])
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        cloud = subprocess.Popen([*PYTEST, "-m", "emulator", *arguments], stdout=log, stderr=subprocess.STDOUT)
        try:
            here = subprocess.call([*PYTEST, "-m", "not emulator", *arguments])
            there = cloud.wait()
        finally:
            cloud.kill()
        log.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(log.read())
    print(f"Both parts took {time.monotonic() - began:.0f} s.", flush=True)
    return here or there


if __name__ == "__main__":
    sys.exit(main())
