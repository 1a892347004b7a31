"""How far the GPU model is from public measurements: median and p90 absolute percentage error, and coverage.

    python -m benchmarks.accuracy ROWS.csv [--refit]

ROWS.csv has the columns source, software, model, phase, gpu, precision, batch_size, optimizer, seconds_per_step. Each
row's model is built under FakeTensorMode (no memory, seconds) and traced by the same tracer that measures users'
scripts; the prediction is by `costgpu.estimator.gpu`, as in `costgpu estimate`.

Two figures: with the shipped constants, and with the four constants fitted anew for every row on the rows that share
neither its chip family nor its model ("both out"), which is what to expect of a chip and a model never seen.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.models import Workload, build
from costgpu.estimator import gpu
from costgpu.estimator.interval import gpu_interval
from costgpu.estimator.op_costs import StepWork, step_work
from costgpu.measure.probe.op_tracer import make_tracer
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import OpRow, OptimizerFacts
from costgpu.pricing.hardware import accelerators

PRECISIONS = {
    "fp32": gpu.Precision(half=None, matmul_tf32=False, conv_tf32=True),
    "tf32": gpu.Precision(half=None, matmul_tf32=True, conv_tf32=True),
    "amp": gpu.Precision(half="float16", matmul_tf32=True, conv_tf32=True),
    "fp16": gpu.Precision(half="float16", matmul_tf32=True, conv_tf32=True),
    "bf16": gpu.Precision(half="bfloat16", matmul_tf32=True, conv_tf32=True),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One public measurement with what the model needs for it."""

    model: str
    phase: str
    gpu: str
    precision: str
    batch: int
    seconds: float
    work: StepWork
    optimizers: list[OptimizerFacts]
    spec: AcceleratorSpec
    year: int


def build_any(model: str, batch: int, source: str) -> Workload:
    """The model as that source has it; for a source not known here, as any of the known ones has it."""
    for candidate in (source, "lambdal/deeplearning-benchmark", "sitar-lab/NeuSight"):
        try:
            return build(model, batch, candidate)
        except ValueError:
            continue
    raise SystemExit(f"there is no model {model!r} in benchmarks/models")


def trace(model: str, batch: int, phase: str, source: str) -> tuple[StepWork, int, int]:
    """Work of one step, parameters and their tensors."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        workload = build_any(model, batch, source)
        tracer = make_tracer(torch)()
        with tracer:
            if phase == "train":
                loss = workload.loss()
                tracer.phase = "backward"
                loss.backward()
            else:
                with torch.no_grad():
                    workload.infer()
        parameters = [p for p in workload.model.parameters() if p.requires_grad]
        rows = [
            OpRow(
                op=r["op"],
                phase=r["phase"],
                count=r["count"],
                inputs=r["inputs"],
                outputs=r["outputs"],
                attributes=r["attributes"],
            )
            for r in tracer.rows.values()
        ]
        return step_work(rows, 1), sum(p.numel() for p in parameters), len(parameters)


def optimizer_facts(name: str, parameters: int, tensors: int) -> list[OptimizerFacts]:
    """What the row's optimizer is to the model."""
    kinds = {"adam": ("Adam", False), "sgd_momentum": ("SGD", True), "none_grad_accumulate": ("SGD", False)}
    if name not in kinds:
        return []
    kind, momentum = kinds[name]
    return [OptimizerFacts(name=kind, momentum=momentum, parameters=parameters, tensors=tensors)]


def find_spec(name: str) -> AcceleratorSpec:
    """The hardware row of a benchmark's GPU name."""
    for spec in accelerators().values():
        if name in (spec.name, spec.model):
            return spec
    raise SystemExit(f"no specs for {name!r}")


def load(path: Path) -> list[Row]:
    """Reads the rows and traces each model and batch once."""
    traced: dict[tuple[str, int, str, str], tuple[StepWork, int, int]] = {}
    rows: list[Row] = []
    with path.open(newline="") as stream:
        for raw in csv.DictReader(stream):
            source = raw["source"]
            key = (raw["model"], int(raw["batch_size"]), raw["phase"], source)
            if key not in traced:
                traced[key] = trace(*key)
            work, parameters, tensors = traced[key]
            rows.append(
                Row(
                    model=raw["model"],
                    phase=raw["phase"],
                    gpu=raw["gpu"],
                    precision=raw["precision"],
                    batch=key[1],
                    seconds=float(raw["seconds_per_step"]),
                    work=work,
                    optimizers=optimizer_facts(raw["optimizer"], parameters, tensors),
                    spec=find_spec(raw["gpu"]),
                    year=2022 if "2022" in raw["software"] else 2023,
                )
            )
    return rows


def terms(row: Row) -> gpu.GpuTerms:
    """The model's terms for a row, with the shipped constants."""
    return gpu.gpu_terms(row.work, row.optimizers, PRECISIONS[row.precision], row.spec)


