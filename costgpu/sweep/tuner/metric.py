"""Values of the metric in what a script prints. Pure."""

from __future__ import annotations

import re
from typing import Optional

_PUNCTUATION = ",;:.%)]}'\""  # that may follow a number
LONGEST_LINE = 100_000  # characters of a line that are looked at
LARGEST = 1e18  # what is beyond has diverged, as nan has
BEYOND = 1e300  # what a scheduler is told of a value that has: worse than any other


def find_value(pattern: "re.Pattern[str]", line: str, longest: int = LONGEST_LINE) -> Optional[float]:
    """Return the last value that the pattern's group captures in `longest` characters of a line.

    None if it captures no number.

    What touches the end of a line that was cut there is none: it may go on. ``nan`` and ``inf`` are values. What follows a
    number, such as a comma or full stop, is not looked at.
    """
    found = None
    for match in pattern.finditer(line[:longest]):
        value = None if match.end() == longest < len(line) else number(match.group(1))
        found = value if value is not None else found
    return found


def number(text: Optional[str]) -> Optional[float]:
    """Return a number that a group has captured; None for anything else."""
    text = (text or "").strip()
    for candidate in (text, text.rstrip(_PUNCTUATION)):
        try:
            return float(candidate)
        except ValueError:
            continue
    return None


def is_finite(value: float) -> bool:
    """Return whether a value can be the best one, and stand in JSON."""
    return abs(value) <= LARGEST


def is_better(value: float, than: Optional[float], mode: str) -> bool:
    """Return whether a value is better than another one; one that is not finite never is."""
    return is_finite(value) and (than is None or (value < than if mode == "min" else value > than))


def for_scheduler(value: float, mode: str) -> float:
    """Return the value as a scheduler can compare it: a diverged trial is the worst of all."""
    if is_finite(value):
        return value
    return BEYOND if mode == "min" else -BEYOND
