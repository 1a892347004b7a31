"""The launcher `ray`: Ray's head and the script on node 0, a Ray node on each other machine.

Run as the job's main process on every machine, with the agent's interpreter; Ray and the script have the job's. The script
is a child of this process and no entry of Ray's Jobs API: so its streams, its exit code and SIGTERM are its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...portable.supervise import signal_group
from .state_files import Home

NAME = "ray"
# What Ray leaves in /tmp, of a job that starts a Ray of its own, and of this launcher.
TEMPORARY = re.compile(
    r"tmp/(costgpu-ray-\w+|ray/(session_\S+|ray_current_cluster|prom_metrics_service_discovery\.json))"
)
OLDEST = (2, 52)  # the first Ray whose ports ask for a token (docs.ray.io, ray-security/token-auth, 2026-11-24)
JOIN_SECONDS = 300.0  # until all machines are in the cluster: they have met, and their set-ups are done
_WATCH_SECONDS = 0.2
_PROBE_SECONDS = 2.0  # how often a node asks whether the head is there
_TAIL_LINES = 15
_HOW = 'install it in the set-up: pip install "ray[default,data,train,tune]"'
_VERSION = "from importlib.metadata import version; print(version('ray'))"
_GATHER = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
while sum(each["Alive"] for each in ray.nodes()) < int(sys.argv[2]):
    time.sleep(0.25)
"""


class RayFailed(Exception):
    """The cluster did not come to be, or is lost; a sentence for people."""


def launch(home: Home, python: str) -> int:
    """Run this machine's part of the cluster to its end and return the exit code: on node 0, the script's."""
    order = home.read("order.json") or {}
    node = RayNode(order, python)
    try:
        node.check_version()
        return node.run_head() if node.number == 0 else node.run_worker()
    except RayFailed as error:
        _say(str(error))
        return 1
    finally:
        node.stop()


