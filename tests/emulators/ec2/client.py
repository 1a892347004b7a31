"""Starts the emulated cloud as a process of its own, and speaks to its control side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


class RunningCloud:
    """A cloud process. Its control verbs are methods.

    Attributes:
        url: What AWS_ENDPOINT_URL must be.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    def launch(
        cls, *, machines: str = "none", host: str = "127.0.0.1", port: int = 0, log: Path | None = None
    ) -> RunningCloud:
        """Starts one; returns when it answers."""
        environment = {**os.environ, "EMULATOR_STARTER": str(os.getpid()), "PYTHONWARNINGS": "ignore"}
        with Path(log or os.devnull).open("ab") as errors:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.emulators.ec2.server",
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
            raise RuntimeError(f"the emulated cloud did not start: {line!r}; see {log}")
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

    def environment(self, access_key: str = "AKIAEMULATED", secret_key: str = "secret") -> dict[str, str]:
        """What a client process needs."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    # -- control -----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """A new account."""
        self._post("reset")

    def settings(self, **seconds: float) -> None:
        """`World`'s: pending_seconds, shutdown_seconds, invisible_seconds."""
        self._post("settings", **seconds)

    def fault(self, *faults: Mapping[str, Any], add: bool = False) -> None:
        """Replaces the faults, or adds to them; see `faults.Fault`."""
        self._post("faults", faults=list(faults), add=add)

    def kill(
        self, pid: int, at: int, when: str = "before", *, access_key: str = "", action: str = "", series: bool = False
    ) -> None:
        """SIGKILL for `pid` at the `at`-th API request from now; see `faults.KillOrder`."""
        self._post("kill", pid=pid, at=at, when=when, access_key=access_key, action=action, series=series)

    def expire(self, access_key: str) -> None:
        """Its requests are refused from now on."""
        self._post("expire", access_key=access_key)

    def quota(self, region: str, code: str, value: float) -> None:
        """Sets a vCPU quota."""
        self._post("quota", region=region, code=code, value=value)

    def shortage(self, instance_type: str, zone: str = "*") -> None:
        """No capacity there any more."""
        self._post("shortage", instance_type=instance_type, zone=zone)

    def advance(self, seconds: float) -> None:
        """The cloud's clock (not its guests') goes on."""
        self._post("clock", advance_seconds=seconds)

    def power_off(self, instance_id: str) -> None:
        """A guest of `NoGuests` powers itself off."""
        self._post("power-off", instance_id=instance_id)

    def interrupt(self, instance_id: str, notice_seconds: float = 120.0) -> None:
        """Spot interruption."""
        self._post("interrupt", instance_id=instance_id, notice_seconds=notice_seconds)

    def change(self, instance_id: str, **attributes: Any) -> None:
        """Sets attributes of moto's instance, such as disable_api_termination."""
        self._post("change", instance_id=instance_id, **attributes)

    def enforce_permissions(self, *, on: bool = True) -> None:
        """From now on IAM policies decide."""
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", data=b"0" if on else b"inf", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request, timeout=10).close()

    def requests(self) -> list[dict[str, Any]]:
        """Every API request since the last `forget_requests`."""
        rows: list[dict[str, Any]] = self._call("GET", "requests")
        return rows

    def calls(self) -> list[str]:
        """Their names: ``ec2:RunInstances``; dry runs end with a question mark."""
        return [row["name"] for row in self.requests()]

    def forget_requests(self) -> None:
        """Starts counting anew."""
        self._post("requests")

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """What really exists, in every region; only in these states, if any are given."""
        rows: list[dict[str, Any]] = self._call("GET", "instances")
        return [row for row in rows if not states or row["state"] in states]

    def instances_of(self, name: str) -> list[dict[str, Any]]:
        """Those of the jobs of that name."""
        rows: list[dict[str, Any]] = self._call("POST", "instances", {"name": name})
        return rows

    def alive(self) -> list[dict[str, Any]]:
        """Instances that are not terminated."""
        return [row for row in self.instances() if row["state"] != "terminated"]

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
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} /emu/{what}: {error.read().decode()}") from None
