"""Text for a terminal of 80 columns: paragraphs, labelled rows, tables."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from costgpu.render.safe_text import escaped

WIDTH = 80
LABEL_WIDTH = 11
Item = TypeVar("Item")
_WIDE = "\ufdd0"  # a character that no text has: stands for the second column of a wide one


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters of East Asia and emoji take two."""
    return len(_widened(text))


def _widened(text: str) -> str:
    if text.isascii():
        return text
    return "".join(char + _WIDE * (unicodedata.east_asian_width(char) in "WF") for char in text)


def wrap(text: str, first: str = "", rest: str | None = None) -> str:
    """Return a paragraph; a number stays on the line of its percent sign.

    Args:
        first: Beginning of the first line.
        rest: Beginning of the other lines; None for as many spaces as `first` is long.
    """
    filled = textwrap.fill(
        _widened(re.sub(r"(?<=\d) %(?=[.,;:)]{0,2}(\s|$))", "\N{NO-BREAK SPACE}%", text)),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return filled.replace("\N{NO-BREAK SPACE}", " ").replace(_WIDE, "")


def fold(text: str, most: int, first: str = "") -> list[str]:
    """Return a paragraph in at most so many rows, none of them wider than a terminal; what is missing is an ellipsis."""
    room = WIDTH - len(first)
    shown = re.sub(r"\S+", lambda word: _pieces(word.group(), room), escaped(text))
    lines = wrap(shown, first).splitlines()
    if len(lines) <= most:
        return lines
    last = lines[max(0, most - 1)]
    last = f"{last} …" if columns(last) <= WIDTH - 2 else f"{_beginning(last, WIDTH - 1)}…"
    return [*lines[: most - 1], last] if most > 0 else []


def fold_before(text: str, tail: str, most: int, first: str = "") -> list[str]:
    """Return a paragraph of two texts in at most so many rows; what does not fit is missing at the end of the first."""
    words, shown = text.split(), f"{text}{tail}"
    while words and len(fold(shown, most + 1, first)) > most:
        words.pop()
        shown = f"{' '.join(words)} …{tail}"
    return fold(shown, most, first)


def _pieces(word: str, room: int) -> str:
    """Return a word with a space wherever a row would end within it."""
    pieces = []
    while columns(word) > room:
        pieces.append(_beginning(word, room))
        word = word[len(pieces[-1]) :]
    return " ".join([*pieces, word])


def _beginning(text: str, width: int) -> str:
    """Return as much of a text as so many columns hold."""
    wide = _widened(text)
    return wide[: width - wide.startswith(_WIDE, width)].replace(_WIDE, "")


def labelled(label: str, text: str) -> str:
    """Return a row of a list of facts: the label, then the text in a column of its own."""
    return wrap(text, f"  {label:<{LABEL_WIDTH}}")


def cut(text: str, width: int | None) -> str:
    """At most `width` columns, the last one an ellipsis where some are missing."""
    if width is None or columns(text) <= width:
        return text
    return _beginning(text, width - 1) + "…"


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a table."""

    heading: str  # its first line
    cell: Callable[[Item], str]  # its text for one item
    right: bool = False  # whether it is aligned to the right, as numbers are
    width: int | None = None  # most characters of a cell, the others are cut off; None for no limit


def table(columns: Sequence[Column[Item]], items: Iterable[Item], gap: str = " ") -> list[str]:
    """Return the lines of a table with one row for each item; each column is as wide as its longest cell.

    A column with nothing in it is left out.
    """
    rows = [[cut(column.cell(item), column.width) for column in columns] for item in items]
    used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    rows = [[columns[index].heading for index in used], *([row[index] for index in used] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if columns[index].right else cell.ljust(width)
            for index, cell, width in zip(used, cells, widths, strict=True)
        )
        return gap.join(aligned).rstrip()

    return [line(cells) for cells in rows]
