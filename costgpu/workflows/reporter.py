"""Who hears what a workflow notices on its way: a person at a terminal, or the log of a program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    Tick = Callable[[float, bool], None]
    """Called with the seconds so far and whether the script has made a step."""


LOGGER = logging.getLogger("costgpu")
LOGGER.addHandler(logging.NullHandler())  # without a handler of the program's own nothing is printed


class Reporter(Protocol):
    """Takes remarks and progress; nothing that it does changes the outcome."""

    def note(self, text: str, hint: str = "") -> None:
        """Make a remark, and say what to do about it."""

    def measuring(self, what: str, measure_seconds: float, limit_seconds: float) -> AbstractContextManager[Tick]:
        """Show the progress of a measurement while the context lasts."""


class LogReporter:
    """Writes remarks to the logger ``costgpu`` and shows nothing, as a library does."""

    def note(self, text: str, hint: str = "") -> None:
        """Write a warning to the log."""
        LOGGER.warning("%s", f"{text} ({hint})" if hint else text)

    def measuring(self, what: str, measure_seconds: float, limit_seconds: float) -> AbstractContextManager[Tick]:
        """Return an informational line in the log."""
        LOGGER.info("%s: %g s, at most %g s", what, measure_seconds, limit_seconds)
        return nullcontext(lambda _seconds, _stepping: None)
