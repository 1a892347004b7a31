"""Inline SVG: elements, scales and ticks.

Pictures are drawn for a given width in CSS pixels, so that their text is as large as the page's; colours are classes of
the style sheet. Every text and attribute is escaped, and stripped of characters that are not to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from markupsafe import Markup

from costgpu.render.phrases import MONTHS, day_name, visible
from costgpu.units import currency_note, format_duration, format_usd

LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 28  # margins in pixels
LONGEST_TEXT = 1200
MARGIN = 0.06  # of a logarithmic scale, around what is drawn
LEAST_DECADES = 0.35
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
TIME_UNITS = ((YEAR, "year"), (DAY, "day"), (HOUR, "h"), (MINUTE, "min"), (1.0, "s"))
ROOM_ACROSS, ROOM_UP = 58.0, 26.0  # pixels between ticks
Tick = tuple[float, str]
PointList = Iterable[tuple[float, float]]


def tag(name: str, *content: str, **attributes: str | float | None) -> Markup:
    """Return an element; ``class_`` is written for ``class`` and ``text_anchor`` for ``text-anchor``.

    None leaves one out.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _attribute(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(part if isinstance(part, Markup) else visible(part, LONGEST_TEXT) for part in content)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, inner)


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return visible(value, LONGEST_TEXT)
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def picture(width: int, height: int, name: str, description: str, parts: Sequence[str]) -> Markup:
    """Return an image with a name and a description for those who cannot see it."""
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=f"{name}: {description}",
    )


def titled(title: str, *parts: Markup) -> Markup:
    """Return the parts that say `title` when they are pointed at."""
    return tag("g", tag("title", title), *parts)


