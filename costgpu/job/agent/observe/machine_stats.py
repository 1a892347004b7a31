"""What the machine is doing: our service, network, disk, GPUs. Reads /proc; changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

from ....portable.processes import Process, processes, read
from ..run_quietly import run_quietly

_DRIVER_SECONDS = 30.0


def service_processes() -> list[Process]:
    """Return the other processes of our systemd service, whoever their parents are; none where we are not one."""
    own = read("self", "cgroup")
    if b"/costgpu-agent.service\n" not in own:
        return []
    return [one for one in processes().values() if one.pid != os.getpid() and read(one.pid, "cgroup") == own]


def disk_bytes(pids: Iterable[int]) -> int:
    """Return the bytes that these processes have read from and written to disks."""
    total = 0
    for pid in pids:
        try:
            values = dict(line.split(b": ") for line in read(pid, "io").splitlines())
            total += int(values[b"read_bytes"]) + int(values[b"write_bytes"])
        except (KeyError, ValueError):
            continue
    return total


def network_bytes() -> int:
    """Return the bytes received and sent by every interface but the loopback."""
    total = 0
    for line in read("net", "dev").splitlines()[2:]:
        name, _, numbers = line.partition(b":")
        values = numbers.split()
        if name.strip() != b"lo" and len(values) > 8:
            total += int(values[0]) + int(values[8])
    return total


def _nvidia_smi(*arguments: str) -> list[str]:
    tool = shutil.which("nvidia-smi")
    answer = run_quietly([tool, *arguments], _DRIVER_SECONDS) if tool is not None else None
    return answer.stdout.decode("utf-8", "replace").splitlines() if answer is not None and not answer.returncode else []


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
