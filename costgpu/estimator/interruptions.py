"""What interruptions of a machine do to a job that goes on after each from its newest checkpoint. Pure.

Interruptions come at random (Poisson) with rate lambda; each machine needs R seconds before the job goes on, and can be
taken back during these, too. Work of s seconds between two checkpoints is repeated until it is done in one piece, which
takes e^(lambda R) (e^(lambda s) - 1) / lambda seconds on average, so that a job of such pieces takes

    W = [ (e^(lambda R) - 1) + e^(lambda R) sum (e^(lambda s) - 1) ] / lambda

seconds from the first machine's creation, and is interrupted lambda W times. A job without checkpoints is one piece.
Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
Computer Systems 22 (2006), whose complete model this is, but for the last piece, which ends without a checkpoint.

What really happens is less even: machines of one kind are taken back together, and when there are few of them. Waiting
until there is a next machine is not in these figures.
"""

from __future__ import annotations

import math


def young_interval(checkpoint_seconds: float, mean_seconds: float) -> float:
    """Best seconds of work between two checkpoints, to first order: sqrt(2 C M).

    Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).

    Args:
        checkpoint_seconds: C, seconds to save a checkpoint.
        mean_seconds: M, mean seconds between two interruptions; may be infinite.
    """
    return math.sqrt(2 * checkpoint_seconds * mean_seconds)


def daly_interval(checkpoint_seconds: float, mean_seconds: float) -> float:
    """Return the same to a higher order: sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + (C / 2M) / 9] - C; M where C is 2 M or more."""
    if checkpoint_seconds >= 2 * mean_seconds:
        return mean_seconds
    ratio = checkpoint_seconds / (2 * mean_seconds)
    first = young_interval(checkpoint_seconds, mean_seconds)
    return first * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_seconds


def expected_seconds(
    work_seconds: float,
    rate: float,
    *,
    restart_seconds: float = 0.0,
    checkpoint_seconds: float = 0.0,
    interval_seconds: float = math.inf,
) -> float:
    """Mean seconds from the creation of the first machine to the end of the job; infinite where no float holds it.

    Args:
        work_seconds: Seconds of the work itself, without checkpoints and restarts.
        rate: Interruptions per second while a machine runs.
        restart_seconds: From a machine's creation until the job goes on there, for the first one as for every other.
        checkpoint_seconds: Seconds to save a checkpoint, in which no work is done.
        interval_seconds: Seconds of work between two checkpoints; infinite without any.
    """
    pieces = max(0, math.ceil(work_seconds / interval_seconds) - 1) if interval_seconds > 0 else math.inf
    if math.isinf(pieces):
        return math.inf
    last = work_seconds - pieces * interval_seconds if pieces else work_seconds
    piece = interval_seconds + checkpoint_seconds if pieces else 0.0
    if rate <= 0:
        return restart_seconds + pieces * piece + last
    try:
        again = pieces * math.expm1(rate * piece) + math.expm1(rate * last)
        return (math.expm1(rate * restart_seconds) + math.exp(rate * restart_seconds) * again) / rate
    except OverflowError:
        return math.inf


def sustained_factor(
    rate: float, *, restart_seconds: float, checkpoint_seconds: float, interval_seconds: float
) -> float:
    """Seconds that a second of work takes in the long run, checkpoints included; infinite where no float holds it."""
    if rate <= 0:
        return 1 + checkpoint_seconds / interval_seconds
    try:
        again = math.expm1(rate * (interval_seconds + checkpoint_seconds))
        return math.exp(rate * restart_seconds) * again / (rate * interval_seconds)
    except OverflowError:
        return math.inf


def enough_recoveries(interruptions: float) -> int:
    """Return the restarts that suffice with probability 0.95, 3 to 100, if so many interruptions are expected (Poisson)."""
    if interruptions >= 100:
        return 100
    probability = total = math.exp(-interruptions)
    count = 0
    while total < 0.95 and count < 100:
        count += 1
        probability *= interruptions / count
        total += probability
    return max(3, count)
