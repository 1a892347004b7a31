"""Options that several commands share, each declared once, and the formats of their output."""

from __future__ import annotations

from typing import Annotated

import typer

from costgpu.cli.commands import typer_option
from costgpu.errors import UsageError
from costgpu.workflows.options import PlaceOptions

Run = Annotated[str, typer.Argument(metavar="RUN", help="Run id or the beginning of one, job name, or instance id.")]
Gpus = Annotated[list[str] | None, typer_option(PlaceOptions, "gpus")]
Infra = Annotated[list[str] | None, typer_option(PlaceOptions, "infra")]
InstanceType = Annotated[str | None, typer.Option("-t", "--instance-type", help="Machine type, e.g. g5.xlarge.")]
Spot = Annotated[bool, typer.Option("--spot/--on-demand", "--use-spot", help="Spot or on-demand prices.")]
Currency = Annotated[
    str | None, typer.Option(metavar="CODE", help="Currency of the amounts shown, e.g. EUR, with its rate; or USD.")
]
ExchangeRate = Annotated[
    str | None, typer.Option("--rate", "--exchange-rate", metavar="RATE", help="How much of it is one US dollar: 0.92.")
]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Start of the period: 2026-11, 2026-11-01, or 30d for 30 days ago."),
]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="End of the period, exclusive.")]
Provider = Annotated[str | None, typer.Option(help="Provider to count, e.g. aws or local; default: all.")]
Person = Annotated[str | None, typer.Option(help="Person whose runs count: alice, or alice@host.")]
JobName = Annotated[str | None, typer.Option("-n", "--name", help="Job name to select.")]
Tag = Annotated[list[str] | None, typer.Option(help="Tag to select by, as key=value. Repeatable.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]
Format = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="Output format: text or json.")]


def show_amounts(currency: str | None, rate: str | None, *, as_json: bool, output: str = "text") -> bool:
    """Show amounts in the currency of the options, else in that of the user's settings, else in US dollars.

    Returns:
        Whether ``--json`` or ``--output`` asks for JSON.

    Raises:
        UsageError: One of the two is missing, or is wrong; there is no such format.
        ConfigError: The settings cannot be read.
    """
    from costgpu.config import users_setting
    from costgpu.units import parse_currency, show_amounts_in

    if output.lower() not in ("text", "table", "json"):
        raise UsageError(f"--output {output!r} is not a format.", hint="Use text or json.")
    as_json = as_json or output.lower() == "json"
    if currency is None and rate is None:
        currency, rate = users_setting("currency"), users_setting("currency_rate")
    if (currency or "").strip().upper() == "USD" and rate is None:
        rate = "1"
    if (currency is None) != (rate is None):
        raise UsageError("--currency and --rate go together.", hint="Write --currency EUR --rate 0.92.")
    chosen = parse_currency(currency, rate) if currency is not None and rate is not None else None
    show_amounts_in(chosen, in_text=not as_json)
    return as_json
