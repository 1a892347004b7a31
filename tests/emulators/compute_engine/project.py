"""The emulated project's circumstances: time, quotas, shortages, who may do what, and everything that exists in it."""

from __future__ import annotations

import ipaddress
import itertools
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from tests.emulators.compute_engine.catalog import REGIONS
from tests.emulators.compute_engine.wire import HOST
from tests.emulators.phases import Phases

PROJECT = "costgpu-emulated"
USER = "ann@example.com"
Row = dict[str, Any]
Key = tuple[str, str, str]  # project, zone or region or "global", name
DEFAULT_QUOTAS = {
    "CPUS": 512.0,
    "N2_CPUS": 64.0,
    "N2D_CPUS": 64.0,
    "C2_CPUS": 64.0,
    "C2D_CPUS": 64.0,
    "C3_CPUS": 64.0,
    "T2D_CPUS": 64.0,
    "A2_CPUS": 96.0,
    "PREEMPTIBLE_CPUS": 0.0,
    "INSTANCES": 720.0,
    "IN_USE_ADDRESSES": 64.0,
    "STATIC_ADDRESSES": 8.0,
    "DISKS_TOTAL_GB": 40960.0,
    "SSD_TOTAL_GB": 10000.0,
    "NVIDIA_T4_GPUS": 4.0,
    "NVIDIA_V100_GPUS": 4.0,
    "NVIDIA_P100_GPUS": 4.0,
    "NVIDIA_P4_GPUS": 4.0,
    "NVIDIA_L4_GPUS": 4.0,
    "NVIDIA_A100_GPUS": 4.0,
    "NVIDIA_A100_80GB_GPUS": 0.0,
    "NVIDIA_H100_GPUS": 0.0,
    "PREEMPTIBLE_NVIDIA_T4_GPUS": 4.0,
    "PREEMPTIBLE_NVIDIA_V100_GPUS": 4.0,
    "PREEMPTIBLE_NVIDIA_P100_GPUS": 4.0,
    "PREEMPTIBLE_NVIDIA_P4_GPUS": 4.0,
    "PREEMPTIBLE_NVIDIA_L4_GPUS": 4.0,
    "PREEMPTIBLE_NVIDIA_A100_GPUS": 4.0,
    "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS": 0.0,
    "PREEMPTIBLE_NVIDIA_H100_GPUS": 0.0,
}
"""Of a region, for a project that has asked for some GPUs; PREEMPTIBLE_CPUS of 0 means: spot counts as the rest does."""
GLOBAL_QUOTAS = {"GPUS_ALL_REGIONS": 16.0, "FIREWALLS": 1000.0, "NETWORKS": 5.0, "SNAPSHOTS": 5000.0}
_PACIFIC = timezone(timedelta(hours=-8))
_OPEN = (
    ("default-allow-icmp", "Allow ICMP from anywhere", ["0.0.0.0/0"], [{"IPProtocol": "icmp"}]),
    (
        "default-allow-internal",
        "Allow internal traffic on the default network",
        ["10.128.0.0/9"],
        [
            {"IPProtocol": "tcp", "ports": ["0-65535"]},
            {"IPProtocol": "udp", "ports": ["0-65535"]},
            {"IPProtocol": "icmp"},
        ],
    ),
    ("default-allow-rdp", "Allow RDP from anywhere", ["0.0.0.0/0"], [{"IPProtocol": "tcp", "ports": ["3389"]}]),
    ("default-allow-ssh", "Allow SSH from anywhere", ["0.0.0.0/0"], [{"IPProtocol": "tcp", "ports": ["22"]}]),
)
"""What every project's network ``default`` lets in (cloud.google.com/firewall/docs/firewalls, 2026-11)."""


