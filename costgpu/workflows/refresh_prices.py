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
from costgpu.pricing.not_supported import place_error
from costgpu.providers import registry
from costgpu.providers.base import PriceSource
from costgpu.providers.spec import ProviderConfig, ProviderSpec
from costgpu.workflows.reporter import Reporter


def price_sources(*, public: bool = False) -> dict[str, ProviderSpec]:
    """Return the providers with a price list; with one that needs no credentials."""
    return {
        spec.name: spec
        for spec in registry.specs()
        if (spec.public_price_source if public else spec.price_source) is not None
    }


def refresh_prices(
    infra: Sequence[str], now: datetime, reporter: Reporter, *, accept: bool, public: bool = False
) -> tuple[list[RefreshResult], list[CostGpuError]]:
    """Ask price lists and keep what they say.

    Args:
        infra: Providers or regions; empty for every provider with credentials.
        now: Date of the new prices.
        accept: Whether on-demand prices that have moved far are taken.
        public: Whether only lists are asked that need no credentials; without `infra`, all of them.

    Returns:
        What came of each provider, and what has gone wrong, the first thing first.
    """
    known = price_store.list_offers()
    results: list[RefreshResult] = []
    errors: list[CostGpuError] = []
    for name, regions in _wanted(infra, known, public=public):
        spec = price_sources(public=public)[name]
        updates: list[PriceUpdate] = []
        try:
            failed = _read(spec, _source(spec, public=public), regions, known, now, reporter, updates)
        finally:  # Ctrl-C must not lose the regions that were read, which may have taken minutes
            if any(update.offers for update in updates):
                results.append(_keep(name, updates, now, accept=accept))
        if updates and not any(update.offers for update in updates):
            read = sum(update.documents for update in updates)
            reason = next((failure.reason for update in updates for failure in update.failures), "")
            failed.append(
                PriceNotFound(
                    f"Not one price of {spec.display_name} could be made from {read} price list entries.",
                    hint=f"The first reason: {reason}." if reason else "",
                )
            )
        if failed:
            price_store.record_failure(price_store.FailedRefresh(provider=name, at=now, why=failed[0].message))
            missed = f"The refresh of {spec.display_name} has failed, at least in part: prices that it missed"
            reporter.note(f"{missed} {_ages(name, known, now)}")
        errors += failed
    if public and not infra:
        for name in sorted(price_sources().keys() - price_sources(public=True).keys()):
            reporter.note(f"{_not_public(registry.spec(name))} Its prices {_ages(name, known, now)}")
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


def _wanted(infra: Sequence[str], known: Sequence[Offer], *, public: bool) -> list[tuple[str, list[str]]]:
    """Return providers and their regions.

    Raises:
        AuthError: Nothing is named, and there are no credentials.
        UsageError: Something else than a provider or a region is named, or one without a public list.
    """
    sources = price_sources()
    regions = {name: sorted({o.region for o in known if o.provider == name}) for name in sources}
    if not infra:
        lists = price_sources(public=public)
        found = [(name, regions[name]) for name, spec in lists.items() if public or spec.has_credentials()]
        if not found:
            clouds = " or ".join(spec.display_name for spec in sources.values())
            raise AuthError(
                f"There are no credentials for {clouds} here, and their price lists need some.",
                hint=f"{'; '.join(spec.login_hint for spec in sources.values())}. Or read what is public: "
                "costgpu prices refresh --public. The shipped prices stay in use.",
            )
        return found
    wanted: dict[str, list[str]] = {}
    for place in infra:
        provider, slash, region = place.lower().partition("/")
        if not slash and provider not in sources:
            owners = [name for name in sources if provider in regions[name]]
            provider, region = (owners or [""])[0], provider
        unknown_region = region and provider in sources and region not in regions[provider]
        if provider not in sources or (unknown_region and not _source(sources[provider], public=False).by_region):
            if (error := place_error(place, regions)) is not None:
                raise error
            names = [*sources, *(f"{name}/{one}" for name in sources for one in regions[name])]
            raise UsageError(
                f"--infra {place!r} has no price list here.",
                hint=f"The nearest names are {', '.join(nearest(place, names))}.",
            )
        if public and sources[provider].public_price_source is None:
            raise UsageError(_not_public(sources[provider]), hint="Leave out --public, and sign in.")
        wanted.setdefault(provider, []).extend([region] if region else regions[provider])
    return [(name, list(dict.fromkeys(wanted[name]))) for name in sources if name in wanted]


def _source(spec: ProviderSpec, *, public: bool) -> PriceSource:
    make = spec.public_price_source if public else spec.price_source
    assert make is not None  # noqa: S101 - that is what makes it one of the sources
    return make(ProviderConfig(clock=SystemClock(), data_folder=data_folder))


def _read(
    spec: ProviderSpec,
    source: PriceSource,
    regions: Sequence[str],
    known: Sequence[Offer],
    now: datetime,
    reporter: Reporter,
    updates: list[PriceUpdate],
) -> list[CostGpuError]:
    """Add to `updates` what the price lists say, list by list; what has gone wrong."""
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
    return failed


def _keep(provider: str, updates: Sequence[PriceUpdate], now: datetime, *, accept: bool) -> RefreshResult:
    merged: list[RefreshResult] = []

    def change(known: Sequence[Offer]) -> Sequence[Offer]:
        merged.append(merge_prices(known, updates, accept=accept))
        return merged[0].offers

    price_store.store_prices(
        provider, sorted({offer.region for update in updates for offer in update.offers}), now, change
    )
    return merged[0]


def _ages(provider: str, known: Sequence[Offer], now: datetime) -> str:
    days = [offer.price_as_of for offer in known if offer.provider == provider]
    ages = sorted({(now.date() - min(days)).days, (now.date() - max(days)).days})
    return f"stay {' to '.join(str(age) for age in ages)} days old."


def _not_public(spec: ProviderSpec) -> str:
    return f"No price list of {spec.display_name} can be read without credentials."
