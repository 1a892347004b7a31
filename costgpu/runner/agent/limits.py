"""When a job must end, and when the machine may: pure rules over what was observed."""

from __future__ import annotations

from typing import NamedTuple

COLLECT_SECONDS = 60.0  # kept free before the deadline for the outputs, besides the job's grace
UPLOAD_BYTES_PER_SECOND = 40e6  # what packing and sending is taken to do at least
SHORT_LEASE_SHARE = 0.2  # never keep more than this of the whole time free
LEAST_DELAY_SECONDS = 30.0  # a watchdog that waits so long beyond the deadline leaves it to the provider
WATCHDOG_LEAD_SECONDS = 15.0
MIN_FREE_BYTES, MAX_FREE_BYTES, FREE_SHARE = 256 << 20, 2 << 30, 0.01


class Ending(NamedTuple):
    """Why a job is ended, and how long it may take over it."""

    reason: str
    detail: str
    grace_seconds: float


class Facts(NamedTuple):
    """What is known at one moment. Seconds and bytes; None where it does not apply.

    Attributes:
        remaining: Until the machine must be off, by the strictest of its clocks.
        reserve: Of that, what the grace and the outputs need.
        grace: Between SIGTERM and SIGKILL.
        job_seconds: Since the job began, set-up excluded; None before.
        max_duration: What the job may take.
        idle_seconds: Since something happened.
        idle_limit: How long nothing may happen.
        free_bytes: Of the disk.
        least_free_bytes: Below this it counts as full.
        notice: The provider's words if it takes the machine back.
    """

    remaining: float
    reserve: float
    grace: float
    job_seconds: float | None = None
    max_duration: float | None = None
    idle_seconds: float = 0.0
    idle_limit: float | None = None
    free_bytes: int | None = None
    least_free_bytes: int = MIN_FREE_BYTES
    notice: str = ""


def why_end(facts: Facts) -> Ending | None:
    """The most urgent reason to end the job now; None if there is none."""
    grace = min(facts.grace, max(0.0, facts.remaining - facts.reserve / 3))
    if facts.notice:
        return Ending("preempted", "The provider takes the machine back: %s." % facts.notice, min(grace, 60.0))
    if facts.remaining <= facts.reserve:
        return Ending("deadline", "The machine's deadline is %.0f s away." % max(0.0, facts.remaining), grace)
    if facts.free_bytes is not None and facts.free_bytes < facts.least_free_bytes:
        return Ending("disk_full", "Only %.0f MiB of the disk are free." % (facts.free_bytes / 2**20), grace)
    if facts.max_duration is not None and facts.job_seconds is not None and facts.job_seconds >= facts.max_duration:
        return Ending("max_duration", "The job ran for its %.0f s." % facts.max_duration, grace)
    if facts.idle_limit is not None and facts.idle_seconds >= facts.idle_limit:
        detail = "For %.0f s nothing happened: no work on CPU or GPU, no output, no network, no disk."
        return Ending("idle", detail % facts.idle_seconds, grace)
    return None


def reserve_seconds(grace: float, whole: float, upload_bytes: int | None = None) -> float:
    """What must be kept free before the deadline, for a lease of `whole` seconds and, with a bucket, so many bytes."""
    collect = COLLECT_SECONDS + (upload_bytes or 0) / UPLOAD_BYTES_PER_SECOND
    return min(grace + collect, SHORT_LEASE_SHARE * max(0.0, whole))


def last_seconds(watchdog_delay: float, whole: float) -> float:
    """How long before the deadline of a lease of `whole` seconds a machine switches off that nobody has ended.

    Where its boot script's watchdog waits beyond the deadline, the provider itself deletes a running machine then, with
    its disk; one that has switched itself off it may leave alone, and bill its disk. So there it is after the deadline,
    shortly before the watchdog.
    """
    if watchdog_delay >= LEAST_DELAY_SECONDS:
        return WATCHDOG_LEAD_SECONDS - watchdog_delay
    return min(10.0, whole * SHORT_LEASE_SHARE / 3)


def least_free(total_bytes: int) -> int:
    """How much of a disk of this size must stay free."""
    return int(max(MIN_FREE_BYTES, min(MAX_FREE_BYTES, FREE_SHARE * total_bytes)))


class After(NamedTuple):
    """A machine whose job is over. Seconds; None where it has not happened.

    Attributes:
        power_off: Whether the agent may end the machine before its deadline.
        reason: Of the job's end.
        since_contact: Since a client was last busy with this machine; infinite if none ever was.
        met: Whether a client was there when the job ended, or later.
        since_uploaded: Since outputs and logs are in the bucket.
        since_collected: Since a client has fetched and verified all of it.
        remaining: Until the deadline.
        last_seconds: How long before the deadline the agent switches off.
    """

    power_off: bool
    reason: str
    since_contact: float
    met: bool
    since_uploaded: float | None
    since_collected: float | None
    remaining: float
    last_seconds: float
    linger: float = 120.0
    patience: float = 900.0


def why_power_off(after: After) -> str | None:
    """The reason to power off now, as `EndReason`; None to wait."""
    if after.remaining <= after.last_seconds:
        return "deadline"
    if not after.power_off:
        return None
    safe = [since for since in (after.since_uploaded, after.since_collected) if since is not None]
    if not safe:
        return None  # the outputs exist only here: they wait under the lease
    if max(safe) >= after.patience and after.since_contact >= 0:
        return after.reason  # somebody looks on, but nobody ends it
    if after.met and after.since_contact < after.linger:
        return None  # the client will end it
    return after.reason
