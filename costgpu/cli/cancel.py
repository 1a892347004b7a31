"""`costgpu cancel`: end a run from any terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli.runs import RUN, connection, find_run, run_and_machine
from costgpu.errors import RunBusy

if TYPE_CHECKING:
    from costgpu.cli.wiring import Bench
    from costgpu.job import Instance, InstanceRef
    from costgpu.run import RunView, Tagged


def cancel(
    run: RUN,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    now: Annotated[bool, typer.Option("--now", help="At once: what is on the machine is lost.")] = False,
) -> None:
    """End a run: the job is asked to end, what there is comes home, the machine is terminated."""
    from costgpu.cli.watch import Terminal
    from costgpu.cli.wiring import bench
    from costgpu.job import RunState
    from costgpu.render.run import receipt_text
    from costgpu.run import Tagged
    from costgpu.runner.engine import Detached
    from costgpu.runner.lock import driving
    from costgpu.runner.service import driver_for, load, status_of, tail_position

    with bench() as parts:
        found = find_run(parts, run)
        if not yes and sys.stdin.isatty() and not typer.confirm(question(found, now=now), err=True):
            return
        if isinstance(found, Tagged):
            _end_by_tag(parts, found.instance)
            return
        view = load(parts.ledger, found.run_id)
        if view.state is RunState.CLOSED:
            typer.echo(f"Run {view.run_id} is closed already.", err=True)
            return
        terminal = Terminal(parts.tools.clock, ask=False)
        try:
            with driving(parts.tools.folder / view.run_id):
                driver = driver_for(view, parts.ledger, parts.tools, terminal, None)
                driver.cancelling = now
                if status := status_of(view, parts.tools):
                    driver.position = tail_position(status, 0)  # what it wrote before is for costgpu logs
                driver.cancel()
        except Detached:
            return
        except RunBusy:
            cancel_driven(parts, view, now=now)
            return
        finally:
            terminal.close()
        if driver.view.receipt is not None:
            typer.echo(receipt_text(driver.view.receipt, driver.view), err=True)
        if driver.record.broken is not None:
            raise driver.record.broken


def question(found: RunView | Tagged, *, now: bool) -> str:
    """Names whose run is ended, and which machine."""
    from costgpu.run import Tagged

    ref: InstanceRef | None
    if isinstance(found, Tagged):
        name, owner, ref = found.instance.name, found.instance.owner, found.instance.ref
    else:
        name, owner, ref = found.name, found.owner, found.instance
    machine = f" on {ref.instance_id}" if ref is not None else ""
    lost = " and lose what is on its machine" if now or isinstance(found, Tagged) else ""
    return f"End run {found.run_id} ({name}) of {owner or 'nobody known'}{machine}{lost}?"


def cancel_driven(parts: Bench, view: RunView, *, now: bool) -> None:
    """Another terminal drives the run: the job is asked to end, or the ledger tells the driver."""
    from costgpu.job import EndedBy, EndReason, EventKind, RunState
    from costgpu.runner.record import Record

    record = Record(parts.ledger, parts.tools.clock, view.run_id)
    if view.state is RunState.RUNNING and view.instance is not None and not now:
        _, instance = run_and_machine(parts, view.run_id)
        if instance is not None:
            with connection(parts, instance) as host:
                host.cancel()
    elif view.state is not RunState.TERMINATING and (now or view.state not in (RunState.INTENT, RunState.COLLECTING)):
        record.add(EventKind.ENDING, reason=EndReason.CANCELLED.value, by=EndedBy.CLIENT.value)
    typer.echo(f"Run {view.run_id} is being ended by the terminal that drives it.", err=True)


def _end_by_tag(parts: Bench, instance: Instance) -> None:
    from costgpu.runner import errands

    provider = parts.tools.provider(instance.ref.provider)
    errands.terminate(provider, instance.ref, parts.tools.clock)
    errands.confirm(provider, instance.ref, parts.tools.clock, known_since=instance.launched_at)
    left = errands.clean_up(provider, instance.run_id, instance.ref.region, parts.tools.clock)
    typer.echo(f"{instance.ref.instance_id} in {instance.ref.region} is terminated; {instance.ref.provider} confirms.")
    if left:
        typer.echo(f"Left behind: {', '.join(left)}; costgpu reap --yes removes it.", err=True)
