"""The emulated Compute Engine as a process of its own, and its control side."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.emulators.emulator_client import RunningEmulator

PROJECT = "costgpu-emulated"


class RunningComputeEngine(RunningEmulator):
    """An emulated project; `url` is where its API is. Actions of faults and kills are called ``instances.insert``."""

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

    def quota(self, place: str, metric: str, value: float) -> None:
        self.post("quota", place=place, metric=metric, value=value)

    def early_quotas(self, *, on: bool = True) -> None:
        """Quotas are checked in the request, not in its operation."""
        self.post("early-quotas", on=on)

    def shortage(self, kind: str, zone: str = "*") -> None:
        """A machine type or an accelerator is not to be had there any more."""
        self.post("shortage", kind=kind, zone=zone)

    def fail(self, kind: str, code: str, message: str = "injected", status: int = 503) -> None:
        """The next insert of this machine type is accepted, and its operation fails."""
        self.post("fail", kind=kind, code=code, message=message, status=status)

    def unreachable(self, *zones: str, partial: bool = True) -> None:
        """These zones, and no others, answer no list; an aggregated one has the rest and a warning, or fails."""
        self.post("unreachable", zones=list(zones), partial=partial)

    def forbid(self, *permissions: str) -> None:
        """Nobody has these permissions any more, but all the others."""
        self.post("forbid", permissions=list(permissions))

    def page(self, limit: int) -> None:
        """No page of a list is longer."""
        self.post("page", limit=limit)

    def power_off(self, name: str) -> None:
        """A guest of `NoGuests` powers itself off."""
        self.post("power-off", name=name)

    def preempt(self, name: str, notice_seconds: float = 0.0) -> None:
        """A spot VM is taken back: notice at once, the power button after a while (at Google's, there is none)."""
        self.post("preempt", name=name, notice_seconds=notice_seconds)

    def expire(self, name: str) -> None:
        self.post("expire", name=name)

    def calls(self) -> list[str]:
        """Methods of the requests: ``instances.insert``."""
        return [row["action"] for row in self.requests()]

    def leftovers(self) -> list[str]:
        """``disks/...``, ``firewalls/...`` and so on: what a new project does not have, besides instances."""
        rows: list[str] = self.get("leftovers")
        return rows
