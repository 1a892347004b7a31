"""Facts that people write by hand: every row must be right, and what is wrong is named by file, line and column.

The tables that are made of them are read by `pricing`, which is fast and trusts them.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, TypeVar

from costgpu.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
HINT = "Correct that line, or reinstall costgpu."


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, and where it stands."""

    path: Path  # the file
    line: int  # its number in the file, from 1
    cells: Mapping[str, str]  # text by column, without surrounding spaces

    def wrong(self, column: str, why: str) -> ConfigError:
        """Return the error for a cell."""
        return ConfigError(f"{self.path}, line {self.line}, column {column}: {why}.", hint=HINT)

    def text(self, column: str, *, among: Sequence[str] = (), empty: bool = False) -> str:
        """Return a text, one of `among` if there are any.

        Raises:
            ConfigError: It is empty and may not be, or not one of them.
        """
        value = self.cells[column]
        if not value and not empty:
            raise self.wrong(column, "is empty")
        if value and among and value not in among:
            raise self.wrong(column, f"{value!r} is not one of {', '.join(among)}")
        return value

    def number(self, column: str, *, least: float = 0.0, most: float = math.inf, open_end: bool = True) -> float | None:
        """Return a number above `least` (from `least` on, if the end is not open) and at most `most`; None if empty.

        Raises:
            ConfigError: It is none, or out of range.
        """
        value = self._parsed(column, float, "a number")
        if value is None:
            return None
        if not math.isfinite(value) or value > most or value < least or (open_end and value == least):
            edge = f"above {least:g}" if open_end else f"from {least:g}"
            raise self.wrong(column, f"{self.cells[column]} is not {edge}{f' to {most:g}' if most < math.inf else ''}")
        return value

    def whole(self, column: str, *, least: int = 1) -> int | None:
        """Return a whole number from `least` on; None if empty.

        Raises:
            ConfigError: It is none, or too small.
        """
        value = self._parsed(column, int, "a whole number")
        if value is not None and value < least:
            raise self.wrong(column, f"{value} is below {least}")
        return value

    def day(self, column: str) -> date:
        """Return an ISO date.

        Raises:
            ConfigError: It is none.
        """
        value = self._parsed(column, date.fromisoformat, "a date such as 2026-11-21")
        if value is None:
            raise self.wrong(column, "is empty")
        return value

    def _parsed(self, column: str, parse: Callable[[str], T], what: str) -> T | None:
        text = self.cells[column]
        if not text:
            return None
        try:
            return parse(text)
        except ValueError:
            raise self.wrong(column, f"{text!r} is not {what}") from None


def needed(row: Row, column: str, value: T | None) -> T:
    """`value`, which may not be missing.

    Raises:
        ConfigError: It is.
    """
    if value is None:
        raise row.wrong(column, "is empty")
    return value


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a CSV file whose header is exactly `columns`; lines that begin with # are comments.

    Raises:
        ConfigError: The file cannot be read, has other columns, or a line has too many or too few cells.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header: list[str] | None = None
            for cells in reader:
                if not cells or cells[0].startswith("#"):
                    continue
                line = reader.line_num
                if header is None:
                    header = cells
                    missing = [name for name in columns if name not in header]
                    unknown = [name for name in header if name not in columns]
                    words = [f"lacks {', '.join(missing)}"] if missing else []
                    words += [f"has the unknown {', '.join(unknown)}"] if unknown else []
                    if header != list(columns):
                        why = " and ".join(words) or "has another order"
                        raise ConfigError(f"{path}, line {line}: the header {why}.", hint=HINT)
                    continue
                if len(cells) != len(columns):
                    raise ConfigError(f"{path}, line {line}: {len(cells)} cells instead of {len(columns)}.", hint=HINT)
                yield Row(path, line, {name: cell.strip() for name, cell in zip(columns, cells, strict=True)})
            if header is None:
                raise ConfigError(f"{path} is empty.", hint=HINT)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", hint=HINT) from error
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}.", hint=HINT) from error
