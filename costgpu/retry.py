"""The retry policy of a provider call, on tenacity. May import `clock` and `errors`.

How long the runner goes on is in `job.timeouts`. Below it, the SDKs repeat a single request a few times: `max_attempts` in
`providers/aws/sdk.py`, `READ_TRIES` in `providers/gcp/session.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

from costgpu.clock import Clock
from costgpu.errors import ProviderError, Retry

FIRST_WAIT_SECONDS = 0.5  # doubles with every try, at random
LONGEST_WAIT_SECONDS = 20.0

T = TypeVar("T")


def retry_provider_call(clock: Clock, call: Callable[[], T], *, limit_seconds: float) -> T:
    """Repeat an idempotent provider call while its error is one to retry here; every other error is final.

    After the limit the last error is raised.
    """
    started = clock.monotonic()
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, ProviderError) and error.retry is Retry.HERE),
        wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS),
        stop=lambda state: clock.monotonic() - started + (state.upcoming_sleep or 0.0) > limit_seconds,
        sleep=clock.sleep,
        reraise=True,
    )
    return retrying(call)
