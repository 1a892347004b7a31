"""`costgpu prices`: how old the prices in use are, and newer ones from the providers. Heavy imports wait until it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from costgpu.errors import CostGpuError
    from costgpu.models.offer import Offer
    from costgpu.models.price_update import PriceUpdate
    from costgpu.pricing.merge_prices import RefreshResult
    from costgpu.providers.base import PriceSource
    from costgpu.providers.spec import ProviderSpec

prices = typer.Typer(
    name="prices",
    help="Show how old the prices in use are and where they come from; fetch newer ones.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


def _sources() -> dict[str, ProviderSpec]:
    """The providers with a price list."""
    from costgpu.providers import registry

    return {spec.name: spec for spec in registry.specs() if spec.price_source is not None}


@prices.callback()
def show(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show how old the prices in use are and where they come from; fetch newer ones.

    Every version comes with dated prices; costgpu prices refresh fetches newer ones.
    """
    if context.invoked_subcommand is not None:
        return
    from datetime import UTC, datetime

    from costgpu.pricing import price_store
    from costgpu.render.text.prices import prices_json, prices_text
    from costgpu.workflows.price_warning import warn_of_prices

    offers = price_store.offers(warn=warn_of_prices)
    found = [price_store.stored_prices(provider) for provider in _sources()]
    failed = [price_store.last_failure(provider) for provider in _sources()]
    render = prices_json if json else prices_text
    typer.echo(
        render(
            offers,
            datetime.now(UTC),
            refreshed={kept.provider: kept.regions for kept in found if kept},
            failed=[one for one in failed if one],
            folder=str(price_store.cache_folder()),
        )
    )


