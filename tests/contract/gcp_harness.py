"""The adapter of Google Cloud with Google's own client, on the emulated project."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from costgpu.clock import SystemClock
from costgpu.models.instance import CreateRequest, Instance, InstanceRef
from costgpu.providers.base import TAG_RUN, Provider
from costgpu.providers.gcp.provider import GcpProvider
from tests.contract.harness import Harness
from tests.emulators.compute_engine.client import RunningComputeEngine

TAGS = "targetTags"
HASTE = 10.0  # how much faster time goes by while a machine's end is waited for


class CloudClock(SystemClock):
    """The time of the emulated project, which can be moved on."""

    ahead = 0.0

    def now(self) -> datetime:
        """Aware UTC."""
        return super().now() + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return super().monotonic() + self.ahead


class GcpHarness(Harness):
    """Compute Engine as emulated: without guests, so that nobody carries out the boot script."""

    name, region, other_region = "gcp", "us-central1", "europe-west4"
    instance_type, other_type = "e2-standard-2", "e2-standard-4"
    placed_type = "n2-standard-2"
    end_seconds, short_lease_seconds = 15.0, 40.0  # Google takes no time limit below 30 s
    power_off_stops = True
    clock: CloudClock

    def __init__(self, cloud: RunningComputeEngine) -> None:
        self.clock = CloudClock()
        self.cloud = cloud
        cloud.settings(pending_seconds=0.1, shutdown_seconds=0.2)
        self._foreign: list[str] = []
        self._made: list[str] = []
        self._ran = False

    def client(self) -> Provider:
        return GcpProvider(clock=self.clock)

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """In haste where the wait is one for the end of a lease."""
        long = seconds > self.short_lease_seconds and self._ran
        end = self.clock.monotonic() + seconds
        while not condition():
            if self.clock.monotonic() > end:
                return False
            self.clock.sleep(0.05)
            if long:
                self.cloud.advance(0.05 * HASTE)
                self.clock.ahead += 0.05 * HASTE
        return True

    def running(self, request: CreateRequest) -> Instance:
        found = super().running(request)
        self._ran = True
        return found

    def unknown(self) -> InstanceRef:
        return InstanceRef(provider="gcp", region=self.region, instance_id=f"{self.region}-a/costgpu-nobody00000a-1")

    def foreign(self) -> Instance:
        zone = f"{self.region}-a"
        self.cloud.make("costgpu-look-alike", labels={"costgpu": "no"})
        self._foreign.append("costgpu-look-alike")
        ref = InstanceRef(provider="gcp", region=self.region, instance_id=f"{zone}/costgpu-look-alike")
        found = self.client().describe(ref)
        assert found is not None
        return found

    def foreign_is_well(self) -> bool:
        machines = {row["id"] for row in self.cloud.instances("PROVISIONING", "STAGING", "RUNNING")}
        rules = {row["name"] for row in self.cloud.ask("global/firewalls").get("items", [])}
        return all(name in machines | rules | self._disks() for name in self._foreign)

    def foreign_resource(self, run_id: str) -> bool:
        rule = {
            "name": f"costgpu-{run_id}",
            "description": "somebody's",
            "network": "global/networks/default",
            "allowed": [{"IPProtocol": "tcp", "ports": ["443"]}],
            "sourceRanges": ["0.0.0.0/0"],
        }
        self.cloud.ask("global/firewalls", rule)
        self._foreign.append(rule["name"])  # type: ignore[arg-type]
        assert self.until(self.foreign_is_well, 5)
        return True

    def leave_behind(self, run_id: str, *, tagged: bool = True) -> str | None:
        zone, name = f"{self.region}-a", f"disk-{len(self._made)}"
        self._made.append(name)
        label = TAG_RUN if tagged else f"{TAG_RUN}-x"
        self.cloud.ask(f"zones/{zone}/disks", {"name": name, "sizeGb": "10", "labels": {label: run_id}})
        assert self.until(lambda: name in self._disks(), 5)
        if not tagged:
            self._foreign.append(name)
        return f"{zone}/{name}"

    def _disks(self) -> set[str]:
        return {row["name"] for row in self.cloud.ask(f"zones/{self.region}-a/disks").get("items", [])}

    def power_off(self, ref: InstanceRef) -> None:
        self.cloud.power_off(ref.instance_id.partition("/")[2])

    def stop(self, ref: InstanceRef) -> bool:
        zone, _, name = ref.instance_id.partition("/")
        self.cloud.ask(f"zones/{zone}/instances/{name}/stop", {})
        return True

    def let_in(self, instance: Instance) -> set[str] | None:
        """By the rules as Google applies them: the smallest priority decides, and at the same one the denial."""
        tag = f"costgpu-{instance.run_id}"
        rules = [
            row
            for row in self.cloud.ask("global/firewalls")["items"]
            if row["direction"] == "INGRESS" and (TAGS not in row or tag in row[TAGS]) and _concerns_ssh(row)
        ]
        allowed: set[str] = set()
        for row in sorted(rules, key=lambda row: (row["priority"], "allowed" in row)):
            if "denied" in row and "0.0.0.0/0" in row["sourceRanges"]:
                return allowed
            allowed |= set(row.get("sourceRanges", ())) if "allowed" in row else set()
        return allowed

    def lose_next_reply(self) -> bool:
        self.cloud.fault({"action": "instances.insert", "when": "after", "drop": True, "times": 1})
        return True

    def break_off(self, requests: int) -> bool:
        self.cloud.fault({"skip": requests, "drop": True, "times": -1})
        return True

    def heal(self) -> None:
        self.cloud.fault()

    def limit_machines(self, machines: int) -> bool:
        self.cloud.quota(self.region, "N2_CPUS", 2 * machines)
        return True

    def silence(self, region: str) -> bool:
        self.cloud.unreachable(*(f"{region}-{letter}" for letter in "abc"))
        return True

    def cut_off(self) -> None:
        self.cloud.fault({"drop": True, "times": -1})

    def enforces_the_lease(self) -> bool:
        return True


def _concerns_ssh(row: dict[str, Any]) -> bool:
    for entry in [*row.get("allowed", ()), *row.get("denied", ())]:
        if entry["IPProtocol"] == "all" or (entry["IPProtocol"] == "tcp" and "22" in entry.get("ports", ["22"])):
            return True
    return False
