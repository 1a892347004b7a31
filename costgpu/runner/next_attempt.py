"""Whether a job goes on after an interruption, and with what: pure rules over its attempts.

Each attempt is a run of its own, with its own machine, lease and receipt. What all of them may cost and take together is
what the first was allowed: the next gets what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from costgpu.models.attempts import job_seconds
from costgpu.models.job import Attempt, EndReason, JobSpec
from costgpu.models.run import Option, RunView
from costgpu.runner.plan import LEAST_JOB_SECONDS, ROOM_SECONDS, boot_seconds, worst_cost
from costgpu.runner.state.attempts import attempt_id
from costgpu.runner.timeouts import POWER_OFF_SECONDS
from costgpu.units import format_duration, format_usd

MOST_FAILED_RESUMES = 3  # attempts in a row that fail as soon as they go on
AT_ONCE_SECONDS = 120.0  # a job that goes on and fails within this time, with nothing saved, could not go on
MOST_SEARCHES = 20  # runs in a row for which no machine is free


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAttempt:
    """The run that follows on an interrupted one."""

    run_id: str
    spec: JobSpec
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class TheEnd:
    """Why a job that was interrupted does not go on."""

    why: str


def next_attempt(
    views: Sequence[RunView], reason: EndReason, seconds: float, cost: Decimal
) -> NextAttempt | TheEnd | None:
    """What follows on the last run of a job.

    Args:
        views: All its runs so far, in order; the last is about to be closed.
        reason: Why that one has ended.
        seconds: What its machine was metered for.
        cost: The same in USD.

    Returns:
        None for a job that was not interrupted: it has ended, in whatever way.
    """
    first, last = views[0], views[-1]
    recovery, attempt = last.spec.recovery, last.spec.attempt
    if recovery is None or attempt is None:
        return None
    failed_at_once = reason is EndReason.JOB_FAILED and _failed_at_once(last)
    nowhere = reason is EndReason.NO_CAPACITY and attempt.index > 0
    if reason is not EndReason.PREEMPTED and not failed_at_once and not nowhere:
        return None
    failed = attempt.failed_resumes + 1 if failed_at_once else attempt.failed_resumes if nowhere else 0
    searches = attempt.searches + 1 if nowhere else 0
    number = attempt.number + (last.instance is not None)
    if failed >= MOST_FAILED_RESUMES:
        return TheEnd(f"The job has failed {failed} times as soon as it went on.")
    if searches >= MOST_SEARCHES:
        return TheEnd(f"No machine was free, {searches} times.")
    if number > recovery.most + 1:
        times = "once" if recovery.most == 1 else f"{recovery.most} times"
        return TheEnd(f"It has gone on {times} already, as --recover allows.")
    duration = first.spec.max_duration_seconds
    worked = sum(job_seconds(view) for view in views)
    if duration is not None and duration - worked < LEAST_JOB_SECONDS:
        return TheEnd(f"Its --max-duration of {format_duration(duration)} is used up.")
    receipts = [view.receipt for view in views[:-1] if view.receipt is not None]
    spent = cost + sum((one.metered_cost_usd for one in receipts), Decimal(0))
    used = seconds + sum(one.metered_seconds for one in receipts)
    options = tuple(
        left for option in first.options if (left := _what_is_left(option, first.spec, spent, used, worked)) is not None
    )
    if not options:
        return TheEnd(f"After {format_usd(spent)} too little is left of its limits for another machine.")
    spec = replace(
        last.spec,
        max_duration_seconds=None if duration is None else duration - worked,
        attempt=Attempt(
            job_id=attempt.job_id,
            index=attempt.index + 1,
            number=number,
            failed_resumes=failed,
            searches=searches,
        ),
    )
    return NextAttempt(run_id=attempt_id(attempt.job_id, attempt.index + 1), spec=spec, options=options)


def _failed_at_once(view: RunView) -> bool:
    """Whether a job that went on from a checkpoint could not."""
    return view.restored_from is not None and view.saved_at is None and job_seconds(view) < AT_ONCE_SECONDS


def _what_is_left(option: Option, spec: JobSpec, spent: Decimal, used: float, worked: float) -> Option | None:
    """The option with the lease that the limits of the job still allow; None if that is too short for a machine.

    Args:
        spent: USD so far.
        used: Seconds of machines so far.
        worked: Seconds of the job so far.
    """
    lease, cap, duration = option.lease, spec.max_cost_usd, spec.max_duration_seconds
    ends = [lease.lifetime_seconds if cap is not None else lease.lifetime_seconds - used]
    if cap is not None and lease.usd_per_hour:
        ends.append(float((cap - spent) * 3600 / lease.usd_per_hour) - POWER_OFF_SECONDS)
    if duration is not None:
        ends.append(duration - worked + 2 * ROOM_SECONDS + boot_seconds(option.offer))
    seconds = min(ends)
    if seconds < boot_seconds(option.offer) + LEAST_JOB_SECONDS:
        return None
    left = replace(lease, lifetime_seconds=seconds, worst_cost_usd=worst_cost(seconds, lease.usd_per_hour))
    return replace(option, lease=left)
