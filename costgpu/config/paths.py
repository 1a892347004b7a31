"""Where costgpu keeps things: the XDG folders, or what the system has instead. Imports only `errors`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs

from costgpu.errors import ConfigError

APP = "costgpu"
PRIVATE = 0o700


def config_file() -> Path:
    """Return the user's settings; it need not exist."""
    return platformdirs.user_config_path(APP, appauthor=False) / "config.toml"


def data_path() -> Path:
    """Return the folder of the ledger and of what runs keep; it need not exist."""
    return platformdirs.user_data_path(APP, appauthor=False)


def data_folder() -> Path:
    """`data_path`, made if need be, for its owner only.

    Raises:
        ConfigError: It cannot be made, or it belongs to somebody else.
    """
    return _private(data_path())


def runs_folder() -> Path:
    """Return the folder with one folder for each run, where its keys are; made if need be, for its owner only.

    Raises:
        ConfigError: It cannot be made, or it belongs to somebody else.
    """
    return _private(data_folder() / "runs")


def _private(folder: Path) -> Path:
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        found = folder.stat()
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            raise ConfigError(
                f"The folder {folder} belongs to another user (number {found.st_uid}).",
                hint="Keys of runs are kept there. Set XDG_DATA_HOME to a folder of your own.",
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(PRIVATE)
    except OSError as exc:
        raise ConfigError(
            f"The folder {folder} cannot be used: {os.strerror(exc.errno) if exc.errno else exc}.",
            hint="Set XDG_DATA_HOME to a folder that you may write.",
        ) from exc
    return folder
