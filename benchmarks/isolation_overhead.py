"""What the isolation of a measured program costs: its start, its imports, its steps, and its reading of many small files.

    python -m benchmarks.isolation_overhead [--rounds 11] [--files 10000]

Each level runs the same programs in turn, round by round, so that a busy machine is the same for all; medians are printed.
What is write-protected cannot write files, and is not asked to.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.isolation.start import start_isolated
from costgpu.measure.scratch import Scratch

TIMED = "import time; start = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"
FILES = """
import os
for folder, _, names in os.walk('data'):
    for name in names:
        with open(os.path.join(folder, name), 'rb') as file:
            file.read()
"""
FILES_AGAIN = FILES + "start = time.perf_counter()" + FILES  # a second epoch
NEW_FILES = """
import os
import tempfile
new = tempfile.mkdtemp(dir='.')
for number in range(2000):
    with open('%s/%d' % (new, number), 'wb') as file:
        file.write(b'x' * 4096)
"""
STEPS = """
import torch
layer = torch.nn.Linear(256, 256)
best = torch.optim.SGD(layer.parameters(), lr=0.1)
def step():
    best.zero_grad()
    layer(torch.ones(64, 256)).sum().backward()
    best.step()
for _ in range(20):
    step()
start = time.perf_counter()
for _ in range(500):
    step()
"""
PROGRAMS = {
    "import torch": "import torch",
    "500 steps of a small layer": STEPS,
    "read the small files": FILES,
    "... a second time": FILES_AGAIN,
    "write 2,000 small files": NEW_FILES,
}


def seconds(level: Isolation, program: str | None, folder: Path, cache: Path) -> float:
    """Time of one program as it says itself; of one that does nothing, from outside."""
    scratch = Scratch.make(cache, "overhead")
    command = ["/bin/true"] if program is None else [sys.executable, "-c", TIMED.format(program)]
    begin = time.perf_counter()
    with scratch.log.open("wb") as output:
        started = start_isolated(
            command, folder=folder, environment=os.environ, output=output.fileno(), scratch=scratch, wanted=level
        )
        code = started.process.wait()
    took = time.perf_counter() - begin
    said = scratch.log.read_text()
    if code != 0:
        raise SystemExit(f"{level}: {said}")
    return took if program is None else float(said)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--levels", nargs="*", default=list(Isolation))
    options = parser.parse_args()
    levels = [Isolation(level) for level in options.levels]
    with tempfile.TemporaryDirectory(prefix="overhead-", dir=Path.home()) as place:
        folder, cache = Path(place, "work"), Path(place, "cache")
        for number in range(options.files):
            path = folder / "data" / str(number // 500) / f"{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(4096))
        print(f"{options.rounds} rounds, {options.files:,} files of 4 KiB; medians in ms, and their quarters")
        for name, program in {"start and end": None, **PROGRAMS}.items():
            able = [level for level in levels if program is not NEW_FILES or level is not Isolation.WRITE_PROTECTED]
            found: dict[Isolation, list[float]] = {level: [] for level in able}
            for _ in range(options.rounds):
                for level in able:
                    found[level].append(seconds(level, program, folder, cache))
            for level, times in found.items():
                low, middle, high = statistics.quantiles(times, n=4)
                print(f"{name:<28} {level:<16} {middle * 1e3:9.1f}  {low * 1e3:9.1f} - {high * 1e3:.1f}")


if __name__ == "__main__":
    main()
