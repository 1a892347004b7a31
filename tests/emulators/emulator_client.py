"""Starts an emulated cloud as a process of its own, and speaks to its control side."""

import functools
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]


class RunningEmulator:
    """An emulator's process at `url`. What its control side can do, which is described there, are methods."""

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

    def alive(self) -> list[dict[str, Any]]:
        """Instances that still exist, stopped ones included."""
        return [row for row in self.instances() if row["state"] != self.gone]

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s; instances: {self.instances()}")
            time.sleep(0.02)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """A question or an order to the control side: a method of the `Control` of that cloud."""
        if verb.startswith("_"):
            raise AttributeError(verb)
        return functools.partial(self._ask_control, verb)

    def _ask_control(self, verb: str, *given: Any, **named: Any) -> Any:
        data = json.dumps([given, named]).encode()
        headers = {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.url}/emu/{verb}", data, headers), timeout=30
            ) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"/emu/{verb}: {error.read().decode()}") from None
