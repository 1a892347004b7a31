"""The metric by which trials are compared. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from costgpu.errors import UsageError


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
    def name(self) -> str:
        """Return a name for tables: what stands before the group, ``val_loss`` of ``val_loss=([0-9.]+)``."""
        words = re.findall(r"[A-Za-z_][A-Za-z0-9_/@.]*", re.sub(r"\\.", " ", self.pattern.partition("(")[0]))
        return words[-1].rstrip(".") if words else "metric"


def parse_metric(pattern: str | None, mode: str) -> Metric:
    """Return the metric of ``--metric`` and ``--mode``.

    Raises:
        UsageError: There is none, the pattern is no regular expression, or it has not exactly one group.
    """
    hint = "For example: --metric 'val_loss=([0-9.]+)'. Other groups are written (?:...)."
    if pattern is None:
        raise UsageError("By which number are the trials to be compared?", hint=hint)
    try:
        groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--metric {pattern!r} is no regular expression: {error}.", hint=hint) from None
    if groups != 1:
        what = "no group" if groups == 0 else f"{groups} groups"
        raise UsageError(f"--metric {pattern!r} has {what}, and needs one around the number.", hint=hint)
    if mode not in list(Mode):
        raise UsageError(f"--mode {mode!r} is none of {', '.join(Mode)}.")
    return Metric(pattern=pattern, mode=Mode(mode))
