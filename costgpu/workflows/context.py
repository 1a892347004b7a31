"""Puts the real parts together for a command: settings, ledger, adapters, keys. Imports lazily."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import typer

from costgpu.errors import CostGpuError

if TYPE_CHECKING:
    from costgpu.config import Settings
    from costgpu.ledger import Ledger
    from costgpu.models.run import RunView
    from costgpu.providers.base import Provider
    from costgpu.providers.spec import ProviderConfig
    from costgpu.runner.drive.context import Services
    from costgpu.runner.machine.host import Selection

ADDRESS_SECONDS = 30.0  # a laptop moves from network to network
OPTIONS = {"sync_limit_mib": "--sync-limit", "bucket": "--bucket"}
"""Settings that have an option of their own, besides those of the providers."""


class AppContext:
    """Everything that a command on runs works with; each part is made when it is first needed.

    Attributes:
        unusable: Cloud -> why nothing there can be asked, as far as that was found out.

    Args:
        folder: Of the project, whose settings count; None for the current one.
        strict: Whether wrong settings are an error. Else that is said, and the defaults hold: they must not keep
            anybody from ending a machine.
        flags: Settings from the command line; None is not given.
    """

    def __init__(self, folder: Path | None = None, *, strict: bool = False, **flags: object) -> None:
        from costgpu.clock import SystemClock

        self._strict = strict
        self._told: set[str] = set()
        self.unusable: dict[str, str] = {}
        self._folder = folder or Path.cwd()
        self._flags = {name: value for name, value in flags.items() if value is not None}
        self._adapters: dict[str, Provider] = {}
        self._address: tuple[float, str] | None = None
        self.clock = SystemClock()

    @cached_property
    def settings(self) -> Settings:
        """As configured; the defaults if that is wrong, and this command must do its work all the same."""
        from costgpu.config import Settings
        from costgpu.errors import ConfigError

        try:
            return self.checked_settings()
        except ConfigError as error:
            if self._strict:
                raise
            self._tell(error)
            return Settings.model_construct()

    def checked_settings(self) -> Settings:
        """As configured.

        Raises:
            ConfigError: They are wrong.
        """
        from costgpu.config import load_settings
        from costgpu.errors import ConfigError, UsageError

        try:
            return load_settings(self._folder, **self._flags)
        except ConfigError as error:
            from costgpu.providers import registry

            of_providers = {name: setting.option for name, setting in registry.settings().items() if setting.option}
            for setting, option in {**OPTIONS, **of_providers}.items():
                name = f"--{setting.replace('_', '-')} "
                if error.message.startswith(name):
                    raise UsageError(f"{option} {error.message.removeprefix(name)}") from error
            raise

    @cached_property
    def ledger(self) -> Ledger:
        """Its errors come with its first use."""
        from costgpu.config import ledger_url
        from costgpu.errors import ConfigError
        from costgpu.ledger import Ledger

        try:
            url = ledger_url()
        except ConfigError as error:
            if self._strict:
                raise
            from costgpu.config.settings_files import ledger_url_at_any_rate

            try:
                url = ledger_url_at_any_rate(os.environ)
            except ConfigError as unknown:
                return cast("Ledger", _Nowhere(unknown))  # another ledger's figures would be taken for the right ones
            self._tell(error)
        return Ledger.open(url)

    def _tell(self, error: CostGpuError) -> None:
        """Says once what is wrong with the settings."""
        if error.message not in self._told:
            self._told.add(error.message)
            typer.echo(f"costgpu: {error.message} The default settings are used.", err=True)
            if error.hint:
                typer.echo(f"hint: {error.hint}", err=True)

    @cached_property
    def tools(self) -> Services:
        """For drivers."""
        from costgpu.config import runs_folder
        from costgpu.runner.drive.context import Services
        from costgpu.runner.files.bucket_outputs import BucketOutputs
        from costgpu.runner.machine.connect import connect

        return Services(
            provider=self.provider,
            connect=connect,
            clock=self.clock,
            folder=runs_folder(),
            select=self._select,
            allow_from=self._allow_from,
            bucket=BucketOutputs(self.clock),
        )

    def provider(self, name: str) -> Provider:
        """The adapter of that name."""
        from costgpu.providers import registry

        if name not in self._adapters:
            self._adapters[name] = registry.spec(name).adapter(self.provider_config(name))
        return self._adapters[name]

    def provider_config(self, name: str) -> ProviderConfig:
        """What an adapter of that name is made with.

        Raises:
            ConfigError: The settings are wrong, the provider has some, and this command is strict about it.
        """
        from costgpu.config import data_folder
        from costgpu.providers import registry
        from costgpu.providers.spec import ProviderConfig

        settings = self.settings.of_provider(name) if registry.spec(name).settings else {}
        return ProviderConfig(clock=self.clock, data_folder=data_folder, settings=settings)

    def providers(self) -> list[Provider]:
        """All that can be asked for our machines: this machine, and every cloud with credentials."""
        from costgpu.providers import registry

        found = []
        for spec in registry.specs():
            try:
                if spec.has_credentials():
                    found.append(self.provider(spec.name))
            except CostGpuError as error:  # one that cannot be used does not hide the others
                self.unusable[spec.name] = error.message
                typer.echo(f"costgpu: {spec.name} cannot be asked: {error.message}", err=True)
        return found

    def close(self) -> None:
        """Idempotent."""
        if "ledger" in self.__dict__:
            self.ledger.close()

    def _allow_from(self, name: str) -> str:
        from costgpu.providers import registry
        from costgpu.providers.caller_address import caller_address

        if not registry.spec(name).over_ssh:
            return ""
        if self.settings.caller_address:
            return self.settings.caller_address
        asked = self._address
        if asked is None or self.clock.monotonic() - asked[0] > ADDRESS_SECONDS:
            asked = self._address = (self.clock.monotonic(), caller_address())
        return asked[1]

    def _select(self, view: RunView) -> Selection:
        from costgpu.runner.files.select import select

        return select(Path(view.spec.workdir), limit_bytes=int(self.settings.sync_limit_mib * 2**20))


class _Nowhere:
    """A ledger of which nobody can tell where it is: every use of it raises why. Tags have to do."""

    def __init__(self, error: CostGpuError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error

    def close(self) -> None:
        """There is nothing to close."""


@contextlib.contextmanager
def app_context(folder: Path | None = None, *, strict: bool = False, **flags: object) -> Iterator[AppContext]:
    """The workbench for one command; see `AppContext`."""
    parts = AppContext(folder, strict=strict, **flags)
    try:
        yield parts
    finally:
        parts.close()


def job_environment(names: list[str], env_file: str | None) -> dict[str, str]:
    """The variables that travel to the job, from ``-e`` and ``--env-file``.

    Args:
        names: ``KEY=VALUE``, or ``KEY`` to take it from this environment.
        env_file: Lines of ``KEY=VALUE``; ``#`` begins a comment, quotes around a value are removed.

    Raises:
        UsageError: One is not set here, not a variable name, or the file cannot be read.
    """
    from costgpu.errors import UsageError

    found: dict[str, str] = {}
    if env_file is not None:
        try:
            lines = Path(env_file).read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageError(f"--env-file {env_file} cannot be read: {why}.") from error
        for number, line in enumerate(lines, 1):
            text = line.strip().removeprefix("export ").strip()
            if not text or text.startswith("#"):
                continue
            key, sign, value = text.partition("=")
            if not sign:
                raise UsageError(f"{env_file}, line {number}, is not KEY=VALUE.", hint="# begins a comment.")
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            found[_variable(key.strip())] = _value(key, value)
    for name in names:
        key, sign, value = name.partition("=")
        if not sign:
            if key not in os.environ:
                raise UsageError(f"-e {key}: there is no such variable here.", hint=f"Give a value: -e {key}=...")
            value = os.environ[key]
        found[_variable(key)] = _value(key, value)
    return found


def _value(name: str, value: str) -> str:
    from costgpu.errors import UsageError

    if "\0" in value:
        raise UsageError(f"The value of {name.strip()} has a zero byte in it.", hint="No system allows that.")
    return value


def _variable(name: str) -> str:
    from costgpu.errors import UsageError

    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"{name!r} is not the name of an environment variable.", hint="Write -e KEY=VALUE, or -e KEY.")
    return name
