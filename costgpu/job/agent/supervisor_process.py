"""The supervisor as the daemon sees it: a process to start, signal, read upload addresses from, and clean up after."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...portable.clock import boot_id
from ...portable.processes import Process, descendants, has_variable, is_alive, process, processes
from ...portable.supervise import end_all
from .job_environment import OUTPUTS_VARIABLE
from .observe.machine_stats import service_processes
from .rpc import memory_file
from .state_files import Home
from .supervisor import read_secrets


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
    entry = process(child.pid)
    return {"pid": child.pid, "started": entry.started if entry else 0, "secrets": descriptor}, go


class SupervisorProcess:
    """The supervisor that an order names, perhaps started by an earlier daemon."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.pid: int = order["supervisor"]["pid"]
        self._started, self._secrets = order["supervisor"]["started"], order["supervisor"]["secrets"]
        self._boot_id = order["boot_id"]

    def is_alive(self) -> bool:
        """Return whether that very process is running; process numbers are used again."""
        return self._boot_id == boot_id() and is_alive(self.pid, self._started)

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

        def find(_: Sequence[Process]) -> list[Process]:
            table = processes()
            marked = [one for one in table.values() if one.pid != os.getpid() and has_variable(one.pid, mark)]
            own = [table[self.pid], *descendants(self.pid, table)] if self.pid in table and self.is_alive() else []
            return [*own, *marked, *service_processes()]

        end_all(find)
