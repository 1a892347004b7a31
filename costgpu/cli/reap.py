"""`costgpu reap`: end what has outlived its lease."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import CostGpuError, OrphansFound, TerminationUnconfirmed, Unreachable

if TYPE_CHECKING:
    from costgpu.models.reap import ReapFindings
    from costgpu.models.run import RunView
    from costgpu.providers.base import Provider
    from costgpu.runner.reap import ReapFilter
    from costgpu.workflows.context import AppContext


def reap(
    yes: Annotated[bool, typer.Option("-y", "--yes", help="End them; without it they are only listed.")] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Only what was there before that: 2h, 3d.")
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only what carries my name as its owner.")] = False,
    infra: Annotated[
        list[str] | None, typer.Option("--infra", "--region", help="Only there: aws, aws/us-east-1, local.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List machines of ours that have outlived their lease or their run, and what runs left behind; --yes ends them.

    By tag alone, in every region, from any computer, with or without a ledger.
    With --yes it first takes over runs of this computer whose client is gone: what is
    finished comes home. Silent with exit code 0 when all is well; 48: something was
    leaking (now ended, with --yes); 47: it is not ended; 46: somebody could not be asked.
    """
    from costgpu.models.reap import ReapFindings
    from costgpu.render.text.reap import reap_json, reap_text
    from costgpu.runner.reap import end_orphans, find_orphans
    from costgpu.runner.spending import shipped_prices
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        only = _only(parts, older_than, mine=mine)
        places = _places(parts, infra or [])
        readable = _collect(parts) if yes else True
        known, now = Memory(parts, broken=not readable), parts.clock.now()
        found = ReapFindings()
        for provider, regions in places:
            found.add(find_orphans([provider], regions, now, known.run, only=only, prices=shipped_prices))
        found.unreachable.update(parts.unusable)
        found.unreachable.update(_without_credentials(parts, places, everywhere=not infra))
        if yes:
            end_orphans(found, parts.tools.provider, parts.tools.clock)
        now = parts.clock.now()
        text = reap_json(found, now) if json else reap_text(found, now, done=yes)
        if text:
            typer.echo(text)
        _judge(found, yes=yes)


def _judge(found: ReapFindings, *, yes: bool) -> None:
    """The exit code: the worst of what was found."""
    from costgpu.render.text.reap import count_text, rate_text

    if yes and (alive := found.not_ended):
        raise TerminationUnconfirmed(
            f"{len(alive)} machine(s) could not be ended and may be billing: "
            + ", ".join(orphan.instance.ref.instance_id for orphan in alive),
            hint="The lines above say why; costgpu reap --yes tries again.",
        )
    if found.leaking and not yes:
        raise OrphansFound(
            f"{count_text(found)} that no run wants any more: {rate_text(found)}.", hint="costgpu reap --yes ends them."
        )
    if found.leaking:
        left = len(found.leftovers) - len(found.removed)
        raise OrphansFound(
            f"{count_text(found)} that no run wanted any more: {rate_text(found)}."
            + (f" {left} could not be removed." if left else " All ended."),
            hint="The lines above say why; costgpu reap --yes tries again." if left else "",
        )
    if found.unreachable:
        raise Unreachable(
            f"{len(found.unreachable)} place(s) could not be asked: what is there may be billing.",
            hint="Try again, or name the places to ask: --infra aws/us-east-1.",
        )


def _only(parts: AppContext, older_than: str | None, *, mine: bool) -> ReapFilter:
    from datetime import timedelta

    from costgpu.errors import UsageError
    from costgpu.runner.launch import current_owner
    from costgpu.runner.reap import ReapFilter
    from costgpu.units import parse_duration

    before = None
    if older_than is not None:
        try:
            before = parts.clock.now() - timedelta(seconds=parse_duration(older_than))
        except UsageError as error:
            raise UsageError(f"--older-than: {error.message}", hint=error.hint) from error
        except OverflowError as error:
            raise UsageError(f"--older-than: {older_than} is before the calendar begins.") from error
    return ReapFilter(before=before, owner=(parts.settings.owner or current_owner()) if mine else "")


