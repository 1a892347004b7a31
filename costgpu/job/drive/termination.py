"""The end of a run's machine: asked for by us, or noticed after the fact; confirmed, recorded, cleaned up."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from costgpu.errors import CostGpuError, InstanceLost, OutputsMissing, Preempted, ProviderError
from costgpu.job.drive import collect
from costgpu.job.drive.context import RunContext
from costgpu.job.drive.provision import find_created, record_instance, record_refusal
from costgpu.job.drive.receipt import close_run
from costgpu.job.end_instance import clean_up, end_instance, wait_until_terminated
from costgpu.job.place_policy import is_about_place
from costgpu.job.state.outcome import after_interruption, error_for
from costgpu.job.timeouts import CLEAN_UP_SECONDS, EARLY_SECONDS
from costgpu.models.events import Confirmed, LeftAlone
from costgpu.models.instance import Instance, InstanceState
from costgpu.models.job import EndReason, JobStatus
from costgpu.models.run import EndedBy, RunState, RunView
from costgpu.providers import registry

# Printed on the console by the boot script or the agent, before the machine is powered off
POWER_OFF_MESSAGE = re.compile(r"costgpu: ((?:agent|watchdog) \w+): powering off(?: \(wall (\d{1,11})\b)?")


def terminate(context: RunContext) -> None:
    """Ask for the end, wait for proof, clean up, close."""
    if not confirm_end(context):
        return
    view, clock, provider = context.view, context.clock, context.provider()
    if view.instance is None:
        assert view.option is not None  # noqa: S101 - a create call was made
        left = clean_up(provider, view.run_id, view.option.offer.region, clock)
        close_run(context, view.reason or EndReason.PROVISION_FAILED, EndedBy.NOTHING_CREATED, left)
        return
    left = clean_up(provider, view.run_id, view.instance.region, clock)
    view = context.view
    if view.status is not None and not view.collected and view.outputs_folder is not None and not context.for_next:
        _tell_of_outputs(context, view.status)
    close_run(context, view.reason or EndReason.INSTANCE_LOST, view.ending_by or EndedBy.SOMEBODY_ELSE, left)


def confirm_end(context: RunContext) -> bool:
    """Ask for the end and wait for proof; return whether there is any, or nothing was ever created."""
    context.disconnect()
    view, provider = context.view, context.provider()
    if view.instance is None:
        found = find_created(context)
        if found is not None:
            record_instance(context, found)
        return found is None
    if view.confirmed_at is None:
        context.observer.waiting(view, f"ending {view.instance.instance_id}")
        instance = end_instance(provider, view.instance, context.clock, known_since=context.known_since())
        _record_confirmed_end(context, instance, view.reason or EndReason.CANCELLED, "")
    return True


def _tell_of_outputs(context: RunContext, status: JobStatus) -> None:
    """Say that outputs are lost, whatever else the end of the job is called."""
    lost = f"{context.instance.instance_id} was ended before its outputs came home."
    if status.ended_well:
        hint = "With --bucket a machine saves them before it ends."
        context.error = context.error or OutputsMissing(f"The job ended well, and {lost}", hint=hint)
    elif status.reason is not EndReason.SETUP_FAILED:
        context.observer.note(lost)


def record_machine_end(context: RunContext, instance: Instance | None) -> None:
    """Record that a machine ended by itself or by somebody's hand, and bring home what is left of it."""
    ref, clock, provider = context.instance, context.clock, context.provider()
    known_since = context.known_since()
    last_words = LastWords()
    if instance is None:  # one answer that does not know it is no proof
        instance = end_instance(provider, ref, clock, known_since=known_since)
    elif instance.state in (InstanceState.STOPPING, InstanceState.STOPPED):
        last_words = _last_words(context)
        if not (last_words.marker or instance.by_guest or instance.preempted):
            _end_stopped(context, instance)
            return
        # It has ended by itself, and here that only stops it: what is left is its disk, which is billed.
        end_instance(provider, ref, clock, known_since=known_since)
        instance = replace(instance, state=InstanceState.TERMINATED, endpoint=None)
    elif instance.state is InstanceState.TERMINATING:
        instance = wait_until_terminated(provider, ref, clock, known_since=known_since)
    if instance is not None and instance.refusal is not None and context.view.state is RunState.BOOTING:
        _record_refused_launch(context, instance, instance.refusal)
        return
    last_words = last_words if last_words.marker else _last_words(context)
    collect.recover_outputs(context)
    if instance is not None and instance.ended_at is None:
        instance = replace(instance, ended_at=last_words.at)
    reason, error = _why_ended(context, instance, last_words.marker)
    status = context.view.status
    if status is None or (status.obeyed_signal and isinstance(error, Preempted)):
        context.error = context.error or error
    _record_confirmed_end(context, instance, reason, last_words.marker)


