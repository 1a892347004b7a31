"""What is waited for, as a line on a terminal that is written over and over, perhaps with rows above it.

Not rich's: it draws from a thread of its own, and Ctrl-C while that starts or stops leaves locks and hooks with which the
next call hangs or fails. This one has no state that an interruption could leave half changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TextIO

from costgpu.render import safe_text

_ERASE_BELOW = "\x1b[J"
_LEAST_ROWS = 3
_SIZE = (80, 24)  # of a terminal that does not say


class LiveLine:
    """One at a time, where nothing else is written between `show` and `clear`.

    Attributes:
        works: Whether the stream is a terminal that can do it, and has not gone away.

    Args:
        rows: The rows above the line now, at most as many as it is told.
    """

    def __init__(self, stream: TextIO, rows: Callable[[int], Sequence[str]] = lambda _: ()) -> None:
        self._stream, self._rows = safe_text.unprotected(stream), rows
        self._drawn: int | None = None  # rows above the line; None if nothing is shown
        self.works = stream.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        """Write rows and line; what does not fit is cut, so that every one stays one."""
        if not self.works:
            return
        try:
            wide, high = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            wide = high = 0
        wide, high = wide or _SIZE[0], max(_LEAST_ROWS, high or _SIZE[1])
        lines = [safe_text.escaped(line.replace("\n", " "))[: wide - 1] for line in (*self._rows(high - 2), text)]
        back, self._drawn = self._back(), 0  # Ctrl-C in between must not erase what is not ours
        self._write(back + "\n".join(lines))
        self._drawn = len(lines) - 1

    def clear(self) -> None:
        """Take it all away."""
        if self._drawn is not None:
            back, self._drawn = self._back(), 0
            self._write(back)
            self._drawn = None

    def _back(self) -> str:
        """Return the way to where the first row begins, with nothing below."""
        return "\r" + (f"\x1b[{self._drawn}A" if self._drawn else "") + _ERASE_BELOW

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a terminal that is gone keeps nothing alive
            self.works = False
