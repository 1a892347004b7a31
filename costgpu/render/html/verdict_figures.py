"""The pictures of a verdict: cost against time, and what a step's time goes into. Result -> str.

Both axes of cost against time are logarithmic. Cost is price x time, so the 80 % interval of a candidate is a stroke
along which both grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from costgpu.render.html.svg import BOTTOM, LEFT, RIGHT, TOP, picture
from costgpu.units import format_duration

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
YEAR = 365.25 * DAY
# Times worth a tick, the better ones first: a tick that comes too near to an earlier one is left out.
TIMES = (
    (1.0, MINUTE, HOUR, DAY, 30 * DAY, YEAR, 1e-3, 1e-6, 10 * YEAR, 100 * YEAR, 1000 * YEAR),
    (10.0, 10 * MINUTE, 6 * HOUR, 7 * DAY, 0.1, 0.01, 1e-4),
    (30.0, 30 * MINUTE, 2 * HOUR, 12 * HOUR, 3 * DAY, 90 * DAY, 2 * YEAR, 5 * YEAR),
    (5.0, 20.0, 5 * MINUTE, 20 * MINUTE, 4 * HOUR, 2 * DAY, 14 * DAY, 2.0, 2 * MINUTE, 40 * MINUTE),
    (90 * MINUTE, 3 * HOUR, 8 * HOUR, 15 * MINUTE, 45 * MINUTE, 8 * MINUTE, 15.0, 45.0, 5 * DAY, 21 * DAY, 60 * DAY),
)
UNITS = ((YEAR, "year"), (DAY, "day"), (HOUR, "h"), (MINUTE, "min"), (1.0, "s"))
ROOM_ACROSS, ROOM_UP = 58.0, 26.0  # pixels between ticks
MARGIN = 0.06  # of the axes, around what is drawn
LEAST_DECADES = 0.35
LETTER = 6.8  # pixels of a letter, on average
BADGE = 7.5  # radius of a number beside a mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One candidate of the picture.

    Attributes:
        label: Its number in the table.
        title: When pointed at.
        style: ``gpu``, ``cpu`` or ``own``.
        seconds: Predicted, low and high.
        usd: The same of the cost; all above zero.
        chosen: Whether it is the recommendation.
        front: Whether it is part of the line of those that nothing beats.
    """

    label: str
    title: str
    style: str
    seconds: tuple[float, float, float]
    usd: tuple[float, float, float]
    chosen: bool = False
    front: bool = True


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic scale from pixel `start` to pixel `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Pixel of a value; values outside are drawn at the edge."""
        share = (math.log10(max(value, 1e-300)) - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def has(self, value: float) -> bool:
        """Whether the value is inside."""
        return self.low <= math.log10(value) <= self.high


def axis(values: Sequence[float], start: float, end: float) -> Axis:
    """A scale that holds all values, with a margin."""
    logs = [math.log10(max(value, 1e-300)) for value in values]
    middle, half = (min(logs) + max(logs)) / 2, (max(logs) - min(logs)) / 2
    half = max(LEAST_DECADES / 2, half * (1 + 2 * MARGIN))
    return Axis(middle - half, middle + half, start, end)


def time_ticks(scale: Axis) -> list[tuple[float, str]]:
    """Times with names, as many as there is room for."""
    return _spaced(scale, [[(t, time_name(t)) for t in tier] for tier in TIMES], ROOM_ACROSS)


def time_name(seconds: float) -> str:
    """``2 h``, ``1 day``, ``30 days``."""
    for size, unit in UNITS:
        if seconds >= size:
            many = "s" if seconds > size and unit in ("day", "year") else ""
            return f"{seconds / size:g} {unit}{many}"
    return format_duration(seconds)


def usd_ticks(scale: Axis) -> list[tuple[float, str]]:
    """Amounts with names, as many as there is room for."""
    first, last = math.floor(scale.low), math.ceil(scale.high)
    tiers = [[(f * 10.0**p, usd_name(f, p)) for p in range(first, last + 1)] for f in (1, 3, 2, 5, 1.5, 7)]
    return _spaced(scale, tiers, ROOM_UP)


def usd_name(factor: float, power: int) -> str:
    """``$0.03``, ``$1``, ``$20k``."""
    value = factor * 10.0**power
    if value >= 1e4:
        return f"${value / 1e6:g}M" if value >= 1e6 else f"${value / 1e3:g}k"
    if power >= 0:
        return f"${value:g}"
    return f"${value:.{max(2, -power + (factor != int(factor)))}f}" if power >= -6 else f"${value:.0e}"


def _spaced(scale: Axis, tiers: Sequence[Sequence[tuple[float, str]]], room: float) -> list[tuple[float, str]]:
    kept: list[tuple[float, str]] = []
    for tier in tiers:
        for value, name in tier:
            if scale.has(value) and all(abs(scale.at(value) - scale.at(other)) >= room for other, _ in kept):
                kept.append((value, name))
    return sorted(kept)


def cost_and_time(
    width: int, height: int, spots: Sequence[Point], here_seconds: float, here_title: str, *, name: str, text: str
) -> str:
    """Cost (up) against time (across) of all candidates, with their intervals and the Pareto front.

    Args:
        width: In pixels.
        height: In pixels.
        spots: Candidates with a cost; may be none.
        here_seconds: Of this machine, which costs nothing: a line, not a mark.
        here_title: When it is pointed at.
        name: Of the picture.
        text: What it shows.
    """
    bottom = height - BOTTOM - 16.0
    across = axis([here_seconds, *(s for spot in spots for s in spot.seconds)], LEFT, width - RIGHT)
    up = axis([usd for spot in spots for usd in spot.usd] or [1.0], bottom, TOP + 18)
    parts = []
    for value, label in usd_ticks(up):
        y = up.at(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for value, label in time_ticks(across):
        x = across.at(value)
        end = "end" if x > width - RIGHT - 20 else "middle"
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 18}" y2="{bottom}"/>'
            f'<text x="{min(x, width - 2):.1f}" y="{bottom + 17}" text-anchor="{end}">{label}</text>'
        )
    x = across.at(here_seconds)
    side, gap = ("end", -6) if x > (LEFT + width) / 2 else ("start", 6)
    parts.append(
        f'<g><title>{escape(here_title)}</title><line class="here" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 4}" '
        f'y2="{bottom}"/><text class="label" x="{x + gap:.1f}" y="{TOP + 10}" text-anchor="{side}">this machine, $0'
        "</text></g>"
    )
    parts.append(_front(spots, across, up))
    parts += [_interval(spot, across, up) for spot in spots]
    taken = [(across.at(s.seconds[0]), up.at(s.usd[0])) for s in spots]
    parts += [_mark(spot, across, up, taken) for spot in spots]
    middle = (LEFT + width - RIGHT) / 2
    parts.append(f'<text class="label" x="{middle:.0f}" y="{height - 6}" text-anchor="middle">time</text>')
    parts.append(f'<text class="label" x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">cost</text>')
    return picture(width, height, name, text, parts)


def _front(spots: Sequence[Point], across: Axis, up: Axis) -> str:
    """Steps through the candidates that no other beats in both."""
    best = math.inf
    points: list[tuple[float, float]] = []
    for spot in sorted((s for s in spots if s.front), key=lambda s: (s.seconds[0], s.usd[0])):
        if spot.usd[0] < best:
            x, y = across.at(spot.seconds[0]), up.at(spot.usd[0])
            points += [(x, up.at(best)), (x, y)] if points else [(x, y)]
            best = spot.usd[0]
    if len(points) < 2:
        return ""
    return f'<polyline class="front" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _interval(spot: Point, across: Axis, up: Axis) -> str:
    low = across.at(spot.seconds[1]), up.at(spot.usd[1])
    middle = across.at(spot.seconds[0]), up.at(spot.usd[0])
    high = across.at(spot.seconds[2]), up.at(spot.usd[2])
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (low, middle, high))
    return f'<polyline class="interval {spot.style}-line" points="{points}"/>'


def _mark(spot: Point, across: Axis, up: Axis, taken: list[tuple[float, float]]) -> str:
    x, y = across.at(spot.seconds[0]), up.at(spot.usd[0])
    if spot.style == "cpu":  # another shape, not only another colour
        mark = f'<rect class="dot cpu" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>'
    elif spot.style == "own":
        mark = f'<polygon class="dot own" points="{x:.1f},{y - 6.5:.1f} {x + 6.5:.1f},{y:.1f} {x:.1f},{y + 6.5:.1f} {x - 6.5:.1f},{y:.1f}"/>'  # noqa: E501
    else:
        mark = f'<circle class="dot gpu" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    ring = f'<circle class="chosen" cx="{x:.1f}" cy="{y:.1f}" r="10.5"/>' if spot.chosen else ""
    places = [
        (x + a * r, y + b * r)
        for r in (16.0, 24.0, 34.0)
        for a, b in ((0.7, -0.7), (-0.7, 0.7), (0.7, 0.7), (-0.7, -0.7), (1, 0), (-1, 0), (0, 1), (0, -1))
    ]

    def crowd(place: tuple[float, float]) -> float:
        off = max(0.0, LEFT + 6 - place[0]) + max(0.0, place[0] - across.end + 4) + max(0.0, place[1] - up.start + 6)
        near = sum(max(0.0, 2.2 * BADGE - math.dist(place, other)) for other in taken)
        return near + 10 * off + 0.02 * math.dist(place, (x, y))

    a, b = min(places, key=crowd)
    taken.append((a, b))
    return (
        f"<g><title>{escape(spot.title)}</title>{ring}{mark}"
        f'<text class="label" x="{a:.1f}" y="{b + 4:.1f}" text-anchor="middle">{escape(spot.label)}</text></g>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One bar of shares: a name, what stands at its right, and (class, words, value) of its parts."""

    name: str
    total: str
    parts: Sequence[tuple[str, str, float]]


def shares(width: int, stacks: Sequence[Stack], *, name: str, text: str) -> str:
    """A bar of full width for each stack, cut into the shares of its parts.

    Args:
        width: In pixels.
        stacks: From the top down.
        name: Of the picture.
        text: What it shows.
    """
    parts, y, thick = [], 4.0, 24.0
    for stack in stacks:
        whole = sum(value for _, _, value in stack.parts)
        room = int((width - 7 * len(stack.total) - 12) / LETTER)
        title = stack.name if len(stack.name) <= room else stack.name[: room - 1] + "…"
        parts.append(f'<text class="label" x="0" y="{y + 11:.0f}">{escape(title)}</text>')
        parts.append(f'<text x="{width}" y="{y + 11:.0f}" text-anchor="end">{escape(stack.total)}</text>')
        x, top = 0.0, y + 18
        for style, words, value in stack.parts:
            if value <= 0 or whole <= 0:
                continue
            wide = width * value / whole
            label = f"{value / whole:.0%}"
            inside = (
                f'<text class="on" x="{x + wide / 2:.1f}" y="{top + 16:.0f}" text-anchor="middle">{label}</text>'
                if wide > 34
                else ""
            )
            parts.append(
                f"<g><title>{escape(words)}: {label}</title>"
                f'<rect class="part {style}" x="{x:.1f}" y="{top:.0f}" width="{max(wide, 0.5):.1f}" '
                f'height="{thick:.0f}"/>{inside}</g>'
            )
            x += wide
        y = top + thick + 16
    return picture(width, round(max(y - 8, 20)), name, text, parts)
