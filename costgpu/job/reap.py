"""Ends what has outlived its lease or its run: by tag, from anywhere, with or without a ledger.

What decides is on the provider's side, in tags; the ledger is asked only so that more is known, and may be missing or
damaged. In doubt a thing is left where it is: a machine ends at its lease anyway, and the next look comes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from costgpu.clock import Clock, monotonic_of
from costgpu.errors import CostGpuError, LedgerError, ProviderError
from costgpu.job.end_instance import clean_up, request_termination, wait_until_terminated
from costgpu.job.timeouts import CLEAN_UP_SECONDS
from costgpu.models.instance import Instance, InstanceRef, InstanceState, OrphanedResource
from costgpu.models.reap import Orphan, OrphanReason, ReapFindings
from costgpu.models.run import RunState, RunView
from costgpu.providers.base import OwnedResources, Provider, TimeSource

NEW_SECONDS = 600.0  # a thing without a lease may belong to a machine that the provider does not show yet
ENDING_SECONDS = 900.0  # a machine that is ending is no leak, unless it has been for so long after its lease
NOT_CHARGED = frozenset({InstanceState.STOPPED, InstanceState.TERMINATING, InstanceState.TERMINATED})
"""States in which a machine itself costs nothing; its disks may. Source: EC2 user guide, "Instance lifecycle", and
Compute Engine, "VM instance lifecycle" (read 2026-11)."""

Known = Callable[[str], RunView | None]
Prices = Callable[[Sequence[Instance]], Mapping[InstanceRef, Decimal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapFilter:
    """What the question is about; what does not fit is left alone, and so is all that its run has."""

    # launched or created before that; None for any time. What does not tell its age is at least as old as the end of
    # its lease
    before: datetime | None = None
    # the owner tag, or the part of it before the ``@``; empty for everybody's. A tag in its `label_form` is known
    # again, too
    owner: str = ""

    def fits(self, since: datetime | None, lease_until: datetime | None, owner: str) -> bool:
        """Return whether something with these facts is meant."""
        mine = (self.owner, label_form(self.owner))
        if self.owner and owner not in mine and not owner.startswith(f"{self.owner}@"):
            return False
        latest = since or lease_until
        return self.before is None or (latest is not None and latest < self.before)


ANYTHING = ReapFilter()


def label_form(owner: str) -> str:
    """Return an owner as a label can hold it: all that a provider without free text for tags tells of whose a thing is."""
    return re.sub(r"[^a-z0-9_-]+", "-", owner.lower())[:63]


def agreed_now(provider: Provider, clock: Clock) -> tuple[datetime, float]:
    """Return the time by which a provider's things may be ended, and how many seconds this computer's clock is ahead of it.

    Of this computer's clock and the provider's the one that is behind: a lease is over when both say so. A wrong clock
    may leave something where it is, and never ends what is wanted. A provider that does not tell the time is no clock.
    """
    here = clock.now()
    there: datetime | None = None
    if isinstance(provider, TimeSource):
        with contextlib.suppress(ProviderError):
            there = provider.time_now()
    if there is None:
        return here, 0.0
    return min(here, there), (here - there).total_seconds()


def find_orphans(
    providers: Sequence[Provider],
    regions: Sequence[str] | None,
    now: datetime,
    run: Known,
    *,
    only: ReapFilter = ANYTHING,
    prices: Prices = lambda _: {},
) -> ReapFindings:
    """Return what is ours and should not be there. Changes nothing.

    Args:
        regions: None for all.
        now: Leases are held against it where the provider does not tell the time itself: a clock here that is wrong
            must neither end what is in order nor keep what is not.
        run: Run id -> view, None if the ledger does not know it. Its `LedgerError` is ignored: tags are enough.
        prices: USD per hour of machines that run, disk and address not included, as far as they are known.
    """
    found = ReapFindings()
    for provider in providers:
        try:
            owned = provider.list_owned(regions)
        except ProviderError as error:
            found.unreachable[provider.name] = error.message
            continue
        for region, why in owned.unreachable:
            found.unreachable[f"{provider.name}/{region}"] = why
        there = owned.told_at or now
        _instances(found, owned, there, run, only, prices)
        wanted = _runs_of(item for item in found.kept if item.ref.provider == provider.name)
        doubtful: list[OrphanedResource] = []
        for leftover in owned.leftovers:
            view = _known(run, leftover.run_id)
            told = replace(leftover, owner=(view.owner if view else "") or leftover.owner)
            if leftover.run_id in wanted or not only.fits(told.created_at, told.lease_until, told.owner):
                continue
            verdict = _is_left(told, view, there)
            if verdict:
                found.leftovers.append(told)
            elif verdict is None:
                doubtful.append(told)
        unwanted = {orphan.instance.ref for orphan in found.orphans}
        found.leftovers += _without_machine(doubtful, provider, owned, regions, unwanted)
    return found


def _instances(
    found: ReapFindings, owned: OwnedResources, now: datetime, run: Known, only: ReapFilter, prices: Prices
) -> None:
    unwanted: list[tuple[Instance, OrphanReason]] = []
    for instance in owned.instances:
        if not instance.state.alive:
            continue
        view = _known(run, instance.run_id)
        why = _why(instance, now, view)
        if why is None or not only.fits(instance.launched_at, None, (view.owner if view else "") or instance.owner):
            found.kept.append(instance)
        else:
            unwanted.append((instance, why))
    running = [instance for instance, _ in unwanted if instance.state not in NOT_CHARGED]
    known = prices(running) if running else {}
    for instance, why in unwanted:
        alone = Decimal(0) if instance.state in NOT_CHARGED else known.get(instance.ref)
        attached = Decimal(str(owned.attached.get(instance.ref.instance_id, 0.0)))
        rate = None if alone is None else alone + attached
        found.orphans.append(Orphan(instance=instance, why=why, usd_per_hour=rate))


def _why(instance: Instance, now: datetime, view: RunView | None) -> OrphanReason | None:
    """Return why an instance should not be there; None if it may."""
    lease = instance.lease_until
    if lease is None and view is not None and view.instance == instance.ref:
        lease = view.lease_until  # somebody has changed its tags; the ledger knows better
    if instance.state is InstanceState.TERMINATING and (
        lease is None or now <= lease + timedelta(seconds=ENDING_SECONDS)
    ):
        return None
    if lease is None:
        return OrphanReason.NO_LEASE
    if now > lease:
        return OrphanReason.PAST_LEASE
    if view is not None and view.state is RunState.CLOSED:
        return OrphanReason.RUN_CLOSED
    return None


def _is_left(leftover: OrphanedResource, view: RunView | None, now: datetime) -> bool | None:
    """Return whether something of a run that has no wanted machine in sight is left over.

    None: only if it has none anywhere.
    """
    if view is not None:
        return view.state is RunState.CLOSED or (view.lease_until is not None and now > view.lease_until)
    if leftover.lease_until is not None:
        return now > leftover.lease_until
    if leftover.created_at is not None and (now - leftover.created_at).total_seconds() < NEW_SECONDS:
        return False
    return None


def _without_machine(
    doubtful: Sequence[OrphanedResource],
    provider: Provider,
    owned: OwnedResources,
    regions: Sequence[str] | None,
    unwanted: set[InstanceRef],
) -> list[OrphanedResource]:
    """Return those whose runs have no machine in any region but unwanted ones; none at all if a region does not say."""
    if not doubtful:
        return []
    if regions is not None:
        try:
            owned = provider.list_owned(None)
        except ProviderError:
            return []
    if not owned.all_instances_known:
        return []
    alive = _runs_of(item for item in owned.instances if item.state.alive and item.ref not in unwanted)
    return [leftover for leftover in doubtful if leftover.run_id not in alive]


def end_orphans(found: ReapFindings, provider: Callable[[str], Provider], clock: Clock) -> None:
    """End what `find_orphans` has found, and confirms it. One failure does not keep the others alive."""
    asked: list[Orphan] = []
    for orphan in found.orphans:
        ref = orphan.instance.ref
        try:
            request_termination(provider(ref.provider), ref, clock)
            asked.append(orphan)
        except CostGpuError as error:
            found.failed[ref.instance_id] = error
    for orphan in asked:
        ref, known_since = orphan.instance.ref, monotonic_of(clock, orphan.instance.launched_at)
        try:
            wait_until_terminated(provider(ref.provider), ref, clock, known_since=known_since)
            found.ended.append(ref)
        except CostGpuError as error:
            found.failed[ref.instance_id] = error
    _clean_up(found, provider, clock)
    _remove(found, provider, clock)


def _clean_up(found: ReapFindings, provider: Callable[[str], Provider], clock: Clock) -> None:
    """Remove what the ended machines leave behind, but nothing of a run that still has another one."""
    alive = _runs_of([*found.kept, *(orphan.instance for orphan in found.not_ended)])
    ended = {
        (ref.provider, ref.region, orphan.instance.run_id)
        for orphan in found.orphans
        if (ref := orphan.instance.ref) in found.ended
    }
    for name, region, run_id in sorted(ended):
        if run_id and run_id not in alive:
            for what in clean_up(provider(name), run_id, region, clock):
                found.failed[what] = ProviderError(f"{what} of run {run_id} is still there.")


def _remove(found: ReapFindings, provider: Callable[[str], Provider], clock: Clock) -> None:
    """One by one; what is still in use gets a minute. What belongs to a machine that could not be ended stays."""
    alive = _runs_of(orphan.instance for orphan in found.not_ended)
    started, wait = clock.monotonic(), 0.5
    left = [leftover for leftover in found.leftovers if leftover.run_id not in alive]
    while True:
        in_use: list[OrphanedResource] = []
        for leftover in left:
            try:
                gone = provider(leftover.provider).remove(leftover)
            except CostGpuError as error:
                found.failed[leftover.resource_id] = error
                continue
            (found.removed if gone else in_use).append(leftover)
            if gone:
                found.failed.pop(f"{leftover.kind} {leftover.resource_id}", None)
        left = in_use
        if not left or clock.monotonic() - started > CLEAN_UP_SECONDS:
            break
        clock.sleep(wait)
        wait = min(wait * 2, 10.0)
    for leftover in left:
        found.failed[leftover.resource_id] = ProviderError(f"{leftover.kind} {leftover.resource_id} is still in use.")


def _runs_of(machines: Iterable[Instance]) -> set[str]:
    """Run whose things these machines may need: their own, and that of node 0, whose tag is on what a group shares."""
    known = list(machines)
    return {machine.run_id for machine in known} | {machine.group_id for machine in known if machine.group_id}


def _known(run: Known, run_id: str) -> RunView | None:
    try:
        return run(run_id) if run_id else None
    except LedgerError:
        return None
