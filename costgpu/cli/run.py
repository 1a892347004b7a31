"""`costgpu run`: plan, agree, launch, follow, bring home, end for certain."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import CostGpuError, NotConfirmed, ScriptError, UsageError
from costgpu.models.workload import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS
from costgpu.workflows.runs.plan import (
    check_credentials,
    check_local,
    check_places,
    default_places,
    places_for,
    plan_for,
    python_for,
    setup_for,
    spec_of,
    tags_of,
)

if TYPE_CHECKING:
    from costgpu.models.run import Plan, RunView
    from costgpu.models.workload import WorkloadProfile
    from costgpu.runner.drive.loop import Driver
    from costgpu.runner.plan import Limits
    from costgpu.workflows.context import AppContext

DEFAULT_LEASE = "8h"


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its own arguments.")
    ] = None,
    module: Annotated[str | None, typer.Option("-m", help="Run a module; what follows it is its own.")] = None,
    infra: Annotated[
        list[str] | None, typer.Option("--infra", "--region", help="local, aws, aws/us-east-1. Repeatable.")
    ] = None,
    instance_type: Annotated[str | None, typer.Option("-t", "--instance-type", help="Such as g5.xlarge.")] = None,
    gpus: Annotated[str | None, typer.Option(help="L4:1, A100, 24GB:1, none; else the estimate decides.")] = None,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", "--use-spot", help="Spot instance.")] = False,
    max_cost: Annotated[str | None, typer.Option(help="Cap on everything, USD; else 3x the estimate.")] = None,
    max_duration: Annotated[str | None, typer.Option(help="Cap on the job's time: 2h.")] = None,
    idle_duration: Annotated[str | None, typer.Option(help="End the job if nothing happens for so long.")] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="What comes home; else all that is new or changed. Repeatable.")
    ] = None,
    setup: Annotated[
        str | None, typer.Option(help="Command before the job; else, when rented, requirements.txt.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("-e", "--env", help="KEY=VALUE, or KEY from here.")] = None,
    env_file: Annotated[str | None, typer.Option(help="File of KEY=VALUE lines.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Of the job; else the script's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Your tag, key=value. Repeatable.")] = None,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Leave when the job has started.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Agree to the plan.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    auto_shutdown: Annotated[bool, typer.Option(help="End the machine when the job is over.")] = True,
    lease: Annotated[str | None, typer.Option(help="With --no-auto-shutdown: how long it may live; else 8h.")] = None,
    nproc: Annotated[str | None, typer.Option(help="Under torchrun, so many processes, or auto.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter to measure with, and to run with here.")] = None,
    workdir: Annotated[str | None, typer.Option(help="Folder to send and run in; else the script's own.")] = None,
    profile: Annotated[str | None, typer.Option(help="A saved profile instead of measuring.")] = None,
    estimate: Annotated[bool, typer.Option(help="Measure the script here first.")] = True,
    measure_for: Annotated[str, typer.Option(help="How long after the first step.")] = f"{MEASURE_FOR_SECONDS:.0f}s",
    disk: Annotated[
        int | None, typer.Option(min=10, max=16000, help="Root disk, GiB; else 50, with a GPU 100.")
    ] = None,
    bucket: Annotated[str | None, typer.Option(help="s3://name/prefix for outputs and logs.")] = None,
    subnet: Annotated[str | None, typer.Option(help="AWS subnet; else the default one.")] = None,
    sync_limit: Annotated[float | None, typer.Option(help="Largest folder to send, MiB; else 500.")] = None,
    grace: Annotated[str, typer.Option(help="Between asking the job to end and killing it.")] = "30s",
    assume_price: Annotated[str | None, typer.Option(help="What an hour of this machine costs, USD.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document; as -o json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="Format: text or json.")] = "text",
) -> None:
    """Run a script on a rented machine, or here; bring its outputs home; end the machine.

    Options of costgpu stand before the script. The plan is shown first, with the most that
    it can cost; the machine ends itself by then, whatever happens to this terminal.
    """
    from dataclasses import replace
    from datetime import UTC, datetime

    from costgpu.estimate.scope import scope_of
    from costgpu.measure import workload_key
    from costgpu.providers import registry
    from costgpu.render.text.plan import plan_json, plan_text
    from costgpu.units import parse_duration
    from costgpu.workflows.context import app_context, job_environment
    from costgpu.workflows.estimate.measure import to_request
    from costgpu.workflows.runs.plan_budget import with_budgets

    words = list(command or [])
    if output not in ("text", "json"):
        raise UsageError(f"There is no output format {output!r}.", hint="Choose text or json.")
    if module is None and not words:
        raise UsageError("Which script?", hint="costgpu run train.py, or costgpu run -m package")
    if lease is not None and auto_shutdown:
        raise UsageError(
            "--lease is for --no-auto-shutdown: otherwise the machine ends with its job.",
            hint="--max-duration and --max-cost limit the job.",
        )
    if infra == ["local"]:
        check_local({"-t": instance_type, "--gpus": gpus, "--spot": spot, "--disk": disk, "--subnet": subnet})
    as_json = json or output == "json"
    environment = job_environment(env or [], env_file)
    request = to_request(words, module, workdir, parse_duration(measure_for), START_LIMIT_SECONDS, None)
    limits = _limits(max_cost, max_duration, None if auto_shutdown else lease or DEFAULT_LEASE, disk)
    now = datetime.now(UTC)
    with app_context(
        request.workdir,
        strict=True,
        sync_limit_mib=sync_limit,
        bucket=bucket,
        **registry.settings_of_option("--subnet", subnet),
    ) as parts:
        limits = replace(limits, longest_seconds=parts.settings.max_lease_hours * 3600)
        renting = bool(instance_type or gpus or spot)
        places_wanted = tuple(infra or default_places(parts.settings.default_infra, renting=renting))
        clouds = check_places(places_wanted, instance_type, gpus, spot=spot)
        spec = spec_of(
            name=name,
            module=module,
            script=request.script,
            arguments=request.arguments,
            workdir=request.workdir,
            environment=tuple(sorted(environment)),
            env_file=env_file,
            outputs=outputs,
            nproc=nproc,
            limits=limits,
            idle=parse_duration(idle_duration) if idle_duration else None,
            grace=parse_duration(grace),
            auto_shutdown=auto_shutdown,
            bucket=parts.settings.bucket or "",
            tags=tags_of(tag or []),
        )
        if estimate and not profile and (renting or any(place != "local" for place in places_wanted)):
            check_credentials(parts, clouds)  # without them there is no need to measure for a minute
        measured = _profile(profile, request, python) if profile or estimate else None
        key = workload_key(
            script=request.script,
            module=module,
            arguments=request.arguments,
            workdir=request.workdir,
            processes=spec.processes,
            variables=environment,
        )
        places, verdict, notes = places_for(
            measured,
            places_wanted,
            instance_type,
            gpus,
            spot=spot,
            assume_price=assume_price,
            today=now.date(),
            workload_key=key,
            ledger=parts.ledger,
        )
        on_this_machine = places[0].offer.provider == "local"
        spec = replace(
            spec,
            setup=setup_for(setup, request.workdir, measured, places[0], local=on_this_machine),
            python=python_for(python, local=on_this_machine),
        )
        steps = scope_of(measured).total_steps if measured else None
        plan = plan_for(parts, spec, places, limits, verdict, notes, workload=key, steps=steps)
        plan, refused = with_budgets(parts, plan)
        if dry_run:
            typer.echo(plan_json(plan, now) if as_json else plan_text(plan, now))
            return
        typer.echo(plan_text(plan, now), err=True)
        if refused is not None:
            raise refused
        _agree(plan, yes=yes)
        _carry_out(parts, plan, environment, detach=detach, as_json=as_json)


def finish(driver: Driver, *, as_json: bool = False) -> None:
    """Shows the receipt and ends with the exit code of the job, or of what went wrong."""
    from costgpu.render.text.receipt import receipt_text
    from costgpu.runner.state.outcome import error_for, exit_code

    view = driver.view
    if view.receipt is not None and not as_json:
        typer.echo(receipt_text(view.receipt, view), err=True)
    broken = driver.context.journal.broken
    if broken is not None:
        typer.echo(f"costgpu: the ledger could not be written: {broken.message}", err=True)
    error = driver.error or error_for(view)
    if error is not None:
        raise error
    code = exit_code(view)
    if code:
        detail = f". {view.status.detail}" if view.status is not None and view.status.detail else ""
        typer.echo(f"costgpu: the job ended with exit code {code}{detail}", err=True)
    raise typer.Exit(code)


def _carry_out(parts: AppContext, plan: Plan, environment: dict[str, str], *, detach: bool, as_json: bool) -> None:
    from costgpu.cli.terminal_observer import Terminal, signals
    from costgpu.render.text.receipt import launched_json
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.launch import current_owner, launch, new_run_id
    from costgpu.runner.state.outcome import error_for

    terminal = Terminal(parts.tools.clock, data_to_stderr=as_json)
    run_id = new_run_id()
    try:
        with signals() as came, coming_back(run_id):
            driver = launch(
                plan,
                parts.ledger,
                parts.tools,
                terminal,
                owner=parts.settings.owner or current_owner(),
                environment=environment,
                detach=detach,
                run_id=run_id,
            )
    except Detached:
        terminal.close()
        left(load_run(parts.ledger, run_id), came, as_json=as_json)
        return
    except CostGpuError as error:
        if as_json and parts.ledger.events(run_id):
            typer.echo(launched_json(plan, load_run(parts.ledger, run_id), error, parts.clock.now()))
        raise
    finally:
        terminal.close()
    if as_json:
        typer.echo(launched_json(plan, driver.view, driver.error or error_for(driver.view), parts.clock.now()))
    finish(driver, as_json=as_json)


def left(view: RunView, came: list[int], *, as_json: bool = False) -> None:
    """Says how to come back to a run that goes on; a client that was ended by a signal says so by its exit code."""
    from costgpu.render.text.receipt import detached_text, run_json

    with contextlib.suppress(OSError):  # the terminal may be gone
        typer.echo(run_json(view) if as_json else detached_text(view), err=not as_json)
    if came:
        raise typer.Exit(128 + came[0])


@contextlib.contextmanager
def coming_back(run_id: str) -> Iterator[None]:
    """A client that fails in a way that nobody thought of still says what becomes of the machine."""
    from costgpu.runner.drive.context import Detached

    try:
        yield
    except (CostGpuError, Detached):
        raise
    except Exception:
        typer.echo(
            f"costgpu: this client has failed; a machine of run {run_id} goes on without it and ends itself by its"
            f" lease.\nhint: costgpu attach {run_id} takes it over, costgpu cancel {run_id} ends it.",
            err=True,
        )
        raise


def _agree(plan: Plan, *, yes: bool) -> None:
    """Nobody pays for what nobody agreed to; this machine is free and needs no word."""
    if yes or (plan.options[0].offer.provider == "local" and not plan.options[0].offer.price_usd_per_hour):
        return
    if not sys.stdin.isatty():
        raise NotConfirmed("Nobody is there to agree to the plan.", hint="Add -y, or --dry-run to only see it.")
    sys.stderr.write("Launch it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotConfirmed("Not launched; nothing was spent.")


def _limits(max_cost: str | None, max_duration: str | None, lease: str | None, disk: int | None) -> Limits:
    from costgpu.runner.plan import Limits
    from costgpu.units import parse_duration, parse_usd

    return Limits(
        max_cost_usd=parse_usd(max_cost) if max_cost else None,
        max_duration_seconds=parse_duration(max_duration) if max_duration else None,
        lease_seconds=parse_duration(lease) if lease else None,
        disk_gib=disk,
    )


def _profile(profile: str | None, request: object, python: str | None) -> WorkloadProfile | None:
    """What the script does; None if it cannot be measured here, with the reason on stderr."""
    from costgpu.measure import Request
    from costgpu.measure.profile_file import load_profile
    from costgpu.workflows.estimate.measure import run_measurement, tell_about_files

    if profile is not None:
        return load_profile(Path(profile))
    assert isinstance(request, Request)  # noqa: S101 - the caller's
    try:
        measured, outcome = run_measurement(request, python)
    except ScriptError as error:
        typer.echo(f"costgpu: no estimate: {error.message}", err=True)
        if error.hint:
            typer.echo(f"hint: {error.hint}", err=True)
        return None
    tell_about_files(outcome)
    return measured
