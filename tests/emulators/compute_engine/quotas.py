"""How Compute Engine counts: what an instance needs of which quota.

Sources: cloud.google.com/compute/resource-usage and .../docs/instances/limit-vm-runtime (2026-11): GPU VMs that delete
themselves within seven days may use preemptible or standard quota.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.emulators.compute_engine.catalog import ACCELERATORS, MachineType

Limit = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class Demand:
    """What one instance uses up."""

    region: str
    kind: MachineType
    accelerator: str  # of this kind; empty if none
    gpus: int  # so many
    disk_gib: int  # its boot disk
    spot: bool  # whether it can be preempted
    limited: bool  # whether it is deleted when its time is over
    address: bool  # whether it has an external address

    def needs(self, limit: Limit) -> dict[str, float]:
        """Metric of its region -> how much."""
        preemptible = self.spot and limit(self.region, "PREEMPTIBLE_CPUS") > 0
        needs: dict[str, float] = {"PREEMPTIBLE_CPUS" if preemptible else self.kind.quota: float(self.kind.vcpus)}
        needs["INSTANCES"] = 1.0
        if self.address:
            needs["IN_USE_ADDRESSES"] = 1.0
        if self.accelerator:
            kind = ACCELERATORS[self.accelerator]
            needs[kind.preemptible if self.spot else kind.quota] = float(self.gpus)
        return needs


def exceeded(wanted: Demand, held: Iterable[Demand], disks_gib: int, limit: Limit) -> tuple[str, float, str] | None:
    """The first quota that stands in the way: metric, limit, region (empty: everywhere)."""
    held = list(held)
    if wanted.gpus and not wanted.spot:
        used = sum(each.gpus for each in held if not each.spot)
        if used + wanted.gpus > limit("global", "GPUS_ALL_REGIONS"):
            return "GPUS_ALL_REGIONS", limit("global", "GPUS_ALL_REGIONS"), ""
    cpus = sum(each.kind.vcpus for each in held) + wanted.kind.vcpus
    if cpus > limit("global", "CPUS_ALL_REGIONS"):
        return "CPUS_ALL_REGIONS", limit("global", "CPUS_ALL_REGIONS"), ""
    if disks_gib + wanted.disk_gib > limit(wanted.region, "DISKS_TOTAL_GB"):
        return "DISKS_TOTAL_GB", limit(wanted.region, "DISKS_TOTAL_GB"), wanted.region
    for metric, amount in wanted.needs(limit).items():
        if usage(metric, wanted.region, held, limit) + amount <= limit(wanted.region, metric):
            continue
        either = wanted.limited and wanted.accelerator and metric == ACCELERATORS[wanted.accelerator].quota
        other = ACCELERATORS[wanted.accelerator].preemptible if wanted.accelerator else ""
        if (
            either
            and not wanted.spot
            and usage(other, wanted.region, held, limit) + amount <= limit(wanted.region, other)
        ):
            continue
        return metric, limit(wanted.region, metric), wanted.region
    return None


def usage(metric: str, region: str, held: Iterable[Demand], limit: Limit) -> float:
    """How much of a region's quota is used."""
    return sum(each.needs(limit).get(metric, 0.0) for each in held if each.region == region)
