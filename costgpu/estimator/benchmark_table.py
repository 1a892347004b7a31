"""Seconds on a GPU from the benchmark table, for work whose ops nobody counted. Pure.

    log S = mean over rows i, weighted, of [ log S_i + a log(G / G_i) + b log(C_i / C) ]
    w_i = weight_i * exp(-(log(W / W_i) / H)^2 / 2)

S is the speed-up of the candidate's GPU over the CPU that measured, S_i that of a row. G = sqrt(fp32 peak * memory
bandwidth) of a GPU; C = rate of a core * s(n) of a CPU; W = CPU seconds of one unit of work (a round, a step) * C, so that
small work is compared with small work: a GPU gains nothing on it. a, b, H and the widths are from leave-one-out over the
measured rows (`python -m benchmarks.speedups`, 2026-11-21).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from costgpu.estimator.cpu import CpuRates, speedup_of
from costgpu.estimator.interval import Z80
from costgpu.models.offer import AcceleratorSpec, Grade, Speedup
from costgpu.units import format_ratio

DEFAULT_KIND = "any"
TREES, LIBRARY = "gradient-boosted-trees", "scikit-learn"
LARGE_NETS = ("resnet50", "large-cnn", "transformer", "gan")
SMALL_NETS = ("mlp", "small-cnn")
RECURRENT = ("lstm", "stacked-lstm", "rnn", "gru")
# Where to look if a kind has no measured row of its own: measured rows of these first, claims about them last.
RELATIVES = {
    "large-cnn": ("resnet50",),
    "resnet50": ("large-cnn",),
    "gan": ("large-cnn", "resnet50"),
    "cnn": ("large-cnn", "resnet50", "small-cnn"),
    "rnn": ("lstm",),
    "gru": ("lstm",),
    "lstm": ("stacked-lstm",),
    "stacked-lstm": ("lstm",),
    "": (*LARGE_NETS, *SMALL_NETS, "lstm", "stacked-lstm"),
}
# (a, b) of the formula by kind: how far a faster GPU or CPU shortens it.
EXPONENTS = dict.fromkeys(LARGE_NETS, (0.75, 1.0)) | dict.fromkeys(SMALL_NETS, (0.50, 0.75))
EXPONENTS |= dict.fromkeys(RECURRENT, (0.25, 0.50))
DEFAULT_EXPONENTS = (0.25, 1.0)  # trees, and whatever else is no net
SIGMA_TABLE = 0.04  # of s(n) for the CPUs of the table: what the exponents and the spreads below were found with
NEAR_WORK = 0.7  # H: rows whose unit is twice as much work count 0.6, four times 0.14
LEAST_NEARNESS, OTHER_UNIT = 1e-3, 0.2  # a row far off in size; a row whose unit is not told
ENOUGH_ROWS = 3  # from so many rows of the same library on, only these count
# Standard deviation of log S by what it rests on: of rows predicted from other sources' rows alone, where a kind has more
# than one source, else of all such rows together; of rows predicted from their relatives; and, of what is only claimed,
# no better than a guess. Source: benchmarks/speedups.py (2026-11-21).
SPREAD = {TREES: 0.85, "resnet50": 1.25}
SPREAD_OWN = 1.00
SPREAD_RELATIVE = 1.10
SPREAD_CLAIM = 1.50


@dataclass(frozen=True, slots=True)
class TableSpeed:
    """Speed-up of a GPU over the CPU that measured; `sigma` is the standard deviation of its logarithm."""

    speedup: float
    sigma: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableWork:
    """Work that is looked up in the table."""

    kind: str  # kind of work as the table names it; empty for a net of which nothing is known
    framework: str  # name of the library
    unit: str  # name of a step
    unit_seconds: float  # seconds of one unit on the CPU that measured
    cpu_rate: float  # rate of all cores of that CPU together, GFLOP/s


def cpu_rate(cpu: CpuRates, serial: float = 0.0) -> float:
    """GFLOP/s of a CPU on work of which the share `serial` runs on one core."""
    spread = speedup_of(cpu.cores, SIGMA_TABLE)
    return cpu.core_gflops / (serial + (1 - serial) / spread)


def table_speed(work: TableWork, gpu: AcceleratorSpec, rows: Sequence[Speedup]) -> TableSpeed | None:
    """Return the speed-up of a GPU for such work; None if the table has nothing that could be compared."""
    usable = [row for row in rows if row.weight > 0 and row.plausible]
    measured = [row for row in usable if row.grade is Grade.MEASURED]
    relatives = RELATIVES.get(work.kind, ())
    own = [row for row in measured if row.kind == work.kind]
    if own:
        same = [row for row in own if library(row.framework) == library(work.framework)]
        chosen = same if len(same) >= ENOUGH_ROWS else own
        return _from_measured(work, gpu, chosen, SPREAD.get(work.kind, SPREAD_OWN), "")
    near = [row for row in measured if row.kind in relatives]
    if near:
        what = f"of {', '.join(dict.fromkeys(row.kind for row in near))}"
        return _from_measured(work, gpu, near, SPREAD_RELATIVE, what)
    nets = (*LARGE_NETS, *SMALL_NETS, *RECURRENT, "cnn", "")
    for kinds in ((work.kind,), relatives, () if work.kind in nets else (LIBRARY,), (DEFAULT_KIND,)):
        claims = [row for row in usable if row.grade is Grade.CLAIM and row.kind in kinds]
        if claims:
            return _from_claims(work.kind, claims)
    return None


def log_estimates(work: TableWork, gpu: AcceleratorSpec, rows: Sequence[Speedup]) -> list[tuple[float, float]]:
    """(log speed-up, weight) of each measured row, scaled to this GPU, this CPU and this size of work."""
    a, b = EXPONENTS.get(work.kind, DEFAULT_EXPONENTS)
    ours = gpu_rate(gpu.fp32_tflops, gpu.memory_bandwidth_gbps)
    found = []
    for row in rows:
        theirs, cpu = rate_of(row)
        scaled = math.log(row.ratio) + a * math.log(ours / theirs) + b * math.log(cpu / work.cpu_rate)
        found.append((scaled, row.weight * _nearness(work, row)))
    return found


def gpu_rate(tflops: float, gbps: float) -> float:
    """Geometric mean of a GPU's fp32 peak and memory bandwidth."""
    return math.sqrt(tflops * gbps)


