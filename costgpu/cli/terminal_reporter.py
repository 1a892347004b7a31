"""Remarks and progress for a person: lines on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from costgpu.cli.live_line import LiveLine
from costgpu.errors import CostGpuError, NotConfirmed
from costgpu.render import safe_text
from costgpu.units import with_currency_note

LONGEST_NOTE = 4000  # characters


def say(text: str, *, err: bool = False) -> None:
    """Print text on stdout or stderr; whatever is in it, the terminal obeys none of it."""
    typer.echo(safe_text.escaped(with_currency_note(text)), err=err)


def print_error(error: CostGpuError, before: str = "") -> None:
    """Print an error and its hint on stderr."""
    print_note(f"{before}{error.message}", error.hint)


def print_note(text: str, hint: str = "") -> None:
    """Print a line, and what to do about it, on stderr."""
    if len(text) > LONGEST_NOTE:  # it repeats what somebody has written
        text = f"{text[:LONGEST_NOTE]}..."
    say(f"costgpu: {text}", err=True)
    if hint:
        say(f"hint: {hint}", err=True)


def confirm(question: str, *, alone: NotConfirmed, otherwise: str) -> None:
    """Asks on stderr.

    Raises:
        NotConfirmed: `alone` if nobody is there to answer; with the words `otherwise` for any other answer than yes.
    """
    if not sys.stdin.isatty():
        raise alone
    if ask(f"{question} [y/N]") not in ("y", "yes"):
        raise NotConfirmed(otherwise)


def ask(question: str) -> str:
    """Return what a person types in answer to a question on stderr, in small letters."""
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower()


class TerminalReporter:
    """Prints each remark once."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def note(self, text: str, hint: str = "") -> None:
        """Print a line on stderr, unless the same was printed before."""
        if text not in self._printed:
            self._printed.add(text)
            print_note(text, hint)

    @contextmanager
    def measuring(
        self, what: str, measure_seconds: float, limit_seconds: float
    ) -> Iterator[Callable[[float, bool], None]]:
        """Show a live line on a terminal, and print a plain line elsewhere."""
        say(what, err=True)
        line, reached = LiveLine(sys.stderr), list[float]()

        def tick(seconds: float, stepping: bool) -> None:
            if not stepping:
                line.show(f"waiting for the end of the first step: {seconds:.0f} s (limit {limit_seconds:.0f} s)")
                return
            if not reached:
                reached.append(seconds)
            left = measure_seconds - (seconds - reached[0])
            if left < 0:
                line.show(f"a step takes long: waiting for its end, {-left:.0f} s so far (Ctrl-C ends it)")
            else:
                line.show(f"steps are being timed: {left:.0f} s left (Ctrl-C ends it)")

        line.show("starting")
        try:
            yield tick
        finally:
            line.clear()
