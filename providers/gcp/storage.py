"""What Google charges for the things that a machine leaves behind. Constants, and no requests.

List prices of us-central1; other regions ask up to half as much again. Source: Google Cloud, "Disk and image pricing",
and "VPC pricing", external IP addresses (read 2026-11). They are for finding leaks: what is really charged is on the bill.
"""

from __future__ import annotations

from typing import Any

from costgpu.providers.gcp.session import last_part

HOURS_PER_MONTH = 730.0  # as Google counts
DISK_USD_PER_GIB_MONTH = {
    "pd-standard": 0.04,
    "pd-balanced": 0.10,
    "pd-ssd": 0.17,
    "pd-extreme": 0.125,
    "hyperdisk-balanced": 0.08,
    "hyperdisk-throughput": 0.005,
    "hyperdisk-extreme": 0.125,
    "hyperdisk-ml": 0.08,
}
HYPERDISK_INCLUDED_IOPS, USD_PER_IOPS_MONTH = 3000, 0.005  # of hyperdisk-balanced
HYPERDISK_INCLUDED_MIB, USD_PER_MIB_MONTH = 140, 0.04
SNAPSHOT_USD_PER_GIB_MONTH = 0.05
ADDRESS_USD_PER_HOUR = {False: 0.005, True: 0.0025}
"""In use; by whether its machine is a spot one."""
IDLE_ADDRESS_USD_PER_HOUR = 0.01  # reserved, and used by nothing


def disk_usd_per_hour(row: Any) -> float:
    """Of one disk; attached or not, it costs the same."""
    kind = last_part(str(row.type_))
    monthly = int(row.size_gb) * DISK_USD_PER_GIB_MONTH.get(kind, max(DISK_USD_PER_GIB_MONTH.values()))
    if kind == "hyperdisk-balanced":
        monthly += max(0, int(row.provisioned_iops) - HYPERDISK_INCLUDED_IOPS) * USD_PER_IOPS_MONTH
        monthly += max(0, int(row.provisioned_throughput) - HYPERDISK_INCLUDED_MIB) * USD_PER_MIB_MONTH
    return round(monthly / HOURS_PER_MONTH, 6)


def snapshot_usd_per_hour(row: Any) -> float:
    """Of one snapshot: what it takes, without the blocks that it shares with earlier ones."""
    gib = int(row.storage_bytes) / 2**30
    return round(gib * SNAPSHOT_USD_PER_GIB_MONTH / HOURS_PER_MONTH, 6)
