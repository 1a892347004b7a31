"""An option, declared once: as a field of a request, for the command line, the Python interface and whoever reads it.

The field's type is that of the option: it says what may be given, to type checkers, too, and what is kept. ::

    @dataclass(kw_only=True)
    class Request:
        gpus: Text = Text("Accelerators, e.g. A100:1.")

    Request(gpus=["T4", "L4"]).gpus == "T4,L4"
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError, dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from costgpu.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Given = TypeVar("Given")
Kept = TypeVar("Kept")
Loose = str | os.PathLike[str] | float | Decimal | Iterable[str]

MAY_BE_EMPTY = frozenset({"--setup"})  # no set-up at all


def refuse_empty(option: str) -> None:
    """Refuse an option with an empty value: what it limits would not be limited.

    Raises:
        UsageError: Unless nothing is a value of this option.
    """
    if option not in MAY_BE_EMPTY:
        raise UsageError(
            f"{option} is empty.", hint="Give it a value, or leave it out; a variable of the shell may not be set."
        )


class Option(Generic[Given, Kept]):
    """A field of a request; None leaves it as it is by default.

    Args:
        help: What it is, for people.
        flags: How it is written on the command line; its name by default.
        default: What is kept if it is not given.
        metavar: How its value is called.
        low: The least whole number.
        high: The largest whole number.
    """

    def __init__(
        self,
        help: str,  # noqa: A002 - as typer calls it
        *flags: str,
        default: Any = None,
        metavar: str | None = None,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self.help, self.flags, self.default, self.metavar, self.low, self.high = (
            help,
            flags,
            default,
            metavar,
            low,
            high,
        )

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.flag = next((flag for flag in self.flags if flag.startswith("--")), f"--{name.replace('_', '-')}")

    def __get__(self, request: object | None, owner: type | None = None) -> Kept:
        return cast("Kept", self.default if request is None else request.__dict__[self.name])

    def __set__(self, request: object, value: Given | None) -> None:
        if self.name in request.__dict__:
            raise FrozenInstanceError(f"{self.name} cannot be changed; dataclasses.replace() makes another request")
        kept = self.default if value is None else self.read(value)
        if kept == "" and kept != self.default:
            refuse_empty(self.flag)
        request.__dict__[self.name] = kept

    def read(self, value: Any) -> Any:
        """Return what is kept of a value."""
        return value


def _one_text(option: Option[Any, Any], value: Any) -> str:
    if isinstance(value, list | tuple):
        if not all(value):
            refuse_empty(option.flag)
        return ",".join(map(str, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class Word(Option[Loose, str]):
    """A text, a path, a number, or a list of which any will do."""

    read = _one_text


class Text(Option[Loose, str | None]):
    """The same, or None."""

    read = _one_text


class Alternatives(Text):
    """The same, which the command line takes several times."""


class Texts(Option[str | Iterable[str] | Mapping[str, str], tuple[str, ...]]):
    """Texts, one of them, or a mapping: ``key=value``."""

    def __init__(self, *words: str, default: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(*words, default=default, **more)

    def read(self, value: Any) -> tuple[str, ...]:
        """Return them one by one."""
        if isinstance(value, Mapping):
            return tuple(f"{key}={text}" for key, text in value.items())
        return (value,) if isinstance(value, str) else tuple(value)


class Words(Texts):
    """Texts that are no option of the command line, but its arguments."""


class WholeNumber(Option[int, int]):
    """A whole number."""


class WholeOrNone(Option[int, int | None]):
    """A whole number, or None."""


class Real(Option[float, float | None]):
    """A number, or None."""


class Switch(Option[bool, bool]):
    """Something that is on or off."""


class OptionalFlag(Option[bool, bool | None]):
    """The same, or None where nobody has said."""


def options_of(kind: type[DataclassInstance]) -> list[Option[Any, Any]]:
    """Return the options of a request: its own first, then those that it has in common with others."""
    found: dict[str, Option[Any, Any]] = {}
    for each in kind.__mro__:
        for name, value in vars(each).items():
            if isinstance(value, Option):
                found.setdefault(name, value)
    known = {field.name for field in fields(kind)}
    return [option for name, option in found.items() if name in known]


@dataclass(kw_only=True)
class PlaceOptions:
    """Where."""

    infra: Texts = Texts("Provider or region, e.g. aws, aws/us-east-1, local. Repeatable.", "--infra", "--region")
    instance_type: Texts = Texts("Machine type, e.g. g5.xlarge. Repeatable.", "-t", "--instance-type")
    gpus: Alternatives = Alternatives(
        "Accelerators, e.g. A100:1, L4:1..2, 24GB; T4,L4 for any of them; none for CPU only. Repeatable."
    )


@dataclass(kw_only=True)
class SizeOptions:
    """On machines of which size."""

    cpus: Text = Text("Virtual CPUs: 8, 8+, 8..16.")
    memory: Text = Text("Main memory in GiB: 64, 64+, 32..128.")
