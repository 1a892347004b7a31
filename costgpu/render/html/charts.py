"""The pictures of a ledger and of a verdict, as the elements of an image of a given size.

Both axes of cost against time are logarithmic. Cost is price x time, so the 80 % interval of a candidate is a stroke
along which both grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import TYPE_CHECKING

from markupsafe import Markup

from costgpu.render.html import svg
from costgpu.render.phrases import counted, visible
from costgpu.render.text.layout import cut
from costgpu.units import format_duration, format_free

if TYPE_CHECKING:
    from costgpu.ledger.records.accuracy import Comparison  # which a verdict's page does without: it needs the ledger

MOST_POINTS = 300  # with more, near ones become one mark
SQUARE = 14  # pixels, inside of which marks are near
LETTER = 6.8  # pixels of a letter, on average
BADGE = 7.5  # radius of a number beside a mark
RADIUS = {"cpu": 4.5, "own": 6.5, "gpu": 5.0}
DIRECTIONS = ((0.7, -0.7), (-0.7, 0.7), (0.7, 0.7), (-0.7, -0.7), (1, 0), (-1, 0), (0, 1), (0, -1))
BAR = 24  # pixels, the height of a bar of shares
STACK_HEIGHT = BAR + 34  # with its name above and the gap below
LEAST_LABELLED = 34  # pixels of a share that has room for its label


def stacked_bars(
    width: int, height: int, days: Sequence[date], bars: Sequence[tuple[str, Mapping[str, float]]]
) -> list[Markup]:
    """Bars over time: a title and the values by class of the style sheet, from the bottom; each begins at its day."""
    across, up, parts = _frame(width, height, len(days), max((sum(values.values()) for _, values in bars), default=0))
    slot = across.at(1) - across.at(0)
    thickness = max(1.0, min(slot * 0.78, 48))
    parts += svg.day_labels(width, height, days, across, slot / 2)
    for index, (title, values) in enumerate(bars):
        x, base, drawn = across.at(index) + (slot - thickness) / 2, 0.0, []
        for style, value in values.items():
            if value > 0:
                y = up.at(base + value)
                drawn.append(svg.tag("rect", class_=style, x=x, y=y, width=thickness, height=max(0.7, up.at(base) - y)))
                base += value
        parts += [svg.titled(title, *drawn)] if drawn else []
    return parts


def spending_against_budget(
    width: int,
    height: int,
    days: Sequence[date],
    periods: Sequence[tuple[int, Sequence[float]]],
    amount: float,
) -> list[Markup]:
    """Return what a budget has spent since the start of each of its periods, and its amount.

    Args:
        days: All days of the picture.
        periods: The index of a period's first day, and the sum at the end of each of its days.
    """
    most = max(amount, *(max(sums) for _, sums in periods))
    across, up, parts = _frame(width, height, len(days), most * 1.02)
    parts += svg.day_labels(width, height, days, across)
    for first, sums in periods:
        begin = 0 if len(periods) > 1 or sums[0] == 0 else sums[0]
        points = [(across.at(first + index), up.at(value)) for index, value in enumerate([begin, *sums])]
        over = " over" if max(sums) >= amount else ""
        area = [(points[0][0], up.at(0)), *points, (points[-1][0], up.at(0))]
        parts += [svg.polyline(f"area{over}", area, "polygon"), svg.polyline(f"sum{over}", points)]
    parts.append(svg.line("amount", svg.LEFT, up.at(amount), width - svg.RIGHT, up.at(amount)))
    return parts


def estimate_against_actual(width: int, height: int, pairs: Sequence[Comparison]) -> list[Markup]:
    """Estimate (across) and actual (up), both logarithmic, with the diagonal on which they agree."""
    bottom = height - svg.BOTTOM - 16.0
    seconds = [value for pair in pairs for value in (pair.estimated, pair.actual)]
    across = svg.log_scale(seconds, svg.LEFT, width - svg.RIGHT, least_decades=0.7)
    up = svg.LogScale(across.low, across.high, bottom, svg.TOP)
    return [
        *svg.grid_up(width, up, svg.time_ticks(up)),
        *svg.grid_across(width, across, svg.time_ticks(across), svg.TOP, bottom),
        svg.line("diagonal", across.start, up.start, across.end, up.end),
        svg.text((svg.LEFT + width - svg.RIGHT) / 2, height - 6, "estimated", style="label"),
        svg.text(svg.LEFT + 6, svg.TOP + 10, "actual", anchor="start", style="label"),
        *(_clusters if len(pairs) > MOST_POINTS else _runs)(pairs, across, up),
    ]


def _frame(width: int, height: int, count: int, most: float) -> tuple[svg.Scale, svg.Scale, list[Markup]]:
    """Scales for so many days and an amount, with the grid of the amounts."""
    ticks = svg.usd_axis(most)
    across = svg.Scale(0, max(1, count), svg.LEFT, width - svg.RIGHT)
    up = svg.Scale(0, ticks[-1][0], height - svg.BOTTOM, svg.TOP)
    return across, up, svg.grid_up(width, up, ticks)


def _runs(pairs: Sequence[Comparison], across: svg.LogScale, up: svg.LogScale) -> list[Markup]:
    """Return a mark for each run, with the interval of its estimate."""
    parts = []
    for pair in pairs:
        x, y = across.at(pair.estimated), up.at(pair.actual)
        estimated, actual = format_duration(pair.estimated), format_duration(pair.actual)
        run, low, high = pair.run, pair.run.estimated_seconds_low, pair.run.estimated_seconds_high
        machine = visible(run.instance_type or run.provider)
        title = f"{visible(run.name)} on {machine}: estimated {estimated}, took {actual}"
        interval = [svg.line("span", across.at(low), y, across.at(high), y)] if low and high else []
        parts.append(svg.titled(title, *interval, svg.mark(_style(pair), x, y, 4 if run.accelerator else 3.5)))
    return parts


def _style(pair: Comparison) -> str:
    return "gpu" if pair.run.accelerator else "cpu"


def _clusters(pairs: Sequence[Comparison], across: svg.LogScale, up: svg.LogScale) -> list[Markup]:
    """One mark for all runs of a square; its area goes with their number."""

    def square(pair: Comparison) -> tuple[int, int, str]:
        return int(across.at(pair.estimated) // SQUARE), int(up.at(pair.actual) // SQUARE), _style(pair)

    squares = [list(group) for _, group in groupby(sorted(pairs, key=square), key=square)]
    most = max(map(len, squares))
    parts = []
    for group in squares:
        x = sum(across.at(pair.estimated) for pair in group) / len(group)
        y = sum(up.at(pair.actual) for pair in group) / len(group)
        radius = max(1.5, 9 * math.sqrt(len(group) / most))
        parts.append(svg.titled(counted(len(group), "run"), svg.mark(_style(group[0]), x, y, radius)))
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A candidate in the picture of cost against time."""

    label: str
    style: str  # cpu, gpu or own
    title: str  # what it is, and its figures
    seconds: tuple[float, float, float]  # predicted, low and high
    usd: tuple[float, float, float]  # the same of the cost; all above zero
    chosen: bool = False  # whether it is the recommendation
    front: bool = True  # whether it may be part of the line of those that nothing beats


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One bar of shares: a name, what stands at its right, and (class, words, value) of its parts."""

    name: str
    total: str
    parts: Sequence[tuple[str, str, float]]


def cost_and_time(
    width: int, height: int, points: Sequence[Point], here_seconds: float, here_title: str
) -> list[Markup]:
    """Draw cost (up) against time (across) of all candidates, with their intervals and the Pareto front.

    This machine costs nothing, so it is a line at `here_seconds`.
    """
    top, bottom = svg.TOP + 18.0, height - svg.BOTTOM - 16.0
    across = svg.log_scale([here_seconds, *(s for point in points for s in point.seconds)], svg.LEFT, width - svg.RIGHT)
    up = svg.log_scale([usd for point in points for usd in point.usd] or [1.0], bottom, top)
    x = across.at(here_seconds)
    anchor, gap = ("end", -6) if x > (svg.LEFT + width) / 2 else ("start", 6)
    here_label = svg.text(x + gap, svg.TOP + 10, f"this machine, {format_free()}", anchor=anchor, style="label")
    taken = [(across.at(point.seconds[0]), up.at(point.usd[0])) for point in points]
    return [
        *svg.grid_up(width, up, svg.usd_ticks(up)),
        *svg.grid_across(width, across, svg.time_ticks(across), top, bottom),
        svg.titled(here_title, svg.line("here", x, svg.TOP + 4, x, bottom), here_label),
        *_front(points, across, up),
        *(
            svg.polyline(
                f"interval {point.style}-line",
                [(across.at(point.seconds[which]), up.at(point.usd[which])) for which in (1, 0, 2)],
            )
            for point in points
        ),
        *(_mark(point, across, up, taken) for point in points),
        svg.text((svg.LEFT + width - svg.RIGHT) / 2, height - 6, "time", style="label"),
        svg.text(svg.LEFT - 6, svg.TOP + 10, "cost", anchor="end", style="label"),
    ]


def _front(points: Sequence[Point], across: svg.LogScale, up: svg.LogScale) -> list[Markup]:
    """Return steps through the candidates that no other beats in both."""
    least = math.inf
    corners: list[tuple[float, float]] = []
    for point in sorted((p for p in points if p.front), key=lambda p: (p.seconds[0], p.usd[0])):
        if point.usd[0] < least:
            x, y = across.at(point.seconds[0]), up.at(point.usd[0])
            corners += [(x, up.at(least)), (x, y)] if corners else [(x, y)]
            least = point.usd[0]
    return [svg.polyline("front", corners)] if len(corners) > 1 else []


def _mark(point: Point, across: svg.LogScale, up: svg.LogScale, taken: list[tuple[float, float]]) -> Markup:
    """Return the mark, with its number where there is most room."""
    x, y = across.at(point.seconds[0]), up.at(point.usd[0])
    places = [(x + a * radius, y + b * radius) for radius in (16.0, 24.0, 34.0) for a, b in DIRECTIONS]

    def crowd(place: tuple[float, float]) -> float:
        off = (
            max(0.0, svg.LEFT + 6 - place[0]) + max(0.0, place[0] - across.end + 4) + max(0.0, place[1] - up.start + 6)
        )
        near = sum(max(0.0, 2.2 * BADGE - math.dist(place, other)) for other in taken)
        return near + 10 * off + 0.02 * math.dist(place, (x, y))

    a, b = min(places, key=crowd)
    taken.append((a, b))
    ring = [svg.tag("circle", class_="chosen", cx=x, cy=y, r=10.5)] if point.chosen else []
    label = svg.text(a, b + 4, point.label, style="label")
    return svg.titled(point.title, *ring, svg.mark(point.style, x, y, RADIUS[point.style]), label)


def shares(width: int, _: int, stacks: Sequence[Stack]) -> list[Markup]:
    """Return a bar of full width for each stack, cut into the shares of its parts; each takes `STACK_HEIGHT`."""
    parts = []
    for index, stack in enumerate(stacks):
        y = 4 + index * STACK_HEIGHT
        room = int((width - 7 * len(stack.total) - 12) / LETTER)
        parts.append(svg.text(0, y + 11, cut(stack.name, room), anchor="start", style="label"))
        parts.append(svg.text(width, y + 11, stack.total, anchor="end"))
        x, whole = 0.0, sum(value for _, _, value in stack.parts)
        for style, words, value in stack.parts:
            if value <= 0 or whole <= 0:
                continue
            wide, label = width * value / whole, f"{value / whole:.0%}"
            bar = svg.tag("rect", class_=f"part {style}", x=x, y=y + 18, width=max(wide, 0.5), height=BAR)
            inside = [svg.text(x + wide / 2, y + 34, label, style="on")] if wide > LEAST_LABELLED else []
            parts.append(svg.titled(f"{words}: {label}", bar, *inside))
            x += wide
    return parts
