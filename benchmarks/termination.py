"""Seconds from a job's last instruction to the terminate call, and to the provider's confirmation.

    python -m benchmarks.termination [runs]

As root on Debian: the runs go through the emulated AWS of the tests, on real hosts, with the installed command. What the
emulator adds by itself (its hosts power off in about 0.2 s; AWS takes 30 s and more) is in the second figure only.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from tests.emulators.guests import namespace, packages

JOB = (
    "import time\nopen('model.pt', 'wb').write(b'x' * 1_000_000)\nprint('last instruction', time.time(), flush=True)\n"
)
TARGET_SECONDS = 5.0


def once(folder: Path) -> tuple[float, float, float]:
    """Seconds to the terminate call, to confirmation, and from the create call to the job's end, of one run."""
    (folder / "job.py").write_text(JOB)
    command = [
        sys.executable,
        "-m",
        "costgpu",
        "run",
        "--json",
        "--no-estimate",
        "--infra",
        "aws/us-east-1",
        "-t",
        "t3.micro",
        "--max-cost",
        "1",
        "-y",
        "job.py",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    receipt = json.loads(done.stdout)["receipt"]
    found = re.search(r"last instruction ([\d.]+)", done.stderr)
    assert found is not None
    end = float(found.group(1))
    asked = datetime.fromisoformat(receipt["requested_at"]).timestamp()
    confirmed = datetime.fromisoformat(receipt["confirmed_at"]).timestamp()
    return asked - end, confirmed - end, receipt["metered_seconds"] - (confirmed - end)


def main() -> None:
    """Prints medians and extremes."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    if not namespace.inside():
        if reason := packages.obstacle():
            raise SystemExit(reason)
        inner = [sys.executable, "-m", "benchmarks.termination", str(runs)]
        raise SystemExit(
            subprocess.call([sys.executable, "-m", "tests.emulators.guests.namespace", "--cloud", "--", *inner])
        )
    results = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            results.append(once(Path(folder)))
    names = ("last instruction -> terminate call", "last instruction -> confirmed", "create call -> last instruction")
    for name, values in zip(names, zip(*results, strict=True), strict=True):
        print(
            f"{name:<36} median {statistics.median(values):.2f} s  ({min(values):.2f}-{max(values):.2f}, {runs} runs)"
        )
    print(f"target: terminate call within a median of {TARGET_SECONDS:.0f} s")


if __name__ == "__main__":
    main()
