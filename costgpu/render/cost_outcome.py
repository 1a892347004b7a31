"""What the end of a run means for what it has cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from costgpu.models.job import EndReason


class Fate(StrEnum):
    """What the money of a run was for."""

    SUCCEEDED = "succeeded"
    OVERHEAD = "boot, set-up and transfers of those"
    CANCELLED = "cancelled"
    LIMITED = "ended by a limit"
    OPEN = "still running"
    FAILED = "failed"
    IDLE = "idle"
    SPOT = "spot machine taken back"
    LOST = "machine lost or forgotten"
    NEVER = "never started its job"
    OTHER = "other"


WASTED = (Fate.FAILED, Fate.IDLE, Fate.SPOT, Fate.LOST, Fate.NEVER)
FATES: Mapping[EndReason, Fate] = {
    EndReason.SUCCEEDED: Fate.SUCCEEDED,
    EndReason.CANCELLED: Fate.CANCELLED,  # somebody decided so; what there was came home
    EndReason.MAX_DURATION: Fate.LIMITED,  # the same
    EndReason.DEADLINE: Fate.LIMITED,
    EndReason.JOB_FAILED: Fate.FAILED,
    EndReason.SETUP_FAILED: Fate.FAILED,
    EndReason.DISK_FULL: Fate.FAILED,
    EndReason.IDLE: Fate.IDLE,  # the whole run: how much of it was idle is not recorded
    EndReason.PREEMPTED: Fate.SPOT,
    EndReason.INSTANCE_LOST: Fate.LOST,
    EndReason.LEASE_EXPIRED: Fate.LOST,  # only a reaper was left to end it
    EndReason.UNCLAIMED: Fate.NEVER,
    EndReason.NO_CAPACITY: Fate.NEVER,
    EndReason.PROVISION_FAILED: Fate.NEVER,
    EndReason.BOOT_FAILED: Fate.NEVER,
    EndReason.HOST_KEY_MISMATCH: Fate.NEVER,
    EndReason.MACHINE_UNUSABLE: Fate.NEVER,
    EndReason.SYNC_FAILED: Fate.NEVER,
}
"""What each end of a run means for its cost. `WASTED` of them are called wasted."""
