"""The live table: what stands on the terminal after each of its writes, and after Ctrl-C in one of them."""

import io
import re

import pytest

from costgpu.cli.live_table import LiveTable
from tests.cli.test_live_line import Screen


def screen_of(written: str) -> list[str]:
    """The lines of a terminal of endless size that has got this."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[(?:\d+A|J|K)|\r|\n|[^\x1b\r\n]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        elif part == "\x1b[K":
            lines[row] = lines[row][:column]
        else:
            lines[row] = lines[row][:column] + part + lines[row][column + len(part) :]
            column += len(part)
    return lines


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_rows_are_written_over_and_taken_away() -> None:
    screen, rows = Screen(), ["head", "one"]
    screen.write("before\n")
    table = LiveTable(screen, lambda most: rows[:most])
    table.show("waiting")
    assert screen_of(screen.getvalue()) == ["before", "head", "one", "waiting"]
    rows.append("two \x1b[2J" + "x" * 100)
    table.show("still\nwaiting")
    assert screen_of(screen.getvalue())[:3] == ["before", "head", "one"]
    assert screen_of(screen.getvalue())[3] == ("two \\x1b[2J" + "x" * 100)[:79]
    rows.clear()
    table.show("done")
    assert screen_of(screen.getvalue()) == ["before", "done"]
    table.clear()
    table.clear()
    assert screen_of(screen.getvalue()) == ["before", ""]


def test_an_interruption_erases_nothing_that_is_not_its_own() -> None:
    screen = Screen(interrupted_at=2)
    table = LiveTable(screen, lambda _: ["head", "one"])
    table.show("waiting")
    with pytest.raises(KeyboardInterrupt):
        table.show("waiting")
    screen.write("\nan answer\n")
    table.clear()
    assert screen_of(screen.getvalue())[-2:] == ["an answer", ""]


def test_where_no_terminal_is_nothing_is_written() -> None:
    plain = io.StringIO()
    table = LiveTable(plain, lambda _: ["head"])
    table.show("nothing")
    table.clear()
    assert plain.getvalue() == ""
