"""What the machine is doing: processes, processors, network, disk, GPUs. Reads /proc; changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

_TICKS = float(os.sysconf("SC_CLK_TCK"))


class Process(NamedTuple):
    """One line of the process table; `cpu` includes children that were waited for, in seconds."""

    pid: int
    parent: int
    session: int
    started: int
    cpu: float
    children_cpu: float


def process(pid: int) -> Process | None:
    """Return the process of that number; None if there is none, or only a zombie."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            fields = stream.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), (own + children) / _TICKS, children / _TICKS)


def name_of(pid: int) -> str:
    """Return what a process calls itself, at most 15 characters; empty if it is gone."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as stream:
            return stream.read().rstrip("\n")
    except OSError:
        return ""


def arguments_of(pid: int) -> str:
    """Return the command line of a process, with a space between its words; empty if it is gone."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as stream:
            return stream.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def processes() -> dict[int, Process]:
    """Return all running processes by number."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {entry.pid: entry for entry in found if entry is not None}


def descendants(root: int) -> list[Process]:
    """Children of `root`, and theirs, without `root` itself."""
    table = processes()
    children: dict[int, list[Process]] = {}
    for entry in table.values():
        children.setdefault(entry.parent, []).append(entry)
    found: list[Process] = []
    todo = [root]
    while todo:
        for entry in children.get(todo.pop(), ()):
            found.append(entry)
            todo.append(entry.pid)
    return found


def processes_with_environment(text: str) -> list[int]:
    """Return processes, other than this one, whose environment holds this text."""
    found = []
    for entry in processes().values():
        try:
            with open("/proc/%d/environ" % entry.pid, "rb") as stream:
                if entry.pid != os.getpid() and os.fsencode(text) in stream.read().split(b"\0"):
                    found.append(entry.pid)
        except OSError:
            continue
    return found


def service_processes() -> list[int]:
    """Return the other processes of our systemd service, whoever their parents are; none where we are not one."""
    try:
        with open("/proc/self/cgroup", "rb") as stream:
            own = stream.read()
    except OSError:
        return []
    if b"/costgpu-agent.service\n" not in own:
        return []
    found = []
    for pid in processes():
        try:
            with open("/proc/%d/cgroup" % pid, "rb") as stream:
                if pid != os.getpid() and stream.read() == own:
                    found.append(pid)
        except OSError:
            continue
    return found


def is_alive(pid: int, started: int) -> bool:
    """Return whether that very process lives; process numbers are used again."""
    entry = process(pid)
    return entry is not None and entry.started == started


def disk_bytes(pids: Iterable[int]) -> int:
    """Return the bytes that these processes have read from and written to disks."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/io" % pid, encoding="ascii") as stream:
                values = dict(line.split(": ") for line in stream.read().splitlines())
            total += int(values["read_bytes"]) + int(values["write_bytes"])
        except (OSError, KeyError, ValueError):
            continue
    return total


def network_bytes() -> int:
    """Return the bytes received and sent by every interface but the loopback."""
    total = 0
    try:
        with open("/proc/net/dev", encoding="ascii") as stream:
            for line in stream.readlines()[2:]:
                name, _, numbers = line.partition(":")
                values = numbers.split()
                if name.strip() != "lo" and len(values) > 8:
                    total += int(values[0]) + int(values[8])
    except (OSError, ValueError):
        pass
    return total


def _nvidia_smi(*arguments: str) -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(  # noqa: PLW1510
            [tool, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.decode("utf-8", "replace").splitlines() if answer.returncode == 0 else []


def gpu_count() -> int:
    """GPUs as nvidia-smi lists them; 0 without it."""
    return sum(line.startswith("GPU ") for line in _nvidia_smi("-L"))


def gpu_percent() -> float:
    """Utilization of the busiest GPU; 0 if it is unknown."""
    busiest = 0.0
    for line in _nvidia_smi("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"):
        try:
            busiest = max(busiest, float(line.strip()))
        except ValueError:
            continue
    return busiest
