"""The machines of a job meet before it starts: whether each reaches each other, and what differs between them.

Run as a program of its own on every machine: first before the set-up (``reach``), then after it (``versions``). The
machine with node 0 listens where the ranks will meet; the others tell it what they are and hear its verdict. Both
sides end with the same sentence if something is wrong.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from .observe.machine_stats import gpu_count
from .rpc import LineConnection
from .run_quietly import run_quietly
from .state_files import Home, setting

RESULT = "meeting.json"
REACH_SECONDS = 90.0  # from the first machine to the last: all are started within seconds
VERSIONS_SECONDS = 1800.0  # set-ups on equal machines take minutes, not equally long
CONNECT_SECONDS = 10.0  # for one connection; packets that nobody answers are dropped by a rule
MOST_SKEW_SECONDS = 10.0  # torchrun takes a machine for lost whose clock is 15 s apart (its keep-alive, torch 2.13)
_RETRY_SECONDS = 0.25
_VERSIONS_ANSWER_SECONDS = 60.0
# Packages that have to be equal, since their ranks talk to each other.
PACKAGES = (
    *[
        "torch",
        "accelerate",
        "deepspeed",
        "lightning",
        "transformers",
        "jax",
        "jaxlib",
        "tensorflow",
        "keras",
        "horovod",
    ],
    *["nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"],
)
_VERSIONS = """
import json, sys
from importlib import metadata
found = {"python": "%d.%d" % sys.version_info[:2]}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def _connect_seconds() -> float:
    return setting("CONNECT_SECONDS", CONNECT_SECONDS)


class MeetingFailed(Exception):
    """A sentence that says which machine is the matter, and why."""


def meet(home: Home, stage: str, python: str) -> int:
    """Take part in a meeting; return an exit code, and leave the sentence for people in the home."""
    order = home.read("order.json") or {}
    rendezvous = order["rendezvous"]
    facts: dict[str, Any] = {"epoch": time.time(), "gpus": gpu_count()}
    if stage == "versions":
        facts = {"versions": library_versions(python)}
    seconds = setting("MEETING_SECONDS", REACH_SECONDS if stage == "reach" else VERSIONS_SECONDS)
    try:
        if rendezvous["node"] == 0:
            _host(rendezvous, stage, facts, seconds)
        else:
            _join(rendezvous, stage, facts, seconds)
    except MeetingFailed as error:
        print("costgpu: %s" % error, file=sys.stderr, flush=True)
        home.write(RESULT, {"error": str(error)})
        return 1
    return 0


def library_versions(python: str) -> dict[str, str]:
    """Python and the packages that have to be equal, as the job's interpreter has them; nothing is imported."""
    told = run_quietly([python, "-c", _VERSIONS, *PACKAGES], _VERSIONS_ANSWER_SECONDS)
    try:
        return dict(json.loads(told.stdout.decode())) if told is not None else {}
    except ValueError:
        return {}