def rate_of(row: Speedup) -> tuple[float, float]:
    """(rate of the GPU, GFLOP/s of the CPU) of a measured row."""
    assert row.gpu_tflops is not None  # noqa: S101 - of measured rows the table has all three
    assert row.gpu_gbps is not None  # noqa: S101
    assert row.cpu_core_gflops is not None  # noqa: S101
    cores = float(row.cpu_cores or 1)
    return gpu_rate(row.gpu_tflops, row.gpu_gbps), row.cpu_core_gflops * speedup_of(cores, SIGMA_TABLE)


def _nearness(work: TableWork, row: Speedup) -> float:
    if not row.units or not row.cpu_seconds or _unit(row.unit) != _unit(work.unit) or work.unit_seconds <= 0:
        return OTHER_UNIT
    theirs = row.cpu_seconds / row.units * rate_of(row)[1]
    distance = math.log(work.unit_seconds * work.cpu_rate / theirs) / NEAR_WORK
    return max(math.exp(-distance * distance / 2), LEAST_NEARNESS)


def _unit(name: str) -> str:
    """Return the unit's common name: a round of boosting is a tree, and some logs call a step an iteration."""
    return {"tree": "round", "iteration": "step"}.get(name, name)


def library(framework: str) -> str:
    """``xgboost`` of ``xgboost 2.1``."""
    return framework.lower().replace(",", " ").split(" ")[0] if framework else ""


def _from_measured(work: TableWork, gpu: AcceleratorSpec, rows: list[Speedup], spread: float, what: str) -> TableSpeed:
    found = log_estimates(work, gpu, rows)
    total = sum(weight for _, weight in found)
    mean = sum(value * weight for value, weight in found) / total
    within = math.sqrt(sum(weight * (value - mean) ** 2 for value, weight in found) / total)
    nearest = max(zip(rows, found, strict=True), key=lambda pair: pair[1][1])[0]
    lines = "1 measured line" if len(rows) == 1 else f"{len(rows)} measured lines"
    first = (
        f"from the benchmark table ({lines} {what or f'of {work.kind}'}), not measured: the nearest is {nearest.detail},"
        f" {nearest.cpu} against {nearest.gpu}: {format_ratio(nearest.ratio)}; {nearest.source}"
    )
    notes = [first]
    if what:
        notes.append(f"the table has no measured line of {work.kind or 'this net'}: its relatives stand for it")
    speedup, least = math.exp(mean), _least_seconds(work, rows)
    if work.unit_seconds / speedup < least:
        speedup = work.unit_seconds / least
        notes.append(f"a {work.unit} is taken to need {1000 * least:.1f} ms on a GPU at least, as the least measured")
    return TableSpeed(speedup, max(spread, within), tuple(notes))


def _least_seconds(work: TableWork, rows: list[Speedup]) -> float:
    """Seconds that a round of boosting takes on a GPU however few the data: it starts kernels level by level.

    No row has data so small that only this is left, so that the quickest stands for it; 0 for other work.
    """
    if work.kind != TREES or work.unit_seconds <= 0:
        return 0.0
    same = [row for row in rows if _unit(row.unit) == _unit(work.unit) and row.units and row.cpu_seconds]
    return min(((row.cpu_seconds or 0.0) / row.ratio / (row.units or 1.0) for row in same), default=0.0)


def _from_claims(kind: str, rows: list[Speedup]) -> TableSpeed:
    total = sum(row.weight for row in rows)
    mean = sum(math.log(row.ratio) * row.weight for row in rows) / total
    reach = max(max(abs(math.log(row.ratio_low) - mean), abs(math.log(row.ratio_high) - mean)) for row in rows) / Z80
    note = f"the table has no measured line of {kind or 'this net'}: only claims, such as {format_ratio(rows[0].ratio)}"
    return TableSpeed(math.exp(mean), max(SPREAD_CLAIM, reach), (f"{note} ({rows[0].source})",))
