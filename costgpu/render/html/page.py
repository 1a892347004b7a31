"""What the HTML pages are made of: the templates' environment, tables, pictures, and texts that are safe in them.

A page needs nothing else: no script, no font, no request. Whatever a template prints is escaped and stripped of
characters that are not to be seen; names from outside go through `name`, which also isolates their writing direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from costgpu.models.prediction import Range
from costgpu.render.html.svg import LONGEST_TEXT, day_name, picture
from costgpu.render.phrases import LONGEST_NAME, counted, visible
from costgpu.units import currency_note, format_duration, format_usd

WIDE, NARROW = 918, 330  # pixels: the width of a section on a desk, and on a phone


@dataclass(frozen=True, slots=True)
class Table:
    """Cells: names in the first column, numbers in the others but for the columns in `text`."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    foot: Sequence[str] = ()
    text: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """Words, perhaps a picture with its legend of (class, words), and the numbers."""

    title: str = ""
    description: str = ""
    picture: Markup | None = None
    legend: Sequence[tuple[str, str]] = ()
    table: Table


@dataclass(frozen=True, slots=True)
class BarRow:
    """A row with a bar: its name, the parts of the bar as (class, share of the width), and cells."""

    name: str
    parts: Sequence[tuple[str, float]]
    cells: Sequence[str]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("costgpu.render.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_printable,
    )
    environment.filters |= {
        "counted": counted,
        "day": day,
        "name": name,
        "share": share,
        "usd": format_usd,
    }
    return environment


def _printable(value: Any) -> Any:
    return visible(value, LONGEST_TEXT) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(template: str, **values: Any) -> str:
    """Return a page from a template of this room."""
    return _environment().get_template(template).render(currency_note=currency_note(), **values)


def responsive(
    draw: Callable[[int, int], Sequence[Markup]],
    label: str,
    description: str,
    *,
    wide: int = 270,
    narrow: int = 230,
    width: int = WIDE,
) -> Markup:
    """Return a picture for wide and one for narrow screens, of which only one is shown; drawn for its width and height."""
    sizes = ((width, wide), (NARROW, narrow))
    pictures = (picture(*size, label, description, draw(*size)) for size in sizes)
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(*pictures)


def name(words: str, longest: int = LONGEST_NAME) -> Markup:
    """Return a name from outside, isolated from the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(visible(words, longest)) if words else Markup("")


def two_lines(first: str, second: str) -> Markup:
    """Return a cell with a second, softer line."""
    return Markup('{}<br><span class="soft">{}</span>').format(first, second)


def ranged(values: Range, shown: Callable[[float], str]) -> str:
    """Return a cell with a value and its interval below."""
    return two_lines(shown(values.value), interval(shown(values.low), shown(values.high)))


def fraction(usd: Decimal, most: Decimal) -> float:
    """Return the share of a bar's width."""
    return float(usd / most) if most else 0.0


def percent(usd: Decimal, whole: Decimal) -> str:
    """``12 %``; a dash of nothing."""
    return share(float(usd / whole)) if whole else "–"


def share(part_of_one: float) -> str:
    """``12 %``, on one line."""
    return f"{part_of_one * 100:.0f}\N{NO-BREAK SPACE}%"


def hours(seconds: float) -> str:
    """Machine time: ``1,234 h``."""
    return f"{seconds / 3600:,.0f} h" if seconds >= 36000 else format_duration(seconds) if seconds else "–"


def interval(low: str, high: str) -> str:
    """Return an interval that breaks only behind its dash."""
    first, last = (words.replace(" ", "\N{NO-BREAK SPACE}") for words in (low, high))
    return f"{first}\N{NO-BREAK SPACE}– {last}"


def day(at: date) -> str:
    """``3 Nov 2026``."""
    return f"{day_name(at)} {at.year}"


def minute(at: datetime) -> str:
    """``3 Nov 2026, 14:05``, in UTC."""
    utc = at.astimezone(UTC)
    return f"{day(utc.date())}, {utc:%H:%M}"
