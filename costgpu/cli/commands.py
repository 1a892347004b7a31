"""Commands made of requests: their options are those that the request declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import typer

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
