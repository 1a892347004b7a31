"""Settings: flag, then COSTGPU_* variables, then the project's file, then the user's file, then the default.

May import `errors` and `units`. `Settings` and `load_settings` are loaded on their first use: pydantic takes 0.1 s. The
places, and the ledger's URL, cost next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from costgpu.config.paths import config_file, data_folder, data_path, runs_folder

if TYPE_CHECKING:
    from costgpu.config.settings import Settings, load_settings
    from costgpu.config.settings_files import ledger_url, users_setting

__all__ = [
    "Settings",
    "config_file",
    "data_folder",
    "data_path",
    "ledger_url",
    "load_settings",
    "runs_folder",
    "users_setting",
]

_HOMES = {
    "Settings": "settings",
    "load_settings": "settings",
    "ledger_url": "settings_files",
    "users_setting": "settings_files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
