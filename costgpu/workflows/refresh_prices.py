"""Fetches newer prices from the providers' own price lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from costgpu.clock import SystemClock
from costgpu.config import data_folder
from costgpu.errors import AuthError, CostGpuError, PriceNotFound, ProviderError, Unreachable, UsageError
from costgpu.models.offer import Offer
from costgpu.models.price_update import PriceUpdate
from costgpu.pricing import price_store
from costgpu.pricing.hardware import nearest
from costgpu.pricing.merge_prices import RefreshResult, merge_prices
from costgpu.providers import registry
from costgpu.providers.base import PriceSource
from costgpu.providers.spec import ProviderConfig, ProviderSpec
from costgpu.workflows.reporter import Reporter


def price_sources() -> dict[str, ProviderSpec]:
    """The providers with a price list."""
    return {spec.name: spec for spec in registry.specs() if spec.price_source is not None}


def refresh_prices(
    infra: Sequence[str], now: datetime, reporter: Reporter, *, accept: bool
) -> tuple[list[RefreshResult], list[CostGpuError]]:
    """Asks price lists and keeps what they say.

    Args:
        infra: Providers or regions; empty for every provider with credentials.
        now: Date of the new prices.
        accept: Whether on-demand prices that have moved far are taken.

    Returns:
        What came of each provider, and what has gone wrong, the first thing first.
    """
    known = price_store.offers()
    results: list[RefreshResult] = []
    errors: list[CostGpuError] = []
    for name, regions in _wanted(infra, known):
        spec = price_sources()[name]
        updates, failed = _read(spec, regions, known, now, reporter)
        if any(update.offers for update in updates):
            results.append(_keep(name, updates, now, accept=accept))
        elif updates:
            failed.append(_no_prices(spec, updates))
        if failed:
            price_store.record_failure(price_store.FailedRefresh(provider=name, at=now, why=failed[0].message))
            reporter.note(_missed(spec, known, now))
        errors += failed
    without = sum(len(result.failures) for result in results)
    if without:
        number = "1 offer has" if without == 1 else f"{without} offers have"
        errors.append(
            PriceNotFound(
                f"{number} no new price, and the old one, with its age, stays.",
                hint="Above is why; --json lists every one of them.",
            )
        )
    return results, errors


def _wanted(infra: Sequence[str], known: Sequence[Offer]) -> list[tuple[str, list[str]]]:
    """Providers and their regions.

    Raises:
        AuthError: Nothing is named, and there are no credentials.
        UsageError: Something else than a provider or a region is named.
    """
    sources = price_sources()
    regions = {name: sorted({o.region for o in known if o.provider == name}) for name in sources}
    if not infra:
        found = [(name, regions[name]) for name, spec in sources.items() if spec.has_credentials()]
        if not found:
            clouds = " or ".join(spec.display_name for spec in sources.values())
            raise AuthError(
                f"There are no credentials for {clouds} here, and their price lists need some.",
                hint=f"{'; '.join(spec.login_hint for spec in sources.values())}. The shipped prices stay in use.",
            )
        return found
    wanted: dict[str, list[str]] = {}
    for place in infra:
        provider, slash, region = place.lower().partition("/")
        if not slash and provider not in sources:
            owners = [name for name in sources if provider in regions[name]]
            provider, region = (owners or [""])[0], provider
        unknown_region = region and provider in sources and region not in regions[provider]
        if provider not in sources or (unknown_region and not _source(sources[provider]).by_region):
            names = [*sources, *(f"{name}/{one}" for name in sources for one in regions[name])]
            raise UsageError(
                f"--infra {place!r} has no price list here.",
                hint=f"The nearest names are {', '.join(nearest(place, names))}.",
            )
        wanted.setdefault(provider, []).extend([region] if region else regions[provider])
    return [(name, list(dict.fromkeys(wanted[name]))) for name in sources if name in wanted]


def _source(spec: ProviderSpec) -> PriceSource:
    assert spec.price_source is not None  # noqa: S101 - that is what makes it one of the sources
    return spec.price_source(ProviderConfig(clock=SystemClock(), data_folder=data_folder))


def _read(
    spec: ProviderSpec, regions: Sequence[str], known: Sequence[Offer], now: datetime, reporter: Reporter
) -> tuple[list[PriceUpdate], list[CostGpuError]]:
    """What the price lists say, and what has gone wrong."""
    source = _source(spec)
    updates: list[PriceUpdate] = []
    failed: list[CostGpuError] = []
    for part in [[region] for region in regions] if source.by_region else [list(regions)]:
        where = part[0] if len(part) == 1 else f"{len(part)} regions"
        remark = f"; {source.note}" if source.note else ""
        reporter.note(f"Reading the prices of {spec.display_name} in {where} (free of charge{remark})")
        try:
            updates.append(source.read(part, known, now))
        except ProviderError as error:
            failed.append(error)
            if isinstance(error, Unreachable) or (isinstance(error, AuthError) and not updates):
                break  # the other regions would not answer either
    return updates, failed


def _keep(provider: str, updates: Sequence[PriceUpdate], now: datetime, *, accept: bool) -> RefreshResult:
    merged: list[RefreshResult] = []

    def change(known: Sequence[Offer]) -> Sequence[Offer]:
        merged.append(merge_prices(known, updates, accept=accept))
        return merged[0].offers

    price_store.store_prices(
        provider, sorted({offer.region for update in updates for offer in update.offers}), now, change
    )
    return merged[0]


def _no_prices(spec: ProviderSpec, updates: Sequence[PriceUpdate]) -> CostGpuError:
    reasons = [failure.reason for update in updates for failure in update.failures]
    read = sum(update.documents for update in updates)
    return PriceNotFound(
        f"Not one price of {spec.display_name} could be made from {read} price list entries.",
        hint=f"The first reason: {reasons[0]}." if reasons else "",
    )


def _missed(spec: ProviderSpec, known: Sequence[Offer], now: datetime) -> str:
    days = [offer.price_as_of for offer in known if offer.provider == spec.name]
    ages = sorted({(now.date() - min(days)).days, (now.date() - max(days)).days})
    old = " to ".join(str(age) for age in ages)
    return (
        f"The refresh of {spec.display_name} has failed, at least in part: prices that it missed stay {old} days old."
    )
