"""Pieces of an HTML page: sections, tables, bars, texts that are safe in it. Result -> str."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from html import escape
from zoneinfo import ZoneInfo

from costgpu.render.html.svg import day_name
from costgpu.units import format_duration

WIDE, NARROW = 918, 330  # pixels: the width of a section on a desk, and on a phone
LONGEST_NAME = 80


def section(title: str, said: str, body: str) -> str:
    """A part of the page; `said` is its first paragraph, if there is any."""
    paragraph = f"<p class='soft'>{said}</p>" if said else ""
    return f"<section><h2>{title}</h2>{paragraph}{body}</section>"


def both(draw: Callable[[int, int], str], *, wide: int = 270, narrow: int = 230, width: int = WIDE) -> str:
    """A picture for wide and one for narrow screens, of which only one is shown; with their heights."""
    return f'<div class="wide">{draw(width, wide)}</div><div class="narrow">{draw(NARROW, narrow)}</div>'


def legend(items: Iterable[tuple[str, str]]) -> str:
    """What the colours mean: class of the style sheet, and words."""
    return f'<ul class="legend">{"".join(f"<li><i class={style!r}></i>{words}</li>" for style, words in items)}</ul>'


def folded(name: str, body: str) -> str:
    """Shown on demand, and in print."""
    return f"<details><summary>{name}</summary>{body}</details>"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, foot: Sequence[str] = (), text: Sequence[int] = ()
) -> str:
    """A table of HTML cells: names in the first column, numbers in the others, but for the columns in `text`."""

    def row(cells: Sequence[str]) -> str:
        rest = "".join(f"<td{'' if i in text else ' class=n'}>{cell}</td>" for i, cell in enumerate(cells[1:], 1))
        return f"<tr><th scope='row'>{cells[0]}</th>{rest}</tr>"

    heads = "".join(f"<th{'' if i == 0 or i in text else ' class=n'}>{cell}</th>" for i, cell in enumerate(head))
    end = f"<tfoot>{row(foot)}</tfoot>" if foot else ""
    return (
        f"<div class='scroll'><table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(map(row, rows))}</tbody>{end}</table></div>"
    )


Row = tuple[str, Sequence[tuple[str, float]], Sequence[str]]
"""A name, the parts of its bar as class and share of the width, and cells."""


def bars(what: str, head: Sequence[str], rows: Sequence[Row]) -> str:
    """A table whose rows have a bar: picture and numbers in one."""
    heads = "".join(f"<th class=n>{cell}</th>" for cell in head)
    body = "".join(
        f"<tr><th scope='row'>{name}</th><td class='share'>{bar(parts)}</td>"
        f"{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>"
        for name, parts, cells in rows
    )
    top = f"<thead><tr><th>{what}</th><th></th>{heads}</tr></thead>"
    return f"<div class='scroll'><table>{top}<tbody>{body}</tbody></table></div>"


def bar(parts: Iterable[tuple[str, float]]) -> str:
    """One bar: class and share of the width for each of its parts."""
    cells = "".join(f'<i class="{style}" style="width:{share * 100:.2f}%"></i>' for style, share in parts if share > 0)
    return f'<div aria-hidden="true">{cells}</div>'


def part(usd: Decimal, most: Decimal) -> float:
    """The share of a bar."""
    return float(usd / most) if most else 0.0


def percent(usd: Decimal, whole: Decimal) -> str:
    """``12 %``."""
    return share(float(usd / whole)) if whole else "–"


def share(part_of_one: float) -> str:
    """``12 %``, on one line."""
    return f"{part_of_one * 100:.0f}\N{NO-BREAK SPACE}%"


def hours(seconds: float) -> str:
    """Machine time: ``1,234 h``."""
    return f"{seconds / 3600:,.0f} h" if seconds >= 36000 else format_duration(seconds) if seconds else "–"


def count(number: int, what: str) -> str:
    """``1 run``, ``1,234 runs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def day(at: date) -> str:
    """``3 Nov 2026``."""
    return f"{day_name(at)} {at.year}"


def minute(at: datetime, zone: ZoneInfo) -> str:
    """``3 Nov 2026, 14:05``."""
    there = at.astimezone(zone)
    return f"{day(there.date())}, {there:%H:%M}"


def plain(words: str, longest: int = LONGEST_NAME) -> str:
    """Without characters that are not to be seen, or that turn the text around."""
    shown = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c for c in words)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def text(words: str, longest: int = LONGEST_NAME) -> str:
    """A text from outside, as HTML."""
    return f"<bdi>{escape(plain(words, longest))}</bdi>" if words else ""
