"""The emulated Compute Engine as a process of its own, and its control side."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.emulators.emulator_client import RunningEmulator

PROJECT = "costgpu-emulated"


class RunningComputeEngine(RunningEmulator):
    """An emulated project; `url` is where its API is. Actions of faults are called ``instances.insert``."""

    server = "tests.emulators.compute_engine.server"
    gone = "gone"

    def environment(self, caller: str = "") -> dict[str, str]:
        """What a client process needs.

        `caller` is a loopback address such as ``127.1.0.7`` by which its requests are known (a server that listens
        everywhere only); empty for the server's own.
        """
        port = urllib.parse.urlsplit(self.url).port
        return {
            "COSTGPU_GCP_ENDPOINT": f"http://{caller}:{port}" if caller else self.url,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "NO_GCE_CHECK": "true",
        }

    def ask(
        self, path: str, document: Mapping[str, Any] | None = None, *, method: str = "", project: str = PROJECT
    ) -> Any:
        """A plain request to the API, as if by somebody else: path below the project, and what is posted."""
        request = urllib.request.Request(
            f"{self.url}/compute/v1/projects/{project}/{path}",
            method=method or ("GET" if document is None else "POST"),
            data=None if document is None else json.dumps(document).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    def make(self, name: str = "vm", **more: Any) -> dict[str, Any]:
        """The instance of somebody else, as soon as it is there; more fields replace those that it has."""
        zone = "us-central1-a"
        self.ask(f"zones/{zone}/instances", {**plain(), "name": name, **more})
        self.until(lambda: name in [row["id"] for row in self.instances("RUNNING")])
        row: dict[str, Any] = next(row for row in self.instances("RUNNING") if row["id"] == name)
        return row

    def calls(self) -> list[str]:
        """Methods of the requests: ``instances.insert``."""
        return [row["action"] for row in self.requests()]


def plain(
    kind: str = "e2-standard-2",
    zone: str = "us-central1-a",
    disk: str = "pd-balanced",
    scheduling: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What is posted to make an instance, as JSON, with everything that tests change."""
    image = "projects/debian-cloud/global/images/family/debian-12"
    params = {"sourceImage": image, "diskType": f"zones/{zone}/diskTypes/{disk}", "diskSizeGb": "10"}
    interface = {
        "network": "global/networks/default",
        "stackType": "IPV4_ONLY",
        "nicType": "GVNIC",
        "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
    }
    return {
        "name": "vm",
        "machineType": f"zones/{zone}/machineTypes/{kind}",
        "scheduling": {"provisioningModel": "STANDARD", "onHostMaintenance": "MIGRATE", **(scheduling or {})},
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": params}],
        "networkInterfaces": [interface],
    }
