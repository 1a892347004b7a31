"""Ends a run that another terminal drives. Imports lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from costgpu.models.run import RunView
    from costgpu.workflows.context import AppContext


def cancel_driven(parts: AppContext, view: RunView, *, now: bool) -> None:
    """Another terminal drives the run: the job is asked to end, or the ledger tells the driver."""
    from costgpu.models.job import EndReason
    from costgpu.models.run import EndedBy, EventKind, RunState
    from costgpu.runner.state.journal import RunJournal
    from costgpu.workflows.runs.find_run import connection, run_and_machine

    record = RunJournal(parts.ledger, parts.tools.clock, view.run_id)
    if view.state is RunState.RUNNING and view.instance is not None and not now:
        _, instance = run_and_machine(parts, view.run_id)
        if instance is not None:
            with connection(parts, instance) as host:
                host.cancel()
    elif view.state is not RunState.TERMINATING and (now or view.state not in (RunState.INTENT, RunState.COLLECTING)):
        record.add(EventKind.ENDING, reason=EndReason.CANCELLED.value, by=EndedBy.CLIENT.value)
    typer.echo(f"Run {view.run_id} is being ended by the terminal that drives it.", err=True)