def features(row: Row) -> np.ndarray:
    """The four sums of the model without its constants."""
    t = terms(row)
    return np.array(
        [
            t.compute / gpu.COMPUTE,
            t.on_chip / gpu.ON_CHIP,
            t.memory / gpu.MEMORY,
            t.launch / gpu.LAUNCH_SECONDS,
        ]
    )


def family(row: Row) -> str:
    """Chips that share a die count as one: leaving out one card of them leaves nothing to learn from."""
    return row.gpu.split("-")[0]


def fit(rows: list[Row], start: np.ndarray) -> np.ndarray:
    """Constants that minimise the mean absolute log error, by coordinate search from `start`."""
    x = np.stack([features(r) for r in rows])
    y = np.log([r.seconds for r in rows])

    def loss(c: np.ndarray) -> float:
        return float(np.abs(np.log(x @ c) - y).mean())

    best, best_loss, step = start.copy(), loss(start), 0.3
    while step > 0.01:
        moved = False
        for k in range(len(best)):
            for factor in (1 + step, 1 / (1 + step)):
                trial = best.copy()
                trial[k] *= factor
                if (value := loss(trial)) < best_loss - 1e-6:
                    best, best_loss, moved = trial, value, True
        if not moved:
            step /= 2
    return best


def percent(errors: list[float], q: float) -> float:
    """A quantile of errors, in percent."""
    return 100 * float(np.quantile(errors, q)) if errors else math.nan


def report(title: str, rows: list[Row], predict: Callable[[Row], float]) -> None:
    """Prints a table of errors."""
    errors = {id(r): abs(predict(r) / r.seconds - 1) for r in rows}
    print(f"\n{title}: absolute percentage error")
    print(f"{'':28}{'rows':>6}{'median':>9}{'p90':>9}{'bias':>9}")

    def line(name: str, chosen: list[Row]) -> None:
        values = [errors[id(r)] for r in chosen]
        bias = statistics.median(predict(r) / r.seconds - 1 for r in chosen)
        print(f"{name:28}{len(chosen):6}{percent(values, 0.5):8.1f}%{percent(values, 0.9):8.1f}%{100 * bias:+8.1f}%")

    line("all", rows)
    for label, key in (
        ("precision", lambda r: r.precision),
        ("GPU", lambda r: r.gpu),
        ("model", lambda r: r.model),
    ):
        print(f"  by {label}")
        for name in sorted({key(r) for r in rows}):
            line("    " + name, [r for r in rows if key(r) == name])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="CSV of measured rows")
    parser.add_argument("--refit", action="store_true", help="print the constants fitted on all rows")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    rows = load(arguments.rows)
    print(f"{len(rows)} rows traced in {time.perf_counter() - begin:.1f} s; torch {torch.__version__}")
    shipped = np.array([gpu.COMPUTE, gpu.ON_CHIP, gpu.MEMORY, gpu.LAUNCH_SECONDS])
    table = {id(r): features(r) for r in rows}
    report("Shipped constants", rows, lambda r: float(table[id(r)] @ shipped))
    fitted: dict[tuple[str, str], np.ndarray] = {}
    for r in rows:
        key = (family(r), r.model)
        if key not in fitted:
            fitted[key] = fit([o for o in rows if family(o) != key[0] and o.model != key[1]], shipped)
    report(
        "Both out (chip family and model not in the fit)",
        rows,
        lambda r: float(table[id(r)] @ fitted[family(r), r.model]),
    )
    inside = below = 0
    for r in rows:
        t = terms(r)
        interval, _ = gpu_interval(t, replace_year(r.spec, r.year), compiled=False, as_of_year=r.year)
        inside += t.seconds * interval.low <= r.seconds <= t.seconds * interval.high
        below += r.seconds < t.seconds * interval.low
    above = len(rows) - inside - below
    print(f"\n80 % intervals cover {100 * inside / len(rows):.0f} % of the rows ({below} below, {above} above)")
    if arguments.refit:
        constants = fit(rows, shipped)
        print("fitted on all rows:", ", ".join(f"{c:.4g}" for c in constants))
        print("a row's figures in seconds: measured, predicted, compute, on-chip, memory, launch")
        for r in sorted(rows, key=lambda r: (r.model, r.precision, r.gpu, r.batch)):
            t = terms(r)
            parts = f"{t.compute:.4f} {t.on_chip:.4f} {t.memory:.4f} {t.launch:.4f}"
            figures = f"{r.seconds:.4f} {t.seconds:.4f} {t.seconds / r.seconds - 1:+.0%} {parts}"
            print(f"{r.model:12}{r.phase:10}{r.precision:5}{r.gpu:18}{r.batch:9} {figures}")


def replace_year(spec: AcceleratorSpec, year: int) -> AcceleratorSpec:
    """The spec as of the software's year."""
    return replace(spec, year=min(spec.year, year))


if __name__ == "__main__":
    sys.exit(main())
