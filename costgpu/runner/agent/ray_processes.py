"""The Ray processes of one machine: which Ray it has, how they are started, whether they live, and their end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .limits import MIN_FREE_BYTES
from .observe import machine_stats
from .observe.idle import is_ray_daemon
from .state_files import Home, open_to_write

OUTPUT = "ray.log"  # what ``ray start`` says
OLDEST = (2, 52)  # the first Ray whose ports ask for a token (docs.ray.io, ray-security/token-auth, 2026-11-24)
_TEMPORARY = "/tmp/costgpu-ray-"  # beginning of Ray's folder where the home's path is too long for its sockets
_SHORT_PATH = 40  # characters of Ray's folder: a socket's path below it, 64 more, has at most 107
_LEAST_STORE_BYTES = 80 << 20  # Ray takes no less than 75 MiB (2.60)
_STORE_SHARE = 0.3  # Ray's own default share of the memory that is free
_TAIL_LINES = 15
_VERSION = "from importlib.metadata import version; print(version('ray'))"


class RayFailed(Exception):
    """The cluster did not come to be, or is lost: `reason` as `EndReason` and a sentence for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class RayProcesses:
    """Those of this machine; they are no children of this process, but of its parent, who adopts orphans."""

    def __init__(self, home: Home, order: Mapping[str, Any], python: str) -> None:
        self.home, self.order, self.python = home, order, python
        self.nodes, self.node = int(order["rendezvous"]["nodes"]), int(order["rendezvous"]["node"])
        self.supervisor = os.getppid()
        self.folder = _folder(home)
        self.daemons: list[tuple[int, int, str]] = []  # process number, start and name of what must not end
        self.environment = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",  # its ports listen on all interfaces of the machine (2.60)
            "RAY_AUTH_TOKEN": str(order["rendezvous"]["ray"]["token"]),
            "AUTOSCALER_METRIC_PORT": "0",  # any: two clusters may share a computer
            "DASHBOARD_METRIC_PORT": "0",
        }
        self.environment.pop("RAY_ADDRESS", None)

    def check_version(self) -> None:
        """Raise `RayFailed` if the job's interpreter has no Ray that can be used."""
        how = 'install it in the set-up: pip install "ray[default,data,train,tune]"'
        told = subprocess.run(  # noqa: PLW1510
            [self.python, "-c", _VERSION], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if told.returncode:
            raise RayFailed("setup_failed", "Ray is not installed for %s on this machine: %s." % (self.python, how))
        found = told.stdout.decode().strip()
        try:
            usable = tuple(int(each) for each in found.split(".")[:2]) >= OLDEST
        except ValueError:
            usable = True  # a version of somebody's own
        if not usable:
            raise RayFailed("setup_failed", "Ray %s is older than %d.%d: %s." % (found, *OLDEST, how))

    def start(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        """Begins to start them; when that process has ended well they are in the cluster. See `note_start`."""
        command = [self.python, "-m", "ray.scripts.scripts", "start", *options, *self._node_options()]
        with open(open_to_write(self.home.file(OUTPUT), os.O_TRUNC), "wb") as output:
            return subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def note_start(self, code: int) -> None:
        """After the end of `start`'s process: from now on `check` watches them. Raises `RayFailed` if it failed."""
        if code:
            said = "".join(_last_lines(self.home.file(OUTPUT)))
            raise RayFailed(
                "machine_unusable" if self.nodes == 1 else "nodes_apart",
                "Ray did not start on node %d (exit code %d). It said last:\n%s" % (self.node, code, said),
            )
        self.daemons = list(_daemons(self.supervisor))

    def _node_options(self) -> list[str]:
        options = [
            *("--temp-dir", self.folder, "--disable-usage-stats"),
            *("--node-manager-port", "0", "--object-manager-port", "0", "--dashboard-agent-listen-port", "0"),
            *("--min-worker-port", "0", "--max-worker-port", "0"),
        ]
        if self.order["provider"] == "local":  # the places of one computer share it
            options += ["--num-cpus", str(max(1, len(os.sched_getaffinity(0)) // self.nodes))]
            options += ["--object-store-memory", str(_store_bytes(self.nodes))]
        return options

    def check(self) -> None:
        """Raise `RayFailed` if the head or the node of this machine has ended."""
        for pid, started, name in self.daemons:
            if not machine_stats.is_alive(pid, started):
                what = "Ray's head" if name == "gcs_server" else "The Ray node"
                raise RayFailed("job_failed", "%s on node %d has ended unexpectedly (%s)." % (what, self.node, name))

    def stop(self) -> None:
        """End Ray's processes at once: nobody needs them any more, and some of them do not obey SIGTERM (2.60)."""
        below = machine_stats.descendants(self.supervisor)
        rays = {entry.pid for entry in below if is_ray_daemon(entry.pid)}
        for pid, _, _ in self.daemons:
            rays.update(entry.pid for entry in machine_stats.descendants(pid))
        for pid in rays & {entry.pid for entry in below}:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


def remove_folder(folder: object) -> None:
    """Remove Ray's folder, if it is one outside of a home."""
    if isinstance(folder, str) and folder.startswith(_TEMPORARY) and os.path.dirname(folder) == "/tmp":
        shutil.rmtree(folder, ignore_errors=True)


def _folder(home: Home) -> str:
    folder = home.file("ray")
    return folder if len(folder) <= _SHORT_PATH else tempfile.mkdtemp(prefix=os.path.basename(_TEMPORARY), dir="/tmp")


def _daemons(supervisor: int) -> Iterator[tuple[int, int, str]]:
    """Yield the two without which there is no Ray on this machine."""
    for entry in machine_stats.descendants(supervisor):
        name = machine_stats.name_of(entry.pid)
        if name in ("gcs_server", "raylet"):
            yield entry.pid, entry.started, name


def free_port() -> int:
    """Return a TCP port that nothing on this machine listens at now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
        asked.bind(("", 0))
        return int(asked.getsockname()[1])


def _store_bytes(nodes: int) -> int:
    """Memory for Ray's objects in one of so many places on this computer, in bytes."""
    free = 0
    with open("/proc/meminfo", encoding="ascii") as stream:
        for text in stream:
            if text.startswith("MemAvailable:"):
                free = int(text.split()[1]) * 1024
    shared = os.statvfs("/dev/shm")
    room = min(int(_STORE_SHARE * free), shared.f_bavail * shared.f_frsize - MIN_FREE_BYTES)
    return max(_LEAST_STORE_BYTES, room // nodes)


def _last_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readlines()[-_TAIL_LINES:]
    except OSError:
        return []
