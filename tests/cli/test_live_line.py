"""The live line: what it leaves on a terminal, and what Ctrl-C in any of its writes leaves behind."""

import fcntl
import io
import os
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
        return self.getvalue().rpartition("\n")[2].rpartition("\x1b[K")[2]


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
    line = LiveLine(plain)
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