def line(style: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Return a straight line of a class of the style sheet."""
    return tag("line", class_=style, x1=x1, x2=x2, y1=y1, y2=y2)


def text(x: float, y: float, words: str, *, anchor: str = "middle", style: str | None = None) -> Markup:
    """One line of text; `anchor` is what lies at `x`: its start, middle or end."""
    return tag("text", words, class_=style, x=x, y=y, text_anchor=anchor)


def polyline(style: str, points: PointList, shape: str = "polyline") -> Markup:
    """Return a line through points, or a `polygon`."""
    return tag(shape, class_=style, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))


def mark(style: str, x: float, y: float, radius: float) -> Markup:
    """Return a square for CPUs, a diamond for one's own GPU, else a circle: another shape, not only another colour."""
    if style == "cpu":
        return tag("rect", class_="dot cpu", x=x - radius, y=y - radius, width=2 * radius, height=2 * radius)
    if style == "own":
        corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
        return polyline("dot own", corners, "polygon")
    return tag("circle", class_=f"dot {style}", cx=x, cy=y, r=radius)


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels: `low` is drawn at `start`, `high` at `end`; what is outside is drawn at the edge."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


class LogScale(Scale):
    """A logarithmic scale; `low` and `high` are powers of ten."""

    def at(self, value: float) -> float:
        """Pixel of a value."""
        return Scale.at(self, math.log10(max(value, 1e-300)))

    def has(self, value: float) -> bool:
        """Return whether the value is inside."""
        return self.low <= math.log10(value) <= self.high


def log_scale(values: Iterable[float], start: float, end: float, least_decades: float = LEAST_DECADES) -> LogScale:
    """Return a scale that holds all values, with a margin."""
    logs = [math.log10(max(value, 1e-300)) for value in values]
    middle, half = (min(logs) + max(logs)) / 2, (max(logs) - min(logs)) / 2
    half = max(least_decades / 2, half * (1 + 2 * MARGIN))
    return LogScale(middle - half, middle + half, start, end)


def time_ticks(scale: LogScale) -> list[Tick]:
    """Return times with names, as many as there is room for: ``2 h``, ``1 day``, ``30 days``."""

    def name(seconds: float) -> str:
        for size, unit in TIME_UNITS:
            if seconds >= size:
                plural = "s" if seconds > size and unit in ("day", "year") else ""
                return f"{seconds / size:g} {unit}{plural}"
        return format_duration(seconds)

    return spaced(scale, [[(seconds, name(seconds)) for seconds in tier] for tier in TIMES], ROOM_ACROSS)


def usd_ticks(scale: LogScale) -> list[Tick]:
    """Amounts with names, as many as there is room for."""
    first, last = math.floor(scale.low), math.ceil(scale.high)
    tiers = [[(f * 10.0**p, usd_name(f, p)) for p in range(first, last + 1)] for f in (1, 3, 2, 5, 1.5, 7)]
    return spaced(scale, tiers, ROOM_UP)


def usd_name(factor: float, power: int) -> str:
    """``$0.03``, ``$1``, ``$20k``."""
    value = factor * 10.0**power
    if currency_note():
        return format_usd(value)
    if value >= 1e4:
        return f"${value / 1e6:g}M" if value >= 1e6 else f"${value / 1e3:g}k"
    if power >= 0:
        return f"${value:g}"
    return f"${value:.{max(2, -power + (factor != int(factor)))}f}" if power >= -6 else f"${value:.0e}"


def spaced(scale: LogScale, tiers: Iterable[Iterable[Tick]], room: float) -> list[Tick]:
    """Return the ticks that are inside and not too near to an earlier one; the first tier has the better ones."""
    kept: list[Tick] = []
    for tier in tiers:
        for value, name in tier:
            if scale.has(value) and all(abs(scale.at(value) - scale.at(other)) >= room for other, _ in kept):
                kept.append((value, name))
    return sorted(kept)


def grid_up(width: int, scale: Scale, ticks: Iterable[Tick]) -> list[Markup]:
    """Horizontal lines with their values at the left."""
    parts = []
    for value, name in ticks:
        y = scale.at(value)
        parts += [line("grid", LEFT, y, width - RIGHT, y), text(LEFT - 6, y + 4, name, anchor="end")]
    return parts


def grid_across(width: int, scale: Scale, ticks: Iterable[Tick], top: float, bottom: float) -> list[Markup]:
    """Vertical lines with their values below."""
    parts = []
    for value, name in ticks:
        x = scale.at(value)
        anchor = "end" if x > width - RIGHT - 20 else "middle"
        parts += [line("grid", x, top, x, bottom), text(min(x, width - 2), bottom + 17, name, anchor=anchor)]
    return parts


def usd_axis(most: float) -> list[Tick]:
    """Round amounts from 0 to at least `most`, about four steps apart, with names."""
    if most <= 0:
        return [(0.0, "$0"), (1.0, "$1")]
    power = 10 ** math.floor(math.log10(most / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= most / 4 * 0.9999)
    values = [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]
    return [(value, round_usd(value, values[1])) for value in values]


def round_usd(value: float, step: float) -> str:
    """``$0.05``, ``$20``, ``$12k``, with as many digits as a `step` needs."""
    if currency_note():
        return format_usd(value)
    if value >= 10_000:
        return f"${value / 1000:g}k"
    if value == 0:
        return "$0"
    if step >= 1 and step == int(step):
        return f"${value:.0f}"
    scaled = step / 10 ** math.floor(math.log10(step))
    another_digit = step < 1 and abs(scaled - round(scaled)) > 1e-6  # 0.25
    return f"${value:.{max(1, -math.floor(math.log10(step)) + another_digit)}f}"


def day_labels(width: int, height: int, days: Sequence[date], scale: Scale, offset: float = 0) -> list[Markup]:
    """Days below a picture, as many as there is room for."""
    if not days:
        return []
    long = (days[-1] - days[0]).days > 330
    step = max(1, math.ceil(len(days) * (78 if long else 62) / (width - LEFT - RIGHT)))
    parts = []
    for index in range(0, len(days), step):
        day, x = days[index], scale.at(index) + offset
        if x <= width - RIGHT - 20:
            name = f"{MONTHS[day.month - 1]} {day.year}" if long else day_name(day)
            parts.append(text(max(x, 24), height - 8, name))
    return parts
