"""Pictures as inline SVG: bars by day, a line against an amount, estimate against actual. Result -> str.

Each is drawn for a given width in CSS pixels, so that its text is as large as the page's; colours are classes of the
page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 28  # margins
MOST_POINTS = 300  # with more, near ones become one circle
TICK_TIMES = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
TICK_NAMES = ("1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 day", "7 days", "30 days")


@dataclass(frozen=True, slots=True)
class Series:
    """What is stacked on what: a class of the style sheet, and a value for each bar."""

    style: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Dot:
    """One estimate: x is what was said, with its interval, y what came; seconds."""

    x: float
    y: float
    low: float | None
    high: float | None
    style: str
    title: str


def day_name(day: date) -> str:
    """``3 Nov``."""
    return f"{day.day} {MONTHS[day.month - 1]}"


def nice_ticks(largest: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least `largest`."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.9999)
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def usd_tick(value: float, step: float) -> str:
    """``$0.05``, ``$20``, ``$12k``."""
    if value >= 10_000:
        return f"${value / 1000:g}k"
    digits = 0 if step >= 1 and step == int(step) else max(1, -math.floor(math.log10(step)) + (step < 1 and _odd(step)))
    return f"${value:.{digits}f}" if value else "$0"


def _odd(step: float) -> int:
    """1 if the step needs another digit (0.25)."""
    scaled = step / 10 ** math.floor(math.log10(step))
    return int(abs(scaled - round(scaled)) > 1e-6)


def stacked_bars(
    width: int,
    height: int,
    days: Sequence[date],
    series: Sequence[Series],
    titles: Sequence[str],
    *,
    name: str,
    text: str,
) -> str:
    """Bars over time.

    Args:
        width: In pixels.
        height: In pixels.
        days: First day of each bar.
        series: From the bottom up.
        titles: What each bar says when pointed at.
        name: Of the picture, for those who cannot see it.
        text: What it shows, for the same.
    """
    sums = [sum(values) for values in zip(*(s.values for s in series), strict=True)]
    ticks = nice_ticks(max(sums, default=0))
    across, up = _scales(width, height, len(days), ticks[-1])
    slot = across(1) - across(0)
    thick = max(1.0, min(slot * 0.78, 48))
    parts = [_grid(width, ticks, up), _days(width, height, days, lambda i: across(i) + slot / 2)]
    for index, title in enumerate(titles):
        if not sums[index]:
            continue
        x, base, bars = across(index) + (slot - thick) / 2, 0.0, []
        for part in series:
            value = part.values[index]
            if value > 0:
                y = up(base + value)
                bars.append(
                    f'<rect class="{part.style}" x="{x:.1f}" y="{y:.1f}" width="{thick:.1f}" '
                    f'height="{max(0.7, up(base) - y):.1f}"/>'
                )
                base += value
        parts.append(f"<g><title>{escape(title)}</title>{''.join(bars)}</g>")
    return picture(width, height, name, text, parts)


def against(
    width: int,
    height: int,
    days: Sequence[date],
    stretches: Sequence[tuple[int, Sequence[float]]],
    amount: float,
    *,
    name: str,
    text: str,
) -> str:
    """What a budget has spent, adding up from the start of each of its periods, and its amount.

    Args:
        width: In pixels.
        height: In pixels.
        days: Of the picture.
        stretches: Index of the first day of a period, and the sum at the end of each of its days.
        amount: Of the budget.
        name: Of the picture.
        text: What it shows.
    """
    most = max((max(sums) for _, sums in stretches if sums), default=0.0)
    ticks = nice_ticks(max(most, amount) * 1.02)
    across, up = _scales(width, height, len(days), ticks[-1])
    parts = [_grid(width, ticks, up), _days(width, height, days, across)]
    for first, sums in stretches:
        if not sums:
            continue
        points = [(across(first), up(0 if len(stretches) > 1 or sums[0] == 0 else sums[0]))]
        points += [(across(first + i + 1), up(value)) for i, value in enumerate(sums)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        over = " over" if max(sums) >= amount else ""
        area = f"{points[0][0]:.1f},{up(0):.1f} {line} {points[-1][0]:.1f},{up(0):.1f}"
        parts.append(f'<polygon class="area{over}" points="{area}"/><polyline class="sum{over}" points="{line}"/>')
    y = up(amount)
    parts.append(f'<line class="amount" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return picture(width, height, name, text, parts)


def said_and_done(width: int, height: int, dots: Sequence[Dot], *, name: str, text: str) -> str:
    """Estimate (across) and actual (up), both logarithmic, with the diagonal on which they agree."""
    values = [value for dot in dots for value in (dot.x, dot.y)]
    low, high = math.log10(min(values)), math.log10(max(values))
    middle, half = (low + high) / 2, max(0.35, (high - low) / 2 * 1.08)
    low, high = middle - half, middle + half
    bottom = height - BOTTOM - 16

    def across(value: float) -> float:
        return LEFT + (min(max(math.log10(value), low), high) - low) / (high - low) * (width - LEFT - RIGHT)

    def up(value: float) -> float:
        return bottom - (min(max(math.log10(value), low), high) - low) / (high - low) * (bottom - TOP)

    parts = []
    known = [(t, n) for t, n in zip(TICK_TIMES, TICK_NAMES, strict=True) if low <= math.log10(t) <= high]
    last = -1e9
    for tick, label in known:
        x, y = across(tick), up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        if x - last > 48:
            parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{label}</text>')
            last = x
    one, two = 10**low, 10**high
    parts.append(
        f'<line class="diagonal" x1="{across(one):.1f}" y1="{up(one):.1f}" x2="{across(two):.1f}" y2="{up(two):.1f}"/>'
    )
    middle_x = (LEFT + width - RIGHT) / 2
    parts.append(f'<text class="label" x="{middle_x:.0f}" y="{height - 6}" text-anchor="middle">estimated</text>')
    parts.append(f'<text class="label" x="{LEFT + 6}" y="{TOP + 10}">actual</text>')
    parts += _clusters(dots, across, up) if len(dots) > MOST_POINTS else [_dot(dot, across, up) for dot in dots]
    return picture(width, height, name, text, parts)


def _dot(dot: Dot, across: Callable[[float], float], up: Callable[[float], float]) -> str:
    x, y = across(dot.x), up(dot.y)
    span = ""
    if dot.low and dot.high:
        span = f'<line class="span" x1="{across(dot.low):.1f}" x2="{across(dot.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    if dot.style == "cpu":  # another shape, not only another colour
        mark = f'<rect class="dot cpu" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
    else:
        mark = f'<circle class="dot {dot.style}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    return f"<g><title>{escape(dot.title)}</title>{span}{mark}</g>"


def _clusters(dots: Sequence[Dot], across: Callable[[float], float], up: Callable[[float], float]) -> list[str]:
    """One mark for all dots of a square of 14 pixels; its area goes with their number."""
    found: dict[tuple[int, int, str], list[Dot]] = {}
    for dot in dots:
        found.setdefault((int(across(dot.x) // 14), int(up(dot.y) // 14), dot.style), []).append(dot)
    most = max(map(len, found.values()))
    parts = []
    for (_, _, style), group in sorted(found.items()):
        x = sum(across(dot.x) for dot in group) / len(group)
        y = sum(up(dot.y) for dot in group) / len(group)
        radius = max(1.5, 9 * math.sqrt(len(group) / most))
        count = "1 run" if len(group) == 1 else f"{len(group)} runs"
        mark = (
            f'<rect class="dot {style}" x="{x - radius:.1f}" y="{y - radius:.1f}" width="{2 * radius:.1f}" '
            f'height="{2 * radius:.1f}"/>'
            if style == "cpu"
            else f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'
        )
        parts.append(f"<g><title>{count}</title>{mark}</g>")
    return parts


def _scales(
    width: int, height: int, count: int, largest: float
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    inner, tall = width - LEFT - RIGHT, height - TOP - BOTTOM

    def across(index: float) -> float:
        return LEFT + inner * index / max(1, count)

    def up(value: float) -> float:
        return TOP + tall * (1 - value / largest)

    return across, up


def _grid(width: int, ticks: Sequence[float], up: Callable[[float], float]) -> str:
    step = ticks[1] - ticks[0]
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{usd_tick(tick, step)}</text>'
        for tick in ticks
    )


def _days(width: int, height: int, days: Sequence[date], place: Callable[[float], float]) -> str:
    """Labels below, as many as there is room for."""
    if not days:
        return ""
    long = (days[-1] - days[0]).days > 330
    room = 78 if long else 62
    step = max(1, math.ceil(len(days) * room / (width - LEFT - RIGHT)))
    parts = []
    for index in range(0, len(days), step):
        day = days[index]
        label = f"{MONTHS[day.month - 1]} {day.year}" if long else day_name(day)
        x = place(index)
        if x <= width - RIGHT - 20:
            parts.append(f'<text x="{max(x, 24):.1f}" y="{height - 8}" text-anchor="middle">{label}</text>')
    return "".join(parts)


def picture(width: int, height: int, name: str, text: str, parts: Sequence[str]) -> str:
    """The frame: an image with a name and a text for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(name)}: {escape(text)}">{"".join(parts)}</svg>'
    )
