"""What the GPU model loses when a step's FLOPs and bytes are known only in all, and not by op.

    python -m benchmarks.counted ROWS.csv [ROWS.csv ...]

The files are those of benchmarks.rows. Each row's trace is summed to the totals that a framework tells (FLOPs, bytes,
kernels, share of convolutions), and predicted from those; beside it the prediction from the ops. Where the rules of a
kind of op are gone (layout, 3x3 and depthwise convolutions, attention), so is what they knew.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from benchmarks.accuracy import percent
from benchmarks.rows import PRECISIONS, Row, load
from costgpu.estimator.gpu import Execution
from costgpu.estimator.roofline import TRAINING, gpu_terms
from costgpu.estimator.work import Work, counted_work
from costgpu.models.workload import StepTotals


def totals(row: Row) -> StepTotals:
    """Return the row's trace as one sum."""
    flops = row.work.total_flops
    return StepTotals(
        flops=flops,
        bytes_moved=row.work.bytes_moved,
        kernels=row.work.kernels,
        convolutions=row.work.convolved_share,
        dtype=max(row.work.flops, key=lambda key: row.work.flops[key])[1],
    )


def error(row: Row, work: Work) -> float:
    """Relative error of the prediction from this work."""
    terms = gpu_terms(
        work, row.spec, Execution(PRECISIONS[row.precision]), TRAINING, optimizers=row.optimizers, host=row.host
    )
    return (terms.seconds + row.copy_seconds) / row.seconds - 1


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", help="CSV files of measured rows")
    rows = load(parser.parse_args().rows)
    print(f"{'':14}{'rows':>5}{'by op':>20}{'by totals':>20}{'bias':>8}   (median, p90)")
    for model in ["all", *sorted({row.model for row in rows})]:
        mine = [row for row in rows if model in ("all", row.model)]
        ops = [error(row, row.work) for row in mine]
        sums = [error(row, counted_work(totals(row))) for row in mine]
        figures = [
            f"{percent([abs(e) for e in errors], 0.5):8.1f} %{percent([abs(e) for e in errors], 0.9):8.1f} %"
            for errors in (ops, sums)
        ]
        print(f"{model:14}{len(mine):5}{figures[0]:>20}{figures[1]:>20}{percent(sums, 0.5):+7.1f} %")
        if model == "all":
            logs = sorted(math.log(1 + e) for e in sums)
            low, high = (logs[int(q * (len(logs) - 1))] for q in (0.1, 0.9))
            print(f"{'':14}80 % of the measured times lie between {math.exp(-high):.2f} and {math.exp(-low):.2f} times")


if __name__ == "__main__":
    main()
