"""The pictures of a verdict: cost against time, and what a step's time goes into.

Both axes of cost against time are logarithmic. Cost is price x time, so the 80 % interval of a candidate is a stroke
along which both grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from costgpu.render.html.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    LogScale,
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
    usd_ticks,
)
from costgpu.render.text.layout import cut

LETTER = 6.8  # pixels of a letter, on average
BADGE = 7.5  # radius of a number beside a mark
RADIUS = {"cpu": 4.5, "own": 6.5, "gpu": 5.0}
DIRECTIONS = ((0.7, -0.7), (-0.7, 0.7), (0.7, 0.7), (-0.7, -0.7), (1, 0), (-1, 0), (0, 1), (0, -1))
BAR = 24  # pixels, the height of a bar of shares
LEAST_LABELLED = 34  # pixels of a share that has room for its label


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One candidate of the picture.

    Attributes:
        label: Its number in the table.
        title: Shown when it is pointed at.
        style: ``gpu``, ``cpu`` or ``own``.
        seconds: Predicted, low and high.
        usd: The same of the cost; all above zero.
        chosen: Whether it is the recommendation.
        front: Whether it may be part of the line of those that nothing beats.
    """

    label: str
    title: str
    style: str
    seconds: tuple[float, float, float]
    usd: tuple[float, float, float]
    chosen: bool = False
    front: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One bar of shares: a name, what stands at its right, and (class, words, value) of its parts."""

    name: str
    total: str
    parts: Sequence[tuple[str, str, float]]


def cost_and_time(
    width: int,
    height: int,
    points: Sequence[Point],
    here_seconds: float,
    here_title: str,
    *,
    name: str,
    description: str,
) -> Markup:
    """Cost (up) against time (across) of all candidates, with their intervals and the Pareto front.

    This machine costs nothing, so it is a line at `here_seconds`.
    """
    top, bottom = TOP + 18.0, height - BOTTOM - 16.0
    across = log_scale([here_seconds, *(s for point in points for s in point.seconds)], LEFT, width - RIGHT)
    up = log_scale([usd for point in points for usd in point.usd] or [1.0], bottom, top)
    x = across.at(here_seconds)
    anchor, gap = ("end", -6) if x > (LEFT + width) / 2 else ("start", 6)
    here_label = text(x + gap, TOP + 10, "this machine, $0", anchor=anchor, style="label")
    taken = [(across.at(point.seconds[0]), up.at(point.usd[0])) for point in points]
    parts = [
        *grid_up(width, up, usd_ticks(up)),
        *grid_across(width, across, time_ticks(across), top, bottom),
        titled(here_title, line("here", x, TOP + 4, x, bottom), here_label),
        *_front(points, across, up),
        *(_interval(point, across, up) for point in points),
        *(_mark(point, across, up, taken) for point in points),
        text((LEFT + width - RIGHT) / 2, height - 6, "time", style="label"),
        text(LEFT - 6, TOP + 10, "cost", anchor="end", style="label"),
    ]
    return picture(width, height, name, description, parts)


def _front(points: Sequence[Point], across: LogScale, up: LogScale) -> list[Markup]:
    """Steps through the candidates that no other beats in both."""
    least = math.inf
    corners: list[tuple[float, float]] = []
    for point in sorted((p for p in points if p.front), key=lambda p: (p.seconds[0], p.usd[0])):
        if point.usd[0] < least:
            x, y = across.at(point.seconds[0]), up.at(point.usd[0])
            corners += [(x, up.at(least)), (x, y)] if corners else [(x, y)]
            least = point.usd[0]
    return [polyline("front", corners)] if len(corners) > 1 else []


def _interval(point: Point, across: LogScale, up: LogScale) -> Markup:
    value, low, high = ((across.at(s), up.at(usd)) for s, usd in zip(point.seconds, point.usd, strict=True))
    return polyline(f"interval {point.style}-line", (low, value, high))


def _mark(point: Point, across: LogScale, up: LogScale, taken: list[tuple[float, float]]) -> Markup:
    """The mark, with its number where there is most room."""
    x, y = across.at(point.seconds[0]), up.at(point.usd[0])
    places = [(x + a * radius, y + b * radius) for radius in (16.0, 24.0, 34.0) for a, b in DIRECTIONS]

    def crowd(place: tuple[float, float]) -> float:
        off = max(0.0, LEFT + 6 - place[0]) + max(0.0, place[0] - across.end + 4) + max(0.0, place[1] - up.start + 6)
        near = sum(max(0.0, 2.2 * BADGE - math.dist(place, other)) for other in taken)
        return near + 10 * off + 0.02 * math.dist(place, (x, y))

    a, b = min(places, key=crowd)
    taken.append((a, b))
    ring = [tag("circle", class_="chosen", cx=x, cy=y, r=10.5)] if point.chosen else []
    label = text(a, b + 4, point.label, style="label")
    return titled(point.title, *ring, mark(point.style, x, y, RADIUS[point.style]), label)


def shares(width: int, stacks: Sequence[Stack], *, name: str, description: str) -> Markup:
    """A bar of full width for each stack, cut into the shares of its parts."""
    parts, y = [], 4
    for stack in stacks:
        room = int((width - 7 * len(stack.total) - 12) / LETTER)
        parts.append(text(0, y + 11, cut(stack.name, room), anchor="start", style="label"))
        parts.append(text(width, y + 11, stack.total, anchor="end"))
        parts += _shares(width, y + 18, stack)
        y += 18 + BAR + 16
    return picture(width, max(y - 8, 20), name, description, parts)


def _shares(width: int, y: int, stack: Stack) -> list[Markup]:
    parts, x = [], 0.0
    whole = sum(value for _, _, value in stack.parts)
    for style, words, value in stack.parts:
        if value <= 0 or whole <= 0:
            continue
        wide, label = width * value / whole, f"{value / whole:.0%}"
        bar = tag("rect", class_=f"part {style}", x=x, y=y, width=max(wide, 0.5), height=BAR)
        inside = [text(x + wide / 2, y + 16, label, style="on")] if wide > LEAST_LABELLED else []
        parts.append(titled(f"{words}: {label}", bar, *inside))
        x += wide
    return parts
