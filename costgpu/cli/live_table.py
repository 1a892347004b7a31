"""Lines on a terminal that are written over and over, the last of them what is waited for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from costgpu.cli.live_line import LiveLine
from costgpu.render import safe_text

if TYPE_CHECKING:
    from typing import TextIO

_ERASE_BELOW = "\x1b[J"
_LEAST_ROWS = 3
_ROWS = 24  # of a terminal that does not say


class LiveTable(LiveLine):
    """As `LiveLine`, with rows above the line.

    Args:
        rows: The rows now, at most as many as it is told.
    """

    def __init__(self, stream: TextIO, rows: Callable[[int], Sequence[str]]) -> None:
        super().__init__(stream)
        self._rows, self._drawn = rows, 0

    def show(self, text: str) -> None:
        """Write rows and line; what does not fit is cut, so that every line stays one."""
        if not self.works:
            return
        wide = self._width() - 1
        lines = [safe_text.escaped(row)[:wide] for row in self._rows(self._height() - 2)]
        lines.append(safe_text.escaped(text.replace("\n", " "))[:wide])
        back, self._shown, self._drawn = self._back(), False, 0  # Ctrl-C in between must not erase what is not ours
        self._write(back + "\n".join(lines))
        self._shown, self._drawn = True, len(lines) - 1

    def clear(self) -> None:
        """Take it all away."""
        if self._shown:
            back, self._shown, self._drawn = self._back(), False, 0
            self._write(back)

    def _back(self) -> str:
        """To where the first row begins, with nothing below."""
        return ("\r" + f"\x1b[{self._drawn}A" * bool(self._drawn) if self._shown else "\r") + _ERASE_BELOW

    def _height(self) -> int:
        try:
            return max(_LEAST_ROWS, os.get_terminal_size(self._stream.fileno()).lines or _ROWS)
        except (OSError, ValueError):
            return _ROWS
