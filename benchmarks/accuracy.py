"""How far the GPU model is from public measurements: median and p90 absolute percentage error, and coverage.

    python -m benchmarks.accuracy ROWS.csv [ROWS.csv ...] [--refit]

The files are described in `benchmarks.rows`; each row's model is traced by the same tracer that measures users'
scripts, and the prediction is by `costgpu.estimator.gpu`, as in `costgpu estimate`.

Beside the shipped constants, those that are fitted anew for every row on the rows that share neither its chip family,
nor its model family, nor either, nor its layout: what to expect of a chip or a network never seen. For each the share
of rows inside the 80 % interval.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.fitting import LEFT_OUT, NAMES, SHIPPED, Table, model_family
from benchmarks.rows import PRECISIONS, Row, load
from costgpu.estimator.gpu import Execution
from costgpu.estimator.gpu_interval import gpu_interval
from costgpu.estimator.roofline import TRAINING, GpuTerms, gpu_terms

CUTS: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: bool(row.model),
    "the ten calibrated models": lambda row: ":" not in row.model,
    "image models, NCHW": lambda row: row.model.startswith("timm:") and row.layout == "nchw",
    "image models, channels_last": lambda row: row.model.startswith("timm:") and row.layout == "nhwc",
    "batch 12": lambda row: row.model.startswith("tv:"),
}


def terms(row: Row) -> GpuTerms:
    """Return the model's terms for a row, with the shipped constants."""
    execution = Execution(PRECISIONS[row.precision])
    return gpu_terms(row.work, row.spec, execution, TRAINING, optimizers=row.optimizers, host=row.host)


def percent(errors: Sequence[float] | np.ndarray, q: float) -> float:
    """Return a quantile of errors, in percent."""
    return 100 * float(np.quantile(errors, q)) if len(errors) else math.nan


def inside(table: Table, predicted: np.ndarray) -> np.ndarray:
    """Return whether the measured seconds lie in the interval around the prediction."""
    found = []
    for row, seconds in zip(table.rows, predicted, strict=True):
        spec = replace(row.spec, year=min(row.spec.year, row.year))
        interval, _ = gpu_interval(terms(row), spec, Execution(PRECISIONS[row.precision]), trains=True, year=row.year)
        found.append(interval.low * seconds <= row.seconds <= interval.high * seconds)
    return np.array(found)


def line(name: str, table: Table, predicted: np.ndarray, held: np.ndarray, chosen: np.ndarray) -> None:
    """Prints one line of a table."""
    errors = predicted[chosen] / table.measured[chosen] - 1
    if len(errors):
        figures = f"{percent(abs(errors), 0.5):8.1f}%{percent(abs(errors), 0.9):8.1f}%{percent(errors, 0.5):+8.1f}%"
        print(f"{name:34}{len(errors):6}{figures}{100 * held[chosen].mean():9.0f}%")


def report(title: str, table: Table, predicted: np.ndarray) -> None:
    """Print errors and coverage by the cuts, and by precision, layout, GPU and model family."""
    held = inside(table, predicted)
    print(f"\n{title}: absolute percentage error, and what the 80 % intervals hold")
    print(f"{'':34}{'rows':>6}{'median':>9}{'p90':>9}{'bias':>9}{'held':>10}")
    for name, belongs in CUTS.items():
        line(name, table, predicted, held, np.array([belongs(row) for row in table.rows]))
    by: dict[str, Callable[[Row], str]] = {
        "precision": lambda row: row.precision,
        "layout": lambda row: row.layout,
        "GPU": lambda row: row.gpu,
        "model family": model_family,
    }
    for label, key in by.items():
        print(f"  by {label}")
        for value in sorted({key(row) for row in table.rows}):
            line("    " + value, table, predicted, held, np.array([key(row) == value for row in table.rows]))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+", help="CSV files of measured rows")
    parser.add_argument("--refit", action="store_true", help="print the constants fitted on all rows, and every row")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    table = Table(load(arguments.rows))
    print(f"{len(table.rows)} rows traced in {time.perf_counter() - begin:.1f} s; torch {torch.__version__}")
    report("Shipped constants", table, table.shipped())
    for name, keys in LEFT_OUT.items():
        if all(len({key(row) for row in table.rows}) > 1 for key in keys):
            report(name.capitalize(), table, table.left_out(*keys))
    if arguments.refit:
        constants = table.fit(np.ones(len(table.rows), dtype=bool))
        print("fitted on all rows, beside what is shipped:")
        for name, value in zip([*NAMES, "host"], constants, strict=True):
            print(f"  {name:24}{value:10.4g}{SHIPPED.get(name, 1.0):10.4g}")
        every_row(table)


def every_row(table: Table) -> None:
    """Prints each row's figures, in seconds."""
    print("measured, predicted, compute, on-chip, memory, depthwise, launch, calls")
    for r in sorted(table.rows, key=lambda r: (r.model, r.layout, r.precision, r.gpu, r.batch)):
        t = terms(r)
        seconds = t.seconds + r.copy_seconds
        parts = " ".join(f"{x:.4f}" for x in (t.compute, t.on_chip, t.memory, t.depthwise, t.launch, t.calls))
        figures = f"{r.seconds:.4f} {seconds:.4f} {seconds / r.seconds - 1:+.0%} {parts}"
        print(f"{r.model:30}{r.layout:5}{r.precision:5}{r.gpu:18}{r.batch:9} {figures}")


if __name__ == "__main__":
    sys.exit(main())
