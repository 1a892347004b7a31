"""`costgpu doctor`: whether a run would work from here, and what to do if not; and what only a real account can tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, confirm, print_error, print_note, say
from costgpu.errors import CostGpuError, NotConfirmed, RunCancelled, TerminationUnconfirmed, UsageError
from costgpu.workflows.context import AppContext

if TYPE_CHECKING:
    from costgpu.models.first_run import TrialMachine
    from costgpu.render.text.doctor import PlaceReport
    from costgpu.workflows.first_run.trial import Allowance

REPORT = "costgpu-first-run.json"


def doctor(
    infra: opt.Infra = None,
    instance_type: opt.InstanceType = None,
    gpus: opt.Gpus = None,
    spot: opt.Spot = False,
    policy: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="Provider whose least permissions are printed, nothing else.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Check each cloud for its smallest machine, too, and write a report.")
    ] = False,
    max_cost: Annotated[
        str | None, typer.Option(help="With --live: create one such machine in each, for so many USD at most in all.")
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help=f"With --live: the report; default: {REPORT}.")
    ] = None,
    force: opt.Force = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Create the machines of --max-cost without asking.")] = False,
    json: opt.Json = False,
) -> None:
    """Check credentials, permissions, quotas and this computer.

    Every cloud with credentials is asked, side by side, and nothing is created or paid for
    without --max-cost. With -t or --gpus also whether that machine can be had: its zones,
    its quota, a dry run. Exit code 0 if nothing failed, else that of the gravest failure:
    41 credentials or permissions, 43 quota, 44 no such region or machine, 46 no answer, ...

    --live --max-cost 0.50 creates the smallest machine of each cloud (or that of -t), one
    after the other, each with a lease and a receipt, and measures what only a real account
    can tell. The report names no account, project, person, address or key.

    --policy aws prints the least IAM policy that is enough, as JSON; --policy gcp the
    custom role, as YAML.
    """
    from costgpu.models.diagnostics import Status, gravest
    from costgpu.render.phrases import counted
    from costgpu.render.text.doctor import FREE, SO_FAR, doctor_json, doctor_text
    from costgpu.units import parse_usd
    from costgpu.workflows.doctor import examine, permissions
    from costgpu.workflows.first_run.trial import Allowance
    from costgpu.workflows.write_file import check_target

    if policy is not None:
        typer.echo(permissions(policy), nl=False)
        return
    options = {"--max-cost": max_cost, "--report": report, "--force": force, "--yes": yes}
    given = [name for name, value in options.items() if value]
    if given and not live:
        raise UsageError(f"{' and '.join(given)} cannot be used without --live.", hint="Add --live, or leave it out.")
    error: CostGpuError | None = None
    with AppContext(TerminalReporter(), strict=True) as context:
        if live:
            check_target(Path(report or REPORT), force=force)
        allowance = Allowance(parse_usd(max_cost, "--max-cost")) if max_cost is not None else None
        any_of = None if gpus is None else ",".join(gpus)
        places = examine(context, infra or [], instance_type, any_of, spot=spot, smallest=live)
        kind = gravest([check for place in places for check in place.checks])
        exit_code = kind.exit_code if kind else 0
        closing = FREE if max_cost is None else SO_FAR
        say(doctor_json(places, context.clock.now(), exit_code) if json else doctor_text(places, closing))
        if live:
            error = _live(context, places, allowance, Path(report or REPORT), force=force, yes=yes)
    if error is not None:
        raise error
    if kind is not None:
        count = sum(check.status is Status.FAILED for place in places for check in place.checks)
        raise kind(f"{counted(count, 'check')} failed.", hint="The lines marked FAIL say what to do.")


def _live(
    context: AppContext,
    places: Sequence[PlaceReport],
    allowance: Allowance | None,
    path: Path,
    *,
    force: bool,
    yes: bool,
) -> CostGpuError | None:
    """Create the machines that may be created, and write the report whatever came of them; the gravest error.

    After one that may still be billing, or was cancelled, no other follows.
    """
    from costgpu.render.text.doctor import total_text
    from costgpu.workflows.first_run.report import report
    from costgpu.workflows.first_run.trial import redactor_for
    from costgpu.workflows.write_file import write_file

    trials: list[TrialMachine] = []
    error: CostGpuError | None = None
    most = allowance.left_usd if allowance is not None else None
    try:
        for place in places:
            if allowance is None or place.offer is None or isinstance(error, RunCancelled | TerminationUnconfirmed):
                continue
            if why := _why_not(place):
                print_note(f"{place.name}: nothing is created there: {why}.")
                continue
            try:
                failed = _try(place, allowance, trials, yes=yes)
            except NotConfirmed:
                raise
            except CostGpuError as raised:
                failed = raised
            if failed is None or error is None:
                error = error or failed
                continue
            if isinstance(failed, RunCancelled | TerminationUnconfirmed):
                error, failed = failed, error
            print_error(failed)  # the other one is what the command ends with
    finally:
        names = [place.name.partition("/")[0] for place in places[1:]]
        text = report(places, trials, context.clock.now(), most, redactor_for(context, names, trials))
        write_file(path, [text], force=force)
        say(total_text(trials, str(path)), err=True)
    return error


def _why_not(place: PlaceReport) -> str:
    """Why no machine is created in a place; empty if one may be."""
    from costgpu.models.diagnostics import Status

    if any(check.exit_code for check in place.checks):
        return "see the lines marked FAIL"
    unknown = {check.name for check in place.checks if check.status is Status.UNKNOWN}
    return "there are no credentials" if "credentials" in unknown else ""


def _try(place: PlaceReport, allowance: Allowance, trials: list[TrialMachine], *, yes: bool) -> CostGpuError | None:
    """Create one machine, if that is agreed to; why it did not come as far as its job."""
    from costgpu.cli.terminal_observer import Terminal, signals
    from costgpu.render.text.doctor import trial_text
    from costgpu.render.text.run import plan_text
    from costgpu.workflows.first_run.trial import carry_out, planned_trial

    assert place.offer is not None  # noqa: S101 - see `_live`
    with planned_trial(place.offer, allowance, TerminalReporter()) as trial:
        say(plan_text(trial.planned.plan, trial.planned.at), err=True)
        if not yes:
            alone = NotConfirmed("Confirmation required, but stdin is not a terminal.", hint="Add -y.")
            confirm("Create it?", alone=alone, otherwise="Not created; the report has the checks only.")
        with closing(Terminal(trial.context.clock, data_to_stderr=True, ask=False)) as terminal, signals():
            done, error = carry_out(trial, allowance, terminal)
    trials.append(done)
    say(trial_text(done), err=True)
    return error
