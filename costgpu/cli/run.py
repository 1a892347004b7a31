"""`costgpu run`: plan, agree, launch, follow, download, terminate."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, ask, confirm, print_error, print_note, say
from costgpu.errors import EXIT_INTERRUPTED, CostGpuError, NotConfirmed
from costgpu.models.run import RunView
from costgpu.workflows.runs.request import OF_MEASURING, RunRequest

if TYPE_CHECKING:
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.job.drive.job import JobDriver
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.plan import PlannedRun


@opt.command_of(RunRequest, without=OF_MEASURING)
def run(
    request: RunRequest,
    *,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return as soon as the job has started.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Launch without asking.")] = False,
    dry_run: opt.DryRun = False,
    currency: opt.Currency = None,
    rate: opt.ExchangeRate = None,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """Run a script on a rented machine, or on this one.

    Options of costgpu stand before the script. The plan is shown first, with the highest
    cost; by then the machine ends itself, whatever happens to this terminal. Outputs are
    downloaded. A task file of SkyPilot or dstack is read as these options, and refused
    where it asks for something else.
    """
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.render.text.run import plan_json, plan_text
    from costgpu.workflows.runs.request import check_detached
    from costgpu.workflows.runs.start import is_free, planned_run

    as_json = opt.show_amounts(currency, rate, as_json=json, output=output)
    try:
        with planned_run(request, TerminalReporter()) as (context, planned):
            if detach or request.queue:
                check_detached(planned.plan)
            shown = (plan_json if as_json and dry_run else plan_text)(planned.plan, planned.at)
            question = "" if yes or is_free(planned.plan) else "Launch it?"
            if request.queue:
                planned = replace(planned, refusal=None)  # it waits for what it is refused for
            agreed = agree(context, planned, shown, question, dry_run=dry_run, asks=not (yes or as_json))
            if agreed is not None and request.queue:
                _put_into_queue(context, agreed, as_json=as_json)
            elif agreed is not None:
                terminal = Terminal(context.clock, data_to_stderr=as_json)
                carry_out(context, agreed, terminal, detach=detach, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def agree(
    context: AppContext, planned: PlannedRun, shown: str, question: str, unasked: str = "", *, dry_run: bool, asks: bool
) -> PlannedRun | None:
    """Show a plan, and return it with what was decided about it; None if showing it is all that was asked for.

    Args:
        question: What is asked before the launch; empty to launch it without asking.
        unasked: What is said of it where nobody is there to answer.
        asks: Whether a person may be asked about files.

    Raises:
        NotConfirmed: Nobody agrees.
        CostGpuError: It is refused.
    """
    from costgpu.workflows.runs.inputs import refusal

    say(shown, err=not dry_run)
    if dry_run:
        if planned.plan.inputs.staying:
            print_error(refusal(planned.plan.inputs), before="With --yes this would be refused. ")
        return None
    if planned.refusal is not None:
        raise planned.refusal
    planned = agree_on_inputs(context, planned, asks=asks)
    if question:
        alone = f"{unasked} Confirmation required, but stdin is not a terminal.".strip()
        hint = "Add -y, or --dry-run to only see the plan."
        confirm(question, alone=NotConfirmed(alone, hint=hint), otherwise="Not launched; nothing was spent.")
    return planned


def agree_on_inputs(context: AppContext, planned: PlannedRun, *, asks: bool) -> PlannedRun:
    """Return the plan with a decision about each file that the script reads and that would not travel.

    Args:
        asks: Whether a person may be asked.

    Raises:
        SyncRefused: Nobody is there to decide, or what is to travel as well is too large.
        NotConfirmed: The person stops.
    """
    from costgpu.render.phrases import counted
    from costgpu.units import format_size
    from costgpu.workflows.runs.inputs import refusal, send_too, without

    plan = planned.plan
    if not plan.inputs.staying:
        return planned
    error = refusal(plan.inputs)
    if not asks or not sys.stdin.isatty():
        raise error
    print_error(error)
    sendable = any(one.sendable for one in plan.inputs.staying)
    question = (
        "Send it too (s), go on without it (w), or stop? [s/w/N]"
        if sendable
        else "Go on without it (w), or stop? [w/N]"
    )
    answer = ask(question)
    if answer in ("s", "send") and sendable:
        sent = send_too(plan, context.settings.sync_limit_mib)
        print_note(f"{counted(sent.files, 'file')}, {format_size(sent.bytes)}, travel now.")
        return replace(planned, plan=sent)
    if answer in ("w", "without"):
        return replace(planned, plan=without(plan))
    raise NotConfirmed("Not launched; nothing was spent.")


def carry_out(
    context: AppContext,
    planned: PlannedRun,
    terminal: Terminal,
    *,
    detach: bool,
    as_json: bool,
    show: Callable[[JobDriver], object] = lambda _: None,
    schema: str = "costgpu.run",
    more: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Start the run, take it to its end unless it is left, and end with its exit code.

    Args:
        show: Shows what came of it, before the receipt.
        more: Further parts of the document.
    """
    from costgpu.job.find_run import load_run, runs_of_job
    from costgpu.job.launch import new_run_id
    from costgpu.job.state.outcome import error_for
    from costgpu.render.text.run import launched_json
    from costgpu.workflows.runs.start import start_run

    def print_document(view: RunView, error: CostGpuError | None) -> None:
        views = runs_of_job(context.ledger, view)
        say(launched_json(planned.plan, views, error, context.clock.now(), schema, **more()))

    run_id = new_run_id()
    try:
        with followed(context, run_id, terminal, as_json=as_json):
            driver = start_run(context, planned, terminal, run_id=run_id, detach=detach)
    except CostGpuError as error:
        if as_json and context.ledger.events(run_id):
            print_document(load_run(context.ledger, run_id), error)
        raise
    show(driver)
    if as_json:
        print_document(driver.view, driver.error or error_for(driver.decisive))
    finish(driver, as_json=as_json)


