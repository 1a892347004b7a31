"""Time of each candidate of a verdict as bars for a terminal, with the 80 % interval drawn. Result -> str; no colour."""

from __future__ import annotations

import math
from typing import NamedTuple

from costgpu.models.prediction import Prediction, Range, Verdict
from costgpu.render.phrases import short_offer_name, visible
from costgpu.units import format_duration, format_free, format_usd

NAME, LEAST_ROOM = 31, 12  # columns
LOG_START = 0.05  # share of the room where a logarithmic scale has its least value
LOG_FROM = 30.0  # longest over shortest bar above which the scale is logarithmic


class Marks(NamedTuple):
    """Characters of a bar: certain, likely, possible, its end, a dot for what is shorter than a column."""

    sure: str
    likely: str
    maybe: str
    end: str
    dot: str


UNICODE = Marks("█", "▓", "─", "┤", "▏")
ASCII = Marks("#", "=", "-", "|", ":")


def bars(verdict: Verdict, width: int = 80, *, cost: bool = False, encoding: str = "utf-8") -> str:
    """One bar for this machine and each candidate of the verdict's table, below two lines that explain it.

    A bar is solid up to the low end of the 80 % interval, shaded up to the prediction, and a line up to the high end.

    Args:
        width: Columns of the terminal; below about 70 it is exceeded.
        cost: Draw cost instead of time.
        encoding: The terminal's; where it lacks the block characters, ASCII is used.
    """
    marks = UNICODE if _can(encoding, "".join(UNICODE)) else ASCII
    rows = [p for p in (verdict.here, *verdict.table) if not (cost and p.candidate.offer is None)]
    if not rows:
        return "No offer is possible: there is nothing to draw."
    times, costs = [format_duration(p.wall_seconds.value) for p in rows], [_cost(p) for p in rows]
    time_width, cost_width = max(map(len, times)), max(map(len, costs))
    room = max(LEAST_ROOM, width - 2 - NAME - 2 - time_width - 1 - cost_width)
    scale = _Scale([p.cost_usd if cost else p.wall_seconds for p in rows], room)
    lines = [
        f"{'Cost' if cost else 'Time'} for {verdict.unit}{' (logarithmic scale)' if scale.logarithmic else ''}",
        f"  {marks.sure} at least, {marks.likely} predicted, {marks.maybe}{marks.end} at most (80 %); * recommended",
    ]
    for prediction, time, usd in zip(rows, times, costs, strict=True):
        star = "*" if prediction is verdict.recommended else " "
        drawn = prediction.cost_usd if cost else prediction.wall_seconds
        name, bar = visible(short_offer_name(prediction), NAME), _bar(scale, drawn, marks)
        lines.append(f"{star} {name:{NAME}} {bar:{room}} {time:>{time_width}} {usd:>{cost_width}}")
    text = "\n".join(lines)
    return text if _can(encoding, text) else _forced(text, encoding)


class _Scale:
    """From a value to columns; logarithmic where the bars differ too much to be seen beside each other."""

    def __init__(self, ranges: list[Range], room: int) -> None:
        self._room = room
        self._least = min(min(r.low, r.value) for r in ranges)
        self._most = max(max(r.high, r.value) for r in ranges)
        self.logarithmic = self._least > 0 and self._most / self._least > LOG_FROM
        self._spread = math.log(self._most / self._least) if self.logarithmic else 1.0

    def __call__(self, value: float) -> int:
        if self._most <= 0:
            return 0
        if self.logarithmic:  # the shortest end is not at nothing
            share = math.log(max(value, self._least) / self._least) / self._spread
            return round(self._room * (LOG_START + share * (1 - LOG_START)))
        return round(self._room * value / self._most)


def _forced(text: str, encoding: str) -> str:
    """Return what the terminal cannot show becomes a question mark."""
    if not _can(encoding, ""):
        encoding = "ascii"
    return text.replace("µ", "u").encode(encoding, "replace").decode(encoding)


def _can(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _bar(scale: _Scale, drawn: Range, marks: Marks) -> str:
    likely = scale(drawn.value)
    sure, maybe = min(scale(drawn.low), likely), max(scale(drawn.high), likely)
    text = marks.sure * sure + marks.likely * (likely - sure)
    if maybe > likely:
        text += marks.maybe * (maybe - likely - 1) + marks.end
    return text or marks.dot


def _cost(prediction: Prediction) -> str:
    return format_free() if prediction.candidate.offer is None else format_usd(prediction.cost_usd.value)
