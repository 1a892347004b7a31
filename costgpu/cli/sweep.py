"""`costgpu sweep`: a script once for each setting, scheduled by Ray Tune; the plan, the live table, the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.run import agree, carry_out
from costgpu.cli.terminal_reporter import TerminalReporter, say
from costgpu.clock import Clock
from costgpu.errors import EXIT_INTERRUPTED
from costgpu.models.instance import Instance
from costgpu.models.run import RunView
from costgpu.workflows.sweep.request import OF_ONE_JOB, SweepRequest

if TYPE_CHECKING:
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.job.drive.job import JobDriver
    from costgpu.workflows.context import AppContext


@opt.command_of(SweepRequest, without=OF_ONE_JOB)
def sweep(
    request: SweepRequest,
    *,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return as soon as the trials have started.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start without asking.")] = False,
    dry_run: opt.DryRun = False,
    currency: opt.Currency = None,
    rate: opt.ExchangeRate = None,
    json: opt.Json = False,
    output: opt.Format = "text",
) -> None:
    """Run a script once for each setting, and find the best.

    Options of costgpu stand before the script. Trials run on this machine unless --infra,
    -t or --gpus rents others, and are scheduled by Ray Tune. The plan is shown first.
    """
    from costgpu.cli.sweep_observer import SweepTerminal
    from costgpu.render.text.sweep import results_value, sweep_plan_json, sweep_plan_text, trials_question
    from costgpu.sweep.space import MANY_TRIALS
    from costgpu.workflows.runs.start import is_free
    from costgpu.workflows.sweep.bundle import write_bundle
    from costgpu.workflows.sweep.plan import planned_sweep

    as_json = opt.show_amounts(currency, rate, as_json=json, output=output)
    try:
        with planned_sweep(request, TerminalReporter()) as (context, planned):
            plan, at, spec = planned.planned.plan, planned.planned.at, planned.spec
            if as_json and dry_run:
                shown = sweep_plan_json(plan, at, planned.sweep, planned.time, spec["folder"])
            else:
                shown = sweep_plan_text(plan, at, planned.sweep, planned.time, spec["argv"], spec["folder"])
            whole = trials_question(plan, planned.sweep.space.trials)
            many = planned.sweep.space.trials > MANY_TRIALS  # more than anybody means by accident
            question = "" if yes else whole if many else "" if is_free(plan) else "Launch it?"
            asks = not (yes or as_json)
            agreed = agree(context, planned.planned, shown, question, whole, dry_run=dry_run, asks=asks)
            if agreed is None:
                return
            write_bundle(planned.name, spec)
            folder, terminal = spec["folder"], SweepTerminal(context.clock, spec)
            carry_out(
                context,
                agreed,
                terminal,
                detach=detach,
                as_json=as_json,
                show=lambda driver: show_results(context, driver, terminal, quiet=as_json),
                schema="costgpu.sweep",
                more=lambda: {"sweep": results_value(terminal.results, terminal.metric, folder)},
            )
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def terminal_of(clock: Clock, found: RunView | Instance, *, ask: bool | None = None) -> Terminal:
    """Return the terminal on which a run is watched; one with a table for a sweep that was started from this computer.

    Args:
        ask: Whether somebody is there to answer; None to find out.
    """
    from costgpu.cli.sweep_observer import SweepTerminal
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.models.run import RunView
    from costgpu.workflows.sweep.bundle import read_spec

    spec = read_spec(found.spec.argv) if isinstance(found, RunView) else None
    return Terminal(clock, ask=ask) if spec is None else SweepTerminal(clock, spec, ask=ask)


def show_results(context: AppContext, driver: JobDriver, terminal: Terminal, *, quiet: bool = False) -> None:
    """Write the page and print what came of a sweep; do nothing for another run.

    Args:
        terminal: Where it was watched, and which gets the results that came home.
        quiet: Whether nothing goes to stdout.
    """
    from costgpu.cli.sweep_observer import SweepTerminal
    from costgpu.models.run import RunState
    from costgpu.render.text.sweep import outcome_error, results_text
    from costgpu.workflows.sweep.bundle import forget_bundle
    from costgpu.workflows.sweep.results import results_at_home, write_page

    if not isinstance(terminal, SweepTerminal):
        return
    spec, metric, workdir = terminal.spec, terminal.metric, Path(driver.view.spec.workdir)
    home = results_at_home(spec, workdir)
    results = terminal.results = home or terminal.results
    if results.began_at is None:
        return  # the tuner has not come to it: the error of the run says why
    if home is not None:
        write_page(home, spec, workdir, context.clock.now())
        if driver.view.state is RunState.CLOSED:
            forget_bundle(driver.view.spec.argv)
    if not quiet:
        say(results_text(results, metric.name, spec["folder"] if home is not None else None))
    driver.context.error = driver.context.error or outcome_error(results, metric)
