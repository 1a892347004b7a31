"""How good the estimates were: run by run what was estimated, metered and billed, and how often the interval held.

Only runs that succeeded count: the others ended sooner than any estimate could know.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from costgpu.ledger.costs.charges import RunFilter
from costgpu.ledger.costs.closed_runs import ClosedRun, closed_runs
from costgpu.ledger.records.billed import LATE, BilledCost, latest_bills, without_repeats
from costgpu.ledger.store import Ledger

ALL = ""  # the name of the group of all providers


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was estimated, metered and billed for one run."""

    run: ClosedRun
    # what the provider says; None if it was not asked, or so soon that the bill may be incomplete
    billed_usd: Decimal | None
    estimated: float  # seconds
    actual: float  # metered seconds

    @property
    def time_error(self) -> float:
        """Return the metered over the estimated seconds, less 1: +0.1 took 10 % longer."""
        return self.actual / self.estimated - 1

    @property
    def cost_error(self) -> float | None:
        """Return the same of the cost; None for what costs nothing."""
        estimated, metered = self.run.estimated_cost_usd, self.run.metered_cost_usd
        return float(metered / estimated) - 1 if estimated and metered is not None else None

    @property
    def held(self) -> bool | None:
        """Return whether the metered seconds lie within the estimate's 80 % interval; None without one."""
        low, high = self.run.estimated_seconds_low, self.run.estimated_seconds_high
        return None if low is None or high is None else low <= self.actual <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How good the estimates of a group of runs were."""

    provider: str  # empty for all
    runs: int  # the number of runs that were compared
    median_time_error: float  # median of the absolute errors
    median_cost_error: float | None  # the same of the cost; None if nothing cost anything
    held: int  # how often the interval held
    intervals: int  # the number of runs with an interval
    # median of the absolute differences of billed from metered; None if nothing was billed
    median_billed_error: float | None
    billed_runs: int  # the number of runs with a billed cost


def comparisons(
    ledger: Ledger, selection: RunFilter, *, since: datetime | None = None, until: datetime | None = None
) -> tuple[Comparison, ...]:
    """Return the runs with an estimate that can be held against what happened, oldest first."""
    bills = _billed(ledger)
    return tuple(
        Comparison(
            run=run,
            billed_usd=_whole(run, bills.get(run.run_id, ())),
            estimated=run.estimated_seconds,
            actual=run.metered_seconds,
        )
        for run in closed_runs(ledger, selection, since=since, until=until, only_estimated=True)
        if run.estimated_seconds is not None and run.metered_seconds is not None and run.metered_seconds > 0
    )


def accuracy(found: Sequence[Comparison]) -> tuple[Accuracy, ...]:
    """Return the accuracy of all runs, then of each provider's; nothing if there is nothing to compare."""
    if not found:
        return ()
    providers = sorted({one.run.provider for one in found})
    groups = [_of(ALL, found)]
    return (*groups, *(_of(name, [one for one in found if one.run.provider == name]) for name in providers))


def _of(provider: str, found: Sequence[Comparison]) -> Accuracy:
    differences = [
        abs(float(one.billed_usd / one.run.metered_cost_usd) - 1)
        for one in found
        if one.billed_usd is not None and one.run.metered_cost_usd
    ]
    return Accuracy(
        provider=provider,
        runs=len(found),
        median_time_error=statistics.median(abs(one.time_error) for one in found),
        median_cost_error=_median(abs(one.cost_error) for one in found if one.cost_error is not None),
        held=sum(one.held is True for one in found),
        intervals=sum(one.held is not None for one in found),
        median_billed_error=_median(differences),
        billed_runs=len(differences),
    )


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _billed(ledger: Ledger) -> dict[str, list[BilledCost]]:
    """Return what providers have said of each run, ever."""
    found: dict[str, list[BilledCost]] = {}
    for cost in without_repeats(latest_bills(ledger)):
        if cost.run_id:
            found.setdefault(cost.run_id, []).append(cost)
    return found


def _whole(run: ClosedRun, costs: Sequence[BilledCost]) -> Decimal | None:
    """Return the sum, if every part was said late enough to be complete, and one of them after the run's end."""
    ended = run.ended_at or run.closed_at
    if not costs or max(cost.said_at for cost in costs) < ended + LATE:
        return None
    if any(cost.said_at < min(cost.end, ended) + LATE for cost in costs):
        return None
    return sum((cost.amount_usd for cost in costs), Decimal(0))
