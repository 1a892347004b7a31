"""Options that several commands share, each declared once, the formats of their output, and commands made of requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import typer

from costgpu.errors import UsageError
from costgpu.workflows import options

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Request = TypeVar("Request", bound=DataclassInstance)

Own = ParamSpec("Own")

_TYPES: dict[type[options.Option[Any, Any]], Any] = {
    options.Words: list[str] | None,
    options.Texts: list[str] | None,
    options.Alternatives: list[str] | None,
    options.Word: str,
    options.Text: str | None,
    options.WholeNumber: int,
    options.WholeOrNone: int | None,
    options.Real: float | None,
    options.Switch: bool,
    options.OptionalFlag: bool | None,
}


def command_of(
    kind: type[Request], without: tuple[str, ...] = ()
) -> Callable[[Callable[Concatenate[Request, Own], None]], Callable[..., None]]:
    """Return what makes a command of a function that takes a request and, as options, what only a terminal needs.

    Args:
        kind: A request whose fields are options.
        without: Options that the command does not have.
    """

    def decorate(body: Callable[Concatenate[Request, Own], None]) -> Callable[..., None]:
        shared = [each for each in options.options_of(kind) if each.name not in without]
        _, *own = inspect.signature(body).parameters.values()
        hints = get_type_hints(body, include_extras=True)

        def command(**values: Any) -> None:
            mine = {each.name: values.pop(each.name) for each in own}
            body(kind(**values), **mine)  # type: ignore[call-arg]

        parameters = []
        for each in shared:
            default = None if each.default == () else each.default
            annotation: Any = Annotated[_TYPES[type(each)], _declared(each)]
            parameters.append(
                inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
        parameters += [each.replace(annotation=hints[each.name]) for each in own]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__name__, command.__doc__, command.__module__ = body.__name__, body.__doc__, body.__module__
        return command

    return decorate


def typer_option(kind: type[Any], name: str) -> Any:
    """Return an option of a request as typer declares it."""
    return _declared(next(vars(each)[name] for each in kind.__mro__ if name in vars(each)))


def _declared(option: options.Option[Any, Any]) -> Any:
    if isinstance(option, options.Words):
        return typer.Argument(metavar=option.metavar, help=option.help)
    return typer.Option(*option.flags, metavar=option.metavar, help=option.help, min=option.low, max=option.high)


Run = Annotated[str, typer.Argument(metavar="RUN", help="Run id or the beginning of one, job name, or instance id.")]
Gpus = Annotated[list[str] | None, typer_option(options.PlaceOptions, "gpus")]
Infra = Annotated[list[str] | None, typer_option(options.PlaceOptions, "infra")]
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
