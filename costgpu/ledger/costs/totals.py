"""Sums over charges by job, month, person, tag, ..., and by everything that the page of a ledger shows.

A run across the edge of a period, day or month counts in each by its share of time, and as a run where it began.
Days and months are those of UTC, as on the providers' bills.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from costgpu.ledger.costs.charges import Charge, RunFilter, charges
from costgpu.ledger.costs.periods import Calendar, Every
from costgpu.ledger.schema import NANO, from_microseconds, from_nano
from costgpu.ledger.store import Ledger
from costgpu.models.job import CostOutcome, EndReason

_OUTCOMES: Mapping[str | None, CostOutcome] = {reason.value: reason.outcome for reason in EndReason} | {
    None: CostOutcome.OPEN
}


class By(StrEnum):
    """What sums are made by."""

    JOB = "job"
    MONTH = "month"
    DAY = "day"
    PROVIDER = "provider"
    PERSON = "person"
    INSTANCE = "instance"
    REASON = "reason"
    TAG = "tag"


_KEYS: Mapping[By, tuple[str, ...]] = {  # fields of a charge
    By.JOB: ("name",),
    By.PROVIDER: ("provider",),
    By.PERSON: ("owner",),
    By.INSTANCE: ("provider", "instance_type"),
    By.REASON: ("reason",),
    By.TAG: ("tag",),
}


@dataclass(slots=True, kw_only=True)
class SpendTotal:
    """What the runs of one group have used, as metered."""

    key: str = ""  # the group: ``2026-11``, ``aws g5.xlarge``, ``nlp``, ...; empty for runs that have none
    runs: int = 0  # the number of runs that began in it
    machine_seconds: float = 0.0
    cost_usd: Decimal = Decimal(0)
    wasted_usd: Decimal = Decimal(0)  # the part of the cost that went into runs that failed, were lost, or idled

    def add(self, usd: Decimal, seconds: float, runs: int = 1, *, wasted: Decimal = Decimal(0)) -> None:
        """Count more."""
        self.runs += runs
        self.machine_seconds += seconds
        self.cost_usd += usd
        self.wasted_usd += wasted


def total_of(totals: Iterable[SpendTotal], key: str = "") -> SpendTotal:
    """Return the sum of totals."""
    found = SpendTotal(key=key)
    for one in totals:
        found.add(one.cost_usd, one.machine_seconds, one.runs, wasted=one.wasted_usd)
    return found


def totals(
    ledger: Ledger,
    selection: RunFilter,
    by: By,
    *,
    tag: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[SpendTotal, ...]:
    """Sum by group: days and months in their order, everything else by cost, the dearest first.

    Args:
        tag: The key of the tag, with `By.TAG`.
    """
    form = {By.DAY: "%Y-%m-%d", By.MONTH: "%Y-%m"}.get(by)
    calendar = Calendar({By.DAY: Every.DAILY, By.MONTH: Every.MONTHLY}.get(by, Every.TOTAL), "UTC", since, until)
    found: dict[str, SpendTotal] = {}
    names = _KEYS.get(by, ())
    facts = tuple({*names, "reason"} - {"tag"})
    for charge in charges(ledger, selection, since, until, facts, tag=tag if by is By.TAG else None):
        wasted = _outcome(charge).wasted
        key = " ".join(filter(None, (getattr(charge, name) for name in names)))
        if by is By.PERSON:
            key = key.partition("@")[0]  # whatever computer it was launched from
        for number, part in enumerate(calendar.split(charge.nano_usd or 0, charge.began, charge.ended)):
            key = from_microseconds(part.start).strftime(form) if form else key
            usd = from_nano(part.amount)
            total = found.setdefault(key, SpendTotal(key=key))
            total.add(usd, charge.seconds_in(part), number == 0, wasted=usd * wasted)
    if form:
        return tuple(sorted(found.values(), key=lambda one: one.key))
    return tuple(sorted(found.values(), key=lambda one: (-one.cost_usd, -one.runs, one.key)))


@dataclass(slots=True, kw_only=True)
class Summary:
    """What the runs of a period have cost, in all the ways that the page shows it."""

    days: Sequence[date]  # of the period, in UTC; `gpu_usd` and `cpu_usd` have an amount for each
    gpu_usd: list[Decimal]
    cpu_usd: list[Decimal]
    total: SpendTotal = field(default_factory=SpendTotal)
    # totals by (provider, purchase option)
    providers: dict[tuple[str, str], SpendTotal] = field(default_factory=lambda: defaultdict(SpendTotal))
    # totals by name; CPU machines under the empty name
    accelerators: dict[str, SpendTotal] = field(default_factory=lambda: defaultdict(SpendTotal))
    outcomes: dict[CostOutcome, SpendTotal] = field(default_factory=lambda: defaultdict(SpendTotal))
    jobs: dict[str, SpendTotal] = field(default_factory=lambda: defaultdict(SpendTotal))
    people: dict[str, SpendTotal] = field(default_factory=lambda: defaultdict(SpendTotal))
    unpriced: int = 0  # how many machines had a cost that is not known

    @property
    def wasted(self) -> SpendTotal:
        """Return the totals of what was wasted together."""
        return total_of(total for outcome, total in self.outcomes.items() if outcome.wasted)


def summarise(found: Iterable[Charge], since: datetime, until: datetime) -> Summary:
    """Sum up what was charged in a period."""
    calendar = Calendar(Every.DAILY, "UTC", since, until)
    numbers = {start: number for number, start in enumerate(calendar.days)}
    summary = Summary(
        days=list(calendar.days.values()), gpu_usd=[Decimal(0)] * len(numbers), cpu_usd=[Decimal(0)] * len(numbers)
    )
    for charge in found:
        parts = list(calendar.split(charge.nano_usd or 0, charge.began, charge.ended))
        if not parts or (charge.reason is None and charge.ended <= charge.began):
            continue
        summary.unpriced += charge.nano_usd is None and charge.ended > charge.began
        by_day = summary.gpu_usd if charge.accelerator else summary.cpu_usd
        for part in parts:
            by_day[numbers[part.start]] += from_nano(part.amount)
        usd, seconds = from_nano(sum(part.amount for part in parts)), sum(map(charge.seconds_in, parts))
        for total in (
            summary.total,
            summary.providers[charge.provider, charge.purchase_option],
            summary.accelerators[charge.accelerator],
            summary.jobs[charge.name],
            summary.people[charge.owner],
        ):
            total.add(usd, seconds)
        outcome = _outcome(charge)
        if outcome is CostOutcome.SUCCEEDED and charge.job_seconds is not None and charge.seconds:
            rest = 1 - min(1.0, max(0.0, charge.job_seconds / charge.seconds))
            overhead = (usd * Decimal(rest)).quantize(NANO)
            summary.outcomes[CostOutcome.OVERHEAD].add(overhead, seconds * rest, 0)
            usd, seconds = usd - overhead, seconds - seconds * rest
        summary.outcomes[outcome].add(usd, seconds)
    return summary


def _outcome(charge: Charge) -> CostOutcome:
    return _OUTCOMES.get(charge.reason, CostOutcome.OTHER)
