"""What EC2 charges for the things that a machine leaves behind. Constants, and no requests.

List prices of us-east-1; other regions ask up to twice as much for disks and snapshots, and the same for addresses.
Source: Amazon EBS pricing, and Amazon VPC pricing, "Public IPv4 address" (read 2026-11). They are for finding leaks: what
is really charged is on the bill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HOURS_PER_MONTH = 730.0  # as AWS counts
VOLUME_USD_PER_GIB_MONTH = {
    "gp3": 0.08,
    "gp2": 0.10,
    "io1": 0.125,
    "io2": 0.125,
    "st1": 0.045,
    "sc1": 0.015,
    "standard": 0.05,
}
IOPS_USD_PER_MONTH = {"gp3": (3000, 0.005), "io1": (0, 0.065), "io2": (0, 0.065)}
"""Volume type -> IOPS that are included, USD per further one and month (io2's lowest step)."""
GP3_FREE_MIB_PER_SECOND = 125
GP3_USD_PER_MIB_PER_SECOND_MONTH = 0.04
SNAPSHOT_USD_PER_GIB_MONTH = {"standard": 0.05, "archive": 0.0125}
ADDRESS_USD_PER_HOUR = 0.005


def volume_usd_per_hour(row: Mapping[str, Any]) -> float:
    """Of one entry of ``Volumes``: size, and performance beyond what is included. Attached or not, it costs the same."""
    kind = str(row.get("VolumeType") or "gp3")
    monthly = float(row.get("Size", 0)) * VOLUME_USD_PER_GIB_MONTH.get(kind, max(VOLUME_USD_PER_GIB_MONTH.values()))
    included, each = IOPS_USD_PER_MONTH.get(kind, (0, 0.0))
    monthly += max(0, (row.get("Iops") or 0) - included) * each
    if kind == "gp3":
        faster = max(0, (row.get("Throughput") or 0) - GP3_FREE_MIB_PER_SECOND)
        monthly += faster * GP3_USD_PER_MIB_PER_SECOND_MONTH
    return round(monthly / HOURS_PER_MONTH, 6)


def snapshot_usd_per_hour(row: Mapping[str, Any]) -> float:
    """Of one entry of ``Snapshots``, at most: a full copy. Blocks that other snapshots share are charged once."""
    whole = row.get("FullSnapshotSizeInBytes")
    gib = whole / 2**30 if whole else row.get("VolumeSize", 0)
    monthly = gib * SNAPSHOT_USD_PER_GIB_MONTH.get(str(row.get("StorageTier") or "standard"), 0.05)
    return round(float(monthly) / HOURS_PER_MONTH, 6)
