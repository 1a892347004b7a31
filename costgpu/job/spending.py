"""What has been spent and what may still be: closed runs, open ones, and machines that the ledger does not know.

Everything is asked once for all budgets. What cannot be asked or read is named, and the rest is counted: a figure that
lacks something says that it is a lower bound. Nothing here changes a run or a machine. It is a little longer than the
rule for files: the three kinds are counted in one pass.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from costgpu.errors import BudgetError, CostGpuError, LedgerDamaged, LedgerError, ProviderError
from costgpu.job.load_runs import load_runs
from costgpu.job.machine_cost import ZERO, Machine
from costgpu.job.timeouts import POWER_OFF_SECONDS, VISIBLE_SECONDS
from costgpu.ledger.queries import history
from costgpu.ledger.records import unrecorded_machines
from costgpu.ledger.records.budget_rules import Budget, BudgetState, bounds, clock_is_off, forecast
from costgpu.ledger.records.budget_store import newest_entry
from costgpu.ledger.records.unrecorded_machines import Sighting
from costgpu.ledger.store import Ledger
from costgpu.models.diagnostics import SKEW_FAILS
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.run import RunState, RunView
from costgpu.providers.base import TimeSource

if TYPE_CHECKING:
    from costgpu.providers.base import OwnedResources, Provider

LOCAL = "local"
LEASE_SLACK = timedelta(hours=1)  # a clock that is set between two events moves their times

_PLACE = re.compile("[/ ]")  # ends the provider in what could not be asked: a region or an account follows

Prices = Callable[[Sequence[Instance]], Mapping[InstanceRef, Decimal]]


@dataclass(slots=True, kw_only=True)
class Spending:
    """What was gathered."""

    at: datetime  # the time that everything is counted until; the ledger's last entry if the clock is wrong
    # name of a budget -> what closed runs have cost in its period; without those that cannot be read
    closed_usd: dict[str, Decimal] = field(default_factory=dict)
    machines: tuple[Machine, ...] = ()  # those of open runs, and those that the ledger has no run of
    clock_off: bool = False  # whether the clock cannot be right: nothing may be written, and nobody told
    not_asked: dict[str, str] = field(default_factory=dict)  # provider, or provider and region -> why
    problems: list[CostGpuError] = field(default_factory=list)  # what could not be read or written


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

    def answered(self, provider: str, region: str) -> bool:
        """Return whether what is not listed there is not there."""
        return provider in self.asked and f"{provider}/{region}" not in self.not_asked

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


def run_selection(budget: Budget) -> history.Selection:
    """Return which runs a budget counts."""
    return history.Selection(provider=budget.provider, owner=budget.owner, tags=budget.tags)


def machines_counted(budget: Budget, machines: Iterable[Machine]) -> list[Machine]:
    """Return the machines that a budget counts."""
    mine = run_selection(budget)
    return [
        machine
        for machine in machines
        if mine.includes(provider=machine.provider, owner=machine.owner, name=machine.name, tags=machine.tags)
    ]


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
    machines = [m for m in (_open_machine(view, live, spending.at) for view in views) if m is not None]
    machines += _reserved_machines(views, spending.at)
    since = min(starts) if starts and len(starts) == len(budgets) else None
    strangers = _strangers(ledger, live, {view.run_id for view in views}, spending, prices, since)
    machines += [_strange_machine(each, live, spending.at) for each in strangers]
    spending.machines = tuple(machines)
    return spending


def budget_state(spending: Spending, budget: Budget) -> BudgetState:
    """Return how one of the budgets stands for which everything was gathered."""
    period = bounds(budget.every, budget.time_zone, spending.at)
    mine = machines_counted(budget, spending.machines)
    spent = spending.closed_usd.get(budget.name, ZERO) + sum((machine.cost_in(period) for machine in mine), ZERO)
    owing = [machine.committed_in(period, spending.at) for machine in mine]
    upcoming = sum((machine.upcoming_in(period, spending.at) for machine in mine), ZERO)
    at_least = (
        bool(spending.problems)
        or any(budget.provider in ("", _PLACE.split(where)[0]) for where in spending.not_asked)
        or any(each.cost_usd is None and period.overlap(each.started_at, each.until) for each in mine)
    )
    return BudgetState(
        budget=budget,
        period=period,
        spent_usd=spent,
        committed_usd=sum(owing, ZERO),
        open_runs=sum(usd > 0 for usd in owing),
        at_least=at_least,
        forecast_usd=forecast(period, spending.at, spent, upcoming),
    )


def shipped_prices(machines: Sequence[Instance]) -> dict[InstanceRef, Decimal]:
    """Return what machines cost by the prices in use, disk and address not included; this computer is free.

    They are those that ship with costgpu, over them what `costgpu prices refresh` has fetched, and over both the own ones.
    """
    rented = [machine for machine in machines if machine.ref.provider != LOCAL]
    found = {machine.ref: ZERO for machine in machines if machine.ref.provider == LOCAL}
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


def _check_clock(ledger: Ledger, spending: Spending, now: datetime) -> None:
    try:
        newest = newest_entry(ledger)
    except LedgerError as error:
        _add_problem(spending, error)
        newest = None
    if not clock_is_off(now, newest):
        return
    spending.clock_off = True
    last = ""
    if newest is not None:
        spending.at = newest
        last = f", and the ledger's last entry is of {newest:%Y-%m-%d %H:%M}"
    spending.problems.append(
        BudgetError(
            f"The clock of this computer says {now:%Y-%m-%d %H:%M} UTC{last}: nothing is recorded, told or enforced.",
            hint="Set the clock. If it is right, the last entry was made with a wrong one: the next run mends that.",
        )
    )


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
    """Note a clock that is minutes from a provider's own: it may not decide who is told, and what is ended."""
    there = None
    if isinstance(provider, TimeSource):
        with contextlib.suppress(ProviderError):
            there = provider.time_now()
    if there is None or spending.clock_off or abs((spending.at - there).total_seconds()) <= SKEW_FAILS:
        return
    spending.problems.append(
        BudgetError(
            f"The clock of this computer says {spending.at:%Y-%m-%d %H:%M} UTC, and that of {provider.name} "
            f"{there:%Y-%m-%d %H:%M}: nothing is recorded, told or enforced.",
            hint="Set the clock.",
        )
    )
    spending.clock_off, spending.at = True, there


