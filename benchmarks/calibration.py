"""What a measurement on one GPU says of another: the weight of `costgpu.estimator.calibration`, from public measurements.

    python -m benchmarks.calibration ROWS.csv [ROWS.csv ...]

The files are those of `benchmarks.rows`. Pairs are two training rows of one model and precision on two GPUs; the constants
of the GPU model are fitted anew on the rows that share neither the predicted chip family nor the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.fitting import Table, model_family
from benchmarks.rows import Row, family, load


def ratios(table: Table, pair: Callable[[Row, Row], bool]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of measured over modelled time, here and there, of every such pair."""
    fitted: dict[tuple[str, str], np.ndarray] = {}
    here, there = [], []
    for predicted, row in enumerate(table.rows):
        key = (family(row), model_family(row))
        if key not in fitted:
            others = [family(one) != key[0] and model_family(one) != key[1] for one in table.rows]
            fitted[key] = np.log(table.measured / table.predict(table.fit(np.array(others))))
        for measured, other in enumerate(table.rows):
            same_work = (other.model, other.precision, other.layout) == (row.model, row.precision, row.layout)
            if same_work and pair(other, row):
                here.append(fitted[key][measured])
                there.append(fitted[key][predicted])
    return np.array(here), np.array(there)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rows", type=Path, nargs="+")
    table = Table([row for row in load(parser.parse_args().rows) if row.phase == "train"])
    pairs: dict[str, Callable[[Row, Row], bool]] = {
        "different chips": lambda one, other: family(one) != family(other),
        "boards with one chip": lambda one, other: family(one) == family(other) and one.gpu != other.gpu,
    }
    for name, pair in pairs.items():
        here, there = ratios(table, pair)
        print(f"{name}: {len(here)} pairs, least-squares weight {(here @ there) / (here @ here):.2f}")
        for weight in (0.0, 0.25, 0.5, 0.75, 1.0):
            error = 100 * np.abs(np.exp(weight * here - there) - 1)
            print(f"  weight {weight:.2f}: median error {np.median(error):.1f} %, p90 {np.quantile(error, 0.9):.1f} %")


if __name__ == "__main__":
    main()
