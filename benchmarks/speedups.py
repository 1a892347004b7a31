"""How far the benchmark table is from itself: leave-one-out errors by kind, and the widths that follow.

    python -m benchmarks.speedups

Every measured row is predicted from the others, as `costgpu estimate` predicts a script: once from all other rows of its
kind ("row out"), and, where a kind has rows of more than one source, from those of the other sources alone ("source out").
The second is what to expect of a script, whose data and machine are nobody's. `sigma` is the standard deviation of the log
error around zero, weighted as the rows are: an 80 % interval is exp(+- 1.28 sigma).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from costgpu.estimator import benchmark_table
from costgpu.estimator.interval import Z80
from costgpu.models.offer import Grade, Speedup
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.speedups import kinds, speedups


@dataclass(frozen=True, slots=True)
class Miss:
    """One prediction of a row: log of predicted over true speed-up, whether the interval held, the row's weight."""

    error: float
    inside: bool
    weight: float


def predict(row: Speedup, others: list[Speedup]) -> Miss | None:
    """Return a row from others; None if they say nothing about it."""
    rate = benchmark_table.rate_of(row)[1]
    seconds = (row.cpu_seconds or 0.0) / (row.units or 1.0)
    unit = row.unit if row.units else ""
    work = benchmark_table.TableWork(row.kind, benchmark_table.library(row.framework), unit, seconds, rate)
    found = benchmark_table.table_speed(work, accelerators()[row.gpu], others)
    if found is None:
        return None
    error = math.log(found.speedup / row.ratio)
    return Miss(error, abs(error) <= Z80 * found.sigma, row.weight)


def sigma(misses: list[Miss]) -> float:
    """Standard deviation around zero; a row that counts little in predictions counts little here."""
    return math.sqrt(statistics.fmean((miss.error**2 for miss in misses), weights=[miss.weight for miss in misses]))


def line(name: str, misses: list[Miss]) -> str:
    """Figures of one set of predictions."""
    errors = sorted(abs(miss.error) for miss in misses)
    p80 = errors[min(len(errors) - 1, math.ceil(0.8 * len(errors)) - 1)]
    held = sum(miss.inside for miss in misses) / len(misses)
    bias = math.exp(statistics.median(miss.error for miss in misses))
    return (
        f"{name:36}{len(misses):5}{math.exp(statistics.median(errors)):9.2f}x{math.exp(p80):9.2f}x"
        f"{bias:8.2f}x{sigma(misses):8.2f}{100 * held:8.0f} %"
    )


def main() -> None:
    """Command line."""
    rows = list(speedups())
    measured = [row for row in rows if row.grade is Grade.MEASURED]
    print(f"{len(rows)} rows, {len(measured)} measured, {len({row.source for row in measured})} measured sources")
    print(f"{'':36}{'rows':>5}{'median':>10}{'80 %':>10}{'bias':>9}{'sigma':>8}{'held':>10}")
    pooled: list[Miss] = []
    related_pool: list[Miss] = []
    for kind in kinds(tuple(rows)):
        mine = [row for row in measured if row.kind == kind]
        if not mine:
            continue
        own = [predict(row, [other for other in mine if other is not row]) for row in mine] if len(mine) > 1 else []
        found = [miss for miss in own if miss is not None]
        if found:
            print(line(f"{kind}, row out", found))
        if len({row.source for row in mine}) > 1:
            far = [predict(row, [other for other in mine if other.source != row.source]) for row in mine]
            far_found = [miss for miss in far if miss is not None]
            print(line(f"{kind}, source out", far_found))
            pooled += far_found
        elsewhere = [predict(row, [o for o in measured if o.kind != kind and o.source != row.source]) for row in mine]
        related = [miss for miss in elsewhere if miss is not None]
        if related:
            print(line(f"{kind}, from its relatives", related))
            related_pool += related
    print(line("all kinds, source out", pooled))
    print(line("all kinds, from their relatives", related_pool))


if __name__ == "__main__":
    main()