def _read_closed(ledger: Ledger, budgets: Iterable[Budget], spending: Spending) -> list[datetime]:
    """Add up closed runs; return when the periods began that have a beginning."""
    starts = []
    for budget in budgets:
        period = bounds(budget.every, budget.time_zone, spending.at)
        starts += [period.start] if period.start is not None else []
        try:
            spending.closed_usd[budget.name] = history.spent(ledger, run_selection(budget), period.start, period.end)
        except LedgerError as error:
            _add_problem(spending, error)
    return starts


def _open_views(ledger: Ledger, spending: Spending) -> list[RunView]:
    """Return the open runs; one that cannot be read does not hide the others."""
    try:
        views, damaged = load_runs(ledger, ledger.open_runs())
    except LedgerError as error:
        _add_problem(spending, error)
        return []
    for run_id, problem in damaged.items():
        _add_problem(spending, type(problem)(f"Run {run_id} is open and is not counted: {problem.message}"))
    for view in views:
        call, option = view.create_call, view.option
        if call is None or option is None:
            continue
        earliest = call.at + timedelta(seconds=option.lease.lifetime_seconds) - LEASE_SLACK
        if call.lease_until < earliest or (view.confirmed_at is not None and view.confirmed_at < call.at - LEASE_SLACK):
            words = f"Run {view.run_id} is open, and its times cannot be right; costgpu cancel {view.run_id} closes it."
            _add_problem(spending, LedgerDamaged(words))
    return views


def _name_unasked(views: Iterable[RunView], live: _Live, spending: Spending) -> None:
    """Name the providers of open runs that nobody here could ask."""
    for view in views:
        ref = view.instance
        if ref and ref.provider not in live.asked and not any(w.startswith(ref.provider) for w in spending.not_asked):
            why = f"no credentials here, and run {view.run_id} has a machine there"
            spending.not_asked[ref.provider] = why


def _open_machine(view: RunView, live: _Live, now: datetime) -> Machine | None:
    """Return what an open run costs; None as long as nothing was asked of a provider."""
    option, call = view.option, view.create_call
    if option is None or call is None or view.state is RunState.INTENT:
        return None
    provider, region = option.offer.provider, option.offer.region
    seen = live.of(view)
    if view.instance is None and seen is not None:  # the create call has worked, and its answer is not here yet
        view = replace(view, instance=seen.ref, known_since=now, launched_at=seen.launched_at)
    over = call.lease_until + timedelta(seconds=POWER_OFF_SECONDS)
    until, going = now, view.confirmed_at is None
    free = not option.usd_per_hour  # whose it is changes nothing
    if seen is not None:
        if not seen.state.alive:
            until, going = min(now, seen.ended_at or over), False
    elif now > over:
        until, going = over, False
    elif live.answered(provider, region) and (free or live.same_account(view, provider)):
        # what a provider does not list is gone, unless it is so new that it may not be shown yet
        going &= view.known_since is None or (now - view.known_since).total_seconds() <= VISIBLE_SECONDS
    seconds, cost = view.metered(until)
    end = view.confirmed_at or until
    left = max(ZERO, option.lease.worst_cost_usd - cost) if going else ZERO
    return Machine(
        run_id=view.run_id,
        name=view.name,
        owner=view.owner,
        tags=view.spec.tags,
        ref=view.instance,
        provider=provider,
        started_at=end - timedelta(seconds=seconds),
        until=end,
        cost_usd=cost,
        usd_per_hour=option.usd_per_hour,
        going=going,
        stops_at=max(over, now) if going else None,
        cap_left_usd=left,
    )


