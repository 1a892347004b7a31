"""Puts the real parts together for a workflow: settings, ledger, adapters, keys. Imports lazily."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self, cast

from costgpu.errors import CostGpuError

if TYPE_CHECKING:
    from costgpu.config import Settings
    from costgpu.job.drive.context import Services
    from costgpu.job.files.selection import FileSelection
    from costgpu.ledger import Ledger
    from costgpu.models.run import RunView
    from costgpu.providers.base import Provider
    from costgpu.providers.spec import ProviderConfig
    from costgpu.workflows.reporter import Reporter

ADDRESS_SECONDS = 30.0  # a laptop moves from network to network


class AppContext:
    """Everything that a workflow on runs works with; each part is made when it is first needed. A context manager.

    Attributes:
        unusable: Provider -> why nothing there can be asked, as far as that was found out.

    Args:
        folder: Project folder whose settings count; None for the current one.
        strict: Whether wrong settings are an error. Else they are noted, and the defaults hold: they must not keep
            anybody from ending a machine.
        flags: Settings from the command line; None where not given.
    """

    def __init__(
        self, reporter: Reporter, folder: Path | None = None, *, strict: bool = False, **flags: object
    ) -> None:
        from costgpu.clock import SystemClock

        self.reporter = reporter
        self._strict = strict
        self._noted: set[str] = set()
        self.unusable: dict[str, str] = {}
        self._folder = folder or Path.cwd()
        self._flags = flags
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
            self._note(error)
            return Settings.model_construct()

    def checked_settings(self) -> Settings:
        """As configured.

        Raises:
            ConfigError, UsageError: They are wrong.
        """
        from costgpu.config import load_settings

        return load_settings(self._folder, **self._flags)

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
                url = ledger_url_at_any_rate()
            except ConfigError as unknown:
                # The default ledger's figures would be taken for the right ones.
                return cast("Ledger", _UnknownLedger(unknown))
            self._note(error)
        return Ledger.open(url)

    def _note(self, error: CostGpuError) -> None:
        """Note once what is wrong with the settings."""
        if error.message not in self._noted:
            self._noted.add(error.message)
            self.reporter.note(f"{error.message} The default settings are used.", error.hint)

    @cached_property
    def tools(self) -> Services:
        """For drivers."""
        from costgpu.config import runs_folder
        from costgpu.job.drive.context import Services
        from costgpu.job.files.bucket_outputs import BucketOutputs
        from costgpu.job.machine.connect import connect

        return Services(
            provider=self.provider,
            connect=connect,
            clock=self.clock,
            folder=runs_folder(),
            select=self._select,
            allow_from=self._allow_from,
            bucket=BucketOutputs(self.clock),
            refusal=self._refusal,
        )

    def provider(self, name: str) -> Provider:
        """Return the adapter of that name."""
        from costgpu.providers import registry

        if name not in self._adapters:
            self._adapters[name] = registry.spec(name).adapter(self.provider_config(name))
        return self._adapters[name]

    def provider_config(self, name: str) -> ProviderConfig:
        """Return what an adapter of that name is made with.

        Raises:
            ConfigError: The settings are wrong, the provider has some, and this command is strict about it.
        """
        from costgpu.config import data_folder
        from costgpu.providers import registry
        from costgpu.providers.spec import ProviderConfig

        settings = self.settings.of_provider(name) if registry.spec(name).settings else {}
        return ProviderConfig(clock=self.clock, data_folder=data_folder, settings=settings)

    def providers(self) -> list[Provider]:
        """Return all that can be asked for our machines: this machine, and every cloud with credentials."""
        found, unusable = askable(self.provider)
        self.unusable.update(unusable)
        for name, why in self.unusable.items():
            self.reporter.note(f"{name} cannot be asked: {why}")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "ledger" in self.__dict__:
            for error in getattr(self.ledger, "damage", {}).values():
                self.reporter.note(error.message, error.hint)
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

    def _refusal(self, view: RunView) -> CostGpuError | None:
        from costgpu.workflows.runs.budgets import ask_budgets

        return ask_budgets(self.ledger, view.spec, view.options, view.owner, self.clock.now()).refusal

    def _select(self, view: RunView) -> FileSelection:
        from costgpu.job.files.select import select_for
        from costgpu.workflows.sweep.bundle import with_bundle

        return with_bundle(select_for(view.spec, self.settings.sync_limit_mib), view.spec.argv)


class _UnknownLedger:
    """A ledger whose place is not known: every use of it raises why."""

    def __init__(self, error: CostGpuError) -> None:
        self._error = error
        self.damage: dict[str, CostGpuError] = {}

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error

    def close(self) -> None:
        """There is nothing to close."""


def askable(adapter: Callable[[str], Provider]) -> tuple[list[Provider], dict[str, str]]:
    """Return providers that can be asked, and why others cannot: one that cannot be used does not hide the others."""
    from costgpu.providers import registry

    found, unusable = [], registry.load_failures()
    for spec in registry.specs():
        try:
            if registry.has_credentials(spec):
                found.append(adapter(spec.name))
        except CostGpuError as error:
            unusable[spec.name] = error.message
    return found, unusable
