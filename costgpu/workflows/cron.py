"""The crontab lines that look after budgets, and what they need to work."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from costgpu.alert import crontab
from costgpu.alert.cron_environment import cron_environment
from costgpu.clock import SystemClock

SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail", "/usr/bin/sendmail")
CRON_DAEMONS = {"cron", "crond", "fcron", "dcron", "systemd-cron"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CronPlan:
    """Crontab lines that run commands again and again."""

    schedule: crontab.Schedule
    lines: tuple[bytes, ...]
    notes: tuple[str, ...]  # what may keep them from working


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabChange:
    """What came of a change of the crontab."""

    changed: bool  # whether it is another one now
    copy: Path | None = None  # copy of the old one; None if there was none
    notes: tuple[str, ...] = ()  # what may keep the lines from working


def plan_cron(every: str, *, reap: bool, enforce: bool, queue: bool = False) -> CronPlan:
    """Return the lines of the commands, with the environment that they need."""
    schedule, program = crontab.Schedule.parse(every), _program()
    environment = cron_environment(os.environ, program[0], shutil.which, _home())
    commands = [[*program, "budget", "check", *(["--enforce"] if enforce else [])]]
    commands += [[*program, "reap", "--yes"]] if reap else []
    commands += [[*program, "queue", "--start"]] if queue else []
    lines = tuple(crontab.line(schedule, argv, environment.variables) for argv in commands)
    return CronPlan(schedule=schedule, lines=lines, notes=tuple(environment.notes))


def install(plan: CronPlan) -> CrontabChange:
    """Put the lines into the user's crontab; its other lines stay as they are."""
    old = crontab.read()
    notes = list(plan.notes)
    if not _cron_runs():
        notes.append("No cron daemon seems to run here: nothing happens until one does.")
    if not any(os.access(place, os.X_OK) for place in SENDMAIL):
        notes.append("There is no sendmail here, so what cron itself mails reaches nobody; alert_urls do.")
    return _change(old, crontab.install(old, plan.lines), tuple(notes))


def remove() -> CrontabChange:
    """Take the lines out of the user's crontab."""
    old = crontab.read()
    return _change(old, crontab.remove(old))


def _change(old: bytes, new: bytes, notes: tuple[str, ...] = ()) -> CrontabChange:
    if new == old:
        return CrontabChange(changed=False, notes=notes)
    copy = crontab.write(old, new, f"{SystemClock().now():%Y%m%dT%H%M%S.%fZ}")
    return CrontabChange(changed=True, copy=copy, notes=notes)


def _program() -> list[str]:
    """Return how to start this costgpu from anywhere."""
    beside = Path(sys.executable).absolute().with_name("costgpu")
    if os.access(beside, os.X_OK) and beside.is_file():
        return [str(beside)]
    started = Path(sys.argv[0])
    if started.name == "costgpu" and os.access(started, os.X_OK) and started.is_file():
        return [str(started.absolute())]
    return [str(Path(sys.executable).absolute()), "-m", "costgpu"]


def _home() -> str:
    """Return the home folder that cron will give us; empty where the system does not say."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


def _cron_runs() -> bool:
    """Return whether a cron daemon seems to be there; true if that cannot be found out."""
    with contextlib.suppress(psutil.Error, OSError):
        return any(process.info["name"] in CRON_DAEMONS for process in psutil.process_iter(["name"]))
    return True
