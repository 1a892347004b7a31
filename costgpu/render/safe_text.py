"""What others say (a machine, a job, a cloud, a file's name) and a terminal that obeys what is written to it.

Here, and nowhere else, text on its way to a terminal loses what would be a command to it: `protected` wraps the
command line's stdout and stderr, and `LogFilter` the job's own output. Where the reader is no terminal, every byte
arrives as it is.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO, cast

# Control characters (C0 but tab and line feed, C1), those that turn the direction of writing, and invisible ones; lone
# surrogates are bytes of a name that is no text.
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\xad\u200b-\u200d\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
_COMMANDS = re.compile(f"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029{_BIDI}{_INVISIBLE}\ud800-\udfff]")
# In a job's output colours stay, and what progress bars need on their own line: carriage return, backspace, erase line.
_LOG = re.compile(
    rb"(\x1b\[[0-9;:]{0,64}m|\x1b\[[0-2]?K)"
    rb"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]"
    rb"|\xc2([\x80-\x9f])|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xd8\x9c"
)
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-9;:]{0,64})?|\xc2|\xd8|\xe2[\x80\x81]?)\Z")


def escaped(text: str) -> str:
    """Return the text with every character that a terminal would obey, or that cannot be written, spelled out."""

    def spelled(found: re.Match[str]) -> str:
        number = ord(found.group())
        return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"

    return _COMMANDS.sub(spelled, text)


class LogFilter:
    """Takes out of a stream what a terminal would obey; colours and progress bars stay. One for each stream."""

    def __init__(self) -> None:
        self._held = b""  # the beginning of what may become a colour

    def feed(self, data: bytes) -> bytes:
        """Return what of the stream up to now may be shown and has not been."""
        data = self._held + data
        unfinished = _UNFINISHED.search(data, max(0, len(data) - 70))
        data, self._held = (data[: unfinished.start()], unfinished.group()) if unfinished else (data, b"")
        return _LOG.sub(_caret, data)


def _caret(found: re.Match[bytes]) -> bytes:
    """As ``cat -v`` shows it: ``^[`` for an escape."""
    whole = found.group()
    if found.group(1):
        return whole
    if len(whole) == 1:
        return b"^" + bytes([whole[0] ^ 0x40])
    return b"?"


class _Protected:
    """A text stream whose writing goes through `escaped`; everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.unprotected = stream

    def write(self, text: str) -> int:
        self.unprotected.write(escaped(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unprotected, name)


def unprotected(stream: TextIO) -> TextIO:
    """Return the stream itself, for what draws on a terminal; what it is given must be `escaped` before."""
    return stream.unprotected if isinstance(stream, _Protected) else stream


def is_terminal(stream: BinaryIO) -> bool:
    """Return whether a terminal reads it."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


@contextlib.contextmanager
def protected() -> Iterator[None]:
    """While in here, stdout and stderr give a terminal no commands; a name that is no text never ends the program."""
    before = sys.stdout, sys.stderr
    for stream in before:
        with contextlib.suppress(AttributeError, ValueError):
            cast("Any", stream).reconfigure(errors="backslashreplace")
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout = cast("TextIO", _Protected(sys.stdout))
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr = cast("TextIO", _Protected(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
