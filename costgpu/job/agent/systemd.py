"""Starting the daemon so that it comes back when it dies: by systemd, or by a loop of the shell.

Units that are ordered after the network are stopped before it: an agent that the end of the machine stops can upload.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from typing import Any

from ...portable.clock import uptime
from .outputs import upload_at_shutdown
from .rpc import call_daemon
from .state_files import Home, setting

UNIT = "costgpu-agent.service"
_SYSTEMCTL_SECONDS = 90.0
_UNIT_FILE = """[Unit]
Description=costgpu: guards the job on this machine
After=network.target nss-lookup.target
StartLimitIntervalSec=0
[Service]
ExecStart={python} -I {program} daemon
Restart=always
RestartSec=1
KillMode=process
TimeoutStopSec={stop}
OOMScoreAdjust=-900
StandardOutput=append:{log}
StandardError=append:{log}
[Install]
WantedBy=multi-user.target
"""
# A daemon that ends by itself (exit code 0) is not started again, nor one whose machine is being ended.
_LOOP = 'while [ ! -e "$1/ended_by" ]; do "$2" -I "$3" daemon >>"$1/agent.log" 2>&1 && break; sleep 1; done'


def start_service(home: Home, program: str) -> None:
    """Start a daemon that is restarted when it dies; do nothing if there is one."""
    if home.remote and os.getuid() == 0 and os.path.isdir("/run/systemd/system") and shutil.which("systemctl"):
        text = _UNIT_FILE.format(
            python=sys.executable, program=program, log=home.file("agent.log"), stop=upload_at_shutdown.STOP_SECONDS
        )
        with open("/etc/systemd/system/" + UNIT, "w", encoding="ascii") as stream:
            stream.write(text)
        subprocess.check_call(["systemctl", "daemon-reload"], stdout=subprocess.DEVNULL, timeout=_SYSTEMCTL_SECONDS)
        enable = ["systemctl", "enable", "-q", "--now", UNIT]
        subprocess.check_call(enable, stdout=subprocess.DEVNULL, timeout=_SYSTEMCTL_SECONDS)
        return
    subprocess.Popen(
        ["/bin/sh", "-c", _LOOP, "costgpu-agent", home.path, sys.executable, program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def install(home: Home, program: str) -> dict[str, Any]:
    """Make sure that a daemon of this very program guards the machine.

    Raises:
        OSError: It does not come up.
        TimeoutError: Other programs' daemons come up in its place, again and again.
    """
    home.record_contact()
    until = uptime() + setting("INSTALL_SECONDS", 60.0)
    try:
        running = call_daemon(home, {"method": "ping"}, timeout=0.0)
    except OSError:
        running = {}
    while running.get("program") != program:
        if uptime() >= until:
            raise TimeoutError("%s is always there before it" % running["program"])
        if running:
            try:
                call_daemon(home, {"method": "stop"}, timeout=0.0)
            except OSError:
                pass  # gone by itself
            _wait_for_lock(home, until)
        start_service(home, program)
        running = call_daemon(home, {"method": "ping"})
    return running


def _wait_for_lock(home: Home, until: float) -> None:
    """Wait until the old daemon's lock is free, since a daemon that finds it held ends."""
    with open(home.file("agent.lock"), "ab") as lock:
        while uptime() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                time.sleep(0.02)
