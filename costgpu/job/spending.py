"""Gathers what budgets count: closed runs, open ones, and machines that the ledger does not know.

Everything is asked once for all budgets. What cannot be asked or read is named, and the rest is counted: a figure that
lacks something says that it is a lower bound. Nothing here changes a run or a machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from costgpu.errors import BudgetError, CostGpuError, LedgerDamaged, LedgerError, ProviderError
from costgpu.job.load_runs import load_runs
from costgpu.job.timeouts import VISIBLE_SECONDS
from costgpu.ledger.costs.charges import Charge, open_charge, reserved_charges, spent
from costgpu.ledger.costs.periods import bounds
from costgpu.ledger.records.budget_rules import Budget, clock_is_off
from costgpu.ledger.records.budget_store import newest_entry
from costgpu.ledger.records.budget_sums import Spending
from costgpu.ledger.records.unrecorded_machines import (
    key_of,
    last_sightings,
    outside_closed_runs,
    priced,
    record_sightings,
    says_more,
    sighting,
    sightings_since,
    with_memory,
)
from costgpu.ledger.store import Ledger
from costgpu.models.diagnostics import SKEW_FAILS
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.run import OVERDUE, RunView
from costgpu.providers import registry
from costgpu.providers.base import OwnedResources, Provider, TimeSource

LEASE_SLACK = timedelta(hours=1)  # a clock that is set between two events moves their times

Prices = Callable[[Sequence[Instance]], Mapping[InstanceRef, Decimal]]


@dataclass(slots=True)
class _Live:
    """What the providers have answered."""

    not_asked: dict[str, str]  # of the `Spending`
    instances: list[Instance] = field(default_factory=list)
    asked: dict[str, Provider] = field(default_factory=dict)
    accounts: dict[str, str | None] = field(default_factory=dict)  # of the credentials here; None: it does not say

    def of(self, view: RunView) -> Instance | None:
        """Return the machine of an open run, the living one if there are several."""
        ref = view.instance
        found = [i for i in self.instances if (i.ref == ref if ref else i.run_id == view.run_id)]
        return max(found, key=lambda i: i.state.alive, default=None)

    def lacks(self, view: RunView, now: datetime) -> bool:
        """Return whether the unlisted machine of an open run is gone, and not merely too new to be shown."""
        option, lease_until = view.option, view.lease_until
        if option is None or lease_until is None or now > lease_until + OVERDUE:  # nothing runs longer
            return False
        provider, region = option.offer.provider, option.offer.region
        if provider not in self.asked or f"{provider}/{region}" in self.not_asked:
            return False
        visible = view.known_since is None or (now - view.known_since).total_seconds() <= VISIBLE_SECONDS
        free = not option.usd_per_hour  # whose it is changes nothing
        return (free or self.same_account(view, provider)) and not visible

    def same_account(self, view: RunView, provider: str) -> bool:
        """Return whether who was asked can see the machine of a run: others' are never listed. If not, it is noted."""
        wanted = view.account_at(provider)
        if not wanted:
            return True
        if provider not in self.accounts:
            self.accounts[provider] = None
            try:
                self.accounts[provider] = self.asked[provider].identity().account
            except ProviderError as error:
                self.not_asked[provider] = error.message
        mine = self.accounts[provider]
        if mine is not None and mine != wanted:
            self.not_asked[f"{provider} account {wanted}"] = "these credentials are of another account"
        return mine == wanted


def gather(
    ledger: Ledger, budgets: Sequence[Budget], providers: Sequence[Provider] | None, now: datetime, prices: Prices
) -> Spending:
    """Look at everything that budgets count, once.

    Closed runs are read before open ones: one that is closed meanwhile is missed this time, and never counted twice.

    Args:
        ledger: Machines that it does not know are noted in it.
        budgets: What will be asked about.
        providers: To ask; None to ask nobody.
        now: By the clock.
        prices: USD per hour of machines; those that it does not know are left out.

    Returns:
        What was found. `LedgerError` and `ProviderError` are in it and are not raised.
    """
    spending = Spending(at=now)
    _check_clock(ledger, spending, now)
    live = _ask(providers or (), spending)
    starts = _read_closed(ledger, budgets, spending)
    views = _open_views(ledger, spending)
    if providers is not None:
        _name_unasked(views, live, spending)
    found: list[Charge | None] = [*reserved_charges(views, spending.at)]
    for view in views:
        seen = live.of(view)
        gone = seen is None and live.lacks(view, spending.at)
        found.append(open_charge(view, spending.at, seen=seen, gone=gone))
    since = min(starts) if starts and len(starts) == len(budgets) else None
    strangers = _strangers(ledger, live, {view.run_id for view in views}, spending, prices, since)
    spending.live = [*filter(None, found), *(priced(each, spending.at) for each in strangers)]
    return spending


def shipped_prices(machines: Sequence[Instance]) -> dict[InstanceRef, Decimal]:
    """Return what machines cost by the prices in use, disk and address not included; this computer is free.

    They are those that ship with costgpu, over them what `costgpu prices refresh` has fetched, and over both the own ones.
    """
    rented = [machine for machine in machines if not _is_free(machine)]
    found = {machine.ref: Decimal(0) for machine in machines if _is_free(machine)}
    if not rented:
        return found
    from costgpu.models.offer import PurchaseOption  # noqa: PLC0415  only for those who have such machines
    from costgpu.pricing import price_store  # noqa: PLC0415

    by_place: dict[tuple[str, str, str, PurchaseOption], list[tuple[str | None, Decimal]]] = {}
    for offer in price_store.offers():
        key = offer.provider, offer.region, offer.instance_type, offer.purchase_option
        by_place.setdefault(key, []).append((offer.zone, offer.price_usd_per_hour))
    for machine in rented:
        option = PurchaseOption.SPOT if machine.spot else PurchaseOption.ON_DEMAND
        known = by_place.get((machine.ref.provider, machine.ref.region, machine.instance_type, option), [])
        fitting = [price for zone, price in known if zone in (None, machine.zone)]
        if fitting:
            found[machine.ref] = max(fitting)
    return found


