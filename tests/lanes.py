"""Runs what `make test` leaves out, as three pytest processes: clouds and installers mostly wait, the others compute.

    python -m tests.lanes [pytest arguments]

The last lane's output streams; that of the others follows.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time

import psutil

PYTEST = [sys.executable, "-m", "pytest"]
LANES = (
    "emulator or wire or packaging",
    "bulk",
    "not (emulator or wire or packaging or bulk) and (frameworks or slow or hypothesis)",
)


def main() -> int:
    """The exit code of a lane that failed, else 0."""
    began = time.monotonic()
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "thorough"}
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in LANES[:-1]]
        others = [
            subprocess.Popen(
                [*PYTEST, "-m", lane, *sys.argv[1:]], stdout=log, stderr=subprocess.STDOUT, env=environment
            )
            for lane, log in zip(LANES, logs, strict=False)
        ]
        try:
            last = subprocess.call([*PYTEST, "-m", LANES[-1], *sys.argv[1:]], env=environment)
            codes = [last, *(lane.wait() for lane in others)]
        finally:
            for lane in others:
                if lane.poll() is None:
                    for child in psutil.Process(lane.pid).children():
                        child.terminate()
                    lane.terminate()
        sys.stdout.flush()
        for log in logs:
            log.seek(0)
            sys.stdout.buffer.write(log.read())
    print(f"All of it took {time.monotonic() - began:.0f} s.", flush=True)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