def _put_into_queue(context: AppContext, planned: PlannedRun, *, as_json: bool) -> None:
    """Record the run, and start what may start: this run, if nothing waits before it and there is room."""
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.errors import RunBusy, RunError
    from costgpu.job.find_run import load_run
    from costgpu.job.launch import new_run_id
    from costgpu.job.state.outcome import error_for
    from costgpu.models.run import RunState
    from costgpu.render.text.queue import queue_json, queued_text, started_text
    from costgpu.workflows.runs.queue import enqueue, start_waiting, waiting

    started: list[RunView] = []
    with contextlib.closing(Terminal(context.clock, ask=False)) as terminal:
        view = enqueue(context, planned, terminal, new_run_id())
        with contextlib.suppress(RunBusy):  # whoever is at it comes to this one, too
            started = start_waiting(context, terminal, {view.run_id: planned.environment})
    for one in started:
        say(started_text(one), err=True)
    mine = load_run(context.ledger, view.run_id)
    if mine.state is RunState.CLOSED:
        raise error_for(mine) or RunError(f"Run {mine.run_id} was not started.", hint="costgpu jobs -a says why.")
    left = waiting(context)
    position = next((number for number, each in enumerate(left, 1) if each.view.run_id == view.run_id), 0)
    if position:
        say(queued_text(view, position), err=True)
    if as_json:
        say(queue_json(left, context.clock.now()))


def finish(driver: JobDriver, *, as_json: bool = False) -> None:
    """Show the receipt and end with the exit code of the job, or of what went wrong."""
    from costgpu.job.state.outcome import error_for, exit_code
    from costgpu.render.text.receipt import receipts_text

    view = driver.decisive
    if not as_json:
        say(receipts_text(driver.views), err=True)
    if driver.ledger_error is not None:
        print_error(driver.ledger_error, before="The ledger could not be written: ")
    error = driver.error or error_for(view)
    if error is not None:
        raise error
    code = exit_code(view)
    if code:
        detail = f". {view.status.detail}" if view.status is not None and view.status.detail else ""
        where = f" on machine {view.machine}" if view.has_peers else ""
        print_note(f"the job ended with exit code {code}{where}{detail}")
    raise typer.Exit(code)


@contextlib.contextmanager
def followed(context: AppContext, run_id: str, terminal: Terminal, *, as_json: bool = False) -> Iterator[None]:
    """Follow a run that a person, a signal or a failure of this client may leave, and say how to return to it.

    Raises:
        typer.Exit: The run was left; a client that was ended by a signal says so by its exit code.
    """
    from costgpu.cli.terminal_observer import signals
    from costgpu.job.drive.context import Detached
    from costgpu.job.find_run import load_run
    from costgpu.render.text.run import detached_text, run_json

    try:
        with signals() as received:
            yield
    except Detached as left:
        terminal.close()
        view = load_run(context.ledger, left.run_id)  # another one, if the first place had no room for all machines
        with contextlib.suppress(OSError):  # the terminal may be gone
            say(run_json(view) if as_json else detached_text(view), err=not as_json)
        raise typer.Exit(128 + received[0] if received else 0) from None
    except CostGpuError:
        raise
    except Exception:
        print_note(
            f"this client has failed; a machine of run {run_id} goes on without it and ends itself by its lease.",
            hint=f"costgpu attach {run_id} takes it over, costgpu cancel {run_id} ends it.",
        )
        raise
    finally:
        terminal.close()
