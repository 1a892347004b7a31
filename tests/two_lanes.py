"""Runs what `make test` leaves out, as two pytest processes: clouds and installers mostly wait, the rest computes.

    python -m tests.two_lanes [pytest arguments]

The second lane's output streams; that of the first follows.
"""

import os
import subprocess
import sys
import tempfile
import time

import psutil

PYTEST = [sys.executable, "-m", "pytest"]
LANES = ("emulator or wire or packaging", "not (emulator or wire or packaging) and (frameworks or slow or hypothesis)")


def main() -> int:
    """The exit code of a lane that failed, else 0."""
    began = time.monotonic()
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "thorough"}
    with tempfile.TemporaryFile() as log:
        first = subprocess.Popen(
            [*PYTEST, "-m", LANES[0], *sys.argv[1:]], stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            second = subprocess.call([*PYTEST, "-m", LANES[1], *sys.argv[1:]], env=environment)
            codes = [second, first.wait()]
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
