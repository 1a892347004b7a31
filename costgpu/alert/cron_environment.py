"""The environment variables that a command in cron needs.

Cron sets hardly any. Those that only say where something is go into its line; secrets never do, since a crontab is a
plain file: a note says that they are missing.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from costgpu.config.paths import config_file
from costgpu.config.settings_files import PREFIX, known_settings, project_file, user_file
from costgpu.providers import registry

SECRET_SETTINGS = ("ALERT_URLS", "LEDGER_URL")
LOCATION_VARIABLES = (
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "TZ",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
"""Variables that say where something is, or which one to use; the providers have further ones."""
SECRETS = {"PGPASSWORD": "Write it into ~/.pgpass."}
PROGRAMS = ("git", "ssh")  # that runs may need; credentials of providers may need others
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_SECRET_KEY = re.compile(r"pass(?!file)|secret|token", re.IGNORECASE)
_HAS_SECRET = re.compile(rf"://.*:.*@|://[^/?#]*@.*://|[?&][^=&]*(?:{_SECRET_KEY.pattern})", re.IGNORECASE)
_PROXY_SECRET = re.compile(r"^(?:\w+://[^:]*|(?!\w+://)[^:]*):.*@")  # curl and others take a proxy without http://, too


@dataclass(frozen=True, slots=True)
class CronEnvironment:
    """Variables for the command, and sentences for the person who sets it up, without any secret."""

    variables: Mapping[str, str]
    notes: Sequence[str] = field(default=())


def cron_environment(
    environment: Mapping[str, str],
    program: str,
    which: Callable[[str], str | None],
    home: str = "",
) -> CronEnvironment:
    """Select from the environment of a terminal what a command without one needs.

    Args:
        program: Full path of the command.
        which: Finds the full path of a program by its name; None if there is none.
        home: The user's home folder as the system has it; empty if it is not known.

    Raises:
        ConfigError: A settings file cannot be read.
    """
    variables: dict[str, str] = {"PATH": _path(program, which)}
    notes: list[str] = []
    if home and environment.get("HOME", home) != home:
        variables["HOME"] = environment["HOME"]
    providers = registry.specs()
    for name in (*LOCATION_VARIABLES, *(name for spec in providers for name in spec.environment)):
        value = environment.get(name, "")
        hides = _PROXY_SECRET if name.lower().endswith("_proxy") else _HAS_SECRET
        if value and hides.search(value):
            notes.append(f"{name} has a password in it, so it is left out: cron will not see it.")
        elif value and "\n" not in value:
            variables[name] = value
    where = f"Write it into {config_file()} (mode 0600)"
    for name, value in sorted(environment.items()):
        setting = name.upper().removeprefix(PREFIX)
        if not name.upper().startswith(PREFIX) or setting.lower() not in known_settings() or not value:
            continue
        if setting == "ALERT_URLS" or (setting in SECRET_SETTINGS and _secret_ledger(value)):
            notes.append(f"{name} is a secret and only known to this terminal: cron will not see it. {where}.")
        else:
            variables[name] = value
    project = project_file(Path()).values  # cron starts in another folder
    for key in (name for name, rules in registry.settings().items() if rules.names_account):
        account, variable = project.get(key), f"{PREFIX}{key.upper()}"
        if isinstance(account, str) and account and variable not in map(str.upper, variables):
            variables[variable] = account
    for secrets in (*(spec.secret_environment for spec in providers), SECRETS):
        for name, advice in secrets.items():
            if environment.get(name):
                notes.append(f"{name} is only known to this terminal: cron will not see it. {advice}")
    notes += _file_notes(environment)
    return CronEnvironment(variables, tuple(notes))


def _file_notes(environment: Mapping[str, str]) -> list[str]:
    """Note about the user's settings file."""
    file = user_file()
    if "alert_urls" not in file.values:
        if environment.get(f"{PREFIX}ALERT_URLS"):
            return []
        return [
            "No alert_urls are configured, so only what cron itself mails can reach you; `costgpu budget test-alert`."
        ]
    mode = stat.S_IMODE(file.path.stat().st_mode) if file.path else 0
    if mode & 0o077:
        return [f"{file.path} holds secrets and others may read it: chmod 600 {file.path}"]
    return []


def _path(program: str, which: Callable[[str], str | None]) -> str:
    """Return the search path of programs, as short as it can be, since a crontab's line has little room."""
    programs = (*(name for spec in registry.specs() for name in spec.programs), *PROGRAMS)
    found = [str(Path(program).parent), *(str(Path(place).parent) for place in map(which, programs) if place)]
    folders = dict.fromkeys((*found, *SYSTEM_PATH))
    return ":".join(folder for folder in folders if folder.startswith("/") and not set(folder) & set(":\n\r"))


def _secret_ledger(url: str) -> bool:
    """Return whether it holds a password, or cannot be read."""
    from sqlalchemy.engine import make_url  # noqa: PLC0415  only for those who have such a variable
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        return True
    return found.password is not None or any(map(_SECRET_KEY.search, found.query)) or bool(_HAS_SECRET.search(url))
