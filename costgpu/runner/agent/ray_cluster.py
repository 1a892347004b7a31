"""A Ray cluster for one job: its head and the script on node 0, a Ray node on each other machine.

Run as the job's main process on every machine, with the agent's interpreter; Ray and the script have the job's. The script
is a process of this one, not an entry of Ray's Jobs API: so its two streams, its exit code and SIGTERM are its own, its
environment is not kept in the cluster, and no actor of the cluster has to live for it. Ray lists it as a driver.

Where the machines met, node 0 listens again: each other machine holds one connection to it. It says where the head is, that
the script has ended, and, by its end, that the head is lost, which Ray itself notices after a minute.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from .meeting import Line, MeetingFailed, listen
from .observe.idle import RAY_ACTIVITY, read_counters, was_active
from .ray_processes import RayFailed, RayProcesses, free_port, remove_folder
from .state_files import Home, open_to_write

RESULT = "ray.json"
JOIN_SECONDS = 300.0  # until all machines are in the cluster: they have met, and their set-ups are done
_WATCH_SECONDS = 1.0
_ACTIVITY_SECONDS = 5.0
_RETRY_SECONDS = 0.25
_HELLO_SECONDS = 5.0  # for whoever connects to say who it is
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))  # seconds, seconds, times


class AskedToEnd(Exception):
    """SIGTERM came before the script ran."""


def run_cluster(home: Home, python: str) -> int:
    """Return this machine's part, to its end; returns the exit code, and leaves in `RESULT` what else is to be said."""
    order = home.read("order.json") or {}
    ray = RayProcesses(home, order, python)
    home.write(RESULT, {"folder": ray.folder})
    cluster = RayNode(home, order, ray)
    try:
        return cluster.run_head() if order["rendezvous"]["node"] == 0 else cluster.run_worker()
    except AskedToEnd:
        return 128 + signal.SIGTERM
    except (RayFailed, MeetingFailed) as error:
        say(str(error))
        reason = error.reason if isinstance(error, RayFailed) else "nodes_apart"
        home.write(RESULT, {"folder": ray.folder, "reason": reason, "error": str(error)})
        return 1
    finally:
        ray.stop()


def failure(home: Home) -> tuple[str, str]:
    """Why the cluster has failed, as `EndReason` and as a sentence; empty if it has not."""
    told = home.read(RESULT) or {}
    return str(told.get("reason") or ""), str(told.get("error") or "")


def clean_up(home: Home) -> None:
    """Remove Ray's folder where it is outside of the home. To be called when no process of Ray's is left."""
    remove_folder((home.read(RESULT) or {}).get("folder"))


def say(text: str) -> None:
    """Print a line on the job's stderr."""
    print("costgpu: %s" % text, file=sys.stderr, flush=True)


