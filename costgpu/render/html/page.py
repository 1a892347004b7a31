"""What the HTML pages are made of: the templates' environment, tables, pictures, and texts that are safe in them.

A page needs nothing else: no script, no font, no request. Whatever a template prints is escaped and stripped of
characters that are not to be seen; names from outside go through `name`, which also isolates their writing direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from costgpu.render.html.charts import STACK_HEIGHT, cost_and_time, shares
from costgpu.render.html.svg import LONGEST_TEXT, picture
from costgpu.render.phrases import DRAWN_TERMS, LONGEST_NAME, counted, day, visible
from costgpu.render.report import ASKED_FOR, RECOMMENDED, Cell, CostAndTime, Figure, Report, Table, cell_of
from costgpu.units import currency_note, format_duration, format_usd

WIDE, NARROW = 918, 330  # pixels: the width of a section on a desk, and on a phone
LONGEST_CELL = 200
MARKS = {RECOMMENDED: " ★", ASKED_FOR: " (asked for)"}


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
        "cell": _cell,
        "counted": counted,
        "day": day,
        "name": name,
        "picture": _figure,
        "share": share,
        "usd": format_usd,
    }
    environment.tests |= {
        "table": lambda part: isinstance(part, Table),
        "figure": lambda part: isinstance(part, Figure),
    }
    return environment


def _printable(value: Any) -> Any:
    return visible(value, LONGEST_TEXT) if isinstance(value, str) and not isinstance(value, Markup) else value


def report_html(report: Report) -> str:
    """Return a report as a page."""
    return render("report.html", report=report, drawn_terms=DRAWN_TERMS)


def render(template: str, **values: Any) -> str:
    """Return a page from a template of this room."""
    return _environment().get_template(template).render(currency_note=currency_note(), **values)


def _cell(of: Cell | str) -> Markup:
    """Return what stands in a cell: a name or a figure with its mark, and what is softer below."""
    cell = cell_of(of)
    first = cell.text if isinstance(cell.text, Markup) else name(cell.long or cell.text, LONGEST_CELL)
    words = Markup("{}{}").format(first, MARKS.get(cell.mark, ""))
    below = cell.below or cell.span
    return two_lines(words, name(below, LONGEST_CELL)) if below else words


def _figure(figure: Figure) -> Markup:
    """Return a figure, drawn for wide and for narrow screens."""
    chart = figure.chart
    if isinstance(chart, CostAndTime):
        return responsive(
            lambda width, height: cost_and_time(width, height, chart),
            figure.label,
            figure.description,
            wide=400,
            narrow=340,
        )
    height = len(chart) * STACK_HEIGHT - 4
    return responsive(
        lambda width, _: shares(width, chart), figure.label, figure.description, wide=height, narrow=height
    )


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


def minute(at: datetime) -> str:
    """``3 Nov 2026, 14:05``, in UTC."""
    utc = at.astimezone(UTC)
    return f"{day(utc.date())}, {utc:%H:%M}"