class RayNode:
    """The Ray of one machine, and on node 0 the script."""

    def __init__(self, order: Mapping[str, Any], python: str) -> None:
        self.order, self.python = order, python
        rendezvous = order["rendezvous"]
        self.nodes, self.number = int(rendezvous["nodes"]), int(rendezvous["node"])
        self.head = (str(rendezvous["address"]), int(rendezvous["port"]))  # where the machines met, and are done with
        self.own_address = str(rendezvous["own_address"])
        self.folder = tempfile.mkdtemp(prefix="costgpu-ray-", dir="/tmp")  # a socket's path has at most 107 characters
        self.ray: subprocess.Popen[bytes] | None = None
        self.script: subprocess.Popen[bytes] | None = None
        self.asked = False  # whether SIGTERM came
        self.environment = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",  # its ports listen on all interfaces of the machine (2.60)
            "RAY_AUTH_TOKEN": str(rendezvous["token"]),
            "RAY_ADDRESS": "%s:%d" % self.head,
        }
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.asked = True
        if self.script is not None:
            self.script.terminate()

    def check_version(self) -> None:
        """Raise `RayFailed` if the job's interpreter has no Ray whose ports ask for a token."""
        told = subprocess.run([self.python, "-c", _VERSION], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: PLW1510
        if told.returncode:
            raise RayFailed("Ray is not installed for %s on this machine: %s." % (self.python, _HOW))
        found = re.match(r"(\d+)\.(\d+)", told.stdout.decode())
        if found and (int(found[1]), int(found[2])) < OLDEST:
            raise RayFailed("Ray %s is older than %d.%d: %s." % (told.stdout.decode().strip(), *OLDEST, _HOW))

    def run_head(self) -> int:
        """Run Ray's head and the script; return the script's exit code."""
        options = ["--head", "--port", str(self.head[1]), "--include-dashboard", "false"]
        self._start([*options, "--ray-client-server-port", str(_free_port())])
        if not self._wait_for_head() or not self._gather():
            return 128 + signal.SIGTERM
        _say("Ray runs on %s; the script is its driver." % (_machines(self.nodes)))
        self.script = subprocess.Popen([self.python, *self.order["argv"]], env=self.environment, start_new_session=True)
        if self.asked:
            self.script.terminate()
        while self.script.poll() is None:
            if self._has_ended():
                self.script.terminate()
                try:
                    self.script.wait(float(self.order["grace_seconds"]))
                except subprocess.TimeoutExpired:
                    self.script.kill()
                raise RayFailed("Ray's head on node 0 has ended unexpectedly. It said last:\n%s" % self._last_words())
            time.sleep(_WATCH_SECONDS)
        code = self.script.returncode
        return code if code >= 0 else 128 - code

    def _gather(self) -> bool:
        """Wait until all machines are in the cluster; return False if the end was asked for before.

        On a busy machine the head may refuse a driver that comes early (2.60), so that another one is tried while Ray runs.
        """
        words = [self.python, "-c", _GATHER, "%s:%d" % self.head, str(self.nodes)]
        until, refused = time.monotonic() + JOIN_SECONDS, False
        while not self.asked:
            with open(os.path.join(self.folder, "gather.log"), "ab") as said:
                gathering = subprocess.Popen(
                    words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
                )
            try:
                while gathering.poll() is None and time.monotonic() < until and not self.asked:
                    self._check()
                    time.sleep(_WATCH_SECONDS)
            finally:
                gathering.kill()
                code = gathering.wait()
            if code == 0:
                break
            if time.monotonic() >= until and not self.asked:
                said_last = self._last_words("gather.log")
                raise RayFailed("Not all of %s came to the Ray cluster.\n%s" % (_machines(self.nodes), said_last))
            if not refused and not self.asked:
                _say("Ray's head takes no driver yet: it is asked again for up to %.0f min." % (JOIN_SECONDS / 60))
                refused = True
            time.sleep(_WATCH_SECONDS)
        return not self.asked

    def run_worker(self) -> int:
        """Run a Ray node for as long as the head is there; that its end is well is for node 0 to say."""
        if not self._wait_for_head():
            return 128 + signal.SIGTERM
        self._start(["--address", "%s:%d" % self.head])
        probe_at = 0.0
        while True:
            if self._has_ended() or time.monotonic() >= probe_at:
                if not self._head_answers():
                    _say("The job on node 0 is over.")
                    return 0
                probe_at = time.monotonic() + _PROBE_SECONDS
            self._check()
            time.sleep(_WATCH_SECONDS)

    def _wait_for_head(self) -> bool:
        """Wait until the head listens; return False if the end was asked for before."""
        until = time.monotonic() + JOIN_SECONDS
        while not self.asked:
            self._check()
            try:
                socket.create_connection(self.head, 5.0).close()
                return True
            except OSError:
                if time.monotonic() > until:
                    raise RayFailed("Node %d did not find Ray's head at node 0." % self.number) from None
            time.sleep(_WATCH_SECONDS)
        return False

    def _head_answers(self) -> bool:
        """Return False if nothing listens there any more; a network that is slow says nothing."""
        try:
            socket.create_connection(self.head, 5.0).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            pass  # whether the head's machine is lost is Ray's to find out, within a minute
        return True

    def _start(self, options: Sequence[str]) -> None:
        command = [self.python, "-m", "ray.scripts.scripts", "start", "--block", *options]
        command += ["--node-ip-address", self.own_address, "--disable-usage-stats"]
        command += ["--temp-dir", self.folder]
        for port in ("node-manager", "object-manager", "dashboard-agent-listen", "min-worker", "max-worker"):
            command += ["--%s-port" % port, "0"]
        with open(os.path.join(self.folder, "start.log"), "wb") as output:
            self.ray = subprocess.Popen(
                command,
                env={key: value for key, value in self.environment.items() if key != "RAY_ADDRESS"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _has_ended(self) -> bool:
        return self.ray is not None and self.ray.poll() is not None

    def _check(self) -> None:
        """Raise `RayFailed` if the Ray of this machine has ended."""
        if self._has_ended():
            raise RayFailed("The Ray of node %d has ended. It said last:\n%s" % (self.number, self._last_words()))

    def _last_words(self, of: str = "start.log") -> str:
        with open(os.path.join(self.folder, of), encoding="utf-8", errors="replace") as stream:
            return "".join(stream.readlines()[-_TAIL_LINES:])

    def stop(self) -> None:
        """End Ray's processes at once: nobody needs them any more. Some do not obey SIGTERM, or wait 30 s (2.60)."""
        if self.ray is not None:
            signal_group(self.ray.pid, signal.SIGKILL)
            self.ray.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    """Return a TCP port that nothing on this machine listens at now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
        asked.bind(("", 0))
        return int(asked.getsockname()[1])


def _machines(nodes: int) -> str:
    return "one machine" if nodes == 1 else "%d machines" % nodes


def _say(text: str) -> None:
    """Write a line on the job's stderr."""
    print("costgpu: %s" % text, file=sys.stderr, flush=True)
