"""The machine is being switched off from outside: what a job has so far goes to the bucket in the seconds that are left.

Google takes a spot machine back like this, with the notice at the same moment and at most 30 seconds until the power is
off (cloud.google.com/compute/docs/instances/preemptible, 2026-11); so does somebody who stops it at a console.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..limits import Ending
from ..observe import machine_stats
from ..observe.spot_notice import read_notice
from .finalize_outputs import settle

if TYPE_CHECKING:
    from ..daemon import Daemon

SECONDS = 25.0  # for the job's end and the upload
GRACE_SECONDS = 10.0  # of those for the job, at most
STOP_SECONDS = 45  # systemd then kills this agent, whatever it waits for


def leave(daemon: Daemon) -> NoReturn:
    """Systemd has stopped the agent: ends this process, and before that the job, if the machine goes down with it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _save_outputs(daemon)
    except Exception:
        traceback.print_exc()
    os.kill(os.getpid(), signal.SIGTERM)
    raise SystemExit(128 + signal.SIGTERM)


def _save_outputs(daemon: Daemon) -> None:
    """Ends the job and uploads, if there is a bucket and systemd shuts down the machine rather than the agent alone."""
    order, home = daemon.order, daemon.home
    if order is None or daemon.state.get("uploaded") or "collected_uptime" in daemon.state:
        return
    uploads = daemon.secret_uploads()
    if not uploads or not _is_under_way():
        return
    until = machine_stats.uptime() + SECONDS
    if daemon.settling is not None:
        daemon.settling.join(SECONDS)
        return
    if not home.exists("exit.json"):
        ending = daemon.state.get("ending") or {**_why(order)._asdict(), "uptime": machine_stats.uptime()}
        daemon.save(ending={**ending, "grace_seconds": min(ending["grace_seconds"], GRACE_SECONDS)})
        daemon.signal_supervisor(signal.SIGTERM)
    while not home.exists("exit.json") and machine_stats.uptime() < until:
        time.sleep(0.05)
    daemon.save(**settle(home, order, uploads, lambda: machine_stats.uptime() >= until))


def _is_under_way() -> bool:
    try:
        said = subprocess.run(
            ["systemctl", "is-system-running"], stdout=subprocess.PIPE, timeout=15, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.strip() == b"stopping"


def _why(order: Mapping[str, Any]) -> Ending:
    grace = float(order["grace_seconds"])
    notice = read_notice(order.get("spot_notice")).words if order["spot"] else ""
    if notice:
        return Ending("preempted", "The provider takes the machine back: %s." % notice, grace)
    return Ending("job_failed", "The machine was shut down or restarted.", grace)
