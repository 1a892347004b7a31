"""Says once that refreshed prices cannot be used."""

from __future__ import annotations

from functools import cache

import typer


@cache
def warn_of_prices(words: str) -> None:
    """Says on stderr, once, that refreshed prices cannot be used."""
    typer.echo(f"costgpu: {words}", err=True)
