"""`costgpu offers`: what can be rented, at the prices in use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import print_note

DEFAULT_ROWS = 20


def offers(
    gpus: opt.Gpus = None,
    cpus: Annotated[str | None, typer.Option(help="Virtual CPUs: 8, 8+, 8..16.")] = None,
    memory: Annotated[str | None, typer.Option(help="Main memory in GiB: 64, 64+, 32..128.")] = None,
    infra: opt.Infra = None,
    spot: Annotated[
        bool | None, typer.Option("--spot/--on-demand", "--use-spot", help="Spot or on-demand prices; default: both.")
    ] = None,
    max_price: Annotated[str | None, typer.Option(help="Highest price of the machine in USD per hour.")] = None,
    sort: Annotated[str, typer.Option(help="Order: price, gpu-price, memory or name.")] = "price",
    top: Annotated[int, typer.Option(min=0, help="Number of offers to list; 0 for all.")] = DEFAULT_ROWS,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """List machine types that can be rented, with their prices.

    Prices are those that came with this version, or newer ones if costgpu prices refresh has
    fetched some; every line shows their age.
    """
    from costgpu.pricing.catalog import query_current
    from costgpu.render.text.offers import offers_json, offers_table
    from costgpu.workflows.offer_query import offer_query

    as_json = opt.wants_json(json, output)
    query = offer_query(
        gpus=gpus, cpus=cpus, memory=memory, infra=infra or (), spot=spot, max_price=max_price, sort=sort
    )
    found = query_current(query, warn=print_note)
    render = offers_json if as_json else offers_table
    typer.echo(render(found[: top or None], datetime.now(UTC).date(), total=len(found)))
