"""What the machine is doing: time, processes, processors, network, disk, GPUs. Reads /proc; changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from typing import NamedTuple

_TICKS = float(os.sysconf("SC_CLK_TCK"))


def uptime() -> float:
    """Monotonic seconds that every process of this boot shares, sleep included: what /proc/uptime counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Another one after every boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


class Process(NamedTuple):
    """One line of the process table; `cpu` includes children that were waited for, in seconds."""

    pid: int
    parent: int
    session: int
    started: int
    cpu: float
    children_cpu: float


def process(pid: int) -> Process | None:
    """None if there is none, or only a zombie."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            fields = stream.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), (own + children) / _TICKS, children / _TICKS)


def processes() -> dict[int, Process]:
    """All that live."""
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


def marked(text: str) -> list[int]:
    """Processes, other than this one, whose environment holds this text."""
    found = []
    for entry in processes().values():
        try:
            with open("/proc/%d/environ" % entry.pid, "rb") as stream:
                if entry.pid != os.getpid() and os.fsencode(text) in stream.read().split(b"\0"):
                    found.append(entry.pid)
        except OSError:
            continue
    return found


def same_service() -> list[int]:
    """The other processes of our systemd service, whoever their parents are; none where we are not one."""
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
    """Whether that very process lives; process numbers are used again."""
    entry = process(pid)
    return entry is not None and entry.started == started


def disk_bytes(pids: Iterable[int]) -> int:
    """What these processes have read from and written to disks."""
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
    """Received and sent by every interface but the loopback."""
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


def _ask_gpus(*arguments: str) -> list[str]:
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
    """As nvidia-smi lists them; 0 without it."""
    return sum(line.startswith("GPU ") for line in _ask_gpus("-L"))


def gpu_percent() -> float:
    """Utilisation of the busiest GPU; 0 if nothing can be said."""
    busiest = 0.0
    for line in _ask_gpus("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"):
        try:
            busiest = max(busiest, float(line.strip()))
        except ValueError:
            continue
    return busiest
