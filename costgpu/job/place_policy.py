"""Where a job is run next, when, and whether: pure rules over what has happened so far.

A job is a sequence of attempts, each on one or several machines, each with runs of their own: the table in docs/run.md,
"What follows on what". What all attempts may cost and take together is what the first was allowed: the next gets what is
left of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from enum import Enum, auto

from costgpu.errors import ProviderError, QuotaExceeded, Retry
from costgpu.job.plan import LEAST_JOB_SECONDS, ROOM_SECONDS, boot_seconds, worst_cost
from costgpu.job.timeouts import POWER_OFF_SECONDS, SEARCH_SECONDS
from costgpu.models.attempts import job_seconds
from costgpu.models.job import Attempt, CostOutcome, EndReason, Launcher, OutputsFrom
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.run import LaunchOption, RunView
from costgpu.units import format_duration

MOST_FAILED_RESUMES = 3  # attempts in a row that fail as soon as they go on
AT_ONCE_SECONDS = 120.0  # a job that goes on and fails within this time, with nothing saved, could not go on
MOST_SEARCHES = 20  # attempts in a row for which no machine was to be had

Machines = Sequence[RunView]
"""The runs of one attempt, by the number of their machine."""
Place = tuple[int, str | None]
"""Index of an option, and a zone of it; None where the provider chooses."""


class Ended(Enum):
    """How an attempt has ended, as far as that decides what follows."""

    FOR_GOOD = auto()
    INTERRUPTED = auto()  # a machine was taken back
    PLACE_FULL = auto()  # there was room for some of its machines, and not for all
    NOT_BEGUN = auto()  # no machine was to be had, or none that works
    FAILED_AT_ONCE = auto()  # it could not go on from its checkpoint
    OUT_OF_MEMORY = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAttempt:
    """The attempt that follows."""

    attempt: Attempt
    max_duration_seconds: float | None  # what is left for the job
    options: tuple[LaunchOption, ...]  # what is left of their leases


@dataclass(frozen=True, slots=True)
class NoNextAttempt:
    """Why a job that is not done does not go on."""

    why: str


def is_about_place(error: ProviderError, view: RunView) -> bool:
    """Return True if another place may grant what this one has refused."""
    if isinstance(error, QuotaExceeded):
        return view.is_later_attempt  # another region may have a quota left
    return error.retry is Retry.ELSEWHERE


def place_rank(view: RunView, place: Place, avoided: tuple[Offer, str | None] | None) -> int | None:
    """Return how late a place is to be tried, 0 at once; None if it is not.

    Of a job that goes on after interruptions, the place that was taken back and those on demand come last.

    Args:
        avoided: Where the last machine was taken back; None if none was.
    """
    index, zone = place
    option = view.options[index]
    if option.size and any(each.size == 0 for each in view.options):
        return None  # for a job that has run out of memory on the others
    if view.spec.recovery is None or avoided is None:
        return 0
    if option.offer.purchase_option is not PurchaseOption.SPOT:
        return 2
    return int((option.offer, zone) == avoided)


def avoided_place(earlier: Sequence[Machines]) -> tuple[Offer, str | None] | None:
    """Return where the last attempt was interrupted; None if it ended otherwise, or it is not known."""
    taken = next((view for view in earlier[-1] if _is_taken_back(view)), None) if earlier else None
    if taken is None or taken.option is None or taken.create_call is None:
        return None
    return taken.option.offer, taken.create_call.zone


def full_places(earlier: Sequence[Machines]) -> frozenset[Place]:
    """Return the places that had no room for all machines of the job, in the attempts just before."""
    found: set[Place] = set()
    for machines in reversed(earlier):
        if not (full := _full_places(machines)):
            break
        found |= full
    return frozenset(found)


def succeeded_with_fewer(machines: Machines) -> bool:
    """Return whether a job has ended well, though a machine of it may be gone.

    Under torchrun and its like machine 0 ends well only if all ranks do that were still needed.
    """
    lead = machines[0]
    well = lead.status is not None and lead.status.ended_well
    together = lead.spec.launcher is not Launcher.NONE and lead.spec.outputs_from is OutputsFrom.RANK_0
    failed = any(view.status is not None and not view.status.ended_well for view in machines)
    return well and (lead.spec.min_nodes > 0 or (together and not failed))


def is_interrupted(machines: Machines) -> bool:
    """Return whether an attempt is over because a machine was taken back, and its job may go on."""
    lead = machines[0]
    if lead.spec.recovery is None or any(view.given_up for view in machines):
        return False
    taken = sum(_is_taken_back(view) for view in machines)
    if not taken or (len(machines) > 1 and succeeded_with_fewer(machines)):
        return False
    fares_well = lead.status.ended_well if lead.status is not None else lead.reason is None
    enough = lead.spec.min_nodes and len(machines) - taken >= lead.spec.min_nodes
    return not (enough and fares_well)


def how_it_ended(machines: Machines) -> Ended:
    """Return how an attempt has ended whose runs are closed, or about to be."""
    lead = machines[0]
    spec, reason = lead.spec, lead.reason
    if is_interrupted(machines):
        return Ended.INTERRUPTED  # its other machines are cancelled, too
    if any(view.given_up or (view.reason is EndReason.CANCELLED and view.ending_at is not None) for view in machines):
        return Ended.FOR_GOOD
    if _full_places(machines):
        return Ended.PLACE_FULL
    if spec.on_oom_next_size and any(view.status is not None and view.status.out_of_memory for view in machines):
        return Ended.OUT_OF_MEMORY
    if reason is EndReason.NO_CAPACITY and spec.retry_until_up:
        return Ended.NOT_BEGUN
    if not lead.is_later_attempt or reason is None:
        return Ended.FOR_GOOD
    if reason.outcome is CostOutcome.NEVER and not any(view.started_at for view in machines):
        return Ended.NOT_BEGUN  # another machine, or the next client, may do
    if spec.recovery is not None and reason is EndReason.JOB_FAILED and _failed_at_once(lead):
        return Ended.FAILED_AT_ONCE
    return Ended.FOR_GOOD


def next_attempt(attempts: Sequence[Machines], now: datetime) -> NextAttempt | NoNextAttempt | None:
    """Return what follows on the last attempt of a job.

    Args:
        attempts: All so far, in order; the runs of the last are closed, or about to be with the reason that they have.

    Returns:
        None for a job that has ended, in whatever way.
    """
    first, last = attempts[0][0], attempts[-1]
    spec, attempt, ended = last[0].spec, last[0].spec.attempt, how_it_ended(last)
    if attempt is None or ended is Ended.FOR_GOOD:
        return None
    after = _counted(attempt, ended, had_machine=any(view.instance is not None for view in last))
    if why := _given_up(attempts, after, now):
        return NoNextAttempt(why)
    duration = first.spec.max_duration_seconds
    worked = sum(max(job_seconds(view) for view in machines) for machines in attempts)
    if duration is not None and duration - worked < LEAST_JOB_SECONDS:
        return NoNextAttempt(f"Its --max-duration of {format_duration(duration)} is used up.")
    spent = sum((_worst_cost(view, now) for machines in attempts for view in machines), Decimal(0))
    lived = sum(max(_seconds(view, now) for view in machines) for machines in attempts)
    least = _least_size(attempts)
    fitting = [option for option in first.options if (option.size >= least if least else option.size == 0)]
    if not fitting:
        return NoNextAttempt("The plan has no machine with more memory.")
    most = spec.nodes * max(option.lease.worst_cost_usd for option in first.options)
    usd_left = (most - spent) / spec.nodes
    ends = (usd_left, lived, None if duration is None else duration - worked)
    options = tuple(left for option in fitting if (left := _what_is_left(option, *ends)) is not None)
    if not options:
        return NoNextAttempt(
            f"After {format_duration(lived)} of machines too little is left of its limits for another one."
        )
    left_for_job = None if duration is None else duration - worked
    return NextAttempt(attempt=after, max_duration_seconds=left_for_job, options=options)


def looks_again_at(view: RunView) -> datetime:
    """Return when machines are looked for again for a run that waits, after looks that found none."""
    searches = view.spec.attempt.searches if view.spec.attempt is not None else 0
    return (view.searched_at or view.created_at) + timedelta(seconds=search_pause(searches))


def search_pause(searches: int) -> float:
    """Return seconds before machines are looked for again, after so many attempts in a row that found none."""
    return min(SEARCH_SECONDS[1], SEARCH_SECONDS[0] * 2.0 ** min(searches - 1, 10)) if searches else 0.0


def _given_up(attempts: Sequence[Machines], after: Attempt, now: datetime) -> str:
    """Return why a job does not go on though it could; empty if it does."""
    spec = attempts[-1][0].spec
    if after.failed_resumes >= MOST_FAILED_RESUMES:
        return f"The job has failed {after.failed_resumes} times as soon as it went on."
    if spec.retry_until_up and spec.search_seconds is not None and after.searches:
        since = attempts[-1][0].created_at
        for machines in reversed(attempts):
            if how_it_ended(machines) not in (Ended.NOT_BEGUN, Ended.PLACE_FULL):
                break
            since = machines[0].created_at
        if (now - since).total_seconds() + search_pause(after.searches) > spec.search_seconds:
            return f"No machine was to be had within {format_duration(spec.search_seconds)}, as --deadline says."
    elif not spec.retry_until_up and after.searches >= MOST_SEARCHES:
        return f"No machine was to be had, {after.searches} times."
    if spec.recovery is not None and after.number > spec.recovery.most + 1:
        times = "once" if spec.recovery.most == 1 else f"{spec.recovery.most} times"
        return f"It has gone on {times} already, as --recover allows."
    return ""


def _counted(attempt: Attempt, ended: Ended, *, had_machine: bool) -> Attempt:
    """Return the attempt after one that has ended in this way."""
    failed, searches = 0, 0
    if ended is Ended.FAILED_AT_ONCE:
        failed = attempt.failed_resumes + 1
    elif ended in (Ended.NOT_BEGUN, Ended.PLACE_FULL):
        failed, searches = attempt.failed_resumes, attempt.searches + (ended is Ended.NOT_BEGUN)
    return replace(
        attempt,
        index=attempt.index + 1,
        number=attempt.number + (had_machine and ended is not Ended.PLACE_FULL),
        failed_resumes=failed,
        searches=searches,
    )


def _full_places(machines: Machines) -> frozenset[Place]:
    """Return the place that had room for some of a job's machines and not for all; none if it failed for another reason.

    Where the provider chose the zone, that is the choice itself and the zone: asked for by name, it is as full.
    """
    lead = machines[0]
    call = lead.create_call
    if len(machines) == 1 or call is None or lead.started_at is not None or lead.given_up:
        return frozenset()
    full = [view for view in machines if view.reason is EndReason.NO_CAPACITY]
    if lead in full and lead.instance is None:
        return frozenset()  # the first machine has found no place at all
    refused = {(option, zone) for view in full for option, zone, _ in view.refusals}
    return frozenset({(call.option, call.zone), *refused} if full else ())


def _seconds(view: RunView, now: datetime) -> float:
    return view.receipt.metered_seconds if view.receipt is not None else view.metered(now)[0]


def _worst_cost(view: RunView, now: datetime) -> Decimal:
    """Return what a machine can have cost: a spot price may be higher than the one that was listed."""
    if view.option is None:
        return Decimal(0)
    seconds = Decimal(max(60, math.ceil(_seconds(view, now)))) if view.instance is not None else Decimal(0)
    return (seconds * view.option.lease.usd_per_hour / 3600).quantize(Decimal("0.000001"))


def _is_taken_back(view: RunView) -> bool:
    """Return whether its provider has taken the machine back, or knows nothing any more of a spot machine that worked.

    One of a later attempt may have worked: a client that was killed has not recorded the start.
    """
    told = view.status is not None and view.status.reason is EndReason.PREEMPTED
    spot = view.option is not None and view.option.offer.purchase_option is PurchaseOption.SPOT
    forgotten = spot and view.forgotten and (view.started_at is not None or view.is_later_attempt)
    lost = view.reason is EndReason.INSTANCE_LOST and forgotten
    return told or view.reason in (EndReason.PREEMPTED, EndReason.INTERRUPTED) or lost


def _failed_at_once(view: RunView) -> bool:
    """Return whether a job that went on from a checkpoint could not."""
    return view.restored_from is not None and view.saved_at is None and job_seconds(view) < AT_ONCE_SECONDS


def _least_size(attempts: Sequence[Machines]) -> int:
    """Return the least size of machines, after those that had too little memory."""
    small = [
        view.option.size
        for machines in attempts
        if how_it_ended(machines) is Ended.OUT_OF_MEMORY
        for view in machines
        if view.option is not None
    ]
    return max(small) + 1 if small else 0


def _what_is_left(
    option: LaunchOption, usd_left: Decimal, used: float, duration_left: float | None
) -> LaunchOption | None:
    """Return the option with the lease that the limits of the job still allow; None if that is too short for a machine.

    Args:
        usd_left: What each machine may cost.
        used: Seconds of machines so far.
        duration_left: Seconds that the job may take; None for any number.
    """
    lease = option.lease
    ends = [lease.lifetime_seconds - used]
    if lease.usd_per_hour:
        affordable = (usd_left * 3600 / lease.usd_per_hour).quantize(Decimal("0.1"), rounding=ROUND_DOWN)
        ends.append(float(affordable) - POWER_OFF_SECONDS)
    if duration_left is not None:
        ends.append(duration_left + 2 * ROOM_SECONDS + boot_seconds(option.offer))
    seconds = min(ends)
    if seconds < boot_seconds(option.offer) + LEAST_JOB_SECONDS:
        return None
    left = replace(lease, lifetime_seconds=seconds, worst_cost_usd=worst_cost(seconds, lease.usd_per_hour))
    return replace(option, lease=left)
