"""Runs the whole suite as two pytest processes at once: the tests on the emulated clouds mostly wait, and so do others.

    python -m tests.side_by_side [pytest arguments]

The last part's output streams; that of the others follows. With arguments that choose tests there is only one process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

PYTEST = [sys.executable, "-m", "pytest"]
PARTS = (("-m", "emulator"), ("-m", "not emulator"))  # more at once on two cores make tests late that watch the time


def main() -> int:
    """The exit code of one that failed."""
    arguments = sys.argv[1:]
    if any(not argument.startswith("-") for argument in arguments):
        return subprocess.call([*PYTEST, *arguments])
    began = time.monotonic()
    behind = [(part, tempfile.TemporaryFile()) for part in PARTS[:-1]]  # noqa: SIM115  open until the end
    running = [
        subprocess.Popen([*PYTEST, *part, *arguments], stdout=log, stderr=subprocess.STDOUT) for part, log in behind
    ]
    try:
        codes = [subprocess.call([*PYTEST, *PARTS[-1], *arguments]), *(process.wait() for process in running)]
    finally:
        for process in running:
            process.kill()
    for _, log in behind:
        log.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(log.read())
    print(f"All {len(PARTS)} parts took {time.monotonic() - began:.0f} s.", flush=True)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
