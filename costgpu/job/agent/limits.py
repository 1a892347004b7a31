"""When a job must end, and when the machine may: pure rules over what was observed."""

from __future__ import annotations

from typing import NamedTuple

from .observe.idle import THRESHOLDS

COLLECT_SECONDS = 60.0  # kept free before the deadline for the outputs, besides the job's grace
UPLOAD_BYTES_PER_SECOND = 40e6  # what packing and sending is taken to do at least
SHORT_LEASE_SHARE = 0.2  # never keep more than this of the whole time free
LEAST_DELAY_SECONDS = 30.0  # a watchdog that waits so long beyond the deadline leaves it to the provider
WATCHDOG_LEAD_SECONDS = 15.0
TAKEN_BACK_SECONDS = 180.0  # after its notice, in which a provider is left to end the machine that it takes back
MIN_FREE_BYTES, MAX_FREE_BYTES, FREE_SHARE = 256 << 20, 2 << 30, 0.01


class Termination(NamedTuple):
    """Why a job is ended, and how long it may take over it."""

    reason: str
    detail: str
    grace_seconds: float


class JobConditions(NamedTuple):
    """What is known of a running job at one moment, in seconds and bytes; None where it does not apply."""

    remaining: float  # until the machine must be off, by the strictest of its clocks
    reserve: float  # what the grace and the outputs need of that
    grace: float  # between SIGTERM and SIGKILL
    job_seconds: float | None = None  # since the job began, set-up excluded; None before
    max_duration: float | None = None
    idle_seconds: float = 0.0  # since something happened
    idle_limit: float | None = None
    free_bytes: int | None = None
    min_free_bytes: int = MIN_FREE_BYTES  # with less, the disk counts as full
    notice: str = ""  # the provider's words if it takes the machine back


def job_termination(job: JobConditions) -> Termination | None:
    """Return the most urgent reason to end the job now; None if there is none."""
    grace = min(job.grace, max(0.0, job.remaining - job.reserve / 3))
    if job.notice:
        return Termination("preempted", "The provider takes the machine back: %s." % job.notice, min(grace, 60.0))
    if job.remaining <= job.reserve:
        return Termination("deadline", "The machine's deadline is %.0f s away." % max(0.0, job.remaining), grace)
    if job.free_bytes is not None and job.free_bytes < job.min_free_bytes:
        return Termination("disk_full", "Only %.0f MiB of the disk are free." % (job.free_bytes / 2**20), grace)
    if job.max_duration is not None and job.job_seconds is not None and job.job_seconds >= job.max_duration:
        return Termination("max_duration", "The job ran for its %.0f s." % job.max_duration, grace)
    if job.idle_limit is not None and job.idle_seconds >= job.idle_limit:
        detail = "Almost nothing happened: %s for %.0f s." % (THRESHOLDS, job.idle_seconds)
        return Termination("idle", detail, grace)
    return None


def reserve_seconds(grace: float, whole: float, upload_bytes: int | None = None) -> float:
    """Return the time to keep free before the deadline of a lease of `whole` seconds, with so many bytes to upload."""
    collect = COLLECT_SECONDS + (upload_bytes or 0) / UPLOAD_BYTES_PER_SECOND
    return min(grace + collect, SHORT_LEASE_SHARE * max(0.0, whole))


def last_seconds(watchdog_delay: float, whole: float) -> float:
    """Return how long before the deadline of a lease of `whole` seconds a machine switches off that nobody has ended.

    Where its boot script's watchdog waits beyond the deadline, the provider itself deletes a running machine then, with
    its disk; one that has switched itself off it may leave alone, and bill its disk. So there it is after the deadline,
    shortly before the watchdog.
    """
    if watchdog_delay >= LEAST_DELAY_SECONDS:
        return WATCHDOG_LEAD_SECONDS - watchdog_delay
    return min(10.0, whole * SHORT_LEASE_SHARE / 3)


def min_free_bytes(total_bytes: int) -> int:
    """Return how much of a disk of this size must stay free."""
    return int(max(MIN_FREE_BYTES, min(MAX_FREE_BYTES, FREE_SHARE * total_bytes)))


class FinishedConditions(NamedTuple):
    """What is known of a machine whose job is over. Seconds; None where it has not happened."""

    power_off: bool  # whether the agent may end the machine before its deadline
    reason: str  # why the job ended
    since_contact: float  # since a client was last busy with this machine; infinite if none ever was
    client_seen: bool  # whether a client was there when the job ended, or later
    since_uploaded: float | None  # since outputs and logs are in the bucket
    since_collected: float | None  # since a client has fetched and verified all of it
    remaining: float  # until the deadline
    last_seconds: float  # how long before the deadline the agent switches off
    linger: float = 120.0
    patience: float = 900.0


def power_off_reason(machine: FinishedConditions) -> str | None:
    """Return the reason to power off now, as `EndReason`; None to wait."""
    if machine.remaining <= machine.last_seconds:
        return "deadline"
    if not machine.power_off:
        return None
    safe = [since for since in (machine.since_uploaded, machine.since_collected) if since is not None]
    if not safe:
        return None  # the outputs exist only here: they wait under the lease
    if machine.reason == "preempted" and machine.last_seconds < 0 and max(safe) < TAKEN_BACK_SECONDS:
        return None  # the provider ends it with its disk; one that has switched itself off it may leave, and bill that
    if max(safe) >= machine.patience and machine.since_contact >= 0:
        return machine.reason  # somebody looks on, but nobody ends it
    if machine.client_seen and machine.since_contact < machine.linger:
        return None  # the client will end it
    return machine.reason