def _record_refused_launch(context: RunContext, instance: Instance, refusal: ProviderError) -> None:
    """Record that the provider ended a machine while it was being launched: the next place is tried, as after a refusal."""
    view = context.view
    if not view.has_peers:
        record_refusal(context, refusal, instance.state.value)
        return
    # The others are, or will be, in the same place, and machine 0 is the last to be cleaned up after: all of them end.
    reason = EndReason.NO_CAPACITY if is_about_place(refusal, view) else EndReason.PROVISION_FAILED
    context.error = context.error or refusal
    _record_confirmed_end(context, instance, reason, "")


def _why_ended(context: RunContext, instance: Instance | None, marker: str) -> tuple[EndReason, CostGpuError | None]:
    """Return why the machine has ended, and the error that this is for the person who waits for its job."""
    view, instance_id = context.view, context.instance.instance_id
    why = (instance.reason if instance is not None else "").rstrip(".") or "the provider gives no reason"
    if instance is not None and instance.preempted:
        return EndReason.PREEMPTED, Preempted(
            f"The provider took {instance_id} back: {why}.", hint=after_interruption(view)
        )
    reason = _reason_in(marker)
    if reason is None and _past_lease(view, instance, context.clock.now()):
        reason = EndReason.DEADLINE
    if reason is not None and reason.limit:
        return reason, error_for(replace(view, reason=reason))
    if view.outputs_folder is None and reason is not None and reason.error is None:
        return reason, None  # its job was over, nobody wanted what it had, and so it did not wait for us
    silent = view.outputs_folder is None and reason is None and view.started_at is not None
    if silent and instance is not None and instance.by_guest:  # the same, and its console is not to be had
        return EndReason.SUCCEEDED, None
    if reason is None:
        unclaimed = instance is not None and instance.by_guest and view.started_at is None
        reason = EndReason.UNCLAIMED if unclaimed else EndReason.INSTANCE_LOST
    said = f" Its last word: {marker}" if marker else ""
    return reason, InstanceLost(f"{instance_id} is gone: {why}.{said}")


def _end_stopped(context: RunContext, instance: Instance) -> None:
    """Somebody has stopped the machine: its disk would be billed on, and may hold the outputs of a finished job."""
    collect.recover_outputs(context)
    view = context.view
    finished = view.status is not None
    if finished and not view.collected and not _past_lease(view, instance, context.clock.now()):
        _keep_stopped(context)
    stopped = InstanceLost(f"{context.instance.instance_id} was stopped by somebody; its disk would be billed on.")
    context.end(EndReason.INSTANCE_LOST, error=None if finished and view.collected else stopped)


def _keep_stopped(context: RunContext) -> NoReturn:
    """Leave a machine that is off as it is: the outputs of its finished job are nowhere else."""
    ref, until, run_id = context.instance, context.lease_until, context.view.run_id
    kept = InstanceLost(
        f"{ref.instance_id} was stopped by somebody, and the outputs of its finished job are on its disk, which is"
        " billed on.",
        hint=f"Start the machine at {ref.provider} before {until:%Y-%m-%d %H:%M} UTC, then: costgpu fetch {run_id}; to"
        f" give the outputs up: costgpu cancel --now {run_id}. After that time costgpu reap ends it.",
    )
    context.journal.add(LeftAlone(because=kept.message))
    raise kept


