"""Options that several commands share, each declared once, and the formats of their output."""

from __future__ import annotations

from typing import Annotated

import typer

from costgpu.errors import UsageError
from costgpu.units import DISK_GIB

Script = Annotated[
    list[str] | None, typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its own arguments.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Run id or the beginning of one, job name, or instance id.")]
Module = Annotated[str | None, typer.Option("-m", help="Module to run; what follows it belongs to the module.")]
Python = Annotated[
    str | None, typer.Option(help="Interpreter for the script; default: the active virtual environment's, else python.")
]
Workdir = Annotated[str | None, typer.Option(help="Folder to run in; default: the script's own.")]
Include = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Files to send whatever ignore rules say. Repeatable.")
]
Exclude = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Files not to send, whatever else is said. Repeatable.")
]
MeasureFor = Annotated[str, typer.Option(help="Time to measure after the first step.")]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        help="Accelerators, e.g. A100:1, L4:1..2, 24GB; T4,L4 for any of them; none for CPU only. Repeatable."
    ),
]
Infra = Annotated[
    list[str] | None,
    typer.Option("--infra", "--region", help="Provider or region, e.g. aws, aws/us-east-1, local. Repeatable."),
]
InstanceType = Annotated[str | None, typer.Option("-t", "--instance-type", help="Machine type, e.g. g5.xlarge.")]
InstanceTypes = Annotated[
    list[str] | None, typer.Option("-t", "--instance-type", help="Machine type, e.g. g5.xlarge. Repeatable.")
]
Spot = Annotated[bool, typer.Option("--spot/--on-demand", "--use-spot", help="Spot or on-demand prices.")]
SpotIfSaid = Annotated[
    bool | None, typer.Option("--spot/--on-demand", "--use-spot", help="Spot or on-demand prices; default: on-demand.")
]
Cpus = Annotated[str | None, typer.Option(help="Virtual CPUs: 8, 8+, 8..16.")]
Memory = Annotated[str | None, typer.Option(help="Main memory in GiB: 64, 64+, 32..128.")]
Disk = Annotated[
    int | None,
    typer.Option(min=DISK_GIB.low, max=DISK_GIB.high, help="Root disk in GiB; default: 50, with a GPU 100."),
]
Currency = Annotated[
    str | None, typer.Option(metavar="CODE", help="Currency of the amounts shown, e.g. EUR, with its rate; or USD.")
]
ExchangeRate = Annotated[
    str | None, typer.Option("--rate", "--exchange-rate", metavar="RATE", help="How much of it is one US dollar: 0.92.")
]
Fit = Annotated[bool, typer.Option("--fit", help="Lower the highest cost to what budgets with --enforce leave.")]
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
Format = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="Output format: text or json.")]


def joined(gpus: list[str] | None) -> str | None:
    """Return the accelerators of several --gpus, any of which will do, as one text."""
    if gpus is None:
        return None
    if not any(gpus):
        from costgpu.workflows.requests import refuse_empty

        refuse_empty("--gpus")
    return ",".join(gpus)


def show_amounts(currency: str | None, rate: str | None, *, as_json: bool) -> None:
    """Show amounts in the currency of the options, else in that of the user's settings, else in US dollars.

    Raises:
        UsageError: One of the two is missing, or is wrong.
        ConfigError: The settings cannot be read.
    """
    from costgpu.config import users_setting
    from costgpu.units import parse_currency, show_amounts_in

    if currency is None and rate is None:
        currency, rate = users_setting("currency"), users_setting("currency_rate")
    if (currency or "").strip().upper() == "USD" and rate is None:
        rate = "1"
    if (currency is None) != (rate is None):
        raise UsageError("--currency and --rate go together.", hint="Write --currency EUR --rate 0.92.")
    chosen = parse_currency(currency, rate) if currency is not None and rate is not None else None
    show_amounts_in(chosen, in_text=not as_json)


def wants_json(json: bool, output: str) -> bool:
    """Return whether ``--json`` or ``--output`` asks for JSON."""
    if output.lower() not in ("text", "table", "json"):
        raise UsageError(f"--output {output!r} is not a format.", hint="Use text or json.")
    return json or output.lower() == "json"
