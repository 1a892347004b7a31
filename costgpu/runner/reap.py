"""Ends what has outlived its lease or its run: by tag, from anywhere, with or without a ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from costgpu.clock import Clock
from costgpu.errors import CostGpuError, LedgerError, ProviderError
from costgpu.job import Instance, RunState
from costgpu.providers.base import Provider
from costgpu.run import Findings, Orphan, RunView, Why
from costgpu.runner import errands


def look(
    providers: Sequence[Provider], regions: Sequence[str] | None, now: datetime, run: Callable[[str], RunView | None]
) -> Findings:
    """What is ours and should not be there. Changes nothing.

    Args:
        providers: To ask.
        regions: None for all.
        now: To hold leases against.
        run: Run id -> view, None if the ledger does not know it. Its `LedgerError` is ignored: tags are enough.
    """
    found = Findings()
    for provider in providers:
        try:
            owned = provider.list_owned(regions)
        except ProviderError as error:
            found.unreachable[provider.name] = error.message
            continue
        for region, why in owned.unreachable:
            found.unreachable[f"{provider.name}/{region}"] = why
        alive = {item.run_id for item in owned.instances if item.state.alive}
        for instance in owned.instances:
            if not instance.state.alive:
                continue
            why_orphan = _why(instance, now, _known(run, instance.run_id))
            if why_orphan is None:
                found.kept.append(instance)
            else:
                found.orphans.append(Orphan(instance=instance, why=why_orphan))
        for leftover in owned.leftovers:
            view = _known(run, leftover.run_id)
            open_here = view is not None and view.state is not RunState.CLOSED
            wanted = leftover.lease_until is not None and now <= leftover.lease_until and view is None
            if leftover.run_id not in alive and not open_here and not wanted:
                found.leftovers.append(leftover)
    return found


def end_orphans(found: Findings, provider: Callable[[str], Provider], clock: Clock) -> None:
    """Ends what `look` has found, and confirms it. One failure does not keep the others alive."""
    asked: list[Orphan] = []
    for orphan in found.orphans:
        ref = orphan.instance.ref
        try:
            errands.terminate(provider(ref.provider), ref, clock)
            asked.append(orphan)
        except CostGpuError as error:
            found.failed[ref.instance_id] = error
    for orphan in asked:
        ref = orphan.instance.ref
        try:
            errands.confirm(provider(ref.provider), ref, clock, known_since=orphan.instance.launched_at)
            found.ended.append(ref)
            if orphan.instance.run_id:
                left = errands.clean_up(provider(ref.provider), orphan.instance.run_id, ref.region, clock)
                for what in left:
                    found.failed[what] = ProviderError(f"{what} of run {orphan.instance.run_id} is still there.")
        except CostGpuError as error:
            found.failed[ref.instance_id] = error
    for leftover in found.leftovers:
        try:
            left_over = provider(leftover.provider).clean_up(leftover.run_id, leftover.region)
        except CostGpuError as error:
            found.failed[leftover.resource_id] = error
            continue
        if any(item.resource_id == leftover.resource_id for item in left_over):
            found.failed[leftover.resource_id] = ProviderError(
                f"{leftover.kind} {leftover.resource_id} is still in use."
            )
        else:
            found.removed.append(leftover)


def _known(run: Callable[[str], RunView | None], run_id: str) -> RunView | None:
    try:
        return run(run_id) if run_id else None
    except LedgerError:
        return None


def _why(instance: Instance, now: datetime, view: RunView | None) -> Why | None:
    if instance.lease_until is None:
        return Why.NO_LEASE
    if now > instance.lease_until:
        return Why.PAST_LEASE
    if view is not None and view.state is RunState.CLOSED:
        return Why.RUN_CLOSED
    return None
