"""`costgpu offers` and `prices`: what can be rented, and how old its prices are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, print_note, say
from costgpu.models.offer import PurchaseOption
from costgpu.units import LARGEST_WHOLE
from costgpu.workflows.offers import OfferRequest, has_image

DEFAULT_ROWS = 20

PriceProvider = Annotated[str, typer.Argument(metavar="PROVIDER", help="Provider, e.g. aws.")]
PriceType = Annotated[str, typer.Argument(metavar="TYPE", help="Machine type, e.g. p5.48xlarge.")]
PriceRegion = Annotated[str | None, typer.Option(help="Region of the price; default: all.")]
PriceSpot = Annotated[bool, typer.Option("--spot", help="The price of spot machines, not on demand.")]

prices = typer.Typer(name="prices", invoke_without_command=True, rich_markup_mode=None, add_completion=False)


@opt.command_of(OfferRequest)
def offers(
    request: OfferRequest,
    *,
    top: Annotated[
        int, typer.Option(min=0, max=LARGEST_WHOLE, help="Number of offers to list; 0 for all.")
    ] = DEFAULT_ROWS,
    currency: opt.Currency = None,
    rate: opt.ExchangeRate = None,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """List machine types that can be rented, with their prices.

    Prices are those that came with this version, or newer ones if costgpu prices refresh has
    fetched some; every line shows their age.
    """
    from costgpu.pricing.catalog import Catalog
    from costgpu.render.text.offers import offers_json, offers_table

    as_json = opt.show_amounts(currency, rate, as_json=json, output=output)
    found = Catalog.current(print_note, has_image=has_image).query(request.query)
    render = offers_json if as_json else offers_table
    say(render(found[: top or None], datetime.now(UTC).date(), total=len(found)))


@prices.callback()
def show(context: typer.Context, json: opt.Json = False) -> None:
    """Show the age of prices, refresh them, set your own.

    Every version comes with dated prices; costgpu prices refresh fetches newer ones, and
    costgpu prices set says what you pay by a contract, with credits or a reservation.
    """
    if context.invoked_subcommand is not None:
        return
    from costgpu.pricing import own_prices, price_store
    from costgpu.render.text.prices import PricesInUse, prices_json, prices_text
    from costgpu.workflows.refresh_prices import price_sources

    kept = [found for name in price_sources() if (found := price_store.stored_prices(name))]
    used = PricesInUse(
        offers=price_store.list_offers(warn=TerminalReporter().note),
        refreshed={found.provider: found.regions for found in kept},
        failed=[tried for name in price_sources() if (tried := price_store.last_failure(name))],
        folder=str(price_store.cache_folder()),
        own=own_prices.read_prices(),
    )
    say((prices_json if json else prices_text)(used, datetime.now(UTC)))


@prices.command("set")
def set_(
    provider: PriceProvider,
    instance_type: PriceType,
    price: Annotated[str, typer.Argument(metavar="PRICE", help="US dollars an hour of the machine, e.g. 42.00 or 0.")],
    until: Annotated[str, typer.Option(metavar="DATE", help="Last day of the price, UTC: 2027-03-31.")],
    region: PriceRegion = None,
    spot: PriceSpot = False,
    note: Annotated[str | None, typer.Option(help="What the price is by, e.g. a contract.")] = None,
) -> None:
    """Set your own price of a machine: a discount, credits, a reservation.

    It counts in offers, estimates, plans, caps and receipts through the day of --until, and is
    marked there. Afterwards the list price counts.
    """
    from costgpu.pricing import own_prices, price_store
    from costgpu.render.text.prices import own_prices_text

    now = datetime.now(UTC)
    wanted = own_prices.StoredPrice(
        provider=provider,
        instance_type=instance_type,
        region=region,
        purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
        usd_per_hour=own_prices.parse_price(price),
        until=own_prices.parse_last_day(until, now.date()),
        set_on=now.date(),
        note=(note or "").strip()[: own_prices.LONGEST_NOTE],
    )
    kept = own_prices.set_price(wanted, price_store.list_offers(warn=print_note))
    say(own_prices_text([kept], now))


@prices.command()
def unset(
    provider: PriceProvider, instance_type: PriceType, region: PriceRegion = None, spot: PriceSpot = False
) -> None:
    """Forget an own price: the list price counts again."""
    from costgpu.pricing.own_prices import name_of, unset_price

    option = PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND
    gone = unset_price(provider, instance_type, region, option)
    say(f"The own price of {name_of(gone)} is forgotten.")


@prices.command("list")
def list_(json: opt.Json = False) -> None:
    """List your own prices, those that are over included."""
    from costgpu.pricing.own_prices import read_prices
    from costgpu.render.document import document
    from costgpu.render.text.prices import own_price_value, own_prices_text

    own = read_prices()
    if json:
        say(document("costgpu.own-prices", own_prices=[own_price_value(price) for price in own]))
    else:
        say(own_prices_text(own, datetime.now(UTC)))


@prices.command()
def refresh(
    infra: opt.Infra = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take on-demand prices that have moved by more than 30 %, too.")
    ] = False,
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="Read only lists that need no credentials: AWS's, about 300 MB a region. They learn your IP address.",
        ),
    ] = False,
    json: opt.Json = False,
) -> None:
    """Fetch prices from the providers' own price lists. Asking is free of charge.

    Without --infra every provider with credentials is asked, or with --public every one with
    a public list. Offers keep the price and age that they had where no new price can be made;
    the exit code is then 4.
    """
    from costgpu.render.text.prices import refresh_json, refresh_text
    from costgpu.workflows.refresh_prices import refresh_prices

    now = datetime.now(UTC)
    results, errors = refresh_prices(infra or [], now, TerminalReporter(), accept=accept, public=public)
    if results or json:
        say((refresh_json if json else refresh_text)(results, now))
    for error in errors[1:]:
        print_note(error.message)
    if errors:
        raise errors[0]
