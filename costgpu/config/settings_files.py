"""The settings files: finding, reading, and refusing what may not stand there. Without pydantic.

Anybody may have written a project's file: it comes with a clone, or lies in a folder above. So it may not set what
opens a door, hides spending or speaks in the user's name; and in a file that belongs to another user, nor where files
go.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costgpu.config.paths import config_file
from costgpu.errors import ConfigError
from costgpu.files import FileKind, read_text
from costgpu.providers import registry
from costgpu.providers.spec import Trust

PREFIX = "COSTGPU_"
PROJECT_FILE = "costgpu.toml"
PYPROJECT = "pyproject.toml"
SETTINGS = FileKind(most_bytes=2**20)
_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")


OWN_SETTINGS: Mapping[str, Trust] = {
    "ledger_url": Trust.USER,  # would hide spending, or send it to a stranger
    "bucket": Trust.OWN_PROJECT,  # outputs and logs go there
    "caller_address": Trust.USER,  # opens port 22
    "sync_limit_mib": Trust.ANY_PROJECT,
    "max_lease_hours": Trust.ANY_PROJECT,  # can only be lowered
    "max_machines": Trust.OWN_PROJECT,  # more machines at once cost more at once
    "default_infra": Trust.ANY_PROJECT,  # the plan shows it before anything is spent
    "currency": Trust.USER,  # would make amounts look smaller
    "currency_rate": Trust.USER,
    "owner": Trust.USER,  # spending would be counted as somebody else's
    "alert_urls": Trust.USER,  # secrets, and where the alerts go
}
"""costgpu's own; every provider has further ones, whose names begin with its name."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What one file sets."""

    path: Path | None = None  # the file; None if there is none
    values: Mapping[str, Any] = field(default_factory=dict)  # key -> value as TOML has it


def known_settings() -> Mapping[str, Trust]:
    """Return every setting, and which files may set it."""
    return {**OWN_SETTINGS, **{name: setting.trust for name, setting in registry.settings().items()}}


def user_file() -> SettingsFile:
    """Return the user's settings.

    Raises:
        ConfigError: The file cannot be read, or has a key that nobody knows.
    """
    path = config_file()
    raw = read_text(path, SETTINGS)
    if raw is None:
        return SettingsFile()
    return SettingsFile(path, _known(_parse(path, raw), path))


def project_file(folder: Path) -> SettingsFile:
    """Return the settings of the nearest project: ``costgpu.toml``, or ``[tool.costgpu]`` in ``pyproject.toml``.

    Args:
        folder: Where the search begins; it goes upwards.

    Raises:
        ConfigError: The file cannot be read, or has a key that nobody knows or that it may not set.
    """
    start = folder.absolute()
    for place in (start, *start.parents):
        path = place / PROJECT_FILE
        raw = read_text(path, SETTINGS)
        if raw is not None:
            return SettingsFile(path, _allowed(_known(_parse(path, raw), path), path))
        path = place / PYPROJECT
        raw = read_text(path, SETTINGS)
        if raw is not None and "costgpu" in raw:
            tool = _parse(path, raw).get("tool", {})
            values = tool.get("costgpu") if isinstance(tool, dict) else None
            if isinstance(values, dict):
                return SettingsFile(path, _allowed(_known(values, path, " in [tool.costgpu]"), path))
    return SettingsFile()


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse a variable that is nearly, but not quite, the name of a setting.

    Others that begin with ``COSTGPU_`` may belong to other parts of costgpu.
    """
    names = {PREFIX + key.upper() for key in known_settings()}
    for name in environment:
        if name.startswith(PREFIX) and name.upper() not in names:
            near = difflib.get_close_matches(name.upper(), names, n=1, cutoff=0.85)
            if near:
                raise ConfigError(f"No setting is called {name}.", hint=f"Do you mean {near[0]}?")


def variables() -> dict[str, str]:
    """Return the settings that variables of this process say; an empty one says nothing."""
    names = {name: name.upper().removeprefix(PREFIX).lower() for name in os.environ if name.upper().startswith(PREFIX)}
    known = known_settings()
    return {key: os.environ[name] for name, key in names.items() if key in known and os.environ[name]}


def ledger_url() -> str | None:
    """Return where the ledger is, as `load_settings` would say, for commands that only read it; None for the default file.

    Raises:
        ConfigError: The user's file cannot be read, or has a key that nobody knows.
    """
    return users_setting("ledger_url")


def users_setting(key: str) -> str | None:
    """Return a text that no project's file may set (`Trust.USER`), as `load_settings` would say; None if nothing does.

    Raises:
        ConfigError: The user's file cannot be read, or has a key that nobody knows.
    """
    check_variables(os.environ)
    if chosen := variables().get(key):
        return chosen
    file = user_file()
    value = file.values.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{file.path}: {key} must be a text.", hint="Write it in quotes.")
    return value


def ledger_url_at_any_rate() -> str | None:
    """Return where the ledger is, if that can be told with settings that are wrong elsewhere; None for the default file.

    Raises:
        ConfigError: The user's file, which may say it, cannot be read at all.
    """
    if chosen := variables().get("ledger_url"):
        return chosen
    path = config_file()
    value = _parse(path, read_text(path, SETTINGS) or "").get("ledger_url")
    return value if isinstance(value, str) else None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        found = _LINE.search(str(exc))
        line = int(found.group(1)) if found and found.group(1) else text.count("\n") + 1
        words = _LINE.sub("", str(exc)).strip()
        where = f"{path}, line {line}" if isinstance(exc, tomllib.TOMLDecodeError) else f"{path}"
        raise ConfigError(f"{where}: {words}.", hint="Values are written as TOML: texts in quotes.") from exc


def _known(values: Mapping[str, Any], path: Path, where: str = "") -> Mapping[str, Any]:
    known = known_settings()
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key.lower().replace("-", "_"), known, n=3)
            hint = f"Do you mean {' or '.join(near)}?" if near else f"Known are {', '.join(known)}."
            raise ConfigError(f"{path}: nothing is called {key!r}{where}.", hint=hint)
    return values


def _allowed(values: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    known = known_settings()
    for key in values:
        if known[key] is Trust.USER:
            raise ConfigError(
                f"{path}: {key} may not be set by a project's file, which anybody may have written.",
                hint=f"Set it in {config_file()}, or as {PREFIX}{key.upper()}.",
            )
        if known[key] is Trust.OWN_PROJECT and not _is_own(path):
            raise ConfigError(
                f"{path}: {key} may be set only by a project's file that is your own, and others can change this one.",
                hint=f"Set it in {config_file()}, or as {PREFIX}{key.upper()}.",
            )
    return values


def _is_own(path: Path) -> bool:
    """Return whether the file and its folder belong to the user, and not everybody can write them."""
    if not hasattr(os, "geteuid"):
        return True
    for place in (path, path.parent):
        found = place.stat()
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & stat.S_IWOTH:
            return False
    return True
