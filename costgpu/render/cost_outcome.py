"""What the end of a run means for what it has cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from costgpu.models.job import EndReason


class CostOutcome(StrEnum):
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


WASTED = (CostOutcome.FAILED, CostOutcome.IDLE, CostOutcome.SPOT, CostOutcome.LOST, CostOutcome.NEVER)
OUTCOMES: Mapping[EndReason, CostOutcome] = {
    EndReason.SUCCEEDED: CostOutcome.SUCCEEDED,
    EndReason.CANCELLED: CostOutcome.CANCELLED,  # somebody decided so; what there was came home
    EndReason.MAX_DURATION: CostOutcome.LIMITED,  # the same
    EndReason.DEADLINE: CostOutcome.LIMITED,
    EndReason.JOB_FAILED: CostOutcome.FAILED,
    EndReason.SETUP_FAILED: CostOutcome.FAILED,
    EndReason.DISK_FULL: CostOutcome.FAILED,
    EndReason.IDLE: CostOutcome.IDLE,  # the whole run: how much of it was idle is not recorded
    EndReason.PREEMPTED: CostOutcome.SPOT,
    EndReason.INSTANCE_LOST: CostOutcome.LOST,
    EndReason.LEASE_EXPIRED: CostOutcome.LOST,  # only a reaper was left to end it
    EndReason.UNCLAIMED: CostOutcome.NEVER,
    EndReason.NO_CAPACITY: CostOutcome.NEVER,
    EndReason.PROVISION_FAILED: CostOutcome.NEVER,
    EndReason.BOOT_FAILED: CostOutcome.NEVER,
    EndReason.HOST_KEY_MISMATCH: CostOutcome.NEVER,
    EndReason.MACHINE_UNUSABLE: CostOutcome.NEVER,
    EndReason.SYNC_FAILED: CostOutcome.NEVER,
}
"""What each end of a run means for its cost. `WASTED` of them are called wasted."""
