"""What a reaper finds and does: orphaned instances and other resources. Imports `instance`."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from costgpu.errors import CostGpuError
from costgpu.models.instance import Instance, InstanceRef, OrphanedResource


class OrphanReason(StrEnum):
    """Why an instance is an orphan."""

    PAST_LEASE = "past its lease"
    NO_LEASE = "its lease tag is missing or unreadable"
    RUN_CLOSED = "its run is closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """An instance of ours that should not be there."""

    instance: Instance
    why: OrphanReason
    usd_per_hour: Decimal | None = None  # price with its disks and its address, as it is now; None if not known


@dataclass(slots=True, kw_only=True)
class ReapFindings:
    """What a search for orphans has found, and what was done about it."""

    orphans: list[Orphan] = field(default_factory=list)  # instances to end
    leftovers: list[OrphanedResource] = field(default_factory=list)  # other resources that no instance needs any more
    kept: list[Instance] = field(default_factory=list)  # instances of ours that are in order, or out of scope
    unreachable: dict[str, str] = field(default_factory=dict)  # provider and region -> reason why it could not be asked
    ended: list[InstanceRef] = field(default_factory=list)  # orphans whose end is confirmed
    removed: list[OrphanedResource] = field(default_factory=list)  # leftovers that are gone
    failed: dict[str, CostGpuError] = field(default_factory=dict)  # resources that could not be ended -> the error

    def add(self, more: ReapFindings) -> None:
        """Add what was found elsewhere."""
        self.orphans += more.orphans
        self.leftovers += more.leftovers
        self.kept += more.kept
        self.unreachable.update(more.unreachable)

    @property
    def leaking(self) -> bool:
        """Return whether anything was found that no run needs."""
        return bool(self.orphans or self.leftovers)

    @property
    def usd_per_hour(self) -> Decimal:
        """Price of everything found; a lower bound where a price is not known."""
        disks = sum((Decimal(str(leftover.usd_per_hour)) for leftover in self.leftovers), Decimal(0))
        return sum((orphan.usd_per_hour or Decimal(0) for orphan in self.orphans), disks)

    @property
    def prices_known(self) -> bool:
        """Return whether the sum is complete."""
        return all(orphan.usd_per_hour is not None for orphan in self.orphans)

    @property
    def not_ended(self) -> list[Orphan]:
        """Orphans whose end is not confirmed."""
        return [orphan for orphan in self.orphans if orphan.instance.ref not in self.ended]
