"""Simulates the whole client side from many seeds, and prints what came of it.

python -m benchmarks.simulation --seeds 100000 [--first N] [--jobs 2]
python -m benchmarks.simulation --first 4711 --seeds 1 --log      one seed again, call by call
python -m benchmarks.simulation --planted [--seeds 5000]          which seed finds which planted bug
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation import seams
from tests.simulation.explore import Exploration, explore, find
from tests.simulation.planted import BUGS
from tests.simulation.schedule import draw
from tests.simulation.simulation import simulate

CHUNK = 250
FIGURES = {
    "machines left": ("everything ends",),
    "machines past their lease": ("ended at its lease",),
    "runs with money over the cap": ("cost within the cap",),
    "runs with outputs lost": ("outputs come home",),
    "runs falsely called terminated": ("terminated means terminated",),
}


def main() -> int:
    """Return the exit code: 1 if anything was violated or a bug was not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=None, help="number of seeds (1000; with --planted 5000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--log", action="store_true", help="print every call")
    parser.add_argument("--planted", action="store_true", help="plant bugs, and tell which seed finds them")
    asked = parser.parse_args()
    if asked.planted:
        return planted(asked.first, asked.seeds or 5000, asked.jobs)
    seeds = range(asked.first, asked.first + (asked.seeds or 1000))
    return logged(seeds) if asked.log else many(seeds, asked.jobs)


def logged(seeds: range) -> int:
    failed = 0
    with seams.in_place():
        for seed in seeds:
            outcome = simulate(draw(seed))
            print(outcome.schedule, *outcome.log, *(f"VIOLATED {one}" for one in outcome.violations), sep="\n")
            failed += bool(outcome.violations)
    return int(failed > 0)


def many(seeds: range, jobs: int) -> int:
    began, whole = time.perf_counter(), Exploration()
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(explore, list(_chunks(seeds))):
            whole.add(part)
            for failure in part.failures:
                print(failure, end="\n\n", flush=True)
    seconds = time.perf_counter() - began
    counts = whole.counts
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {counts['runs']} simulations in {seconds:.0f} s of real time")
    print(
        f"  {counts['seconds'] / 3600:,.0f} simulated hours, {counts['machines']:,} machines, {counts['kills']:,} clients"
        " killed"
    )
    for title in ("command", "signal", "fault"):
        told = sorted((name, count) for name, count in counts.items() if name.startswith(f"{title} "))
        print(
            f"  {title}s: {sum(count for _, count in told):,}: "
            + ", ".join(f"{n.removeprefix(title + ' ')} {c:,}" for n, c in told)
        )
    for name, invariants in FIGURES.items():
        print(f"  {name}: {sum(whole.broken[one] for one in invariants)}")
    print(
        f"  violations of any kind: {sum(whole.broken.values())}"
        + "".join(f"\n    {k}: {v}" for k, v in whole.broken.items())
    )
    return int(bool(whole.failures))


def planted(first: int, seeds: int, jobs: int) -> int:
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for number, (found, words, seconds) in enumerate(
            pool.map(_plant, [(n, first, seeds) for n in range(len(BUGS))])
        ):
            missed += found is None
            print(
                f"{'never' if found is None else found:>6}  {BUGS[number].name}: {words} ({seconds:.0f} s)", flush=True
            )
    print(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs were found by seeds {first} to {first + seeds - 1}")
    return int(missed > 0)


def _plant(asked: tuple[int, int, int]) -> tuple[int | None, str, float]:
    number, first, seeds = asked
    began = time.perf_counter()
    outcome = find(BUGS[number], range(first, first + seeds))
    seconds = time.perf_counter() - began
    return (
        (None, "", seconds)
        if outcome is None
        else (outcome.schedule.seed, outcome.violations[0].splitlines()[0], seconds)
    )


def _chunks(seeds: range) -> Iterator[range]:
    return (seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK))


if __name__ == "__main__":
    sys.exit(main())
