"""What a measurement on one GPU says of another: the weight of `costgpu.estimator.calibration`, from public measurements.

    python -m benchmarks.calibration ROWS.csv

ROWS.csv as in `benchmarks.accuracy`. Pairs are two training rows of one model and precision on two GPUs; the constants
of the GPU model are fitted anew on the rows that share neither the predicted chip family nor the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.accuracy import Row, family, features, fit, load
from costgpu.estimator import gpu

SHIPPED = np.array([gpu.COMPUTE, gpu.ON_CHIP, gpu.MEMORY, gpu.LAUNCH_SECONDS])


def ratios(rows: list[Row], pair: Callable[[Row, Row], bool]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of measured over modelled time, here and there, of every such pair."""
    columns = {id(row): features(row) for row in rows}
    fitted: dict[tuple[str, str], np.ndarray] = {}
    here, there = [], []
    for predicted in rows:
        key = (family(predicted), predicted.model)
        if key not in fitted:
            fitted[key] = fit([row for row in rows if family(row) != key[0] and row.model != key[1]], SHIPPED)
        for measured in rows:
            same_work = (measured.model, measured.precision) == (predicted.model, predicted.precision)
            if same_work and pair(measured, predicted):
                here.append(np.log(measured.seconds / (columns[id(measured)] @ fitted[key])))
                there.append(np.log(predicted.seconds / (columns[id(predicted)] @ fitted[key])))
    return np.array(here), np.array(there)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rows", type=Path)
    rows = [row for row in load(parser.parse_args().rows) if row.phase == "train"]
    pairs: dict[str, Callable[[Row, Row], bool]] = {
        "different chips": lambda one, other: family(one) != family(other),
        "boards with one chip": lambda one, other: family(one) == family(other) and one.gpu != other.gpu,
    }
    for name, pair in pairs.items():
        here, there = ratios(rows, pair)
        print(f"{name}: {len(here)} pairs, least-squares weight {(here @ there) / (here @ here):.2f}")
        for weight in (0.0, 0.25, 0.5, 0.75, 1.0):
            error = 100 * np.abs(np.exp(weight * here - there) - 1)
            print(f"  weight {weight:.2f}: median error {np.median(error):.1f} %, p90 {np.quantile(error, 0.9):.1f} %")


if __name__ == "__main__":
    main()
