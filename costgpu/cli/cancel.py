"""`costgpu cancel`: end a run from any terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import RunBusy
from costgpu.workflows.runs.find_run import RUN, find_run

if TYPE_CHECKING:
    from costgpu.models.instance import Instance, InstanceRef
    from costgpu.models.reap import TaggedInstance
    from costgpu.models.run import RunView
    from costgpu.workflows.context import AppContext


def cancel(
    run: RUN,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    now: Annotated[bool, typer.Option("--now", help="At once: what is on the machine is lost.")] = False,
) -> None:
    """End a run: the job is asked to end, what there is comes home, the machine is terminated."""
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.models.reap import TaggedInstance
    from costgpu.models.run import RunState
    from costgpu.render.text.receipt import receipt_text
    from costgpu.runner.adopt import adopt, job_status, log_tail
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.state.lock import lock_run
    from costgpu.workflows.context import app_context
    from costgpu.workflows.runs.cancel import cancel_driven

    with app_context() as parts:
        found = find_run(parts, run)
        if not yes and sys.stdin.isatty() and not typer.confirm(question(found, now=now), err=True):
            return
        if isinstance(found, TaggedInstance):
            _end_by_tag(parts, found.instance)
            return
        view = load_run(parts.ledger, found.run_id)
        if view.state is RunState.CLOSED:
            typer.echo(f"Run {view.run_id} is closed already.", err=True)
            return
        terminal = Terminal(parts.tools.clock, ask=False)
        try:
            with lock_run(parts.tools.folder / view.run_id):
                driver = adopt(view, parts.ledger, parts.tools, terminal, None)
                driver.context.cancelling = now
                if status := job_status(view, parts.tools):
                    driver.context.log_position = log_tail(status, 0)  # what it wrote before is for costgpu logs
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
        if driver.context.journal.broken is not None:
            raise driver.context.journal.broken


def question(found: RunView | TaggedInstance, *, now: bool) -> str:
    """Names whose run is ended, and which machine."""
    from costgpu.models.reap import TaggedInstance

    ref: InstanceRef | None
    if isinstance(found, TaggedInstance):
        name, owner, ref = found.instance.name, found.instance.owner, found.instance.ref
    else:
        name, owner, ref = found.name, found.owner, found.instance
    machine = f" on {ref.instance_id}" if ref is not None else ""
    lost = " and lose what is on its machine" if now or isinstance(found, TaggedInstance) else ""
    return f"End run {found.run_id} ({name}) of {owner or 'nobody known'}{machine}{lost}?"


def _end_by_tag(parts: AppContext, instance: Instance) -> None:
    from costgpu.runner.end_instance import clean_up, end_instance

    provider = parts.tools.provider(instance.ref.provider)
    end_instance(provider, instance.ref, parts.tools.clock, known_since=instance.launched_at)
    left = clean_up(provider, instance.run_id, instance.ref.region, parts.tools.clock)
    typer.echo(f"{instance.ref.instance_id} in {instance.ref.region} is terminated; {instance.ref.provider} confirms.")
    if left:
        typer.echo(f"Left behind: {', '.join(left)}; costgpu reap --yes removes it.", err=True)
