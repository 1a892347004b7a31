"""Starts an emulated cloud as a process of its own, and speaks to its control side."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]


class RunningEmulator:
    """An emulator's process at `url`. Its control verbs, which are described in the `control` modules, are methods."""

    server = ""  # module that is run
    gone = ""  # the state of an instance that no longer exists

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    def launch(cls, *, machines: str = "none", host: str = "127.0.0.1", port: int = 0, log: Path | None = None) -> Self:
        """Starts one; returns when it answers."""
        environment = {**os.environ, "EMULATOR_STARTER": str(os.getpid()), "PYTHONWARNINGS": "ignore"}
        options = ["--host", host, "--port", str(port), "--machines", machines]
        with Path(log or os.devnull).open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", cls.server, *options],
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
            raise RuntimeError(f"{cls.server} did not start: {line!r}; see {log}")
        return cls(process, line.split()[1])

    def environment(self) -> dict[str, str]:
        """What a client process needs."""
        raise NotImplementedError

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def reset(self) -> None:
        """A new account or project."""
        self.post("reset")

    def settings(self, **seconds: float) -> None:
        """How long phases last, such as `pending_seconds`."""
        self.post("settings", **seconds)

    def fault(self, *faults: Mapping[str, Any], add: bool = False) -> None:
        """Replaces the faults, or adds to them; see `faults.Fault`."""
        self.post("faults", faults=list(faults), add=add)

    def kill(
        self, pid: int, at: int, when: str = "before", *, access_key: str = "", action: str = "", series: bool = False
    ) -> None:
        """SIGKILL for `pid` at the `at`-th API request from now; see `faults.KillOrder`."""
        self.post("kill", pid=pid, at=at, when=when, access_key=access_key, action=action, series=series)

    def advance(self, seconds: float) -> None:
        """The cloud's clock (not its guests') goes on."""
        self.post("clock", advance_seconds=seconds)

    def requests(self) -> list[dict[str, Any]]:
        """Every API request since the last `forget_requests`."""
        rows: list[dict[str, Any]] = self.get("requests")
        return rows

    def forget_requests(self) -> None:
        self.post("requests")

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """What really exists and existed, everywhere; only in these states, if any are given."""
        return [row for row in self.get("instances") if not states or row["state"] in states]

    def instances_of(self, name: str) -> list[dict[str, Any]]:
        """Those of the jobs of that name."""
        rows: list[dict[str, Any]] = self.post("instances", name=name)
        return rows

    def alive(self) -> list[dict[str, Any]]:
        """Instances that still exist, stopped ones included."""
        return [row for row in self.instances() if row["state"] != self.gone]

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s; instances: {self.instances()}")
            time.sleep(0.02)

    def get(self, what: str) -> Any:
        """A question to the control side."""
        return self._call("GET", what, None)

    def post(self, what: str, **document: Any) -> Any:
        """An order to the control side."""
        return self._call("POST", what, document)

    def _call(self, method: str, what: str, document: Mapping[str, Any] | None) -> Any:
        data = json.dumps(document).encode() if document is not None else None
        request = urllib.request.Request(f"{self.url}/emu/{what}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} /emu/{what}: {error.read().decode()}") from None
