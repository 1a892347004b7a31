"""A line on a terminal that is written over and over: what is waited for.

Not rich's: it draws from a thread of its own, and Ctrl-C while that starts or stops leaves locks and hooks with which the
next call hangs or fails. This one has no state that an interruption could leave half changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from costgpu.render import safe_text

if TYPE_CHECKING:
    from typing import TextIO

_ERASE = "\r\x1b[K"
_WIDTH = 80  # of a terminal that does not say


class LiveLine:
    """One at a time, where nothing else is written between `show` and `clear`.

    Attributes:
        works: Whether the stream is a terminal that can do it, and has not gone away.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = safe_text.unprotected(stream)
        self._shown = False
        self.works = stream.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        """Write the line; too long a text is cut, so that it stays one line."""
        if self.works:
            self._shown = True
            self._write(_ERASE + safe_text.escaped(text.replace("\n", " "))[: self._width() - 1])

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write(_ERASE)
            self._shown = False

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        except (OSError, ValueError):
            return _WIDTH

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a terminal that is gone keeps nothing alive
            self.works = False
