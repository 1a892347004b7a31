"""`costgpu reap`: end what has outlived its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import CostGpuError, TerminationUnconfirmed, UsageError

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
    finished comes home. Silent when all is well.
    """
    from costgpu.cli.watch import Terminal
    from costgpu.cli.wiring import bench
    from costgpu.errors import LedgerError
    from costgpu.render.run import reap_json, reap_text
    from costgpu.runner.reap import end_orphans, look
    from costgpu.runner.service import collect_finished, load

    with bench() as parts:
        providers, regions = _places(parts, infra or [])
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

        found = look(providers, regions, parts.tools.clock.now(), known)
        if yes:
            end_orphans(found, parts.tools.provider, parts.tools.clock)
        now = parts.tools.clock.now()
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


def _places(parts: Bench, infra: list[str]) -> tuple[list[Provider], list[str] | None]:
    if not infra:
        return parts.providers(), None
    names = list(dict.fromkeys(place.split("/")[0] for place in infra))
    if any("/" not in place for place in infra) and any("/" in place for place in infra) and len(names) < len(infra):
        raise UsageError("--infra names a provider both as a whole and by region.")
    regions = [place.split("/", 1)[1] for place in infra if "/" in place]
    return [parts.tools.provider(name) for name in names], regions or None
