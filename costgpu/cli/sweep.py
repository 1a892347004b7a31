"""`costgpu sweep`: a script once for each setting, scheduled by Ray Tune; the plan, the live table, the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.inputs import agree_on_inputs, note_refusal
from costgpu.cli.run import finish, print_detached, told_how_to_return
from costgpu.cli.terminal_reporter import TerminalReporter, confirm, say
from costgpu.errors import EXIT_INTERRUPTED, CostGpuError, NotConfirmed
from costgpu.workflows.estimate.request import MEASURE_FOR
from costgpu.workflows.requests import request_of
from costgpu.workflows.runs.request import DEFAULT_GRACE
from costgpu.workflows.sweep.request import DEFAULT_SEED, SweepRequest

if TYPE_CHECKING:
    from costgpu.cli.sweep_observer import SweepTerminal
    from costgpu.clock import Clock
    from costgpu.models.run import RunView
    from costgpu.runner.adopt import JobDriver
    from costgpu.sweep.results import Results
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.sweep.plan import PlannedSweep


def sweep(
    command: opt.Script = None,
    module: opt.Module = None,
    grid: Annotated[
        list[str] | None, typer.Option(metavar="NAME=A,B,C", help="Parameter and all of its values. Repeatable.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LO..HI", help="Parameter to draw: a range, LO..HI:log, or A|B|C. Repeatable."),
    ] = None,
    random: Annotated[int | None, typer.Option(help="Random draws of --param, for each point of the grid.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = DEFAULT_SEED,
    args: Annotated[
        str | None, typer.Option(metavar="TEMPLATE", help="How settings are passed on; default: --NAME VALUE.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Number to compare by: a pattern of a line, with one group.")
    ] = None,
    mode: Annotated[str, typer.Option(help="Better values: min or max.")] = "min",
    asha: Annotated[bool, typer.Option("--asha", help="End the worse trials early (ASHA).")] = False,
    asha_grace: Annotated[
        int | None, typer.Option(min=1, help="Reports before a trial can be ended; default: 1.")
    ] = None,
    asha_factor: Annotated[int | None, typer.Option(min=2, help="Of so many trials one goes on; default: 4.")] = None,
    asha_max: Annotated[int | None, typer.Option(min=1, help="Reports of a full trial, which ends there.")] = None,
    concurrent: Annotated[
        int | None, typer.Option(help="Trials at the same time; default: one for each GPU, or machine without.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of machines.")] = None,
    infra: opt.Infra = None,
    instance_type: opt.InstanceTypes = None,
    gpus: opt.Gpus = None,
    spot: opt.Spot = False,
    max_cost: Annotated[
        str | None, typer.Option(help="Highest cost of it all in USD; default: 3 times the estimate.")
    ] = None,
    fit: opt.Fit = False,
    max_duration: Annotated[str | None, typer.Option(help="Longest time of all trials together, e.g. 2h.")] = None,
    include: opt.Include = None,
    exclude: opt.Exclude = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(help="Files of each trial to keep; default: all that is new or changed. Repeatable."),
    ] = None,
    setup: Annotated[
        str | None,
        typer.Option(help="Command before the trials; default when rented: installs what the project names."),
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Option(help="Extra of the project's pyproject.toml to install, too. Repeatable.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("-e", "--env", help="Variable of the trials: KEY=VALUE, or KEY from here.")
    ] = None,
    env_file: Annotated[str | None, typer.Option(help="File with KEY=VALUE lines.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Name of the sweep; default: the script's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag for the machines, as key=value. Repeatable.")] = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return as soon as the trials have started.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    python: opt.Python = None,
    workdir: Annotated[str | None, typer.Option(help="Folder to send and run in; default: the script's own.")] = None,
    profile: Annotated[str | None, typer.Option(help="Saved profile to use instead of measuring.")] = None,
    estimate: Annotated[bool, typer.Option(help="Measure the first setting here first, or not.")] = True,
    measure_for: opt.MeasureFor = MEASURE_FOR,
    disk: opt.Disk = None,
    bucket: Annotated[str | None, typer.Option(help="Bucket for outputs and logs: s3://name/prefix.")] = None,
    subnet: Annotated[str | None, typer.Option(help="AWS subnet; default: the default one.")] = None,
    sync_limit: Annotated[float | None, typer.Option(help="Largest folder to send in MiB; default: 500.")] = None,
    grace: Annotated[str, typer.Option(help="Time between asking the trials to end and killing them.")] = DEFAULT_GRACE,
    assume_price: Annotated[str | None, typer.Option(help="Price of an hour of this machine in USD.")] = None,
    currency: opt.Currency = None,
    rate: opt.ExchangeRate = None,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """Run a script once for each setting, and find the best.

    Options of costgpu stand before the script. Trials run on this machine unless --infra,
    -t or --gpus rents others, and are scheduled by Ray Tune. The plan is shown first.
    """
    from costgpu.workflows.sweep.plan import planned_sweep

    as_json = opt.wants_json(json, output)
    opt.show_amounts(currency, rate, as_json=as_json)
    request = request_of(SweepRequest, locals(), tags=tag, disk_gib=disk, sync_limit_mib=sync_limit)
    try:
        with planned_sweep(request, TerminalReporter()) as (context, planned):
            if dry_run:
                say(_plan(planned, as_json=as_json))
                note_refusal(planned.planned)
                return
            say(_plan(planned), err=True)
            if planned.planned.refusal is not None:
                raise planned.planned.refusal
            decided = agree_on_inputs(context, planned.planned, asks=not (yes or as_json))
            planned = replace(planned, planned=decided)
            if not yes:
                _confirm(planned)
            _carry_out(context, planned, detach=detach, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _plan(planned: PlannedSweep, *, as_json: bool = False) -> str:
    from costgpu.render.text.sweep import sweep_plan_json, sweep_plan_text

    plan, at = planned.planned.plan, planned.planned.at
    if as_json:
        return sweep_plan_json(plan, at, planned.sweep, planned.time, planned.folder)
    return sweep_plan_text(plan, at, planned.sweep, planned.time, planned.spec["argv"], planned.folder)


def _confirm(planned: PlannedSweep) -> None:
    """Asks about what costs money, and about more trials than anybody means by accident."""
    from costgpu.render.text.sweep import trials_question
    from costgpu.sweep.space import MANY_TRIALS
    from costgpu.workflows.runs.start import is_free

    plan, trials = planned.planned.plan, planned.sweep.space.trials
    if is_free(plan) and trials <= MANY_TRIALS:
        return
    alone = NotConfirmed(
        f"{trials_question(plan, trials)} Confirmation required, but stdin is not a terminal.",
        hint="Add -y, or --dry-run to only see the plan.",
    )
    question = trials_question(plan, trials) if trials > MANY_TRIALS else "Launch it?"
    confirm(question, alone=alone, otherwise="Not launched; nothing was spent.")


def _carry_out(context: AppContext, planned: PlannedSweep, *, detach: bool, as_json: bool) -> None:
    from costgpu.cli.sweep_observer import SweepTerminal
    from costgpu.cli.terminal_observer import signals
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.launch import new_run_id
    from costgpu.workflows.runs.start import start_run

    planned.write()
    terminal = SweepTerminal(context.clock, planned.spec)
    run_id = new_run_id()
    try:
        with signals() as received, told_how_to_return(run_id):
            driver = start_run(context, planned.planned, terminal, run_id=run_id, detach=detach)
    except Detached as left:
        terminal.close()
        print_detached(load_run(context.ledger, left.run_id), received, as_json=as_json)
        return
    except CostGpuError as error:
        if as_json and context.ledger.events(run_id):
            _print_document(context, planned, terminal.results, load_run(context.ledger, run_id), error)
        raise
    finally:
        terminal.close()
    results = show_results(context, driver, terminal, quiet=as_json)
    if as_json:
        from costgpu.runner.state.outcome import error_for

        _print_document(context, planned, results, driver.view, driver.error or error_for(driver.decisive))
    finish(driver, as_json=as_json)


def sweep_terminal(clock: Clock, view: RunView, *, ask: bool | None = None) -> SweepTerminal | None:
    """Somebody who watches a sweep that goes on; None for a run that is none, or is another computer's.

    Args:
        ask: Whether somebody is there to answer; None to find out.
    """
    from costgpu.cli.sweep_observer import SweepTerminal
    from costgpu.workflows.sweep.bundle import read_spec

    spec = read_spec(view.spec.argv)
    return None if spec is None else SweepTerminal(clock, spec, ask=ask)


def show_results(context: AppContext, driver: JobDriver, terminal: SweepTerminal, *, quiet: bool = False) -> Results:
    """Write the page and print what came of a sweep; return its results.

    Args:
        terminal: Where it was watched.
        quiet: Whether nothing goes to stdout.
    """
    from costgpu.models.run import RunState
    from costgpu.render.text.sweep import outcome_error, results_text
    from costgpu.workflows.sweep.bundle import forget_bundle
    from costgpu.workflows.sweep.results import results_at_home, write_page

    spec, metric, workdir = terminal.spec, terminal.metric, Path(driver.view.spec.workdir)
    home = results_at_home(spec, workdir)
    results = home or terminal.results
    if results.began_at is None:
        return results  # the tuner has not come to it: the error of the run says why
    if home is not None:
        write_page(home, spec, workdir, context.clock.now())
        if driver.view.state is RunState.CLOSED:
            forget_bundle(driver.view.spec.argv)
    if not quiet:
        say(results_text(results, metric.name, spec["folder"] if home is not None else None))
    driver.context.error = driver.context.error or outcome_error(results, metric)
    return results


def _print_document(
    context: AppContext, planned: PlannedSweep, results: Results, view: RunView, error: CostGpuError | None
) -> None:
    from costgpu.render.text.run import launched_json
    from costgpu.render.text.sweep import results_value
    from costgpu.runner.find_run import runs_of_job

    more = {"sweep": results_value(results, planned.sweep.metric, planned.folder)}
    views = runs_of_job(context.ledger, view)
    say(launched_json(planned.planned.plan, views, error, context.clock.now(), "costgpu.sweep", **more))
