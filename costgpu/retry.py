"""Named retry policies on tenacity. May import `clock` and `errors`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

from costgpu.clock import Clock
from costgpu.errors import HostUnreachable, Throttled, Unreachable

T = TypeVar("T")


def retry_provider_call(clock: Clock, call: Callable[[], T], *, limit_seconds: float, uncertain: bool = True) -> T:
    """Repeats a provider call while it is throttled or unanswered; every other error is final.

    Args:
        clock: Sleeps between the tries.
        call: Idempotent.
        limit_seconds: After this the last error is raised.
        uncertain: Whether a call without an answer may be repeated, too.
    """
    kinds = (Throttled, Unreachable) if uncertain else (Throttled,)
    return _repeat(clock, call, kinds, limit_seconds, first=0.5, most=20.0)


def until_reachable(clock: Clock, call: Callable[[], T], *, limit_seconds: float) -> T:
    """Repeats a connection attempt to a machine until it answers."""
    return _repeat(clock, call, (HostUnreachable,), limit_seconds, first=0.25, most=3.0)


def _repeat(
    clock: Clock, call: Callable[[], T], kinds: tuple[type[Exception], ...], limit: float, *, first: float, most: float
) -> T:
    started = clock.monotonic()
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(kinds),
        wait=tenacity.wait_random_exponential(multiplier=first, max=most),
        stop=lambda state: clock.monotonic() - started + (state.upcoming_sleep or 0.0) > limit,
        sleep=clock.sleep,
        reraise=True,
    )
    return retrying(call)
