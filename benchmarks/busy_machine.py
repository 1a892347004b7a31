"""How much a busy machine changes what is told of the clouds: the examples measured quietly, and beside busy loops.

    python -m benchmarks.busy_machine [--loops 4] [--rounds 3] [SCRIPT ...]

Prints, for each script, its step here and the seconds of a step on some machines of the clouds as the quiet measurement
tells them, and by which factors the measurements beside the loops differ. Everything is measured again in each round.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from costgpu.estimator.predict import predict, prepare
from costgpu.estimator.scope import scope_of
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.script import measure_script
from costgpu.measure.session import Request
from costgpu.models.prediction import Candidate
from costgpu.models.workload import WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.workflows.offers import candidates
from costgpu.workflows.reporter import LogReporter

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = ("train.py", "mlp.py", "lstm.py", "gan.py", "transformer.py")
TYPES = ("c7g.2xlarge", "c8i.2xlarge", "c7a.2xlarge", "c6a.2xlarge", "c6i.2xlarge", "g4dn.xlarge", "g6.xlarge")


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run so many programs that never rest."""
    with ExitStack() as stack:
        for _ in range(count):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


def measured(script: Path, seconds: float) -> WorkloadProfile:
    """Measure a script with this very Python."""
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            script=script.absolute(), module=None, arguments=[], workdir=script.parent, measure_for_seconds=seconds
        )
        me = Interpreter(sys.executable, sys.version.split()[0], "benchmark")
        return measure_script(request, me, Path(folder), lambda *_: None)[0]


def step_seconds(profile: WorkloadProfile, places: list[Candidate]) -> dict[str, float]:
    """Return the seconds of a step here and on each place, by name."""
    scope = scope_of(profile)
    workload = prepare(profile, scope, year=datetime.now(UTC).year, cards=accelerators().values())
    found = {"here": predict(workload, Candidate(offer=None)).step_seconds}
    for place in places:
        assert place.offer is not None
        found[place.offer.instance_type] = predict(workload, place).step_seconds
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", type=Path, default=[EXAMPLES / name for name in SCRIPTS])
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement, after the first step")
    options = parser.parse_args()
    places = candidates(None, ("aws/us-east-1",), spot=False, reporter=LogReporter())
    known = [place for place in places if place.offer is not None and place.offer.instance_type in TYPES]
    off: list[float] = []
    for script in options.scripts:
        quiet, busy = [], []
        for _ in range(options.rounds):
            quiet.append(step_seconds(measured(script, options.seconds), known))
            with busy_loops(options.loops):
                profile = measured(script, options.seconds)
            busy.append(step_seconds(profile, known))
        print(f"{script.name}: other programs took {profile.machine.disturbed_share:.0%} of its time")
        for name in quiet[0]:
            base = statistics.median(one[name] for one in quiet)
            spread = max(one[name] for one in quiet) / min(one[name] for one in quiet)
            ratios = [one[name] / base for one in busy]
            off += ratios if name != "here" else []
            shown = " ".join(f"{ratio:5.2f}" for ratio in ratios)
            print(f"  {name:14} {1e3 * base:10.3f} ms (quiet rounds within {spread:.2f})   busy over quiet {shown}")
    inside = sum(0.75 <= ratio <= 1.25 for ratio in off) / len(off)
    print(f"on the clouds: {inside:.0%} of {len(off)} within 25 %; {min(off):.2f} to {max(off):.2f}")


if __name__ == "__main__":
    main()
