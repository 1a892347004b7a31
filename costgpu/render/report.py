"""What a result says: sections of paragraphs, lists, tables and figures, before they are text or a page.

A subject builds its report once, from values. The renderers `text/sections.py` and `html/page.py` know nothing of subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

RECOMMENDED, ASKED_FOR = "*", ">"  # marks of a row


@dataclass(frozen=True, slots=True)
class Cell:
    """A name or a figure of a table."""

    text: str
    span: str = ""  # the 80 % interval of a figure
    long: str = ""  # the text where there is more room than on a terminal; empty for `text`
    below: str = ""  # a softer second line, where there is room for one
    bar: Sequence[tuple[str, float]] = ()  # parts of a bar for a page: (class of the style sheet, share of the width)
    style: str = ""  # a class of the style sheet
    mark: str = ""  # of the row, in its first cell: `RECOMMENDED`, `ASKED_FOR`, both or none; a terminal shows one


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a column, and how the column is laid out."""

    text: str
    width: int = 0  # least width on a terminal; 0 to leave the column out there
    span: str = ""  # head of the intervals' own column on a terminal; empty to leave them out there
    span_width: int = 0  # its least width
    long: str = ""  # the head where there is more room; empty for `text`
    bar: bool = False  # whether the cells are bars, for a page
    words: bool = False  # whether the cells are words, which begin at the left, and not figures


Row = Sequence[Cell | str]  # of one cell: the title of the rows below


def cell_of(cell: Cell | str) -> Cell:
    """Return a cell, of a text that is all that it has."""
    return cell if isinstance(cell, Cell) else Cell(cell)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells: names in the first column, figures in the others unless their heading says that they are words."""

    caption: str
    head: Sequence[Heading | str]
    rows: Sequence[Row]
    foot: Row = ()
    text: Sequence[int] = ()  # columns of words, where their heading does not say so
    legend: Sequence[str] = ()  # sentences below it on a terminal: what its marks mean
    colours: Sequence[tuple[str, str]] = ()  # of its bars: (class of the style sheet, words)
    folded: str = ""  # what a page shows instead of it until it is asked for; empty to show it

    @property
    def headings(self) -> list[Heading]:
        """Return a heading for each column."""
        plain = [each if isinstance(each, Heading) else Heading(each) for each in self.head]
        return [replace(each, words=each.words or index in (0, *self.text)) for index, each in enumerate(plain)]


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list of sentences."""

    lines: Sequence[str]
    # ``soft`` for what matters less, ``ranked`` for the best first, ``nested`` for each inside the last, ``verbatim`` for
    # what a program has said
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture for those who see it, and its words for those who do not; a terminal has neither."""

    draw: Callable[[int, int], Sequence[str]]  # elements of an image of this width and height in pixels
    label: str
    description: str
    legend: Sequence[tuple[str, str]] = ()  # (class of the style sheet, words)
    width: int = 918  # pixels, of a wide screen
    wide: int = 270  # height in pixels for wide screens
    narrow: int = 230  # the same for narrow ones


Tile = tuple[str, str, str]  # name of a figure, the figure, a note
Part = str | ItemList | Table | Figure  # a text is a paragraph


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """One subject of a report; left out where it has no parts."""

    title: str
    introduction: str = ""  # what a page says of it first, or of its pictures and marks
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A result as a whole."""

    title: str
    window: str = ""  # title of a page's window; empty for `title`
    subtitle: str = ""
    answer: str = ""  # what follows from it
    tiles: Sequence[Tile] = ()  # what a page shows first
    sections: Sequence[ReportSection] = ()
    footer: Sequence[str] = ()
