"""The settings as one validated value. Imports pydantic: 0.1 s."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
)

from costgpu.config.settings_files import PREFIX, check_variables, project_file, user_file, variables
from costgpu.errors import ConfigError, UsageError
from costgpu.providers import registry
from costgpu.units import SYNC_MIB

LONGEST_LEASE_HOURS = 168.0  # 7 days
MOST_MACHINES = 1000
# Networks that one organisation may have; wider ones mean everybody.
WIDEST_PREFIX = {4: 8, 6: 32}
OPTIONS = {"sync_limit_mib": "--sync-limit"}  # that are not called as their settings


def _address(text: str) -> str:
    """Return the CIDR of an address or network."""
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError("is no address or network; write 203.0.113.7 or 203.0.113.0/24") from None
    if network.prefixlen < WIDEST_PREFIX[network.version]:
        raise ValueError(f"would open port 22 to the world; the widest is /{WIDEST_PREFIX[network.version]}")
    return str(network)


def _words(value: object) -> object:
    """Return the words of a text; a list stays one."""
    return tuple(value.split()) if isinstance(value, str) else value


def _matching(pattern: str, what: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f"is not {what}")
        return text

    return AfterValidator(check)


class Settings(BaseModel):
    """What can be set once for all commands. Made by `load_settings`, which adds the settings of the providers."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    # the address of the ledger; None for the file in the data folder. It may hold a password
    ledger_url: SecretStr | None = None
    # ``s3://name/prefix`` for outputs and logs
    bucket: (
        Annotated[str, _matching(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/\S*)?", "of the form s3://name/prefix")]
        | None
    ) = None
    # CIDR that may reach the machines' port 22; None to find the user's own address out
    caller_address: Annotated[str, AfterValidator(_address)] | None = None
    # the largest working folder that is sent without asking, MiB
    sync_limit_mib: Annotated[float, Field(gt=0, le=SYNC_MIB.high, allow_inf_nan=False)] = 500.0
    # the longest life that an instance may be given, hours; at most 168
    max_lease_hours: Annotated[float, Field(gt=0, le=LONGEST_LEASE_HOURS, allow_inf_nan=False)] = LONGEST_LEASE_HOURS
    # machines that may be there at once before another run of the queue is started
    max_machines: Annotated[int, Field(ge=1, le=MOST_MACHINES)] = 1
    # as ``--infra``: ``aws/us-east-1``, ``local``, ...
    default_infra: (
        Annotated[str, _matching(r"[a-z][a-z0-9]*(/[a-z0-9-]+){0,2}", "of the form aws, aws/us-east-1 or local")] | None
    ) = None
    # of the amounts that commands show, with how much of it is one US dollar; None for US dollars
    currency: Annotated[str, _matching(r"[A-Za-z]{3}", "the code of a currency, such as EUR")] | None = None
    currency_rate: Annotated[str, _matching(r"[0-9]*\.?[0-9]+", "a number, such as 0.92")] | None = None
    # who is said to have created machines; None for user@host
    owner: (
        Annotated[str, _matching(r"[\w .:/=+@-]{1,128}", "a name (letters, digits, spaces and . : / = + @ -)")] | None
    ) = None

    # where budget alerts go, as apprise writes them; in a variable, separated by spaces. They hold passwords
    alert_urls: Annotated[tuple[SecretStr, ...], BeforeValidator(_words)] = ()

    def of_provider(self, name: str) -> dict[str, str]:
        """Return the settings of one provider that are set, without its name in front."""
        values = {key: getattr(self, f"{name}_{key}", None) for key in registry.spec(name).settings}
        return {key: value for key, value in values.items() if value is not None}


@cache
def settings_model() -> type[Settings]:
    """Return `Settings` with the settings of every provider."""
    fields: dict[str, Any] = {
        name: (Annotated[str, _matching(setting.pattern, setting.form)] | None, None)
        for name, setting in registry.settings().items()
    }
    return create_model("Settings", __base__=Settings, **fields)


def load_settings(folder: Path, **flags: Any) -> Settings:
    """Return the settings that hold in a folder.

    Args:
        folder: Where the search for the project's file begins.
        flags: What the command line says, by the names of the settings; None for what it does not.

    Raises:
        ConfigError: A file cannot be read or says what it may not; a value is unusable. Names the file or variable, and
            never repeats the value.
        UsageError: A value of the command line is unusable.
    """
    values: dict[str, Any] = {}
    places: dict[str, str] = {}  # setting -> what says it, for messages

    def take(source: Mapping[str, Any], place: Callable[[str], str]) -> None:
        """Let a source win over those that were taken before."""
        values.update(source)
        places.update({key: place(key) for key in source})

    check_variables(os.environ)
    project, user = project_file(folder), user_file()
    take(user.values, lambda key: f"{user.path}: {key}")
    take(project.values, lambda key: f"{project.path}: {key}")
    take(variables(), lambda key: f"{PREFIX}{key.upper()}")
    given = {key: value for key, value in flags.items() if value is not None}
    take(given, _option_of)
    try:
        return settings_model()(**values)
    except ValidationError as exc:
        problem = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        words = str(problem["msg"]).removeprefix("Value error, ")
        words = words if words.startswith(("is ", "would ")) else f"is unusable: {words[:1].lower()}{words[1:]}"
        key = str(problem["loc"][0])
        message = f"{places[key]} {words}."
        if key in given:
            raise UsageError(message) from exc
        raise ConfigError(message, hint="`costgpu run --help` and docs/settings.md name what can be set.") from exc


def _option_of(key: str) -> str:
    """Return the option of the command line that sets a setting."""
    setting = registry.settings().get(key)
    return (setting.option if setting is not None else "") or OPTIONS.get(key, f"--{key.replace('_', '-')}")