@dataclass(frozen=True, slots=True)
class LastWords:
    """What the console of a machine says about its end."""

    marker: str = ""  # ``agent idle``: who has powered it off and why; empty if nobody did
    at: datetime | None = None  # when, by its own clock; None if it does not say


def _last_words(context: RunContext) -> LastWords:
    with contextlib.suppress(ProviderError):
        found = POWER_OFF_MESSAGE.findall(context.provider().console(context.instance))
        if found:
            marker, wall = found[-1]
            return LastWords(marker, _believed(context, datetime.fromtimestamp(int(wall), UTC)) if wall else None)
    return LastWords()


def _believed(context: RunContext, at: datetime) -> datetime | None:
    """When a machine has ended, by its own clock; None if it was seen after that, or it has not come yet here."""
    seen, now = context.view.changed_at, context.clock.now()
    slack = timedelta(seconds=CLEAN_UP_SECONDS)  # what clocks may differ by
    return min(max(at, seen), now) if seen - slack <= at <= now + slack else None


def _reason_in(marker: str) -> EndReason | None:
    """Return the reason within ``agent idle`` or ``watchdog deadline``; None if there is none."""
    kind, _, word = marker.partition(" ")
    if kind == "watchdog":
        return EndReason.UNCLAIMED if word == "unclaimed" else EndReason.DEADLINE
    return EndReason(word) if word in list(EndReason) else None


def _ended_by(view: RunView, instance: Instance | None, marker: str, now: datetime) -> EndedBy:
    """Return who ended a machine that is gone.

    Args:
        view: The run, before the end is recorded.
        instance: As the provider describes it; None if it does not any more.
        marker: From `LastWords`.
        now: The time of confirmation.
    """
    if view.ending_by is not None:
        return view.ending_by
    if instance is not None and (instance.preempted or instance.refusal is not None):
        return EndedBy.PROVIDER
    if marker.startswith("watchdog"):
        return EndedBy.WATCHDOG
    if marker.startswith("agent"):
        return EndedBy.AGENT
    by_guest = instance is not None and instance.by_guest
    if _past_lease(view, instance, now):
        spec = registry.find(view.instance.provider) if view.instance is not None else None
        deletes = spec is not None and spec.watchdog_delay_seconds > 0
        return EndedBy.PROVIDER if deletes and not by_guest else EndedBy.WATCHDOG
    if by_guest and view.status is not None and view.status.obeyed_signal:
        return EndedBy.SOMEBODY_ELSE  # the agent was told by the machine's shutdown
    if by_guest:  # before its job had started, only the watchdog knows a reason
        return EndedBy.WATCHDOG if view.started_at is None else EndedBy.AGENT
    return EndedBy.SOMEBODY_ELSE


def _past_lease(view: RunView, instance: Instance | None, now: datetime) -> bool:
    """Return whether a machine that is gone, or off, has come to the end of its lease."""
    at = now
    if instance is not None and instance.by_guest and instance.ended_at is not None:
        at = instance.ended_at + timedelta(seconds=EARLY_SECONDS)
    return view.lease_until is not None and at >= view.lease_until


def _record_confirmed_end(context: RunContext, instance: Instance | None, reason: EndReason, marker: str) -> None:
    """Record the provider's word that the machine is gone. One that went by itself was not billed after its lease."""
    view, now = context.view, context.clock.now()
    ended, known = now, _known_end(view, instance)
    if view.ending_by is None:  # it ended by itself, perhaps long ago
        ended = min(now, view.lease_until or now, known or now)
    context.journal.add(
        Confirmed(
            state=(instance.state if instance else InstanceState.TERMINATED).value,
            provider_reason=instance.reason if instance else "",
            by=_ended_by(view, instance, marker, now),
            reason=reason,
            ended_at=ended,
            ended_before=view.ending_by is None and known is None,
            forgotten=instance is None and view.ending_by is None,
        )
    )


def _known_end(view: RunView, instance: Instance | None) -> datetime | None:
    """When a machine ended by itself, as its provider says; None if it does not."""
    at = instance.ended_at if instance is not None else None
    return max(at, view.known_since) if at is not None and view.known_since is not None else at
