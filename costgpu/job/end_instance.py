"""Ends one instance at its provider: ask, wait for proof, clean up. Nothing in here may give up quietly."""

from __future__ import annotations

import contextlib

from costgpu.clock import Clock
from costgpu.errors import ProviderError, TerminationUnconfirmed
from costgpu.job.timeouts import CLEAN_UP_SECONDS, CONFIRM_SECONDS, TERMINATE_SECONDS, VISIBLE_SECONDS
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.providers import registry
from costgpu.providers.base import Provider
from costgpu.retry import retry_provider_call


def end_by_hand(ref: InstanceRef, account: str = "") -> str:
    """Return the command with which a person ends this instance without costgpu; the account is empty if it is not known."""
    spec = registry.find(ref.provider)
    return spec.end_by_hand(ref, account) if spec is not None else f"costgpu cancel {ref.instance_id}"


def _by_hand(provider: Provider, ref: InstanceRef) -> str:
    """Return the same, with the account of the credentials where the command needs it."""
    account = ""
    spec = registry.find(ref.provider)
    if spec is not None and spec.account_in_end_command:
        with contextlib.suppress(ProviderError):
            account = provider.identity().account
    return end_by_hand(ref, account)


def end_instance(provider: Provider, ref: InstanceRef, clock: Clock, *, known_since: float) -> Instance | None:
    """End an instance and return its confirmed last state; None if the provider does not know it any more.

    Args:
        known_since: By the monotonic clock; a young instance may not be shown yet, and be there.

    Raises:
        TerminationUnconfirmed: It may be billing; the message has the command to end it by hand.
    """
    request_termination(provider, ref, clock)
    return wait_until_terminated(provider, ref, clock, known_since=known_since)


def request_termination(provider: Provider, ref: InstanceRef, clock: Clock) -> None:
    """Ask for the end of an instance until the provider accepts.

    Raises:
        TerminationUnconfirmed: It never did.
    """
    try:
        retry_provider_call(clock, lambda: provider.terminate(ref), limit_seconds=TERMINATE_SECONDS)
    except ProviderError as error:
        raise TerminationUnconfirmed(
            f"{ref.instance_id} in {ref.region} could not be ended and may be billing: {error.message}",
            hint=f"End it by hand: {_by_hand(provider, ref)}",
        ) from error


def wait_until_terminated(provider: Provider, ref: InstanceRef, clock: Clock, *, known_since: float) -> Instance | None:
    """Wait until the provider says that the instance is gone; None if it does not know it any more.

    Args:
        known_since: As `end_instance`.

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
            if clock.monotonic() > known_since + VISIBLE_SECONDS:
                return None
            last = "unknown"
        elif not instance.state.alive:
            return instance
        else:
            last = instance.state.value
            if instance.state in (InstanceState.RUNNING, InstanceState.PENDING, InstanceState.STOPPED):
                request_termination(provider, ref, clock)  # it was accepted and did not happen: ask again
        if clock.monotonic() - started > CONFIRM_SECONDS:
            raise TerminationUnconfirmed(
                f"{ref.instance_id} in {ref.region} is still {last!r} {CONFIRM_SECONDS / 60:.0f} min after its end was"
                " asked for. It may be billing.",
                hint=f"Look, and end it by hand: {_by_hand(provider, ref)}",
            )
        clock.sleep(wait)
        wait = min(wait * 1.5, 5.0)


def clean_up(provider: Provider, run_id: str, region: str, clock: Clock) -> tuple[str, ...]:
    """Remove what the run leaves besides its machine; return what stays, in words. Never raises for a provider."""
    started, wait = clock.monotonic(), 0.5
    while True:
        try:
            left = tuple(f"{item.kind} {item.resource_id}" for item in provider.clean_up(run_id, region))
        except ProviderError as error:
            left = (f"not asked: {error.message}",)
        if not left or clock.monotonic() - started > CLEAN_UP_SECONDS:
            return left
        clock.sleep(wait)
        wait = min(wait * 2, 10.0)
