"""The metric by which trials are compared. Pure."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from costgpu.errors import UsageError
from costgpu.sweep.tuner.metric import LONGEST_LINE

MOST_STEPS = 3e8  # of a search in one line: some seconds


class Mode(StrEnum):
    """Which values are the better ones."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What to look for in the lines that a script prints."""

    pattern: str  # regular expression with one group, the number
    mode: Mode

    @property
    def longest_line(self) -> int:
        """How many characters of a line are looked at, so that no line takes long: n repeats take its (n + 1)th power."""
        return min(LONGEST_LINE, int(MOST_STEPS ** (1 / (1 + _repeats(_parsed(self.pattern))))))

    @property
    def name(self) -> str:
        """A name for tables: what stands before the group, ``val_loss`` of ``val_loss=([0-9.]+)``."""
        words = re.findall(r"[A-Za-z_][A-Za-z0-9_/@.]*", re.sub(r"\\.", " ", self.pattern.partition("(")[0]))
        return words[-1].rstrip(".") if words else "metric"


def parse_metric(pattern: str | None, mode: str) -> Metric:
    """The metric of ``--metric`` and ``--mode``.

    Raises:
        UsageError: There is none, the pattern is no regular expression, or it has not exactly one group.
    """
    hint = "For example: --metric 'val_loss=([0-9.]+)'. Other groups are written (?:...)."
    if pattern is None:
        raise UsageError("By which number are the trials to be compared?", hint=hint)
    try:
        groups = re.compile(pattern).groups
        _repeats(_parsed(pattern))
    except _Exponential:
        raise UsageError(
            f"--metric {pattern!r} repeats what itself varies: one line of output could take it for ever.",
            hint=r"Repeat single characters only: [\w/]*loss=([0-9.]+) for (?:\w+/)*loss=([0-9.]+).",
        ) from None
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--metric {pattern!r} is no regular expression: {error}.", hint=hint) from None
    if groups != 1:
        what = "no group" if groups == 0 else f"{groups} groups"
        raise UsageError(f"--metric {pattern!r} has {what}, and needs one around the number.", hint=hint)
    if mode not in list(Mode):
        raise UsageError(f"--mode {mode!r} is none of {', '.join(Mode)}.")
    return Metric(pattern=pattern, mode=Mode(mode))


class _Exponential(Exception):
    """A search by the pattern may take exponentially long."""


def _parsed(pattern: str) -> Any:
    return importlib.import_module("re._parser").parse(pattern)


def _repeats(tree: Any, *, repeated: bool = False) -> int:
    """Return how many repeats of variable length a parsed pattern has, one behind the other.

    Args:
        repeated: Whether the whole of it is repeated.

    Raises:
        _Exponential: Something of variable length, or with alternatives, is repeated.
    """
    found = 0
    for operation, argument in tree:
        kind = str(operation)
        if kind.endswith("_REPEAT"):
            low, high, body = argument
            if repeated and low != high:
                raise _Exponential
            found += int(high) > max(low, 1)
            found += _repeats(body, repeated=repeated or int(high) > 1)
            continue
        if kind == "BRANCH" and repeated:
            raise _Exponential
        parts = argument if isinstance(argument, list | tuple) else [argument]
        for part in [inner for each in parts for inner in (each if isinstance(each, list) else [each])]:
            if hasattr(part, "getwidth"):
                found += _repeats(part, repeated=repeated)
    return found
