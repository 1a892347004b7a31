"""The emulated project's circumstances: time, quotas, shortages, who may do what, and everything that exists in it."""

import ipaddress
import itertools
import threading
import time
import tomllib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.emulators.compute_engine.wire import HOST
from tests.emulators.phases import Phases

PROJECT = "costgpu-emulated"
USER = "ann@example.com"
Row = dict[str, Any]
Key = tuple[str, str, str]  # project, zone or region or "global", name
_DATA: dict[str, Any] = tomllib.loads(
    Path(__file__).parents[1].joinpath("data/compute_engine_project.toml").read_text()
)
DEFAULT_QUOTAS: dict[str, float] = _DATA["region"]
GLOBAL_QUOTAS: dict[str, float] = _DATA["global"]
UNLISTED_QUOTAS: dict[str, float] = _DATA["unlisted"]
_PACIFIC = timezone(timedelta(hours=-8))


class ProjectState(Phases):
    """What can be set from outside, what exists, and what the clock says."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.generation = 0  # counts the resets; work of an earlier one must leave this one alone
        self.reset()

    def reset(self) -> None:
        """A new project in the present."""
        self.generation += 1
        self.pending_seconds = 0.02  # an operation waits so long before it runs
        self.insert_seconds = 0.1  # from the start of an insert operation to RUNNING
        self.shutdown_seconds = 0.05  # from a guest's end to TERMINATED, or to its being gone
        self.soft_off_seconds = 4.0  # from the power button to the plug
        self.quotas: dict[tuple[str, str], float] = {}  # (region or "global", metric); else the default
        self.early_quotas = False  # quotas are checked in the request already, and not in its operation
        self.shortages: set[tuple[str, str]] = set()  # (machine type or accelerator, zone or "*") without capacity
        self.failures: dict[str, list[tuple[int, str, str]]] = {}  # machine type -> how its next inserts fail
        self.unreachable: set[str] = set()  # zones that answer no list
        self.partial = True  # an aggregated list then has the rest and a warning; else it fails
        self.forbidden: set[str] = set()  # permissions that nobody has
        self.org_policies: dict[str, Row] = {}  # constraint -> the policy that holds, in words of Resource Manager v1
        self.page_limit = 500
        self.projects = {PROJECT}
        self.ahead = timedelta(0)
        self.stores: dict[str, dict[Key, Row]] = {
            name: {} for name in ("disks", "addresses", "snapshots", "firewalls", "networks", "resourcePolicies")
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
        for rule in _DATA["firewalls"]:
            self.stores["firewalls"][project, "global", rule["name"]] = {
                **born,
                **rule,
                "kind": "compute#firewall",
                "id": new_id(),
                "selfLink": f"{everywhere}/firewalls/{rule['name']}",
                "network": f"{everywhere}/networks/default",
                "priority": 65534,
                "direction": "INGRESS",
                "disabled": False,
                "logConfig": {"enable": False},
            }

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def stamp(self, moment: datetime | None = None) -> str:
        """As the API writes times: RFC 3339, Californian."""
        return (moment or self.now()).astimezone(_PACIFIC).isoformat(timespec="milliseconds")

    def public_ip(self) -> str:
        return str(ipaddress.ip_address(next(self._addresses)))

    def private_ip(self) -> str:
        return str(ipaddress.ip_address(next(self._private)))

    def quota(self, place: str, metric: str) -> float:
        default = GLOBAL_QUOTAS if place == "global" else {**DEFAULT_QUOTAS, **UNLISTED_QUOTAS}
        return self.quotas.get((place, metric), default.get(metric, 0.0))

    def short_of(self, names: set[str], zone: str) -> bool:
        return any((name, place) in self.shortages for name in names for place in (zone, "*"))


_IDS = itertools.count(time.time_ns())


def new_id() -> str:
    """As Google's: many digits; never used again, not even by the next process."""
    return str(next(_IDS))
