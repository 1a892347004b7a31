"""The expected time under interruptions, against jobs that are replayed on traces of real spot machines.

    python -m benchmarks.interruptions FOLDER

FOLDER is a copy of skypilot-org/spot-traces (NSDI '24). A trace says, every 30 to 300 seconds, how many machines of a
zone were running. A job starts at each of many moments of it, goes on after each interruption as soon as there is a
machine, and its seconds on machines are compared with the formula for the trace's own mean rate: what is left is that
real interruptions are not Poisson. Jobs that the trace cuts off are left out. The rate of the estimate, which is assumed, is
not tested here.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from costgpu.estimator.spot import daly_interval, expected_seconds

HOUR = 3600.0
RESTART_SECONDS, SAVE_SECONDS = 150.0, 10.0
JOB_HOURS = (1.0, 4.0, 12.0)
STARTS = 400  # of each job, evenly over a trace
LEAST_HOURS = 40.0


def lifetimes(trace: Path) -> list[float]:
    """Seconds that each machine of a trace of one ran, in order; the last was not interrupted in the trace."""
    document = json.loads(trace.read_text())
    gap, found, running = document["metadata"]["gap_seconds"], [0.0], False
    for count in document["data"]:
        if count:
            found[-1] += gap
        elif running:
            found.append(0.0)
        running = bool(count)
    return found


def replayed(lives: Sequence[float], start: float, work: float, interval: float) -> float | None:
    """Seconds on machines of a job that begins at so many seconds of machine time; None if the trace is too short."""
    clock, left = 0.0, work
    remaining = list(lives)
    while start >= remaining[0]:
        start -= remaining.pop(0)
        if not remaining:
            return None
    remaining[0] -= start
    while remaining:
        life, used = remaining.pop(0), RESTART_SECONDS
        while used <= life:
            piece = min(interval, left)
            used += piece + (SAVE_SECONDS if piece < left else 0.0)
            if used <= life:
                left -= piece
                if left <= 0:
                    return clock + used
        clock += life
    return None


def compared(lives: Sequence[float], work: float, interval: float) -> tuple[float, float] | None:
    """Mean seconds of the replayed jobs, and of the formula; None where less than half of them end in the trace."""
    machine_seconds, taken = sum(lives), len(lives) - 1
    starts = (machine_seconds * number / STARTS for number in range(STARTS))
    ended = [seconds for start in starts if (seconds := replayed(lives, start, work, interval)) is not None]
    if len(ended) < STARTS / 2:
        return None
    expected = expected_seconds(
        work,
        taken / machine_seconds,
        restart_seconds=RESTART_SECONDS,
        checkpoint_seconds=SAVE_SECONDS,
        interval_seconds=interval,
    )
    return statistics.fmean(ended), expected


def rows(folder: Path) -> Iterator[tuple[str, float, list[float]]]:
    """Name, interruptions per hour and lifetimes of each trace of single machines that is long enough."""
    for path in sorted(folder.glob("preemption/1-node/*/*.json")):
        lives = lifetimes(path)
        if sum(lives) >= LEAST_HOURS * HOUR:
            yield f"{path.parent.name} {path.stem}", (len(lives) - 1) / (sum(lives) / HOUR), lives


def main() -> None:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(description="Expected time under interruptions against replayed jobs.")
    parser.add_argument("folder", type=Path, help="a copy of skypilot-org/spot-traces")
    traces = list(rows(parser.parse_args().folder))
    errors: dict[tuple[float, str], list[float]] = {}
    for name, per_hour, lives in traces:
        cells = [f"{name:44} {per_hour:6.3f}/h"]
        for hours in JOB_HOURS:
            mean = HOUR / per_hour if per_hour else math.inf
            for kind, interval in (("best", daly_interval(SAVE_SECONDS, mean)), ("none", math.inf)):
                found = compared(lives, hours * HOUR, interval)
                if found is not None:
                    errors.setdefault((hours, kind), []).append(found[1] / found[0] - 1)
                cells.append("     -" if found is None else f"{found[1] / found[0] - 1:+6.1%}")
        sys.stdout.write("  ".join(cells) + "\n")
    for (hours, kind), found_errors in errors.items():
        typical = statistics.median(abs(error) for error in found_errors)
        sys.stdout.write(f"{hours:g} h, {kind}: {len(found_errors)} traces, median error {typical:.1%}\n")


if __name__ == "__main__":
    main()