def _reserved_machines(views: Sequence[RunView], now: datetime) -> list[Machine]:
    """Return the machines that jobs on several machines still lack: they were admitted with the first one."""
    begun = {
        view.spec.node.run_ids for view in views if view.spec.node is not None and view.state is not RunState.INTENT
    }
    return [
        Machine(
            run_id=view.run_id,
            name=view.name,
            owner=view.owner,
            tags=view.spec.tags,
            ref=None,
            provider=view.options[0].offer.provider,
            started_at=now,
            until=now,
            cost_usd=ZERO,
            usd_per_hour=ZERO,
            going=True,
            cap_left_usd=max(option.lease.worst_cost_usd for option in view.options),
        )
        for view in views
        if view.state is RunState.INTENT and view.spec.node is not None and view.spec.node.run_ids in begun
    ]


def _strangers(
    ledger: Ledger, live: _Live, open_runs: set[str], spending: Spending, prices: Prices, since: datetime | None
) -> list[Sighting]:
    """Return the machines that no run of the ledger accounts for: those that live, and those that were seen before."""
    candidates = [
        instance
        for instance in live.instances
        if instance.run_id not in open_runs
        and instance.ref.provider != LOCAL
        and instance.state is not InstanceState.STOPPED  # not billed by the hour, and nobody knows since when
        and (instance.state.alive or instance.ended_at is not None)
    ]
    priced: Mapping[InstanceRef, Decimal] = {}
    try:
        priced = prices(candidates) if candidates else {}
    except CostGpuError as error:
        _add_problem(spending, error)
    now = [_sighting(instance, priced.get(instance.ref), spending.at) for instance in candidates]
    try:
        now = unrecorded_machines.outside_closed_runs(ledger, now, spending.at)
        before = unrecorded_machines.last_sightings(ledger, now)
        now = [each.after(before.get(each.key)) for each in now]
        if not spending.clock_off:
            unrecorded_machines.record_sightings(ledger, [each for each in now if each.says_more(before.get(each.key))])
    except LedgerError as error:
        _add_problem(spending, error)
    found = {each.key: each for each in now}
    try:
        for each in unrecorded_machines.sightings_since(ledger, since):
            found.setdefault(each.key, each)
    except LedgerError as error:
        _add_problem(spending, error)
    return list(found.values())


def _sighting(instance: Instance, usd_per_hour: Decimal | None, now: datetime) -> Sighting:
    ended = None if instance.state.alive else instance.ended_at
    return Sighting(
        provider=instance.ref.provider,
        region=instance.ref.region,
        instance_id=instance.ref.instance_id,
        run_id=instance.run_id,
        name=instance.name,
        owner=instance.owner,
        instance_type=instance.instance_type,
        purchase_option="spot" if instance.spot else "on_demand",
        tags=instance.tags,
        started_at=instance.launched_at,
        seen_at=ended or max(now, instance.launched_at),
        usd_per_hour=usd_per_hour,
        ended=ended is not None,
    )


def _strange_machine(each: Sighting, live: _Live, now: datetime) -> Machine:
    ref = InstanceRef(provider=each.provider, region=each.region, instance_id=each.instance_id)
    seen = next((instance for instance in live.instances if instance.ref == ref), None)
    going = seen is not None and seen.state.alive
    until = min(each.seen_at, now)
    return Machine(
        run_id=each.run_id,
        name=each.name,
        owner=each.owner,
        tags=each.tags,
        ref=ref,
        provider=each.provider,
        started_at=min(each.started_at, until),
        until=until,
        cost_usd=replace(each, seen_at=until).cost_usd(),
        usd_per_hour=each.usd_per_hour,
        going=going,
        stops_at=seen.lease_until if seen is not None and going else None,
        recorded=False,
    )


def _add_problem(spending: Spending, error: CostGpuError) -> None:
    if all(error.message != known.message for known in spending.problems):
        spending.problems.append(error)
