"""`costgpu prices`: how old the prices in use are, and newer ones from the providers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, print_note

prices = typer.Typer(name="prices", invoke_without_command=True, rich_markup_mode=None, add_completion=False)


@prices.callback()
def show(context: typer.Context, json: opt.Json = False) -> None:
    """Show the age of the prices in use, and refresh them.

    Every version comes with dated prices; costgpu prices refresh fetches newer ones.
    """
    if context.invoked_subcommand is not None:
        return
    from costgpu.pricing import price_store
    from costgpu.render.text.prices import prices_json, prices_text
    from costgpu.workflows.refresh_prices import price_sources

    offers = price_store.offers(warn=TerminalReporter().note)
    kept = [found for name in price_sources() if (found := price_store.stored_prices(name))]
    failed = [tried for name in price_sources() if (tried := price_store.last_failure(name))]
    typer.echo(
        (prices_json if json else prices_text)(
            offers,
            datetime.now(UTC),
            refreshed={found.provider: found.regions for found in kept},
            failed=failed,
            folder=str(price_store.cache_folder()),
        )
    )


@prices.command()
def refresh(
    infra: opt.Infra = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take on-demand prices that have moved by more than 30 %, too.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Fetch prices from the providers' own price lists. Asking is free of charge.

    Without --infra every provider with credentials is asked. Offers keep the price and age
    that they had where no new price can be made; the exit code is then 4.
    """
    from costgpu.render.text.prices import refresh_json, refresh_text
    from costgpu.workflows.refresh_prices import refresh_prices

    now = datetime.now(UTC)
    results, errors = refresh_prices(infra or [], now, TerminalReporter(), accept=accept)
    if results or json:
        typer.echo((refresh_json if json else refresh_text)(results, now))
    for error in errors[1:]:
        print_note(error.message)
    if errors:
        raise errors[0]
