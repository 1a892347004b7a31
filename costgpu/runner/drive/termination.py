"""How one run ends: ask, confirm, clean up, write the receipt. Nothing in here may give up quietly."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from costgpu.clock import Clock
from costgpu.errors import ProviderError, TerminationUnconfirmed
from costgpu.models.instance import Instance, InstanceRef, InstanceState, Safeguard
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind, Receipt, RunView
from costgpu.providers import registry
from costgpu.providers.base import Provider
from costgpu.retry import retry_provider_call

if TYPE_CHECKING:
    from costgpu.runner.drive.loop import Driver

LAST_WORDS = re.compile(r"costgpu: ((?:agent|watchdog) \w+): powering off")  # printed on the console before it happens

ASK_SECONDS = 600.0  # how long a terminate call is repeated while the provider does not answer
DESCRIBE_SECONDS = 300.0  # how long an unanswered describe call is repeated
CONFIRM_SECONDS = 900.0  # how long the provider may take to confirm
UNKNOWN_SECONDS = 120.0  # within this after the create call, "no such instance" proves nothing
EARLY_SECONDS = 30.0  # so long before its deadline a machine may switch itself off because of it
CLEAN_SECONDS = 60.0  # access rules cannot be removed before the provider has let go of the machine's address


def end_by_hand(ref: InstanceRef, account: str = "") -> str:
    """The command with which a person ends this instance without costgpu.

    Args:
        ref: Of the instance.
        account: Whose, as in `Attempt.account`; empty if that is not known.
    """
    spec = registry.find(ref.provider)
    return spec.end_by_hand(ref, account) if spec is not None else f"costgpu cancel {ref.instance_id}"


def _by_hand(provider: Provider, ref: InstanceRef) -> str:
    """The same, with the account of the credentials where the command needs it."""
    account = ""
    spec = registry.find(ref.provider)
    if spec is not None and spec.account_in_end_command:
        with contextlib.suppress(ProviderError):
            account = provider.identity().account
    return end_by_hand(ref, account)


def terminate(provider: Provider, ref: InstanceRef, clock: Clock) -> None:
    """Asks for the end of an instance until the provider accepts.

    Raises:
        TerminationUnconfirmed: It never did; the message has the command to do it by hand.
    """
    try:
        retry_provider_call(clock, lambda: provider.terminate(ref), limit_seconds=ASK_SECONDS)
    except ProviderError as error:
        raise TerminationUnconfirmed(
            f"{ref.instance_id} in {ref.region} could not be ended and may be billing: {error.message}",
            hint=f"End it by hand: {_by_hand(provider, ref)}",
        ) from error


def confirm(provider: Provider, ref: InstanceRef, clock: Clock, *, known_since: datetime) -> Instance | None:
    """Waits until the provider says that the instance is gone; None if it does not know it any more.

    Raises:
        TerminationUnconfirmed: It does not say so.
    """
    started, wait, last = clock.monotonic(), 0.25, "nothing"
    while True:
        try:
            instance = retry_provider_call(clock, lambda: provider.describe(ref), limit_seconds=CONFIRM_SECONDS)
        except ProviderError as error:
            raise TerminationUnconfirmed(
                f"{ref.provider} does not confirm the end of {ref.instance_id} in {ref.region}: {error.message}",
                hint=f"Look, and end it by hand if it is there: {_by_hand(provider, ref)}",
            ) from error
        if instance is None:
            if clock.now() - known_since > timedelta(seconds=UNKNOWN_SECONDS):
                return None
            last = "unknown"
        elif not instance.state.alive:
            return instance
        else:
            last = instance.state.value
            if instance.state in (InstanceState.RUNNING, InstanceState.PENDING, InstanceState.STOPPED):
                terminate(provider, ref, clock)  # it was accepted and did not happen: ask again
        if clock.monotonic() - started > CONFIRM_SECONDS:
            raise TerminationUnconfirmed(
                f"{ref.instance_id} in {ref.region} is still {last!r} {CONFIRM_SECONDS / 60:.0f} min after its end was"
                " asked for. It may be billing.",
                hint=f"Look, and end it by hand: {_by_hand(provider, ref)}",
            )
        clock.sleep(wait)
        wait = min(wait * 1.5, 5.0)


def clean_up(provider: Provider, run_id: str, region: str, clock: Clock) -> tuple[str, ...]:
    """Removes what the run leaves besides its machine; returns what stays, in words. Never raises for a provider."""
    started, wait = clock.monotonic(), 0.5
    while True:
        try:
            left = tuple(f"{item.kind} {item.resource_id}" for item in provider.clean_up(run_id, region))
        except ProviderError as error:
            left = (f"not asked: {error.message}",)
        if not left or clock.monotonic() - started > CLEAN_SECONDS:
            return left
        clock.sleep(wait)
        wait = min(wait * 2, 10.0)


def last_words(console: str) -> str:
    """Who powered the machine off, as its boot script or agent said on the console; empty if nobody did."""
    marks = LAST_WORDS.findall(console)
    return str(marks[-1]) if marks else ""


def reason_of(marker: str) -> EndReason | None:
    """The reason within ``agent idle`` or ``watchdog deadline``; None if there is none."""
    kind, _, word = marker.partition(" ")
    if kind == "watchdog":
        return EndReason.UNCLAIMED if word == "unclaimed" else EndReason.DEADLINE
    return EndReason(word) if word in list(EndReason) else None


def who_ended(view: RunView, instance: Instance | None, marker: str, now: datetime) -> EndedBy:
    """Who ended a machine that is gone.

    Args:
        view: The run, before the end is recorded.
        instance: As the provider describes it; None if it does not any more.
        marker: From `last_words`.
        now: The time of confirmation.
    """
    if view.ending_by is not None:
        return view.ending_by
    if instance is not None and instance.preempted:
        return EndedBy.PROVIDER
    if marker.startswith("watchdog"):
        return EndedBy.WATCHDOG
    if marker.startswith("agent"):
        return EndedBy.AGENT
    by_guest = instance is not None and instance.by_guest
    if past_lease(view, instance, now):
        spec = registry.find(view.instance.provider) if view.instance is not None else None
        deletes = spec is not None and spec.watchdog_delay_seconds > 0
        return EndedBy.PROVIDER if deletes and not by_guest else EndedBy.WATCHDOG
    if by_guest:  # before its job had started, only the watchdog knows a reason
        return EndedBy.WATCHDOG if view.started_at is None else EndedBy.AGENT
    return EndedBy.SOMEBODY_ELSE


def past_lease(view: RunView, instance: Instance | None, now: datetime) -> bool:
    """Whether a machine that is gone, or off, has come to the end of its lease."""
    at = now
    if instance is not None and instance.by_guest and instance.ended_at is not None:
        at = instance.ended_at + timedelta(seconds=EARLY_SECONDS)
    return view.lease_until is not None and at >= view.lease_until


def confirmed(driver: Driver, instance: Instance | None, reason: EndReason, marker: str) -> None:
    """Records the provider's word that the machine is gone. A machine that went by itself was not billed after its lease."""
    view, now = driver.view, driver.tools.clock.now()
    ended, known = now, _known_end(view, instance)
    if view.ending_by is None:  # it ended by itself, perhaps long ago
        ended = min(now, view.lease_until or now, known or now)
    driver.record.add(
        EventKind.CONFIRMED,
        state=(instance.state if instance else InstanceState.TERMINATED).value,
        provider_reason=instance.reason if instance else "",
        by=who_ended(view, instance, marker, now).value,
        reason=reason.value,
        ended_at=ended.isoformat(),
        ended_before=view.ending_by is None and known is None,
    )


