"""The supervisor as the daemon sees it: a process to start, signal, read upload addresses from, and clean up after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from .clock import boot_id
from .job_environment import OUTPUTS_VARIABLE
from .observe import machine_stats
from .rpc import memory_file
from .state_files import Home
from .supervisor import read_secrets

_KILL_ROUNDS = 100
_ROUND_SECONDS = 0.05


def start_supervisor(
    program: str, secrets: Mapping[str, str], uploads: Mapping[str, str]
) -> tuple[dict[str, Any], int]:
    """Start a supervisor that waits for its order.

    Returns:
        What the order must say of it, and the descriptor whose closing lets it go on.
    """
    descriptor = memory_file({"secrets": secrets, "uploads": uploads})
    hold, go = os.pipe()
    command = [sys.executable, "-I", program, "supervise", str(descriptor), str(hold)]
    child = subprocess.Popen(command, pass_fds=(descriptor, hold), start_new_session=True, stdin=subprocess.DEVNULL)
    os.close(hold)
    os.close(descriptor)
    entry = machine_stats.process(child.pid)
    return {"pid": child.pid, "started": entry.started if entry else 0, "secrets": descriptor}, go


class SupervisorProcess:
    """The supervisor that an order names, perhaps started by an earlier daemon."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.pid: int = order["supervisor"]["pid"]
        self._started, self._secrets = order["supervisor"]["started"], order["supervisor"]["secrets"]
        self._boot_id = order["boot_id"]

    def is_alive(self) -> bool:
        """Return whether that very process is running; process numbers are used again."""
        return self._boot_id == boot_id() and machine_stats.is_alive(self.pid, self._started)

    def signal(self, number: int) -> None:
        """Send a signal if the process is running."""
        if self.is_alive():
            os.kill(self.pid, number)

    def read_upload_urls(self) -> dict[str, str]:
        """Return the upload addresses that it keeps in memory; empty if it is gone."""
        if not self.is_alive():
            return {}
        try:
            descriptor = os.open("/proc/%d/fd/%d" % (self.pid, self._secrets), os.O_RDONLY)
            try:
                return read_secrets(descriptor)["uploads"]
            finally:
                os.close(descriptor)
        except (OSError, ValueError, KeyError):
            return {}

    def kill_job(self, home: Home) -> None:
        """Kill the supervisor and every process of its job, however they are related now."""
        mark = OUTPUTS_VARIABLE + "=" + home.work
        for _ in range(_KILL_ROUNDS):
            left = machine_stats.processes_with_environment(mark) + machine_stats.service_processes()
            left += [entry.pid for entry in machine_stats.descendants(self.pid)]
            if self.is_alive():
                left.append(self.pid)
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(_ROUND_SECONDS)
