"""Starts the emulated Compute Engine as a process of its own, and speaks to its control side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROJECT = "costgpu-emulated"


class RunningGce:
    """A process with an emulated project. Its control verbs are methods.

    Attributes:
        url: Where its API is.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    def launch(
        cls, *, machines: str = "none", host: str = "127.0.0.1", port: int = 0, log: Path | None = None
    ) -> RunningGce:
        """Starts one; returns when it answers."""
        environment = {**os.environ, "EMULATOR_STARTER": str(os.getpid()), "PYTHONWARNINGS": "ignore"}
        with Path(log or os.devnull).open("ab") as errors:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.emulators.compute_engine.server",
                    "--host",
                    host,
                    "--port",
                    str(port),
                    "--machines",
                    machines,
                ],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            process.kill()
            process.wait()
            raise RuntimeError(f"the emulated Compute Engine did not start: {line!r}; see {log}")
        return cls(process, line.split()[1])

    def close(self) -> None:
        """Ends it and its guests."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def environment(self, caller: str = "") -> dict[str, str]:
        """What a client process needs.

        Args:
            caller: A loopback address such as ``127.1.0.7`` by which the caller's requests are known (a server that
                listens everywhere only); empty for the server's own.
        """
        port = urllib.parse.urlsplit(self.url).port
        return {
            "COSTGPU_GCP_ENDPOINT": f"http://{caller}:{port}" if caller else self.url,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "NO_GCE_CHECK": "true",
        }

    # -- control -----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """A new project."""
        self._post("reset")

    def settings(self, **seconds: float) -> None:
        """`World`'s: pending_seconds, insert_seconds, shutdown_seconds, soft_off_seconds."""
        self._post("settings", **seconds)

    def fault(self, *faults: Mapping[str, Any], add: bool = False) -> None:
        """Replaces the faults, or adds to them; see `faults.Fault`. Actions are called ``instances.insert``."""
        self._post("faults", faults=list(faults), add=add)

    def kill(
        self, pid: int, at: int, when: str = "before", *, access_key: str = "", action: str = "", series: bool = False
    ) -> None:
        """SIGKILL for `pid` at the `at`-th API request from now; see `faults.KillOrder`. The key is the caller."""
        self._post("kill", pid=pid, at=at, when=when, access_key=access_key, action=action, series=series)

    def quota(self, place: str, metric: str, value: float) -> None:
        """Sets a limit in a region, or ``global``."""
        self._post("quota", place=place, metric=metric, value=value)

    def early_quotas(self, *, on: bool = True) -> None:
        """Quotas are checked in the request, not in its operation."""
        self._post("early-quotas", on=on)

    def shortage(self, kind: str, zone: str = "*") -> None:
        """A machine type or an accelerator is not to be had there any more."""
        self._post("shortage", kind=kind, zone=zone)

    def fail(self, kind: str, code: str, message: str = "injected", status: int = 503) -> None:
        """The next insert of this machine type is accepted, and its operation fails."""
        self._post("fail", kind=kind, code=code, message=message, status=status)

    def unreachable(self, *zones: str, partial: bool = True) -> None:
        """These zones, and no others, answer no list; an aggregated one has the rest and a warning, or fails."""
        self._post("unreachable", zones=list(zones), partial=partial)

    def forbid(self, *permissions: str) -> None:
        """Nobody has these permissions any more, but all the others."""
        self._post("forbid", permissions=list(permissions))

    def page(self, limit: int) -> None:
        """No page of a list is longer."""
        self._post("page", limit=limit)

    def advance(self, seconds: float) -> None:
        """The cloud's clock (not its guests') goes on."""
        self._post("clock", advance_seconds=seconds)

    def power_off(self, name: str) -> None:
        """A guest of `NoGuests` powers itself off."""
        self._post("power-off", name=name)

    def preempt(self, name: str, notice_seconds: float | None = None) -> None:
        """A spot VM is taken back: notice at once, the power button after a while; None for what the VM was made with."""
        self._post("preempt", name=name, notice_seconds=notice_seconds)

    def expire(self, name: str) -> None:
        """The time limit of an instance is over now."""
        self._post("expire", name=name)

    def requests(self) -> list[dict[str, Any]]:
        """Every API request since the last `forget_requests`."""
        rows: list[dict[str, Any]] = self._call("GET", "requests")
        return rows

    def calls(self) -> list[str]:
        """Their methods: ``instances.insert``."""
        return [row["action"] for row in self.requests()]

    def forget_requests(self) -> None:
        """Starts counting anew."""
        self._post("requests")

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """All that ever were, in every zone, deleted ones as ``gone``; only in these states, if any are given."""
        rows: list[dict[str, Any]] = self._call("GET", "instances")
        return [row for row in rows if not states or row["state"] in states]

    def instances_of(self, name: str) -> list[dict[str, Any]]:
        """Those of the jobs of that name."""
        rows: list[dict[str, Any]] = self._call("POST", "instances", {"name": name})
        return rows

    def alive(self) -> list[dict[str, Any]]:
        """Instances that are there, stopped ones included."""
        return [row for row in self.instances() if row["state"] != "gone"]

    def leftovers(self) -> list[str]:
        """``disks/...``, ``firewalls/...`` and so on: what a new project does not have, besides instances."""
        rows: list[str] = self._call("GET", "leftovers")
        return rows

    def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits for something; fails loudly."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s; instances: {self.instances()}")
            time.sleep(0.02)

    def _post(self, what: str, **document: Any) -> None:
        self._call("POST", what, document)

    def _call(self, method: str, what: str, document: Mapping[str, Any] | None = None) -> Any:
        data = json.dumps(document).encode() if document is not None else None
        request = urllib.request.Request(f"{self.url}/emu/{what}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)["answer"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} /emu/{what}: {error.read().decode()}") from None
