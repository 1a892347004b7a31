"""Splitting what a run cost over time, exactly: integers in, integers out. Pure; imports nothing of ours."""

from __future__ import annotations


def share(amount: int, began: int, ended: int, low: int | None, high: int | None) -> int:
    """Return the part of an amount, spread evenly over [began, ended), that falls into [low, high).

    The parts of periods that follow on each other add up to the amount, whatever is rounded. What took no time falls
    into the period that holds its moment.

    Args:
        amount: In the smallest unit.
        began: Microseconds.
        ended: Not before `began`.
        low: None for the beginning of time.
        high: Not before `low`; None for its end.
    """
    before = 0 if low is None else _until(amount, began, ended, low)
    return (amount if high is None else _until(amount, began, ended, high)) - before


def _until(amount: int, began: int, ended: int, at: int) -> int:
    """Return what has fallen due before a moment."""
    if at <= began:
        return 0
    return amount if at >= ended else amount * (at - began) // (ended - began)