def complaint(stage: str, facts: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what is wrong with what the machines told of themselves, by node; empty if nothing is.

    Clocks are compared with that of node 0 at the moment in which it heard of them (`heard`).
    """
    first = facts[0]
    for rank in sorted(facts):
        told = facts[rank]
        if stage == "reach":
            apart = float(told["epoch"]) - float(told["heard"])
            if abs(apart) > MOST_SKEW_SECONDS:
                side = "ahead of" if apart > 0 else "behind"
                return "The clock of node %d is %.0f s %s that of node 0: set it (NTP)." % (rank, abs(apart), side)
            if told["gpus"] != first["gpus"]:
                return "Node %d has %d GPUs and node 0 has %d." % (rank, told["gpus"], first["gpus"])
            continue
        mine, others = first["versions"], told["versions"]
        for name in sorted(set(mine) | set(others)):
            if mine.get(name) != others.get(name):
                here, there = (versions.get(name) for versions in (mine, others))
                words = _named(name, here), rank, _named(name, there)
                return "Node 0 has %s and node %d has %s: pin it in the set-up." % words
    return ""


def _named(package: str, version: str | None) -> str:
    return "no %s" % package if version is None else "%s %s" % (package, version)


def _host(rendezvous: Mapping[str, Any], stage: str, facts: dict[str, Any], seconds: float) -> None:
    listener, own = listen(rendezvous), _listen_anywhere(rendezvous)
    facts["heard"] = facts.get("epoch", 0.0)
    told, lines = {0: facts}, {}
    try:
        until = time.monotonic() + seconds
        while len(told) < rendezvous["nodes"] and time.monotonic() < until:
            listener.settimeout(max(0.01, until - time.monotonic()))
            try:
                connection, _ = listener.accept()
                line = LineConnection(connection)
                said = line.read(_connect_seconds())
                rank = int(said["node"])
                if said.get("stage") != stage or not 0 < rank < rendezvous["nodes"]:
                    continue
            except (OSError, ValueError, KeyError, TypeError):
                continue  # nobody came, or not one of us
            told[rank], lines[rank] = {**said, "heard": time.time()}, line
        missing = [rank for rank in range(rendezvous["nodes"]) if rank not in told]
        why = _missing(missing, stage, rendezvous, seconds) if missing else complaint(stage, told)
        if not why and stage == "reach":
            why = _all_reach_all(rendezvous, told, lines, own)
        for line in lines.values():
            _tell(line, {"error": why})
    finally:
        for line in lines.values():
            line.close()
        listener.close()
        own.close()
    if why:
        raise MeetingFailed(why)


def _missing(missing: list[int], stage: str, rendezvous: Mapping[str, Any], seconds: float) -> str:
    who = ", ".join("node %d" % rank for rank in missing).capitalize()
    if stage == "versions":
        return "%s had not finished the set-up %.0f s after node 0: see what it said there." % (who, seconds)
    return (
        "%s did not reach node 0 at %s port %d within %.0f s: the machines have to be allowed to connect to each other"
        " on every TCP port." % (who, rendezvous["address"], rendezvous["port"], seconds)
    )


def _all_reach_all(
    rendezvous: Mapping[str, Any],
    told: Mapping[int, Mapping[str, Any]],
    lines: Mapping[int, LineConnection],
    own: socket.socket,
) -> str:
    """Return collectives connect every machine with every other, at ports of their own choice."""
    places = {rank: [str(each["address"]), int(each["port"])] for rank, each in told.items() if rank}
    places[0] = [rendezvous["own_address"], own.getsockname()[1]]
    for line in lines.values():
        _tell(line, {"places": places})
    failed = {0: unreached(places, 0)}
    for rank, line in lines.items():
        try:
            failed[rank] = [int(each) for each in line.read(3 * _connect_seconds())["unreached"]]
        except (OSError, ValueError, KeyError, TypeError):
            return "Node %d was lost while the machines met." % rank
    for rank in sorted(failed):
        for other in failed[rank]:
            return (
                "Node %d (%s) does not reach node %d (%s): the machines have to be allowed to connect to each other on every"
                " TCP port." % (rank, places[rank][0], other, places[other][0])
            )
    return ""


def _tell(line: LineConnection, value: Mapping[str, Any]) -> None:
    """To one that may be gone: that is noticed when it does not answer."""
    try:
        line.write(value, _connect_seconds())
    except OSError:
        pass


def _join(rendezvous: Mapping[str, Any], stage: str, facts: dict[str, Any], seconds: float) -> None:
    rank, until, last = rendezvous["node"], time.monotonic() + seconds, ""
    own = _listen_anywhere(rendezvous)
    try:
        while True:
            try:
                connection = socket.create_connection((rendezvous["address"], rendezvous["port"]), _connect_seconds())
                line = LineConnection(connection)
                hello = {**facts, "stage": stage, "node": rank, "address": rendezvous["own_address"]}
                if stage == "reach":
                    hello.update(epoch=time.time(), port=own.getsockname()[1])
                line.write(hello, _connect_seconds())
                said = line.read(max(_connect_seconds(), until - time.monotonic() + _connect_seconds()))
                if "places" in said:
                    places = {int(other): place for other, place in said["places"].items()}
                    line.write({"unreached": unreached(places, rank)}, _connect_seconds())
                    said = line.read(4 * _connect_seconds())
                line.close()
                break
            except (OSError, ValueError) as error:
                last = str(error) or type(error).__name__
                if time.monotonic() >= until:
                    raise MeetingFailed(
                        "Node %d (%s) does not reach node 0 at %s port %d (%s): the machines have to be allowed to connect"
                        " to each other on every TCP port."
                        % (rank, rendezvous["own_address"], rendezvous["address"], rendezvous["port"], last)
                    ) from None
                time.sleep(_RETRY_SECONDS)
    finally:
        own.close()
    if said.get("error"):
        raise MeetingFailed(str(said["error"]))


def unreached(places: Mapping[int, Any], rank: int) -> list[int]:
    """Return the nodes other than `rank` whose place (address, port) does not answer; all are tried at once."""
    waiting: dict[int, socket.socket] = {}
    failed: list[int] = []
    for other, (address, port) in places.items():
        if other == rank:
            continue
        tried = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tried.setblocking(False)
        tried.connect_ex((address, port))
        waiting[other] = tried
    until = time.monotonic() + _connect_seconds()
    while waiting and time.monotonic() < until:
        _, ready, _ = select.select([], list(waiting.values()), [], max(0.0, until - time.monotonic()))
        for other, tried in list(waiting.items()):
            if tried in ready:
                if tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    failed.append(other)
                waiting.pop(other).close()
    for other, tried in waiting.items():
        failed.append(other)
        tried.close()
    return sorted(failed)


def listen(rendezvous: Mapping[str, Any]) -> socket.socket:
    """Listen where the ranks will meet.

    Raises:
        MeetingFailed: The port is taken.
    """
    address, port = rendezvous["address"], rendezvous["port"]
    why = "Port %d of node 0 (%s) cannot be used: %%s. Choose another with -e MASTER_PORT=29600." % (port, address)
    return _listening(address, port, why)


def _listen_anywhere(rendezvous: Mapping[str, Any]) -> socket.socket:
    """Return a port of this machine's that the others try to reach; the kernel answers them."""
    node, address = rendezvous["node"], rendezvous["own_address"]
    return _listening(address, 0, "Node %d has no interface with its private address %s: %%s." % (node, address))


def _listening(address: str, port: int, why: str) -> socket.socket:
    """Return a socket that listens; `why` is the sentence for people if it cannot."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise MeetingFailed(why % os.strerror(error.errno or 0)) from None
    listener.listen(128)
    return listener
