"""What `costgpu doctor` looks at on this computer."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from costgpu.config import config_file, ledger_url
from costgpu.config.paths import data_path
from costgpu.config.settings_files import PREFIX, user_file
from costgpu.errors import ConfigError, LedgerError
from costgpu.models.diagnostics import Check, Examination, ok, unknown, warning
from costgpu.version import __version__
from costgpu.workflows.context import AppContext


def own_checks(context: AppContext) -> Sequence[Check]:
    """What is found of this computer."""
    done = Examination()
    done.add("python", _python)
    done.add("settings", lambda: _settings(context))
    done.add("data folder", _data_folder)
    done.add("ledger", _ledger)
    done.add("alerts", _alerts)
    done.add("cron", _cron)
    return done.checks


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return ok("python", f"{version}, costgpu {__version__}")


def _settings(context: AppContext) -> Check:
    settings = context.settings
    file = config_file()
    where = str(file) if file.is_file() else f"no file {file}; defaults and variables count"
    return ok("settings", f"{where}; machines may live {settings.max_lease_hours:g} h")


def _data_folder() -> Check:
    folder = data_path()
    if not folder.exists():
        near = next(parent for parent in folder.parents if parent.exists())
        if not os.access(near, os.W_OK | os.X_OK):
            raise ConfigError(f"{folder} cannot be made: {near} may not be written.", hint="Set XDG_DATA_HOME.")
        return ok("data folder", f"{folder} is made, for you alone, when the first run needs it")
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{folder} is not a folder.", hint="Move it away, or set XDG_DATA_HOME.")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise ConfigError(
            f"{folder} belongs to another user (number {found.st_uid}).",
            hint="Set XDG_DATA_HOME to a folder of your own.",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} may not be written.", hint=f"chmod 700 {folder}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        return warning("data folder", f"others may look into {folder}, where keys of runs are", f"chmod 700 {folder}")
    return ok("data folder", f"{folder}, for you alone")


def _ledger() -> Check:
    """Reads it; whether it can be written is asked of the system, so that nothing is changed."""
    from costgpu.ledger import Ledger

    with Ledger.open(ledger_url()) as ledger:
        place, runs = ledger.place, len(ledger.recent_runs())
    if "://" in place:
        return ok("ledger", f"{place} answers (whether it can be written, only a run tells)")
    file = Path(place)
    if not file.exists():
        return ok("ledger", f"{file} is made by the first run")
    if not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        raise LedgerError(f"The ledger {file} may not be written.", hint="No run starts without it: chmod u+w.")
    return ok("ledger", f"{file} can be read and written ({runs}{'+' if runs >= 50 else ''} runs)")


def _alerts() -> Check:
    file = user_file()
    if "alert_urls" not in file.values or file.path is None:
        if os.environ.get(f"{PREFIX}ALERT_URLS"):
            return ok("alerts", f"addresses in {PREFIX}ALERT_URLS; costgpu budget test-alert tries them")
        return ok("alerts", "no alert_urls: budget alerts are printed, and sent to nobody")
    if stat.S_IMODE(file.path.stat().st_mode) & 0o077:
        return warning("alerts", f"others may read {file.path}, which holds secrets", f"chmod 600 {file.path}")
    return ok("alerts", f"addresses in {file.path}, for you alone; costgpu budget test-alert tries them")


def _cron() -> Check:
    from costgpu.alert import crontab_file, crontab_lines

    advice = "costgpu budget cron --reap --install ends by itself what has outlived its lease."
    try:
        lines = crontab_file.read()
        installed = crontab_lines.remove(lines) != lines
    except ConfigError as error:
        return unknown("cron", error.message)
    if installed:
        return ok("cron", "costgpu looks after budgets by itself")
    return ok("cron", "costgpu does nothing by itself: no line of it in your crontab", advice)