class Memory:
    """What the ledger knows of runs, each asked for once; a ledger that cannot be read is said once, and left alone."""

    def __init__(self, parts: AppContext, *, broken: bool) -> None:
        self._parts = parts
        self._views: dict[str, RunView | None] = {}
        self._broken = broken

    def run(self, run_id: str) -> RunView | None:
        """The run; None if the ledger does not know it or cannot say."""
        from costgpu.errors import ConfigError, LedgerError
        from costgpu.runner.find_run import load_run

        if run_id not in self._views and not self._broken:
            try:
                self._views[run_id] = load_run(self._parts.ledger, run_id)
            except (ConfigError, LedgerError) as error:
                self._broken = True
                typer.echo(f"costgpu: {error.message} Tags have to do.", err=True)
            except CostGpuError:
                self._views[run_id] = None
        return self._views.get(run_id)


def _collect(parts: AppContext) -> bool:
    """Takes over what is finished; whether the ledger could be used."""
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.errors import ConfigError, LedgerError
    from costgpu.runner.adopt import collect_finished

    terminal = Terminal(parts.clock, ask=False)
    try:
        collect_finished(parts.ledger, parts.tools, terminal)
    except (ConfigError, LedgerError) as error:
        typer.echo(f"costgpu: {error.message} Tags have to do.", err=True)
        return False
    finally:
        terminal.close()
    return True


def _places(parts: AppContext, infra: list[str]) -> list[tuple[Provider, list[str] | None]]:
    """Providers to ask, each with the regions; None for all of them."""
    if not infra:
        return [(provider, None) for provider in parts.providers()]
    asked: dict[str, list[str] | None] = {}
    for place in infra:
        name, _, region = place.partition("/")
        if region and asked.get(name, []) is not None:
            asked[name] = [*(asked.get(name) or []), region]
        else:
            asked[name] = None
    return [(parts.tools.provider(name), regions) for name, regions in asked.items()]


def _without_credentials(
    parts: AppContext, places: list[tuple[Provider, list[str] | None]], *, everywhere: bool
) -> dict[str, str]:
    """Accounts where open runs may have a machine, and which the credentials here could not ask."""
    from costgpu.errors import ConfigError, LedgerError
    from costgpu.providers import registry
    from costgpu.runner.find_run import expected_machine

    asked = {provider.name: (provider, regions) for provider, regions in places}
    accounts: dict[str, str] = {}
    hidden: dict[tuple[str, str], list[str]] = {}
    with contextlib.suppress(ConfigError, LedgerError):
        for run_id, events in parts.ledger.events_of(parts.ledger.open_runs()).items():
            if (machine := expected_machine(events)) is None or machine.provider == "local":
                continue  # another computer's own machine is not for these credentials to see, and costs nothing
            name, account = machine.provider, machine.account
            if name in asked:
                provider, regions = asked[name]
                if not account or (regions is not None and machine.region not in regions):
                    continue
                if name not in accounts:
                    accounts[name] = _account(provider)
                if accounts[name] in ("", account):
                    continue
            elif not everywhere:
                continue
            hidden.setdefault((name, account), []).append(run_id)
    found: dict[str, str] = {}
    for (name, account), run_ids in hidden.items():
        spec = registry.find(name)
        where = f"{name} {spec.account_word if spec else 'account'} {account}" if account else name
        why = f"these credentials are of {accounts[name]}" if name in asked else "no credentials here"
        who = f"run {run_ids[0]}" if len(run_ids) == 1 else f"runs {', '.join(run_ids)}"
        found[where] = f"{why}, and {who} may have a machine there"
    return found


def _account(provider: Provider) -> str:
    """Whose machines the provider shows with these credentials; empty if it does not say."""
    from costgpu.errors import ProviderError

    try:
        return provider.identity().account
    except ProviderError:
        return ""