class World(Phases):
    """What can be set from outside, what exists, and what the clock says.

    Attributes:
        pending_seconds: An operation waits so long before it runs.
        insert_seconds: An instance needs so long from the start of its insert operation to RUNNING.
        shutdown_seconds: From a guest's end to TERMINATED, or to its being gone.
        soft_off_seconds: A guest has so long between the power button and the plug.
        quotas: (region, or ``global``; metric) -> limit; what is not there is the default.
        early_quotas: Whether quotas are checked in the request already, and not in its operation.
        shortages: (machine type or accelerator, zone or ``*``) without capacity.
        failures: Machine type -> HTTP status, code and message with which the operations of its next inserts fail.
        unreachable: Zones that answer no list.
        partial: Whether an aggregated list then has the rest and a warning; else it fails, unless the caller asks for part.
        forbidden: Permissions that nobody has.
        page_limit: No page is longer.
        projects: Which there are.
        generation: Counts the resets; work of an earlier one must leave this one alone.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.generation = 0
        self.reset()

    def reset(self) -> None:
        """A new project in the present."""
        self.generation += 1
        self.pending_seconds = 0.02
        self.insert_seconds = 0.1
        self.shutdown_seconds = 0.05
        self.soft_off_seconds = 4.0
        self.quotas: dict[tuple[str, str], float] = {}
        self.early_quotas = False
        self.shortages: set[tuple[str, str]] = set()
        self.failures: dict[str, list[tuple[int, str, str]]] = {}
        self.unreachable: set[str] = set()
        self.partial = True
        self.forbidden: set[str] = set()
        self.page_limit = 500
        self.projects = {PROJECT}
        self.ahead = timedelta(0)
        self.stores: dict[str, dict[Key, Row]] = {
            name: {} for name in ("disks", "addresses", "snapshots", "firewalls", "networks", "subnetworks")
        }
        self._addresses = itertools.count(int(ipaddress.ip_address("34.68.0.10")))
        self._private = itertools.count(int(ipaddress.ip_address("10.128.0.10")))
        for project in self.projects:
            self._seed(project)

    def _seed(self, project: str) -> None:
        everywhere = f"{HOST}/projects/{project}/global"
        born = {"id": new_id(), "creationTimestamp": self.stamp()}
        self.stores["networks"][project, "global", "default"] = {
            **born,
            "kind": "compute#network",
            "name": "default",
            "autoCreateSubnetworks": True,
            "selfLink": f"{everywhere}/networks/default",
            "routingConfig": {"routingMode": "REGIONAL"},
            "description": "Default network for the project",
        }
        for name, description, sources, allowed in _OPEN:
            self.stores["firewalls"][project, "global", name] = {
                **born,
                "kind": "compute#firewall",
                "id": new_id(),
                "name": name,
                "description": description,
                "selfLink": f"{everywhere}/firewalls/{name}",
                "network": f"{everywhere}/networks/default",
                "priority": 65534,
                "direction": "INGRESS",
                "sourceRanges": sources,
                "allowed": allowed,
                "disabled": False,
                "logConfig": {"enable": False},
            }
        for number, region in enumerate(REGIONS):
            place = f"{HOST}/projects/{project}/regions/{region}"
            self.stores["subnetworks"][project, region, "default"] = {
                **born,
                "kind": "compute#subnetwork",
                "id": new_id(),
                "name": "default",
                "region": place,
                "network": f"{everywhere}/networks/default",
                "ipCidrRange": f"10.{128 + 2 * number}.0.0/20",
                "selfLink": f"{place}/subnetworks/default",
            }

    def now(self) -> datetime:
        """Aware UTC, as far ahead as it was set."""
        return datetime.now(UTC) + self.ahead

    def stamp(self, moment: datetime | None = None) -> str:
        """As the API writes times: RFC 3339, Californian."""
        return (moment or self.now()).astimezone(_PACIFIC).isoformat(timespec="milliseconds")

    def public_ip(self) -> str:
        """One that nothing else has."""
        return str(ipaddress.ip_address(next(self._addresses)))

    def private_ip(self) -> str:
        """One that nothing else has."""
        return str(ipaddress.ip_address(next(self._private)))

    def quota(self, place: str, metric: str) -> float:
        """The limit in a region, or ``global``."""
        default = GLOBAL_QUOTAS if place == "global" else DEFAULT_QUOTAS
        return self.quotas.get((place, metric), default.get(metric, 0.0))

    def short_of(self, names: set[str], zone: str) -> bool:
        """Whether one of these is not to be had there."""
        return any((name, place) in self.shortages for name in names for place in (zone, "*"))


_IDS = itertools.count(time.time_ns())


def new_id() -> str:
    """As Google's: many digits; never used again, not even by the next process."""
    return str(next(_IDS))


def fingerprint() -> str:
    """Changes whenever what it stands for does."""
    return secrets.token_urlsafe(8) + "="


def later(seconds: float, action: Callable[..., None], *args: Any) -> None:
    """Runs something in a thread of its own after a while."""

    def wait() -> None:
        time.sleep(seconds)
        action(*args)

    threading.Thread(target=wait, daemon=True).start()
