"""`costgpu reap`: end what no run wants any more."""

from __future__ import annotations

from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter
from costgpu.workflows.context import app_context


def reap(
    yes: Annotated[bool, typer.Option("-y", "--yes", help="End them; without it they are only listed.")] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Minimum age of what is listed, e.g. 2h, 3d.")
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="List only what carries my name as its owner.")] = False,
    infra: opt.Infra = None,
    json: opt.Json = False,
) -> None:
    """List orphaned machines and resources; --yes ends them.

    Machines that have outlived their lease or their run, and what runs left behind, are
    found by tag alone, in every region, from any computer, with or without a ledger.
    With --yes it first takes over runs of this computer whose client is gone: the outputs
    of finished jobs are downloaded. Silent with exit code 0 when all is well; 48: something
    was orphaned (now ended, with --yes); 47: it is not ended; 46: a provider did not answer.
    """
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.render.text.reap import reap_json, reap_text
    from costgpu.workflows.runs.reap import ReapRequest, error_for
    from costgpu.workflows.runs.reap import reap as find_orphans

    with app_context(TerminalReporter()) as context:
        terminal = Terminal(context.clock, ask=False)
        request = ReapRequest(end=yes, older_than=older_than, mine=mine, infra=tuple(infra or ()))
        try:
            found = find_orphans(context, request, terminal)
        finally:
            terminal.close()
        now = context.clock.now()
        text = reap_json(found, now) if json else reap_text(found, now, done=yes)
        if text:
            typer.echo(text)
        error = error_for(found, ended=yes)
        if error is not None:
            raise error
