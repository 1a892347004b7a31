"""`costgpu offers`: what can be rented, at the prices in use. Heavy imports wait until it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from costgpu.models.offer import Offer
    from costgpu.pricing.query import OfferQuery, SortKey

DEFAULT_TOP = 20


def offers(
    gpus: Annotated[
        str | None, typer.Option(help="Accelerator: A100, A100:1, L4:1+, 24GB, 24GB:1..2, or none.")
    ] = None,
    cpus: Annotated[str | None, typer.Option(help="Virtual CPUs: 8, 8+, 8..16.")] = None,
    memory: Annotated[str | None, typer.Option(help="Main memory in GiB: 64, 64+, 32..128.")] = None,
    infra: Annotated[
        list[str] | None,
        typer.Option("--infra", "--region", help="Place: aws, aws/us-east-1, us-east-1. Repeatable."),
    ] = None,
    spot: Annotated[
        bool | None,
        typer.Option("--spot/--on-demand", "--use-spot", help="Only this option; both if neither is given."),
    ] = None,
    max_price: Annotated[str | None, typer.Option(help="Highest price of the instance, USD per hour.")] = None,
    sort: Annotated[str, typer.Option(help="Order: price, gpu-price, memory or name.")] = "price",
    top: Annotated[int, typer.Option(min=0, help="How many to list; 0 for all.")] = DEFAULT_TOP,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; as -o json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Format: table or json.")] = "table",
) -> None:
    """List what can be rented and for how much: machine types with and without accelerators.

    Prices are those that came with this version, or newer ones if costgpu prices refresh has
    fetched some; every line shows their age.
    """
    from datetime import UTC, datetime
    from functools import partial

    from costgpu.pricing.catalog import query_current
    from costgpu.workflows.price_warning import warn_of_prices

    query = to_query(gpus=gpus, cpus=cpus, memory=memory, infra=infra or (), spot=spot, max_price=max_price, sort=sort)
    as_json = is_json(output) or json
    find = partial(query_current, warn=warn_of_prices)
    typer.echo(listing(query, find=find, today=datetime.now(UTC).date(), top=top or None, as_json=as_json))


def listing(
    query: OfferQuery,
    *,
    find: Callable[[OfferQuery], list[Offer]],
    today: date,
    top: int | None,
    as_json: bool,
) -> str:
    """The text that the command prints.

    Args:
        query: What is asked.
        find: Answers a query.
        today: From which the age of the prices is counted.
        top: How many offers to list; None for all.
        as_json: The JSON document instead of the table.
    """
    from costgpu.render.text.offers import offers_json, offers_table

    found = find(query)
    render = offers_json if as_json else offers_table
    return render(found[:top], today, total=len(found))


def to_query(
    *,
    gpus: str | None = None,
    cpus: str | None = None,
    memory: str | None = None,
    infra: Sequence[str] = (),
    spot: bool | None = None,
    max_price: str | None = None,
    sort: str = "price",
) -> OfferQuery:
    """The query that the options mean.

    Raises:
        UsageError: An option cannot be read.
    """
    from costgpu.models.offer import PurchaseOption
    from costgpu.pricing.query import OfferQuery
    from costgpu.units import parse_accelerator, parse_range, parse_usd

    options = {None: (), True: (PurchaseOption.SPOT,), False: (PurchaseOption.ON_DEMAND,)}
    return OfferQuery(
        accelerator=None if gpus is None else parse_accelerator(gpus),
        cpus=None if cpus is None else parse_range(cpus, what="--cpus"),
        memory=None if memory is None else parse_range(_without_unit(memory), what="--memory"),
        infra=tuple(infra),
        purchase_options=options[spot],
        max_price_usd_per_hour=None if max_price is None else parse_usd(max_price),
        sort=_sort_key(sort),
    )


def _without_unit(memory: str) -> str:
    """``64GB+`` as ``64+``: the unit is GiB in any case."""
    return memory.lower().replace("gib", "").replace("gb", "")


def _sort_key(text: str) -> SortKey:
    from costgpu.errors import UsageError
    from costgpu.pricing.query import SortKey

    try:
        return SortKey(text.lower())
    except ValueError:
        names = ", ".join(SortKey)
        raise UsageError(f"--sort {text!r} is not an order.", hint=f"Use one of {names}.") from None


def is_json(output: str) -> bool:
    """Whether the value of ``--output`` means JSON.

    Raises:
        UsageError: It is no format.
    """
    from costgpu.errors import UsageError

    if output.lower() not in {"table", "json"}:
        raise UsageError(f"--output {output!r} is not a format.", hint="Use table or json.")
    return output.lower() == "json"
