"""Runs what `make test` leaves out, as pytest processes: clouds and installers mostly wait, the others compute.

    python -m tests.lanes [pytest arguments]

The first lane's output streams; that of the others follows, and last come those that failed.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import psutil

PYTEST = ["-m", "pytest", "-m"]
DEFAULT_BUILD = ["-m", "tests.default_build"]
LANES = (
    [*PYTEST, "emulator", "tests/emulated/journeys"],
    [*PYTEST, "not (emulator or wire or packaging or bulk) and frameworks"],
    [*PYTEST, "not (emulator or wire or packaging or bulk or frameworks) and slow"],
    [*PYTEST, "bulk", "--ignore=tests/simulation"],
    [*PYTEST, "emulator", "--ignore=tests/emulated/journeys"],
    [*PYTEST, "not emulator and (wire or packaging)"],
    [*DEFAULT_BUILD, "pinned"],
    [*DEFAULT_BUILD, "newest"],
    [*PYTEST, "bulk", "tests/simulation"],
    [*PYTEST, "hypothesis and not (emulator or wire or packaging or bulk or frameworks or slow)"],
)
AT_ONCE = 4  # the next begins when one of them has ended; those with emulated hosts wait for them most of the time


def main() -> int:
    """The exit code of a lane that failed, else 0."""
    began = time.monotonic()
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "thorough"}
    children: list[subprocess.Popen[bytes]] = []

    def run(lane: list[str], log: IO[bytes] | None) -> int:
        command = [sys.executable, *lane, *sys.argv[1:]]
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT if log else None, env=environment)
        children.append(child)
        return child.wait()

    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in LANES[1:]]
        pool = ThreadPoolExecutor(AT_ONCE)
        running = [pool.submit(run, lane, log) for lane, log in zip(LANES, [None, *logs], strict=True)]
        try:
            codes = [lane.result() for lane in running]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                if child.poll() is None:
                    for below in psutil.Process(child.pid).children():
                        below.terminate()
                    child.terminate()
        sys.stdout.flush()
        for _, log in sorted(zip(codes[1:], logs, strict=True), key=lambda pair: pair[0] != 0):
            log.seek(0)
            sys.stdout.buffer.write(log.read())
    print(f"All of it took {time.monotonic() - began:.0f} s.", flush=True)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
