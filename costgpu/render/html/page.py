"""Reports as HTML pages: one template, and texts that are safe in it.

A page needs nothing else: no script, no font, no request. Whatever the template prints is escaped and stripped of
characters that are not to be seen; titles, cells and loops are isolated from the writing direction of the text around them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from costgpu.render.html.svg import LONGEST_TEXT, picture
from costgpu.render.phrases import DRAWN_TERMS, LONGEST_NAME, visible
from costgpu.render.report import ASKED_FOR, RECOMMENDED, Cell, Figure, Report, Table, cell_of
from costgpu.units import currency_note

NARROW = 330  # pixels: the width of a section on a phone
LONGEST_CELL = 200
MARKS = {RECOMMENDED: " ★", ASKED_FOR: " (asked for)"}


def report_html(report: Report) -> str:
    """Return a report as a page."""
    template = _environment().get_template("report.html")
    return template.render(report=report, drawn_terms=DRAWN_TERMS, currency_note=currency_note())


@cache
def _environment() -> Environment:
    def printable(value: Any) -> Any:
        return visible(value, LONGEST_TEXT) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("costgpu.render.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=printable,
    )
    environment.filters |= {"cell": _cell, "name": _name, "picture": _picture}
    environment.tests |= {
        "table": lambda part: isinstance(part, Table),
        "figure": lambda part: isinstance(part, Figure),
    }
    return environment


def _name(words: str, longest: int = LONGEST_NAME) -> Markup:
    """Return a name from outside, isolated from the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(visible(words, longest)) if words else Markup("")


def _cell(of: Cell | str) -> Markup:
    """Return what stands in a cell: a name or a figure with its mark, what is softer below, and a bar."""
    cell = cell_of(of)
    words = _name(cell.long or cell.text, LONGEST_CELL) + "".join(MARKS[mark] for mark in cell.mark)
    if cell.style:
        words = Markup('<span class="{}">{}</span>').format(cell.style, words)
    if below := cell.below or cell.span:
        words += Markup('<br><span class="soft">{}</span>').format(_name(below, LONGEST_CELL))
    if cell.bar:
        parts = (Markup('<i class="{}" style="width:{:.2f}%"></i>').format(*part) for part in cell.bar)
        words += Markup('<div aria-hidden="true">{}</div>').format(Markup("").join(parts))
    return words


def _picture(figure: Figure) -> Markup:
    """Return a picture for wide and one for narrow screens, of which only one is shown."""
    sizes = ((figure.width, figure.wide), (NARROW, figure.narrow))
    pictures = (picture(*size, figure.label, figure.description, figure.draw(*size)) for size in sizes)
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(*pictures)