class RayNode:
    """One machine's part in the cluster: its Ray processes, its end of the connections between the machines, the script."""

    def __init__(self, home: Home, order: Mapping[str, Any], ray: RayProcesses) -> None:
        self.home, self.order, self.ray = home, order, ray
        self.rendezvous: Mapping[str, Any] = order["rendezvous"]
        self.nodes, self.node = int(self.rendezvous["nodes"]), int(self.rendezvous["node"])
        self.began = time.monotonic()
        self.asked = 0  # how often SIGTERM came
        self._wake, told = os.pipe()
        for descriptor in (self._wake, told):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(told)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._note_signal)

    def _note_signal(self, *_: object) -> None:
        self.asked += 1

    # --- node 0 ---------------------------------------------------------------------------------------------------------

    def run_head(self) -> int:
        """Head and script; the exit code is the script's."""
        self.ray.check_version()
        listener = listen(self.rendezvous) if self.nodes > 1 else None
        others: dict[int, Line] = {}
        try:
            address = "%s:%d" % (self.rendezvous["own_address"], free_port())
            self._start(*self._head_options(address))
            if listener is not None:
                self._gather(listener, others, address)
            code = self._run_script(address, others)
        except AskedToEnd:
            code = 128 + signal.SIGTERM  # the others are told, too: to them it is no failure
        finally:
            if listener is not None:
                listener.close()
        for line in others.values():
            _tell(line, {"ended": code})
            line.close()
        return code

    def _head_options(self, address: str) -> list[str]:
        host, _, port = address.rpartition(":")
        ray = self.rendezvous["ray"]
        return [
            *("--head", "--node-ip-address", host, "--port", port),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(ray["dashboard_port"])),
            *("--ray-client-server-port", str(free_port())),
        ]

    def _gather(self, listener: socket.socket, others: dict[int, Line], address: str) -> None:
        """Wait until all machines are in the cluster."""
        ready: set[int] = set()
        until = time.monotonic() + JOIN_SECONDS
        while len(ready) < self.nodes - 1:
            self._go_on_forming()
            self.ray.check()
            if time.monotonic() > until:
                missing = sorted(set(range(1, self.nodes)) - ready)
                names = ", ".join("node %d" % each for each in missing)
                raise RayFailed("nodes_apart", "No Ray node came from %s: see what it said." % names)
            for source in self._wait([listener, *others.values()]):
                if source is listener:
                    self._accept(listener, others, address)
                    continue
                rank = next(rank for rank, line in others.items() if line is source)
                said = _read(others[rank])
                if said is None or "error" in said:
                    why = "its connection was lost" if said is None else str(said["error"])
                    raise RayFailed("nodes_apart", "Node %d did not join the Ray cluster: %s" % (rank, why))
                if said.get("ready"):
                    ready.add(rank)

    def _accept(self, listener: socket.socket, others: dict[int, Line], address: str) -> None:
        try:
            connection, _ = listener.accept()
            line = Line(connection)
            said = line.read(_HELLO_SECONDS)
            rank = int(said["node"])
            if said["token"] != self.rendezvous["ray"]["token"] or not 0 < rank < self.nodes:
                return
            _keep_alive(connection)
            line.write({"head": address})
        except (OSError, ValueError, KeyError, TypeError):
            return  # not one of us
        others[rank] = line

    def _run_script(self, address: str, others: dict[int, Line]) -> int:
        say("Ray runs on %s; the script is its driver." % _machines(self.nodes))
        script = subprocess.Popen(
            [self.ray.python, *self.order["argv"]],
            env={**self.ray.environment, "RAY_ADDRESS": address},
            start_new_session=True,
        )
        watched, told = dict(others), False
        kill_at: float | None = None
        lost: RayFailed | None = None
        while script.poll() is None:
            if self.asked and not told:
                told = True
                script.terminate()
                for line in others.values():
                    _tell(line, {"ending": True})
            if lost is None:
                try:
                    self.ray.check()
                except RayFailed as error:
                    lost, kill_at = error, time.monotonic() + float(self.order["grace_seconds"])
                    script.terminate()
            if kill_at is not None and time.monotonic() > kill_at:
                script.kill()
            for source in self._wait(list(watched.values())):
                rank = next(rank for rank, line in watched.items() if line is source)
                self._hear(rank, watched)
        if lost is not None:
            raise lost
        return script.returncode if script.returncode >= 0 else 128 - script.returncode

    def _hear(self, rank: int, watched: dict[int, Line]) -> None:
        said = _read(watched[rank])
        if said is None:
            del watched[rank]
            say("The connection to node %d is lost: its part of the Ray cluster may be gone." % rank)
        elif "error" in said:
            say("Node %d: %s" % (rank, said["error"]))
        elif said.get("active"):
            self._note_activity()

    # --- the other nodes ------------------------------------------------------------------------------------------------

    def run_worker(self) -> int:
        """Return a Ray node, as long as the head's script runs. Its exit code says how this machine's part has ended."""
        self.ray.check_version()
        line: Line | None = None
        try:
            line, address = self._join()
            try:
                self._start("--address", address, "--node-ip-address", self.rendezvous["own_address"])
                _tell(line, {"ready": True})
                return self._serve(line)
            except RayFailed as error:
                _tell(line, {"error": str(error)})
                raise
        finally:
            if line is not None:
                line.close()

    def _join(self) -> tuple[Line, str]:
        """Return the connection to node 0, and where Ray's head is."""
        until, last = time.monotonic() + JOIN_SECONDS, ""
        while time.monotonic() < until:
            self._go_on_forming()
            try:
                connection = socket.create_connection((self.rendezvous["address"], self.rendezvous["port"]), 10.0)
                _keep_alive(connection)
                line = Line(connection)
                line.write({"node": self.node, "token": self.rendezvous["ray"]["token"]})
                while not self._wait([line]):
                    self._go_on_forming()
                return line, str(line.read(10.0)["head"])
            except (OSError, ValueError, KeyError) as error:
                last = str(error)
            time.sleep(_RETRY_SECONDS)
        raise RayFailed("nodes_apart", "Node %d did not find Ray's head at node 0: %s." % (self.node, last))

    def _serve(self, line: Line) -> int:
        seen = read_counters(self.ray.supervisor, 0, time.monotonic())
        ending = False
        while True:
            self.ray.check()
            if (
                self.asked > 1
            ):  # not the first time: node 0 is asked, too, and its script may need this node to save its work
                return 128 + signal.SIGTERM
            now = time.monotonic()
            if now - seen.at >= _ACTIVITY_SECONDS:
                counters = read_counters(self.ray.supervisor, 0, now)
                if was_active(seen, counters):
                    _tell(line, {"active": True})
                seen = counters
            if self._wait([line]):
                said = _read(line)
                if said is None:
                    if ending:  # a script that does not listen is killed, and with it who would tell its exit code
                        say("The job on node 0 was ended.")
                        return 0
                    raise RayFailed("job_failed", "The connection to node 0 is lost, and Ray's head with it.")
                ending = ending or "ending" in said
                if "ended" in said:
                    if said["ended"]:
                        say("The job on node 0 has ended with exit code %s." % said["ended"])
                    return 0

    # --- both -----------------------------------------------------------------------------------------------------------

    def _start(self, *options: str) -> None:
        """Start this machine's Ray processes; when this returns they are in the cluster."""
        starting = self.ray.start(options)
        while starting.poll() is None:
            self._go_on_forming()
            self._wait([])
        self.ray.note_start(starting.returncode)

    def _go_on_forming(self) -> None:
        """Each second until the script runs: that Ray takes its time does not make the job idle, unless it hangs."""
        if self.asked:
            raise AskedToEnd
        if time.monotonic() - self.began < JOIN_SECONDS:
            self._note_activity()

    def _note_activity(self) -> None:
        try:
            with open(open_to_write(self.home.file(RAY_ACTIVITY), os.O_APPEND), "wb") as stream:
                stream.write(b".")
        except OSError:
            pass  # a full disk is the guard's to judge

    def _wait(self, sources: list[Any]) -> list[Any]:
        """Return sources that have something to say, after a second, a signal, or the end of a child at the latest."""
        waiting = [each for each in sources if isinstance(each, Line) and each.holds_line]
        if waiting:
            return waiting
        by_socket = {each.connection if isinstance(each, Line) else each: each for each in sources}
        ready, _, _ = select.select([self._wake, *by_socket], [], [], _WATCH_SECONDS)
        if self._wake in ready:
            os.read(self._wake, 1 << 16)
        return [each for key, each in by_socket.items() if key in ready]


def _read(line: Line) -> dict[str, Any] | None:
    """Return what came; None if the other side is gone, or is none of ours."""
    try:
        return line.read(10.0)
    except (OSError, ValueError):
        return None


def _tell(line: Line, value: Mapping[str, Any]) -> None:
    try:
        line.write(value)
    except OSError:
        pass  # its end is noticed when it is read from


def _keep_alive(connection: socket.socket) -> None:
    """Have a machine that vanishes noticed after 30 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _machines(nodes: int) -> str:
    return "one machine" if nodes == 1 else "%d machines" % nodes
