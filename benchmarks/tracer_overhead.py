"""What the probe adds to the steps that it does not trace: paired runs with and without it.

    python -m benchmarks.tracer_overhead [PAIRS]

The script without the probe is timed by one clock reading per optimizer step. Runs alternate, so that a machine that
changes its speed changes both; the median of the ratios of neighbouring runs is what counts. Of each run the fastest
tenth of the steps is taken, in which no neighbour interfered. Target: 2 % at most.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from costgpu.measure.interpreter import Interpreter
from costgpu.measure.session import Request, run_probe

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PLAIN = """
import json, os, runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook as hook
limit, out, script = float(sys.argv[1]), sys.argv[2], sys.argv[3]
times = []
def post(*_):
    times.append(time.perf_counter())
    if times[-1] - times[0] > limit:
        json.dump(times, open(out, "w"))
        os._exit(0)
hook(post)
sys.argv = sys.argv[3:]
runpy.run_path(script, run_name="__main__")
"""
CASES = [("mlp.py", []), ("lstm.py", []), ("train.py", ["--width", "8", "--workers", "0"])]


def plain(script: Path, arguments: list[str], seconds: float, folder: Path) -> float:
    """Seconds of a quick step (tenth percentile) without the probe."""
    out = folder / "plain.json"
    subprocess.run(
        [sys.executable, "-c", PLAIN, str(seconds), str(out), str(script), *arguments],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    times = json.loads(out.read_text())
    return statistics.quantiles((b - a for a, b in pairwise(times[10:])), n=10)[0]


def probed(script: Path, arguments: list[str], seconds: float, folder: Path) -> float:
    """Return the same under the probe, with the probe's own time between two steps in it."""
    request = Request(script=script, module=None, arguments=arguments, workdir=folder, measure_for_seconds=seconds)
    outcome = run_probe(request, Interpreter(sys.executable, "", ""), folder, lambda _seconds, _stepping: None)
    assert outcome.record is not None
    phase = outcome.record["phases"][0]
    plain_steps = [s for i, s in enumerate(phase["seconds"]) if i > 10 and str(i) not in phase["special"]]
    return statistics.quantiles(plain_steps, n=10)[0] + statistics.median(phase["own_seconds"])


def main() -> None:
    """Prints the ratio for each case."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'script':12}{'step':>10}{'ratio':>9}{'min':>8}{'max':>8}   ({pairs} pairs)")
    for name, arguments in CASES:
        with tempfile.TemporaryDirectory() as folder:
            ratios, steps = [], []
            for _ in range(pairs):
                without = plain(EXAMPLES / name, arguments, 4.0, Path(folder))
                ratios.append(probed(EXAMPLES / name, arguments, 4.0, Path(folder)) / without)
                steps.append(without)
            step = f"{statistics.median(steps) * 1e3:.2f} ms"
            print(
                f"{name:12}{step:>10}{statistics.median(ratios):9.3f}{min(ratios):8.3f}{max(ratios):8.3f}", flush=True
            )


if __name__ == "__main__":
    main()
