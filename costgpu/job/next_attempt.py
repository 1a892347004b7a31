"""Whether a job goes on after an interruption, and with what: pure rules over its attempts.

Each attempt is a run of its own, with its own machine, lease and receipt. What all of them may cost and take together is
what the first was allowed: the next gets what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from costgpu.job.plan import LEAST_JOB_SECONDS, ROOM_SECONDS, boot_seconds, worst_cost
from costgpu.job.state.attempts import attempt_id
from costgpu.job.timeouts import POWER_OFF_SECONDS
from costgpu.models.attempts import job_seconds
from costgpu.models.job import Attempt, CostOutcome, EndReason, JobSpec
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import Option, RunView
from costgpu.units import format_duration

MOST_FAILED_RESUMES = 3  # attempts in a row that fail as soon as they go on
AT_ONCE_SECONDS = 120.0  # a job that goes on and fails within this time, with nothing saved, could not go on
MOST_SEARCHES = 20  # runs in a row for which no machine was to be had


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAttempt:
    """The run that follows on an interrupted one."""

    run_id: str
    spec: JobSpec
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class NoNextAttempt:
    """Why a job that was interrupted does not go on."""

    why: str


def may_go_on(view: RunView, reason: EndReason) -> bool:
    """Return True if the job may go on after a run that is closed for this reason, as far as the run alone tells."""
    if view.spec.recovery is None or view.spec.attempt is None or view.given_up:
        return False
    if reason is EndReason.PREEMPTED or (reason is EndReason.INSTANCE_LOST and _is_forgotten(view)):
        return True
    if not view.is_later_attempt:
        return False
    # of an attempt that never began its job, another machine or the next client may do
    return reason.outcome is CostOutcome.NEVER or (reason is EndReason.JOB_FAILED and _failed_at_once(view))


def next_attempt(views: Sequence[RunView], reason: EndReason, seconds: float) -> NextAttempt | NoNextAttempt | None:
    """Return what follows on the last run of a job.

    Args:
        views: All its runs so far, in order; the last is about to be closed.
        reason: Why that one has ended.
        seconds: What its machine was metered for.

    Returns:
        None for a job that was not interrupted: it has ended, in whatever way.
    """
    first, last = views[0], views[-1]
    recovery, attempt = last.spec.recovery, last.spec.attempt
    if recovery is None or attempt is None or not may_go_on(last, reason):
        return None
    after = _counted(attempt, reason, had_machine=last.instance is not None)
    if after.failed_resumes >= MOST_FAILED_RESUMES:
        return NoNextAttempt(f"The job has failed {after.failed_resumes} times as soon as it went on.")
    if after.searches >= MOST_SEARCHES:
        return NoNextAttempt(f"No machine was to be had, {after.searches} times.")
    if after.number > recovery.most + 1:
        times = "once" if recovery.most == 1 else f"{recovery.most} times"
        return NoNextAttempt(f"It has gone on {times} already, as --recover allows.")
    duration = first.spec.max_duration_seconds
    worked = sum(job_seconds(view) for view in views)
    if duration is not None and duration - worked < LEAST_JOB_SECONDS:
        return NoNextAttempt(f"Its --max-duration of {format_duration(duration)} is used up.")
    used = [(view, view.receipt.metered_seconds) for view in views[:-1] if view.receipt is not None]
    used.append((last, seconds))
    spent = sum((_worst_cost(view, lived) for view, lived in used), Decimal(0))
    lived = sum(each for _, each in used)
    options = tuple(
        left
        for option in first.options
        if (left := _what_is_left(option, first.spec, spent, lived, worked)) is not None
    )
    if not options:
        return NoNextAttempt(
            f"After {format_duration(lived)} of machines too little is left of its limits for another one."
        )
    spec = replace(last.spec, max_duration_seconds=None if duration is None else duration - worked, attempt=after)
    return NextAttempt(run_id=attempt_id(after.job_id, after.index), spec=spec, options=options)


def _counted(attempt: Attempt, reason: EndReason, *, had_machine: bool) -> Attempt:
    """Return the attempt after one that has ended for this reason."""
    failed, searches = 0, 0
    if reason is EndReason.JOB_FAILED:
        failed = attempt.failed_resumes + 1
    elif reason.outcome is CostOutcome.NEVER:
        failed, searches = attempt.failed_resumes, attempt.searches + 1
    return replace(
        attempt,
        index=attempt.index + 1,
        number=attempt.number + had_machine,
        failed_resumes=failed,
        searches=searches,
    )


def _worst_cost(view: RunView, seconds: float) -> Decimal:
    """Return what so much time of a machine can have cost: a spot price may be higher than the one that was listed."""
    if view.option is None:
        return Decimal(0)
    return (Decimal(str(seconds)) * view.option.lease.usd_per_hour / 3600).quantize(Decimal("0.000001"))


def _is_forgotten(view: RunView) -> bool:
    """Return whether it had a spot machine of which the provider knows nothing any more: it was taken back long ago."""
    spot = view.option is not None and view.option.offer.purchase_option is PurchaseOption.SPOT
    return spot and view.forgotten and view.started_at is not None


def _failed_at_once(view: RunView) -> bool:
    """Return whether a job that went on from a checkpoint could not."""
    return view.restored_from is not None and view.saved_at is None and job_seconds(view) < AT_ONCE_SECONDS


def _what_is_left(option: Option, spec: JobSpec, spent: Decimal, used: float, worked: float) -> Option | None:
    """Return the option with the lease that the limits of the job still allow; None if that is too short for a machine.

    Args:
        spent: USD so far, at most.
        used: Seconds of machines so far.
        worked: Seconds of the job so far.
    """
    lease, cap, duration = option.lease, spec.max_cost_usd, spec.max_duration_seconds
    ends = [lease.lifetime_seconds - used]
    if cap is not None and lease.usd_per_hour:
        ends.append(float((cap - spent) * 3600 / lease.usd_per_hour) - POWER_OFF_SECONDS)
    if duration is not None:
        ends.append(duration - worked + 2 * ROOM_SECONDS + boot_seconds(option.offer))
    seconds = min(ends)
    if seconds < boot_seconds(option.offer) + LEAST_JOB_SECONDS:
        return None
    left = replace(lease, lifetime_seconds=seconds, worst_cost_usd=worst_cost(seconds, lease.usd_per_hour))
    return replace(option, lease=left)