@prices.command()
def refresh(
    infra: Annotated[
        list[str] | None,
        typer.Option(
            "--infra", "--region", help="Whose: aws, gcp, aws/us-east-1. Repeatable; else all with credentials."
        ),
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take on-demand prices that have moved by more than 30 %, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fetch prices from the providers' own price lists. Asking is free of charge.

    Offers keep the price and age that they had where no new price can be made; the exit code is then 4.
    """
    from datetime import UTC, datetime

    from costgpu.errors import PriceNotFound
    from costgpu.pricing import price_store
    from costgpu.render.text.prices import refresh_json, refresh_text

    now = datetime.now(UTC)
    known = price_store.offers()
    results: list[RefreshResult] = []
    errors: list[CostGpuError] = []
    for provider, regions in _asked(infra or [], known):
        updates, failed = _ask(provider, regions, known, now)
        if any(update.offers for update in updates):
            results.append(_keep(provider, updates, now, accept=accept))
        elif updates:
            failed.append(_nothing(provider, updates))
        if failed:
            price_store.record_failure(price_store.FailedRefresh(provider=provider, at=now, why=failed[0].message))
            typer.echo(f"costgpu: {_stays(provider, known, now)}", err=True)
        errors += failed
    if results or json:
        typer.echo((refresh_json if json else refresh_text)(results, now))
    without = sum(len(result.failures) for result in results)
    if without:
        number = "1 offer has" if without == 1 else f"{without} offers have"
        errors.append(
            PriceNotFound(
                f"{number} no new price, and the old one, with its age, stays.",
                hint="Above is why; --json lists every one of them.",
            )
        )
    for error in errors[1:]:
        typer.echo(f"costgpu: {error.message}", err=True)
    if errors:
        raise errors[0]


def _asked(infra: Sequence[str], known: Sequence[Offer]) -> list[tuple[str, list[str]]]:
    """Providers and their regions, from ``--infra``.

    Raises:
        AuthError: Nothing is named, and there are no credentials.
        UsageError: Something else than a provider or a region is named.
    """
    from costgpu.errors import AuthError, UsageError
    from costgpu.pricing.hardware import nearest

    sources = _sources()
    regions = {name: sorted({o.region for o in known if o.provider == name}) for name in sources}
    if not infra:
        found = [(name, regions[name]) for name, spec in sources.items() if spec.has_credentials()]
        if not found:
            clouds = " or ".join(spec.display_name for spec in sources.values())
            raise AuthError(
                f"There are no credentials for {clouds} here, and their price lists want some.",
                hint=f"{'; '.join(spec.login_hint for spec in sources.values())}. The shipped prices stay in use.",
            )
        return found
    wanted: dict[str, list[str]] = {}
    for place in infra:
        provider, slash, region = place.lower().partition("/")
        if not slash and provider not in sources:
            owners = [name for name in sources if provider in regions[name]]
            provider, region = (owners or [""])[0], provider
        if provider not in sources or (region and region not in regions[provider] and not _by_region(provider)):
            names = [*sources, *(f"{name}/{one}" for name in sources for one in regions[name])]
            raise UsageError(
                f"--infra {place!r} is nothing that has a price list here.",
                hint=f"The nearest names are {', '.join(nearest(place, names))}.",
            )
        wanted.setdefault(provider, []).extend([region] if region else regions[provider])
    return [(name, list(dict.fromkeys(wanted[name]))) for name in sources if name in wanted]


def _source(provider: str) -> PriceSource:
    from costgpu.clock import SystemClock
    from costgpu.config import data_folder
    from costgpu.providers.spec import ProviderConfig

    make = _sources()[provider].price_source
    assert make is not None  # noqa: S101 - that is what makes it one of the sources
    return make(ProviderConfig(clock=SystemClock(), data_folder=data_folder))


def _by_region(provider: str) -> bool:
    return _source(provider).by_region


def _ask(
    provider: str, regions: Sequence[str], known: Sequence[Offer], now: datetime
) -> tuple[list[PriceUpdate], list[CostGpuError]]:
    """What the price lists say, and what has gone wrong."""
    from costgpu.errors import AuthError, ProviderError, Unreachable

    source, name = _source(provider), _sources()[provider].display_name
    updates: list[PriceUpdate] = []
    failed: list[CostGpuError] = []
    for part in [[region] for region in regions] if source.by_region else [list(regions)]:
        where = part[0] if len(part) == 1 else f"{len(part)} regions"
        note = f"; {source.note}" if source.note else ""
        typer.echo(f"Reading the prices of {name} in {where} (free of charge{note})", err=True)
        try:
            updates.append(source.read(part, known, now))
        except ProviderError as error:
            failed.append(error)
            if isinstance(error, Unreachable) or (isinstance(error, AuthError) and not updates):
                break  # the other regions would not answer either
    return updates, failed


def _keep(provider: str, updates: Sequence[PriceUpdate], now: datetime, *, accept: bool) -> RefreshResult:
    from costgpu.pricing import price_store
    from costgpu.pricing.merge_prices import merge_prices

    merged: list[RefreshResult] = []

    def change(known: Sequence[Offer]) -> Sequence[Offer]:
        merged.append(merge_prices(known, updates, accept=accept))
        return merged[0].offers

    price_store.store_prices(
        provider, sorted({offer.region for update in updates for offer in update.offers}), now, change
    )
    return merged[0]


def _nothing(provider: str, updates: Sequence[PriceUpdate]) -> CostGpuError:
    from costgpu.errors import PriceNotFound

    reasons = [failure.reason for update in updates for failure in update.failures]
    read = sum(update.documents for update in updates)
    return PriceNotFound(
        f"Not one price of {_sources()[provider].display_name} could be made from {read} price list entries.",
        hint=f"The first reason: {reasons[0]}." if reasons else "",
    )


def _stays(provider: str, known: Sequence[Offer], now: datetime) -> str:
    days = [offer.price_as_of for offer in known if offer.provider == provider]
    ages = sorted({(now.date() - min(days)).days, (now.date() - max(days)).days})
    old = " to ".join(str(age) for age in ages)
    name = _sources()[provider].display_name
    return f"The refresh of {name} has failed, at least in part: prices that it missed stay {old} days old."