def _known_end(view: RunView, instance: Instance | None) -> datetime | None:
    """When a machine ended by itself, as its provider says; None if it does not."""
    at = instance.ended_at if instance is not None else None
    return max(at, view.known_since) if at is not None and view.known_since is not None else at


def receipt_for(
    view: RunView,
    layers: tuple[Safeguard, ...],
    *,
    reason: EndReason,
    ended_by: EndedBy,
    left_behind: tuple[str, ...],
    now: datetime,
) -> Receipt:
    """The proof of the end of a run whose end is confirmed, or that never had a machine."""
    seconds, cost = view.metered(now)
    made = view.instance is not None
    return Receipt(
        run_id=view.run_id,
        instance=view.instance,
        instance_type=view.option.offer.instance_type if made and view.option else "",
        layers=layers,
        reason=reason,
        ended_by=ended_by,
        requested_at=view.ending_at,
        confirmed_state=view.confirmed_state,
        confirmed_at=view.confirmed_at,
        provider_reason=view.provider_reason,
        left_behind=left_behind,
        metered_seconds=round(seconds, 1) if made else 0.0,
        metered_cost_usd=cost if made else Decimal(0),
        metered_at_most=view.ended_before,
    )


def all_layers(view: RunView) -> tuple[Safeguard, ...]:
    """The layers of termination of a run: those that the provider armed, and those that are the same everywhere."""
    if view.instance is None:
        return ()
    agent, client, reaper = common_layers(view.lease_until)
    return (*view.layers, replace(agent, armed=view.synced), replace(client, armed=not view.detached), reaper)


def common_layers(until: datetime | None) -> tuple[Safeguard, Safeguard, Safeguard]:
    """Agent, client and reaper."""
    return (
        Safeguard(
            name="agent",
            armed=True,
            deadline=until,
            detail="on the machine: job over and nobody there, idle, out of time, disk full, preempted",
        ),
        Safeguard(name="client", armed=True, detail="terminates when the job is over, and waits for proof"),
        Safeguard(name="reap", armed=True, deadline=until, detail="costgpu reap ends it by its tag, from any computer"),
    )
