"""What ASHA can save: it ends the worse trials early. Pure.

At rungs of g, g·η, g·η², ... reports a trial goes on if its value is among the best 1/η of those that came there
before it. Where that choice is perfect, a share η^-k of the trials lives beyond rung k. Trials that come in a bad
order, each better than those before, all go on, and nothing is saved.
Source: Li et al., A System for Massively Parallel Hyperparameter Tuning, arXiv:1810.05934 (read 2026-11-24); the rule
by which Ray's ASHAScheduler ends trials is that of its documentation (Ray 2.60).
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.errors import UsageError

DEFAULT_GRACE = 1  # Ray's own defaults (ASHAScheduler, Ray 2.60)
DEFAULT_FACTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Asha:
    """The rule by which trials are ended early."""

    grace: int = DEFAULT_GRACE  # reports of the metric before a trial can be ended
    factor: int = DEFAULT_FACTOR  # of each `factor` trials that come to a rung, one goes on
    most: int | None = None  # reports of a full trial, after which it is ended; None if that is the script's affair


def parse_asha(*, wanted: bool, grace: int | None, factor: int | None, most: int | None) -> Asha | None:
    """ASHA as asked for; None if it is not.

    Raises:
        UsageError: A number makes no sense, or the options are given without ``--asha``.
    """
    given = [
        name for name, value in (("--asha-grace", grace), ("--asha-factor", factor), ("--asha-max", most)) if value
    ]
    if not wanted:
        if given:
            raise UsageError(f"{given[0]} is for --asha.", hint="Add --asha, or leave it out.")
        return None
    asha = Asha(grace=grace or DEFAULT_GRACE, factor=factor or DEFAULT_FACTOR, most=most)
    if asha.most is not None and asha.most < asha.grace:
        raise UsageError(
            f"--asha-max {asha.most} is below --asha-grace {asha.grace}: no trial would be ended early.",
            hint="--asha-max is the number of times that a full trial prints the metric.",
        )
    return asha


def least_share(asha: Asha, reports: float) -> float:
    """Return the share of the work that is left where every choice is perfect, from 0 to 1.

    Args:
        reports: How often a full trial prints the metric.
    """
    if reports <= asha.grace:
        return 1.0
    share, living, begin, rung = 0.0, 1.0, 0.0, float(asha.grace)
    while rung < reports:
        share += living * (rung - begin) / reports
        living, begin, rung = living / asha.factor, rung, rung * asha.factor
    return share + living * (reports - begin) / reports
