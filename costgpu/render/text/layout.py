"""Text for a terminal of 80 columns: paragraphs, labelled rows, tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

WIDTH = 80
LABEL_WIDTH = 11
Item = TypeVar("Item")


def wrap(text: str, first: str = "", rest: str | None = None) -> str:
    """A paragraph; a number stays on the line of its percent sign.

    Args:
        first: Beginning of the first line.
        rest: Beginning of the other lines; None for as many spaces as `first` is long.
    """
    return textwrap.fill(
        re.sub(r"(?<=\d) %(?=[.,;:)]{0,2}(\s|$))", "\N{NO-BREAK SPACE}%", text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_on_hyphens=False,
        break_long_words=False,
    ).replace("\N{NO-BREAK SPACE}", " ")


def labelled(label: str, text: str) -> str:
    """A row of a list of facts: the label, then the text in a column of its own."""
    return wrap(text, f"  {label:<{LABEL_WIDTH}}")


def cut(text: str, width: int | None) -> str:
    """At most `width` characters, the last one an ellipsis where some are missing."""
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a table."""

    heading: str  # its first line
    cell: Callable[[Item], str]  # its text for one item
    right: bool = False  # whether it is aligned to the right, as numbers are
    width: int | None = None  # most characters of a cell, the others are cut off; None for no limit


def table(columns: Sequence[Column[Item]], items: Iterable[Item], gap: str = " ") -> list[str]:
    """The lines of a table with one row for each item; each column is as wide as its longest cell.

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
