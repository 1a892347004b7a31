"""`costgpu reap`: end what has outlived its lease."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import CostGpuError, TerminationUnconfirmed, Unreachable

if TYPE_CHECKING:
    from costgpu.cli.wiring import Bench
    from costgpu.providers.base import Provider
    from costgpu.run import RunView


def reap(
    yes: Annotated[bool, typer.Option("-y", "--yes", help="End them; without it they are only listed.")] = False,
    infra: Annotated[
        list[str] | None, typer.Option("--infra", "--region", help="Only there: aws, aws/us-east-1, local.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List machines of ours that have outlived their lease or their run, by tag alone, and end them with --yes.

    With --yes it first takes over runs of this computer whose client is gone: what is
    finished comes home. Silent when all is well; an exit code other than 0 means
    that something may be billing, or could not be asked.
    """
    from costgpu.cli.watch import Terminal
    from costgpu.cli.wiring import bench
    from costgpu.errors import LedgerError
    from costgpu.render.run import reap_json, reap_text
    from costgpu.run import Findings
    from costgpu.runner.reap import end_orphans, look
    from costgpu.runner.service import collect_finished, load

    with bench() as parts:
        places = _places(parts, infra or [])
        if yes:
            terminal = Terminal(parts.tools.clock, ask=False)
            try:
                collect_finished(parts.ledger, parts.tools, terminal)
            except LedgerError as error:
                typer.echo(f"costgpu: {error.message} Tags have to do.", err=True)
            finally:
                terminal.close()

        def known(run_id: str) -> RunView | None:
            try:
                return load(parts.ledger, run_id)
            except LedgerError:
                raise
            except CostGpuError:
                return None

        now = parts.clock.now()
        found = Findings()
        for provider, regions in places:
            found.add(look([provider], regions, now, known))
        if not infra:
            found.unreachable.update(_without_credentials(parts, {provider.name for provider, _ in places}))
        if yes:
            end_orphans(found, parts.tools.provider, parts.tools.clock)
        now = parts.clock.now()
        text = reap_json(found, now) if json else reap_text(found, now, done=yes)
        if text:
            typer.echo(text)
        alive = [o for o in found.orphans if o.instance.ref.instance_id in found.failed]
        if alive:
            raise TerminationUnconfirmed(
                f"{len(alive)} machine(s) could not be ended and may be billing: "
                + ", ".join(o.instance.ref.instance_id for o in alive),
                hint="The lines above say why; costgpu reap --yes tries again.",
            )
        if found.unreachable:
            raise Unreachable(
                f"{len(found.unreachable)} place(s) could not be asked: what is there may be billing.",
                hint="Try again, or name the places to ask: --infra aws/us-east-1.",
            )


def _places(parts: Bench, infra: list[str]) -> list[tuple[Provider, list[str] | None]]:
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


def _without_credentials(parts: Bench, asked: set[str]) -> dict[str, str]:
    """Providers of open runs that were not asked, because nothing here could."""
    from costgpu.errors import LedgerError
    from costgpu.job import EventKind

    found: dict[str, str] = {}
    with contextlib.suppress(LedgerError):
        for events in parts.ledger.events_of(parts.ledger.open_runs()).values():
            for event in events:
                provider = event.data.get("provider")
                if event.kind is EventKind.CREATED and isinstance(provider, str) and provider not in asked:
                    found[provider] = f"no credentials here, and run {event.run_id} has a machine there"
    return found
