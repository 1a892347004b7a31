"""Finds machines and resources that no run wants any more, and ends them: by tag, with or without a ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import cache

from costgpu.errors import (
    ConfigError,
    CostGpuError,
    LedgerDamaged,
    LedgerError,
    LedgerTooNew,
    OrphansFound,
    ProviderError,
    TerminationUnconfirmed,
    Unreachable,
)
from costgpu.job.adopt import collect_finished
from costgpu.job.find_run import expected_machine, load_run
from costgpu.job.launch import current_owner
from costgpu.job.reap import ReapFilter, agreed_now, end_orphans, find_orphans
from costgpu.job.spending import shipped_prices
from costgpu.job.state.observer import Observer
from costgpu.models.diagnostics import SKEW_WARNS
from costgpu.models.instance import Instance, InstanceRef
from costgpu.models.reap import ReapFindings
from costgpu.models.run import RunView
from costgpu.providers import registry
from costgpu.providers.base import Provider
from costgpu.render.text.reap import count_text, rate_text
from costgpu.units import format_duration, parse_duration
from costgpu.workflows.context import AppContext

TAGS_ONLY = "Only the tags on the machines count."


def reap(
    context: AppContext, observer: Observer, infra: Sequence[str], *, end: bool, older_than: str | None, mine: bool
) -> ReapFindings:
    """Look, and end what was found if that was asked for.

    Args:
        observer: Shows what `end` does first: it takes over runs of this computer whose client is gone.
        infra: Providers or regions; empty for all.
        older_than: Only what was there before that time span; None for everything.
        mine: Whether only what carries the user's name is meant.
    """
    before = None
    if older_than is not None:
        before = context.clock.now() - timedelta(seconds=parse_duration(older_than, "--older-than"))
    only = ReapFilter(before=before, owner=(context.settings.owner or current_owner()) if mine else "")
    places = _places(context, infra)
    broken = False
    if end:
        try:
            collect_finished(context.ledger, context.tools, observer)
        except (ConfigError, LedgerError) as error:
            context.reporter.note(f"{error.message} {TAGS_ONLY}")
            broken = True
    known = _ledger_memory(context, broken=broken)
    found = ReapFindings()

    def prices(machines: Sequence[Instance]) -> Mapping[InstanceRef, Decimal]:
        try:
            return shipped_prices(machines)
        except CostGpuError as error:  # they are shown and decide nothing
            context.reporter.note(f"What machines cost is not known: {error.message}", error.hint)
            return {}

    for provider, regions in places:
        now, ahead = agreed_now(provider, context.clock)
        if abs(ahead) > SKEW_WARNS:
            context.reporter.note(
                f"This computer's clock is {format_duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} that of"
                f" {provider.name}: that one tells when a lease is over.",
                "Set the clock.",
            )
        oldest = only if only.before is None else replace(only, before=only.before - timedelta(seconds=max(0.0, ahead)))
        found.add(find_orphans([provider], regions, now, known, only=oldest, prices=prices))
    found.unreachable.update(context.unusable)
    found.unreachable.update(_without_credentials(context, places, everywhere=not infra))
    if end:
        end_orphans(found, context.provider, context.clock)
    return found


def error_for(found: ReapFindings, *, ended: bool) -> CostGpuError | None:
    """Return the worst of what was found; None if all is well."""
    again = "The lines above say why; costgpu reap --yes tries again."
    if ended and (alive := found.not_ended):
        names = ", ".join(orphan.instance.ref.instance_id for orphan in alive)
        return TerminationUnconfirmed(
            f"{len(alive)} machine(s) could not be ended and may be billing: {names}", hint=again
        )
    if found.leaking and not ended:
        return OrphansFound(
            f"{count_text(found)} that no run wants any more: {rate_text(found)}.", hint="costgpu reap --yes ends them."
        )
    if found.leaking:
        left = len(found.leftovers) - len(found.removed)
        return OrphansFound(
            f"{count_text(found)} that no run wanted any more: {rate_text(found)}."
            + (f" {left} could not be removed." if left else " All ended."),
            hint=again if left else "",
        )
    if found.unreachable:
        return Unreachable(
            f"{len(found.unreachable)} place(s) could not be asked: what is there may be billing.",
            hint="Try again, or name the places to ask: --infra aws/us-east-1.",
        )
    return None


def _ledger_memory(context: AppContext, *, broken: bool) -> Callable[[str], RunView | None]:
    """Return what the ledger knows of runs, each asked for once; None for what it does not know or cannot say.

    A ledger that cannot be read is noted once.
    """

    @cache
    def known(run_id: str) -> RunView | None:
        nonlocal broken
        if broken:
            return None
        try:
            return load_run(context.ledger, run_id)
        except (LedgerDamaged, LedgerTooNew) as error:  # one run; the next may be readable
            context.reporter.note(f"{error.message} Of run {run_id} {TAGS_ONLY.lower()}")
        except (ConfigError, LedgerError) as error:
            broken = True
            context.reporter.note(f"{error.message} {TAGS_ONLY}")
        except CostGpuError:
            pass
        return None

    return known


Place = tuple["Provider", list[str] | None]
"""A provider to ask, and its regions; None for all of them."""


def _places(context: AppContext, infra: Sequence[str]) -> list[Place]:
    if not infra:
        return [(provider, None) for provider in context.providers()]
    wanted: dict[str, list[str] | None] = {}
    for place in infra:
        name, _, region = place.partition("/")
        regions = wanted.get(name, [])
        wanted[name] = [*regions, region] if region and regions is not None else None
    return [(context.provider(name), regions) for name, regions in wanted.items()]


def _without_credentials(context: AppContext, places: Sequence[Place], *, everywhere: bool) -> dict[str, str]:
    """Return the accounts where open runs may have a machine, and which the credentials here could not ask."""
    asked = {provider.name: (provider, regions) for provider, regions in places}
    accounts: dict[str, str] = {}
    hidden: dict[tuple[str, str], list[str]] = {}
    with contextlib.suppress(ConfigError, LedgerError):
        for run_id in context.ledger.open_runs():
            machine = None
            with contextlib.suppress(LedgerDamaged, LedgerTooNew):
                machine = expected_machine(context.ledger.events(run_id))
            if machine is None or registry.is_here(machine.provider):
                continue  # another computer's own machine is not for these credentials to see, and costs nothing
            name, account = machine.provider, machine.account
            if name in asked:
                provider, regions = asked[name]
                if not account or (regions is not None and machine.region not in regions):
                    continue
                if name not in accounts:
                    accounts[name] = ""  # whose machines the provider shows with these credentials
                    with contextlib.suppress(ProviderError):
                        accounts[name] = provider.identity().account
                if accounts[name] in ("", account):
                    continue
            elif not everywhere:
                continue
            hidden.setdefault((name, account), []).append(run_id)
    found: dict[str, str] = {}
    for (name, account), run_ids in hidden.items():
        spec = registry.find(name)
        where = f"{name} {spec.account_word if spec else 'account'} {account}" if account else name
        why = f"these credentials are of {accounts[name]}" if name in asked else "no credentials here"
        who = f"run {run_ids[0]}" if len(run_ids) == 1 else f"runs {', '.join(run_ids)}"
        found[where] = f"{why}, and {who} may have a machine there"
    return found
