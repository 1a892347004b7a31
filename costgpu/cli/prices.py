"""`costgpu prices`: how old the prices in use are, and newer ones from the providers. Heavy imports wait until it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from costgpu.errors import CostGpuError
    from costgpu.models.offer import Offer
    from costgpu.pricing.merge_prices import Refresh
    from costgpu.pricing.sources.price_update import Harvest

prices = typer.Typer(
    name="prices",
    help="Show how old the prices in use are and where they come from; fetch newer ones.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
PROVIDERS = ("aws", "gcp")
NAMES = {"aws": "AWS", "gcp": "Google Cloud"}


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
    found = [price_store.kept(provider) for provider in PROVIDERS]
    failed = [price_store.failed_try(provider) for provider in PROVIDERS]
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
    results: list[Refresh] = []
    errors: list[CostGpuError] = []
    for provider, regions in _asked(infra or [], known):
        harvests, failed = _ask(provider, regions, known, now)
        if any(harvest.offers for harvest in harvests):
            results.append(_keep(provider, harvests, now, accept=accept))
        elif harvests:
            failed.append(_nothing(provider, harvests))
        if failed:
            price_store.note_failure(price_store.FailedTry(provider=provider, at=now, why=failed[0].message))
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
    from costgpu.providers import registry

    regions = {name: sorted({o.region for o in known if o.provider == name}) for name in PROVIDERS}
    if not infra:
        found = [(name, regions[name]) for name in PROVIDERS if registry.has_credentials(name)]
        if not found:
            raise AuthError(
                "There are no credentials for AWS or Google Cloud here, and their price lists want some.",
                hint="aws configure, or gcloud auth application-default login. The shipped prices stay in use.",
            )
        return found
    wanted: dict[str, list[str]] = {}
    for place in infra:
        provider, slash, region = place.lower().partition("/")
        if not slash and provider not in PROVIDERS:
            owners = [name for name in PROVIDERS if provider in regions[name]]
            provider, region = (owners or [""])[0], provider
        if provider not in PROVIDERS or (provider == "gcp" and region and region not in regions["gcp"]):
            names = [*PROVIDERS, *(f"{name}/{one}" for name in PROVIDERS for one in regions[name])]
            raise UsageError(
                f"--infra {place!r} is nothing that has a price list here.",
                hint=f"The nearest names are {', '.join(nearest(place, names))}.",
            )
        wanted.setdefault(provider, []).extend([region] if region else regions[provider])
    return [(name, list(dict.fromkeys(wanted[name]))) for name in PROVIDERS if name in wanted]


def _ask(
    provider: str, regions: Sequence[str], known: Sequence[Offer], now: datetime
) -> tuple[list[Harvest], list[CostGpuError]]:
    """What the price lists say, and what has gone wrong."""
    from costgpu.errors import AuthError, ProviderError, Unreachable

    ask = _google(known, now) if provider == "gcp" else _aws(known, now)
    harvests: list[Harvest] = []
    failed: list[CostGpuError] = []
    for part in [list(regions)] if provider == "gcp" else [[region] for region in regions]:
        where = part[0] if len(part) == 1 else f"{len(part)} regions"
        long = "; the list is long, about half a minute" if provider == "gcp" else ""
        typer.echo(f"Reading the prices of {NAMES[provider]} in {where} (free of charge{long})", err=True)
        try:
            harvests.append(ask(part))
        except ProviderError as error:
            failed.append(error)
            if isinstance(error, Unreachable) or (isinstance(error, AuthError) and not harvests):
                break  # the other regions would not answer either
    return harvests, failed


def _google(known: Sequence[Offer], now: datetime) -> Callable[[Sequence[str]], Harvest]:
    """Google's list is one for all regions."""
    from costgpu.clock import SystemClock
    from costgpu.pricing.sources import gcp_skus
    from costgpu.providers.gcp.skus import SkuCatalog

    mapping, catalog = gcp_skus.read_mapping(), SkuCatalog(clock=SystemClock())
    return lambda regions: gcp_skus.harvest(
        catalog.skus(mapping.service), known, regions, today=now.date(), mapping=mapping
    )


def _aws(known: Sequence[Offer], now: datetime) -> Callable[[Sequence[str]], Harvest]:
    """AWS is asked region by region."""
    from costgpu.pricing.sources import aws_prices
    from costgpu.providers.aws.prices import PriceLists

    lists = PriceLists()

    def ask(regions: Sequence[str]) -> Harvest:
        (region,) = regions
        products = lists.on_demand(region, aws_prices.PLAIN)
        spots = lists.spot(region, aws_prices.LINUX, now)
        return aws_prices.harvest(products, spots, known, region, today=now.date())

    return ask


def _keep(provider: str, harvests: Sequence[Harvest], now: datetime, *, accept: bool) -> Refresh:
    from costgpu.pricing import price_store
    from costgpu.pricing.merge_prices import settle

    settled: list[Refresh] = []

    def change(known: Sequence[Offer]) -> Sequence[Offer]:
        settled.append(settle(known, harvests, accept=accept))
        return settled[0].offers

    price_store.keep(provider, sorted({offer.region for harvest in harvests for offer in harvest.offers}), now, change)
    return settled[0]


def _nothing(provider: str, harvests: Sequence[Harvest]) -> CostGpuError:
    from costgpu.errors import PriceNotFound

    reasons = [failure.reason for harvest in harvests for failure in harvest.failures]
    read = sum(harvest.documents for harvest in harvests)
    return PriceNotFound(
        f"Not one price of {NAMES[provider]} could be made from {read} price list entries.",
        hint=f"The first reason: {reasons[0]}." if reasons else "",
    )


def _stays(provider: str, known: Sequence[Offer], now: datetime) -> str:
    days = [offer.price_as_of for offer in known if offer.provider == provider]
    ages = sorted({(now.date() - min(days)).days, (now.date() - max(days)).days})
    old = " to ".join(str(age) for age in ages)
    return f"The refresh of {NAMES[provider]} has failed, at least in part: prices that it missed stay {old} days old."