def _is_free(machine: Instance) -> bool:
    spec = registry.find(machine.ref.provider)
    return spec is not None and spec.free


def _check_clock(ledger: Ledger, spending: Spending, now: datetime) -> None:
    newest = None
    try:
        newest = newest_entry(ledger)
    except LedgerError as error:
        spending.add_problem(error)
    if clock_is_off(now, newest):
        last = "" if newest is None else f", and the ledger's last entry is of {newest:%Y-%m-%d %H:%M}"
        rest = " If it is right, the last entry was made with a wrong one: the next run mends that."
        _distrust_clock(spending, last, newest or now, rest)


def _distrust_clock(spending: Spending, why: str, at: datetime, rest: str = "") -> None:
    """Count until another time, and let this clock not decide who is told, and what is ended."""
    said = (
        f"The clock of this computer says {spending.at:%Y-%m-%d %H:%M} UTC{why}: nothing is recorded, told or enforced."
    )
    spending.problems.append(BudgetError(said, hint=f"Set the clock.{rest}"))
    spending.clock_off, spending.at = True, at


def _ask(providers: Iterable[Provider], spending: Spending) -> _Live:
    live = _Live(spending.not_asked)
    for provider in providers:
        try:
            owned: OwnedResources = provider.list_owned(None)
        except ProviderError as error:
            live.not_asked[provider.name] = error.message
            continue
        live.asked[provider.name] = provider
        _compare_clocks(provider, spending)
        live.instances += [instance for instance in owned.instances if instance.run_id]
        live.not_asked.update({f"{provider.name}/{region}": why for region, why in owned.unreachable})
    return live


def _compare_clocks(provider: Provider, spending: Spending) -> None:
    there = None
    if isinstance(provider, TimeSource):
        with contextlib.suppress(ProviderError):
            there = provider.time_now()
    if there and not spending.clock_off and abs((spending.at - there).total_seconds()) > SKEW_FAILS:
        _distrust_clock(spending, f", and that of {provider.name} {there:%Y-%m-%d %H:%M}", there)


def _read_closed(ledger: Ledger, budgets: Iterable[Budget], spending: Spending) -> list[datetime]:
    """Add up closed runs; return when the periods began that have a beginning."""
    starts = []
    for budget in budgets:
        period = bounds(budget.every, budget.time_zone, spending.at)
        starts += [period.start] if period.start is not None else []
        try:
            spending.closed_usd[budget.name] = spent(ledger, budget.selection, period.start, period.end)
        except LedgerError as error:
            spending.add_problem(error)
    return starts


def _open_views(ledger: Ledger, spending: Spending) -> list[RunView]:
    """Return the open runs; one that cannot be read does not hide the others."""
    try:
        views, damaged = load_runs(ledger, ledger.open_runs())
    except LedgerError as error:
        spending.add_problem(error)
        return []
    for run_id, problem in damaged.items():
        spending.add_problem(type(problem)(f"Run {run_id} is open and is not counted: {problem.message}"))
    for view in views:
        call, option = view.create_call, view.option
        if call is None or option is None:
            continue
        earliest = call.at + timedelta(seconds=option.lease.lifetime_seconds) - LEASE_SLACK
        if call.lease_until < earliest or (view.confirmed_at is not None and view.confirmed_at < call.at - LEASE_SLACK):
            words = f"Run {view.run_id} is open, and its times cannot be right; costgpu cancel {view.run_id} closes it."
            spending.add_problem(LedgerDamaged(words))
    return views


def _name_unasked(views: Iterable[RunView], live: _Live, spending: Spending) -> None:
    """Name the providers of open runs that nobody here could ask."""
    for view in views:
        ref = view.instance
        if ref and ref.provider not in live.asked and not any(w.startswith(ref.provider) for w in spending.not_asked):
            why = f"no credentials here, and run {view.run_id} has a machine there"
            spending.not_asked[ref.provider] = why


def _strangers(
    ledger: Ledger, live: _Live, open_runs: set[str], spending: Spending, prices: Prices, since: datetime | None
) -> list[Charge]:
    """Return the machines that no run of the ledger accounts for: those that live, and those that were seen before."""
    candidates = [
        instance
        for instance in live.instances
        if instance.run_id not in open_runs
        and not _is_free(instance)
        and instance.state is not InstanceState.STOPPED  # not billed by the hour, and nobody knows since when
        and (instance.state.alive or instance.ended_at is not None)
    ]
    priced_at: Mapping[InstanceRef, Decimal] = {}
    try:
        priced_at = prices(candidates) if candidates else {}
    except CostGpuError as error:
        spending.add_problem(error)
    now = [sighting(instance, priced_at.get(instance.ref), spending.at) for instance in candidates]
    try:
        now = outside_closed_runs(ledger, now, spending.at)
        before = last_sightings(ledger, now)
        now = [with_memory(each, before.get(key_of(each))) for each in now]
        if not spending.clock_off:
            record_sightings(ledger, [each for each in now if says_more(each, before.get(key_of(each)))])
    except LedgerError as error:
        spending.add_problem(error)
    found = {key_of(each): each for each in now}
    try:
        for each in sightings_since(ledger, since):
            found.setdefault(key_of(each), each)
    except LedgerError as error:
        spending.add_problem(error)
    return list(found.values())
