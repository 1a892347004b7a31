"""The pictures of a ledger: costs over time, a budget's spending against its amount, estimate against actual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from markupsafe import Markup

from costgpu.render.html.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    LogScale,
    Scale,
    day_labels,
    grid_across,
    grid_up,
    line,
    log_scale,
    mark,
    picture,
    polyline,
    tag,
    text,
    time_ticks,
    titled,
    usd_axis,
)
from costgpu.render.phrases import counted

MOST_POINTS = 300  # with more, near ones become one mark
SQUARE = 14  # pixels, inside of which marks are near


@dataclass(frozen=True, slots=True)
class Series:
    """One layer of stacked bars: a class of the style sheet, and a value for each bar."""

    style: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class EstimatePoint:
    """One run: its estimated time with its interval, and its actual time, in seconds."""

    estimated: float
    actual: float
    low: float | None
    high: float | None
    style: str
    title: str


def stacked_bars(
    width: int,
    height: int,
    days: Sequence[date],
    series: Sequence[Series],
    titles: Sequence[str],
    *,
    name: str,
    description: str,
) -> Markup:
    """Bars over time, each beginning at its day, with the first series at the bottom."""
    sums = [sum(values) for values in zip(*(one.values for one in series), strict=True)]
    across, up, parts = _frame(width, height, len(days), max(sums, default=0))
    slot = across.at(1) - across.at(0)
    thickness = max(1.0, min(slot * 0.78, 48))
    parts += day_labels(width, height, days, across, slot / 2)
    for index, title in enumerate(titles):
        x, base, bars = across.at(index) + (slot - thickness) / 2, 0.0, []
        for one in series:
            value = one.values[index]
            if value > 0:
                y = up.at(base + value)
                tall = max(0.7, up.at(base) - y)
                bars.append(tag("rect", class_=one.style, x=x, y=y, width=thickness, height=tall))
                base += value
        parts += [titled(title, *bars)] if bars else []
    return picture(width, height, name, description, parts)


def spending_against_budget(
    width: int,
    height: int,
    days: Sequence[date],
    periods: Sequence[tuple[int, Sequence[float]]],
    amount: float,
    *,
    name: str,
    description: str,
) -> Markup:
    """What a budget has spent since the start of each of its periods, and its amount.

    Args:
        width: Pixels across.
        height: Pixels up.
        days: All days of the picture.
        periods: The index of a period's first day, and the sum at the end of each of its days.
        amount: The budget's.
        name: The picture's name.
        description: What it shows.
    """
    most = max((max(sums) for _, sums in periods if sums), default=0.0)
    across, up, parts = _frame(width, height, len(days), max(most, amount) * 1.02)
    parts += day_labels(width, height, days, across)
    for first, sums in periods:
        if not sums:
            continue
        begin = 0 if len(periods) > 1 or sums[0] == 0 else sums[0]
        points = [(across.at(first + index), up.at(value)) for index, value in enumerate([begin, *sums])]
        over = " over" if max(sums) >= amount else ""
        area = [(points[0][0], up.at(0)), *points, (points[-1][0], up.at(0))]
        parts += [polyline(f"area{over}", area, "polygon"), polyline(f"sum{over}", points)]
    parts.append(line("amount", LEFT, up.at(amount), width - RIGHT, up.at(amount)))
    return picture(width, height, name, description, parts)


def estimate_against_actual(
    width: int, height: int, points: Sequence[EstimatePoint], *, name: str, description: str
) -> Markup:
    """Estimate (across) and actual (up), both logarithmic, with the diagonal on which they agree."""
    bottom = height - BOTTOM - 16.0
    seconds = [value for one in points for value in (one.estimated, one.actual)]
    across = log_scale(seconds, LEFT, width - RIGHT, least_decades=0.7)
    up = LogScale(across.low, across.high, bottom, TOP)
    parts = [
        *grid_up(width, up, time_ticks(up)),
        *grid_across(width, across, time_ticks(across), TOP, bottom),
        line("diagonal", across.start, up.start, across.end, up.end),
        text((LEFT + width - RIGHT) / 2, height - 6, "estimated", style="label"),
        text(LEFT + 6, TOP + 10, "actual", anchor="start", style="label"),
        *(_clusters(points, across, up) if len(points) > MOST_POINTS else [_mark(one, across, up) for one in points]),
    ]
    return picture(width, height, name, description, parts)


def _frame(width: int, height: int, count: int, most: float) -> tuple[Scale, Scale, list[Markup]]:
    """Scales for so many days and an amount, with the grid of the amounts."""
    ticks = usd_axis(most)
    across = Scale(0, max(1, count), LEFT, width - RIGHT)
    up = Scale(0, ticks[-1][0], height - BOTTOM, TOP)
    return across, up, grid_up(width, up, ticks)


def _mark(one: EstimatePoint, across: LogScale, up: LogScale) -> Markup:
    x, y = across.at(one.estimated), up.at(one.actual)
    interval = [line("span", across.at(one.low), y, across.at(one.high), y)] if one.low and one.high else []
    return titled(one.title, *interval, mark(one.style, x, y, 3.5 if one.style == "cpu" else 4))


def _clusters(points: Sequence[EstimatePoint], across: LogScale, up: LogScale) -> list[Markup]:
    """One mark for all runs of a square; its area goes with their number."""
    squares: dict[tuple[int, int, str], list[EstimatePoint]] = {}
    for one in points:
        square = (int(across.at(one.estimated) // SQUARE), int(up.at(one.actual) // SQUARE), one.style)
        squares.setdefault(square, []).append(one)
    most = max(map(len, squares.values()))
    parts = []
    for (_, _, style), group in sorted(squares.items(), key=lambda item: item[0]):
        x = sum(across.at(one.estimated) for one in group) / len(group)
        y = sum(up.at(one.actual) for one in group) / len(group)
        radius = max(1.5, 9 * math.sqrt(len(group) / most))
        parts.append(titled(counted(len(group), "run"), mark(style, x, y, radius)))
    return parts
