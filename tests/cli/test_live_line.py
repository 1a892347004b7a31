"""The live line and its rows: what stands on the terminal after each write, and after Ctrl-C in one of them."""

import fcntl
import io
import os
import re
import struct
import termios

import pytest

from costgpu.cli.live_line import LiveLine


class Screen(io.StringIO):
    """A terminal without a size; its n-th write is interrupted."""

    def __init__(self, interrupted_at: int = 0, error: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__()
        self.left, self.error = interrupted_at, error

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return super().write(text)

    def line(self) -> str:
        """What stands on its last line."""
        return self.getvalue().rpartition("\n")[2].rpartition("\x1b[J")[2]


def screen_of(written: str) -> list[str]:
    """The lines of a terminal of endless size that has got this."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[(?:\d+A|J)|\r|\n|[^\x1b\r\n]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        else:
            lines[row] = lines[row][:column] + part + lines[row][column + len(part) :]
            column += len(part)
    return lines


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_it_is_one_line_whatever_it_says() -> None:
    screen = Screen()
    line = LiveLine(screen)
    line.show("first\nand \x1b[2J more")
    assert screen.line() == "first and \\x1b[2J more"
    line.show("x" * 200)
    assert screen.line() == "x" * 79
    line.clear()
    assert screen.line() == ""
    assert "\n" not in screen.getvalue()


def test_where_no_terminal_is_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not LiveLine(Screen()).works
    monkeypatch.setenv("TERM", "xterm")
    plain = io.StringIO()
    line = LiveLine(plain, lambda _: ["head"])
    line.show("nothing")
    line.clear()
    assert (line.works, plain.getvalue()) == (False, "")


def use_twice(line: LiveLine) -> None:
    for text in ("one", "two"):
        line.show(text)
        line.clear()


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_an_interruption_leaves_it_usable(at: int) -> None:
    """A library's line was left with hooks and locks: the next call failed, or hung."""
    screen = Screen(at)
    line = LiveLine(screen)
    with pytest.raises(KeyboardInterrupt):
        use_twice(line)
    line.clear()
    line.show("three")
    assert screen.line() == "three"
    line.clear()
    assert screen.line() == ""


def test_a_terminal_that_is_gone_is_left_alone() -> None:
    screen = Screen(1, OSError)
    line = LiveLine(screen)
    line.show("one")
    assert not line.works
    line.show("two")
    line.clear()
    assert "two" not in screen.getvalue()


def test_the_width_is_the_terminals() -> None:
    primary, secondary = os.openpty()
    try:
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
        with os.fdopen(secondary, "w", closefd=False) as stream:
            LiveLine(stream).show("y" * 100)
        assert os.read(primary, 1000).count(b"y") == 29
    finally:
        os.close(primary)
        os.close(secondary)


def test_rows_are_written_over_and_taken_away() -> None:
    screen, rows = Screen(), ["head", "one"]
    screen.write("before\n")
    table = LiveLine(screen, lambda most: rows[:most])
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
    table = LiveLine(screen, lambda _: ["head", "one"])
    table.show("waiting")
    with pytest.raises(KeyboardInterrupt):
        table.show("waiting")
    screen.write("\nan answer\n")
    table.clear()
    assert screen_of(screen.getvalue())[-2:] == ["an answer", ""]
