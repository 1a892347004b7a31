"""The machine is being switched off from outside: what a job has so far goes to the bucket in the seconds that are left.

Google takes a spot machine back like this where no notice was asked for, with at most 30 seconds until the power is off
(cloud.google.com/compute/docs/instances/preemptible, 2026-11); so does somebody who stops it at a console.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from ..guard import MachineGuard
from ..limits import Termination
from ..observe.spot_notice import read_notice
from ..run_quietly import run_quietly
from ..status import job_end

SECONDS = 25.0  # for the job's end and the upload
GRACE_SECONDS = 10.0  # of those for the job, at most
_SYSTEMCTL_SECONDS = 15.0
STOP_SECONDS = 45  # systemd then kills this agent, whatever it waits for


def leave(guard: MachineGuard) -> NoReturn:
    """Systemd has stopped the agent: ends this process, and before that the job, if the machine goes down with it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _save_outputs(guard)
    except Exception:
        traceback.print_exc()
    os.kill(os.getpid(), signal.SIGTERM)
    raise SystemExit(128 + signal.SIGTERM)


def _save_outputs(guard: MachineGuard) -> None:
    """End the job and upload, if there is a bucket and systemd shuts down the machine rather than the agent alone."""
    order, home, clock = guard.order, guard.home, guard.clock
    if order is None or guard.state.get("uploaded") or "collected_uptime" in guard.state:
        return
    uploads = guard.upload_urls()
    if not uploads or not _machine_is_shutting_down():
        return
    until = clock.uptime() + SECONDS
    if guard.finalizing is not None:
        guard.finalizing.join(SECONDS)
        return
    if job_end(home) is None:
        ending = guard.state.get("ending") or {**_why(order)._asdict(), "uptime": clock.uptime()}
        guard.save(ending={**ending, "grace_seconds": min(ending["grace_seconds"], GRACE_SECONDS)})
        guard.supervisor.signal(signal.SIGTERM)
    while job_end(home) is None and clock.uptime() < until:
        clock.sleep(0.05)
    guard.finalize(order, uploads, lambda: clock.uptime() >= until)


def _machine_is_shutting_down() -> bool:
    said = run_quietly(["systemctl", "is-system-running"], _SYSTEMCTL_SECONDS)
    return said is not None and said.stdout.strip() == b"stopping"


def _why(order: Mapping[str, Any]) -> Termination:
    grace = float(order["grace_seconds"])
    notice = read_notice(order["spot_notice"]).words if order["spot"] else ""
    if notice:
        return Termination("preempted", "The provider takes the machine back: %s." % notice, grace)
    return Termination("job_failed", "The machine was shut down or restarted.", grace)
