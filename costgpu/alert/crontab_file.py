"""Reads and replaces the user's crontab, by the system's own `crontab` command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

from costgpu.config.paths import data_folder
from costgpu.errors import ConfigError

SECONDS = 20.0
BACKUPS = 20  # that are kept
_SHOWN = re.compile(rb"\\[rb]")
# vixie cron, cronie and macOS; busybox
_NONE_YET = re.compile(rb"no crontab for |can't open '[^']*': No such file")


def read() -> bytes:
    """Return the user's crontab; empty if there is none.

    Raises:
        ConfigError: It cannot be read.
    """
    done = _crontab("-l")
    if done.returncode == 0:
        return _exactly(done.stdout)
    if not done.stdout and _NONE_YET.search(done.stderr):
        return b""
    raise ConfigError(f"The crontab cannot be read: {_said(done)}.", hint="Nothing was changed.")


def _exactly(shown: bytes) -> bytes:
    """Return the crontab itself: Debian's ``crontab -l`` shows a carriage return and a backspace as two characters each.

    Its ``crontab -e`` gives the editor the file as it is, and `cat` is an editor that changes nothing.
    """
    if not _SHOWN.search(shown):
        return shown
    edited = _crontab("-e")
    text = edited.stdout
    if edited.returncode == 0 and shown in (text, text.replace(b"\r", b"\\r").replace(b"\b", b"\\b")):
        return text
    raise ConfigError(
        "The crontab cannot be read byte for byte: there are carriage returns in it, or the like.",
        hint="Nothing was changed. Take them out with `crontab -e`, or put the line in yourself.",
    )


def replace(old: bytes, new: bytes, now: datetime) -> Path | None:
    """Replace the user's crontab, and return the path of a copy of the old one; None if that was empty.

    Args:
        old: The crontab as `read` gave it.
        new: The new crontab; empty to remove it.
        now: The present, for the name of the copy.

    Raises:
        ConfigError: The system refused it, or somebody has changed it meanwhile; then it is as it was.
    """
    copy = _backup(old, now) if old else None
    if read() != old:
        raise ConfigError("The crontab has just been changed by somebody else.", hint="Nothing was changed. Try again.")
    done = _crontab("-", new) if new else _crontab("-r")
    if done.returncode != 0:
        raise ConfigError(f"The new crontab was refused: {_said(done)}.", hint="It is as it was.")
    if read() != new:
        kept = f" What it was is in {copy}." if copy else ""
        raise ConfigError(f"The crontab is not what was written: another program has changed it.{kept}")
    return copy


def _backup(old: bytes, now: datetime) -> Path:
    folder = data_folder() / "crontabs"
    path = folder / f"{now:%Y%m%dT%H%M%S.%fZ}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(old)
            file.flush()
            os.fsync(file.fileno())
        for outdated in sorted(folder.iterdir())[:-BACKUPS]:
            outdated.unlink(missing_ok=True)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise ConfigError(
            f"No copy of the crontab can be kept in {folder}: {why}.", hint="The crontab was not changed."
        ) from error
    return path


def _crontab(argument: str, text: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("crontab")
    if program is None:
        raise ConfigError(
            "There is no `crontab` command here.",
            hint="Install cron (Debian: apt-get install cron), or use the systemd timer that `costgpu budget cron` prints.",
        )
    environment = {name: value for name, value in os.environ.items() if name != "CRONTAB_NOHEADER"}
    try:
        return subprocess.run(
            [program, argument],
            input=text if text is not None else b"",
            capture_output=True,
            timeout=SECONDS,
            env={**environment, "LC_ALL": "C", "EDITOR": "cat", "VISUAL": "cat"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"`crontab {argument}` did not end within {SECONDS:.0f} s.") from None
    except OSError as error:
        raise ConfigError(f"`crontab` cannot be started: {os.strerror(error.errno or 0)}.") from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    words = " ".join(done.stderr.decode(errors="replace").split()).rstrip(".")
    return words[:300] or f"`crontab` ended with exit code {done.returncode}"
