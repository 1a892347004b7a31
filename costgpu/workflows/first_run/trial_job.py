"""The job of a trial: says which GPU and driver it sees, waits to be asked to end, and then powers the machine off.

Travels to the machine as it is; Python 3.8, nothing but the standard library.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

LAST_WORDS = "costgpu: first run: powering off"
LONGEST_SECONDS = 900.0  # then it ends by itself
SHUTDOWN_SECONDS = 60.0  # what the system may take
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]


def say(text: str) -> None:
    """Tell whoever follows the job, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Wait for SIGTERM, or too long."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    if shutil.which(QUERY[0]):
        subprocess.call(QUERY)
    say(f"python {sys.version.split()[0]}, kernel {os.uname().release}")
    until = time.monotonic() + LONGEST_SECONDS
    while not asked and time.monotonic() < until:
        time.sleep(0.2)
    try:
        Path("/dev/console").write_text(LAST_WORDS + "\n", encoding="ascii")
    except OSError as error:
        say(f"the console cannot be written: {error}")
    say(LAST_WORDS)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the shutdown need not wait for this
    subprocess.call(["systemctl", "poweroff", "-i", "--no-block"])
    time.sleep(SHUTDOWN_SECONDS)


if __name__ == "__main__":
    main()
