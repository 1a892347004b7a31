"""`costgpu run`: plan, agree, launch, follow, download, terminate."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.inputs import agree_on_inputs, note_refusal
from costgpu.cli.terminal_reporter import TerminalReporter, confirm, print_error, print_note, say
from costgpu.errors import EXIT_INTERRUPTED, CostGpuError, NotConfirmed
from costgpu.workflows.estimate.request import MEASURE_FOR
from costgpu.workflows.requests import request_of
from costgpu.workflows.runs.request import DEFAULT_GRACE, DEFAULT_LEASE, LAUNCHERS, RunRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from costgpu.models.run import Plan, RunView
    from costgpu.runner.adopt import JobDriver
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.plan import PlannedRun


def run(
    command: opt.Script = None,
    module: opt.Module = None,
    infra: opt.Infra = None,
    instance_type: opt.InstanceTypes = None,
    gpus: opt.Gpus = None,
    cpus: opt.Cpus = None,
    memory: opt.Memory = None,
    spot: opt.SpotIfSaid = None,
    max_cost: Annotated[
        str | None, typer.Option(help="Highest cost of the run in USD; default: 3 times the estimate.")
    ] = None,
    fit: opt.Fit = False,
    max_duration: Annotated[str | None, typer.Option(help="Longest time of the job, e.g. 2h.")] = None,
    idle_duration: Annotated[str | None, typer.Option(help="Idle time after which the job is ended.")] = None,
    include: opt.Include = None,
    exclude: opt.Exclude = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(help="Files to download, or none; default: all that is new or changed. Repeatable."),
    ] = None,
    setup: Annotated[
        str | None, typer.Option(help="Command before the job; default when rented: installs what the project names.")
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Option(help="Extra of the project's pyproject.toml to install, too. Repeatable.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("-e", "--env", help="Variable of the job: KEY=VALUE, or KEY from here.")
    ] = None,
    env_file: Annotated[str | None, typer.Option(help="File with KEY=VALUE lines.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Name of the job; default: the script's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag for the machine, as key=value. Repeatable.")] = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return as soon as the job has started.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Launch without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    auto_shutdown: Annotated[bool, typer.Option(help="Terminate the machine when the job is over, or keep it.")] = True,
    lease: Annotated[
        str | None, typer.Option(help=f"Lifetime of a machine with --no-auto-shutdown; default: {DEFAULT_LEASE}.")
    ] = None,
    nproc: Annotated[str | None, typer.Option(help="Number of processes under torchrun, or auto.")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of machines that work on the job together; default: the command's.")
    ] = None,
    launcher: Annotated[str | None, typer.Option(help=f"With --nodes, what starts the processes: {LAUNCHERS}.")] = None,
    outputs_from: Annotated[
        str, typer.Option(help="With --nodes: machines whose outputs to download: 0, or all into rank-N.")
    ] = "0",
    python: opt.Python = None,
    workdir: Annotated[str | None, typer.Option(help="Folder to send and run in; default: the script's own.")] = None,
    profile: Annotated[str | None, typer.Option(help="Saved profile to use instead of measuring.")] = None,
    estimate: Annotated[bool, typer.Option(help="Measure the script here first, or not.")] = True,
    measure_for: opt.MeasureFor = MEASURE_FOR,
    disk: opt.Disk = None,
    bucket: Annotated[str | None, typer.Option(help="Bucket for outputs and logs: s3://name/prefix.")] = None,
    subnet: Annotated[str | None, typer.Option(help="AWS subnet; default: the default one.")] = None,
    sync_limit: Annotated[float | None, typer.Option(help="Largest folder to send in MiB; default: 500.")] = None,
    grace: Annotated[str, typer.Option(help="Time between asking the job to end and killing it.")] = DEFAULT_GRACE,
    recover: Annotated[
        int | None, typer.Option(help="With --spot: how often the job may go on after its machine is taken back.")
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="With --recover: files it goes on from; default: all that is new or changed. Repeatable."),
    ] = None,
    resume_args: Annotated[
        str | None, typer.Option(help="With --recover: arguments for a job that goes on, e.g. '--resume {latest}'.")
    ] = None,
    fallback: Annotated[
        str | None, typer.Option(help="With --recover: on-demand, where no spot machine is free.")
    ] = None,
    queue: Annotated[bool, typer.Option("--queue", help="Wait in costgpu queue until there is room.")] = False,
    assume_price: Annotated[str | None, typer.Option(help="Price of an hour of this machine in USD.")] = None,
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
    from costgpu.render.text.run import plan_json, plan_text
    from costgpu.workflows.runs.start import check_detached, is_free, planned_run

    as_json = opt.wants_json(json, output)
    opt.show_amounts(currency, rate, as_json=as_json)
    request = request_of(RunRequest, locals(), tags=tag, disk_gib=disk, sync_limit_mib=sync_limit)
    try:
        with planned_run(request, TerminalReporter()) as (context, planned):
            if detach or queue:
                check_detached(planned.plan)
            if dry_run:
                say((plan_json if as_json else plan_text)(planned.plan, planned.at))
                note_refusal(planned)
                return
            say(plan_text(planned.plan, planned.at), err=True)
            if planned.refusal is not None and not queue:
                raise planned.refusal
            planned = agree_on_inputs(context, planned, asks=not (yes or as_json))
            if not yes and not is_free(planned.plan):
                alone = NotConfirmed(
                    "Confirmation required, but stdin is not a terminal.",
                    hint="Add -y, or --dry-run to only see the plan.",
                )
                confirm("Launch it?", alone=alone, otherwise="Not launched; nothing was spent.")
            if queue:
                _put_into_queue(context, planned, as_json=as_json)
                return
            _carry_out(context, planned, detach=detach, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _carry_out(context: AppContext, planned: PlannedRun, *, detach: bool, as_json: bool) -> None:
    from costgpu.cli.terminal_observer import Terminal, signals
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.launch import new_run_id
    from costgpu.workflows.runs.start import start_run

    terminal = Terminal(context.clock, data_to_stderr=as_json)
    run_id = new_run_id()
    try:
        with signals() as received, told_how_to_return(run_id):
            driver = start_run(context, planned, terminal, run_id=run_id, detach=detach)
    except Detached as left:
        terminal.close()
        run_id = left.run_id  # another one, if the first place had no room for all machines
        print_detached(load_run(context.ledger, run_id), received, as_json=as_json)
        return
    except CostGpuError as error:
        if as_json and context.ledger.events(run_id):
            _print_document(context, planned.plan, load_run(context.ledger, run_id), error)
        raise
    finally:
        terminal.close()
    if as_json:
        from costgpu.runner.state.outcome import error_for

        _print_document(context, planned.plan, driver.view, driver.error or error_for(driver.decisive))
    finish(driver, as_json=as_json)


def _put_into_queue(context: AppContext, planned: PlannedRun, *, as_json: bool) -> None:
    """Records the run, and starts what may start: it, if nothing waits before it and there is room."""
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.errors import RunBusy, RunError
    from costgpu.models.run import RunState
    from costgpu.render.text.queue import queue_json, queued_text, started_text
    from costgpu.runner.find_run import load_run
    from costgpu.runner.launch import new_run_id
    from costgpu.runner.state.outcome import error_for
    from costgpu.workflows.runs.queue import enqueue, start_waiting, waiting

    terminal = Terminal(context.clock, ask=False)
    try:
        view = enqueue(context, planned, terminal, new_run_id())
        try:
            started = start_waiting(context, terminal, {view.run_id: planned.environment})
        except RunBusy:  # whoever is at it comes to this one, too
            started = []
    finally:
        terminal.close()
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


def _print_document(context: AppContext, plan: Plan, view: RunView, error: CostGpuError | None) -> None:
    from costgpu.render.text.run import launched_json
    from costgpu.runner.find_run import runs_of_job

    say(launched_json(plan, runs_of_job(context.ledger, view), error, context.clock.now()))


def finish(driver: JobDriver, *, as_json: bool = False) -> None:
    """Show the receipt and end with the exit code of the job, or of what went wrong."""
    from costgpu.render.text.receipt import receipts_text
    from costgpu.runner.state.outcome import error_for, exit_code

    view = driver.decisive
    if not as_json:
        say(receipts_text(driver.views), err=True)
    if driver.broken is not None:
        print_error(driver.broken, before="The ledger could not be written: ")
    error = driver.error or error_for(view)
    if error is not None:
        raise error
    code = exit_code(view)
    if code:
        detail = f". {view.status.detail}" if view.status is not None and view.status.detail else ""
        where = f" on machine {view.spec.node.node}" if view.spec.node is not None else ""
        print_note(f"the job ended with exit code {code}{where}{detail}")
    raise typer.Exit(code)


def print_detached(view: RunView, received: list[int], *, as_json: bool = False) -> None:
    """Says how to return to a run that goes on; a client that was ended by a signal says so by its exit code."""
    from costgpu.render.text.run import detached_text, run_json

    with contextlib.suppress(OSError):  # the terminal may be gone
        say(run_json(view) if as_json else detached_text(view), err=not as_json)
    if received:
        raise typer.Exit(128 + received[0])


@contextlib.contextmanager
def told_how_to_return(run_id: str) -> Iterator[None]:
    """A client that fails unexpectedly still says what becomes of the machine."""
    from costgpu.runner.drive.context import Detached

    try:
        yield
    except (CostGpuError, Detached):
        raise
    except Exception:
        print_note(
            f"this client has failed; a machine of run {run_id} goes on without it and ends itself by its lease.",
            hint=f"costgpu attach {run_id} takes it over, costgpu cancel {run_id} ends it.",
        )
        raise
