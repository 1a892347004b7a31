"""`costgpu jobs`, `logs`, `attach`, `fetch`: come back to a run from any terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import HostUnreachable, RunBusy, RunError, UsageError
from costgpu.workflows.runs.find_run import RUN, connection, recorded_run, run_and_machine

if TYPE_CHECKING:
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.models.reap import TaggedInstance
    from costgpu.models.run import RunView
    from costgpu.workflows.context import AppContext


def jobs(
    everything: Annotated[bool, typer.Option("-a", "--all", help="Closed runs, too.")] = False,
    by_tag: Annotated[
        bool, typer.Option("--by-tag", help="Ask the providers, too: all machines of ours, by tag.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List runs: what runs, since when, what it has cost so far, how much of its lease is left."""
    from costgpu.errors import ConfigError, LedgerError
    from costgpu.render.text.jobs import jobs_json, jobs_text
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        views: list[RunView] = []
        try:
            ids = parts.ledger.recent_runs(50) if everything else tuple(reversed(parts.ledger.open_runs()))
            views = _views(parts, ids)
        except (ConfigError, LedgerError) as error:
            typer.echo(f"costgpu: {error.message} Asking the providers instead.", err=True)
            if error.hint:
                typer.echo(f"hint: {error.hint}", err=True)
            by_tag = True
        tagged = _tagged(parts, {view.run_id for view in views}) if by_tag else []
        now = parts.clock.now()
        typer.echo(jobs_json(views, tagged, now) if json else jobs_text(views, tagged, now))
        if not json:
            _tell_waiting(parts, views)


def logs(
    run: RUN,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as the job writes.")] = False,
) -> None:
    """Print what the job has written: its stdout to stdout, its stderr to stderr."""
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.runner.machine.host import LogPosition
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        view, instance = run_and_machine(parts, run)
        run_id = view.run_id if view is not None else instance.run_id if instance else ""
        folder = parts.tools.folder / run_id
        if view is not None and (view.collected or instance is None or not instance.state.alive):
            _print_files(folder, view)
            return
        if instance is None:
            raise RunError(f"Run {run_id} has no machine yet.", hint="costgpu jobs shows how far it is.")
        with connection(parts, instance) as host:
            if follow:
                with contextlib.suppress(KeyboardInterrupt):
                    host.follow(LogPosition(), Terminal(parts.clock).output)
                return
            host.fetch_logs(folder)
        _print_files(folder, view)


def attach(run: RUN) -> None:
    """Watch a run again and take it to its end: outputs home, machine ended, receipt."""
    from costgpu.cli.run import coming_back, finish, left
    from costgpu.cli.terminal_observer import Terminal, signals
    from costgpu.models.run import RunState
    from costgpu.runner.adopt import adopt, job_status, log_tail
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.state.lock import lock_run
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        view = recorded_run(parts, run)
        if view.state is RunState.CLOSED:
            raise RunError(f"Run {view.run_id} is closed.", hint=f"costgpu logs {view.run_id} shows what it wrote.")
        terminal = Terminal(parts.tools.clock)
        try:
            with lock_run(parts.tools.folder / view.run_id), signals() as came, coming_back(view.run_id):
                view = load_run(parts.ledger, view.run_id)
                driver = adopt(view, parts.ledger, parts.tools, terminal, _environment(view))
                if status := job_status(view, parts.tools):
                    driver.context.log_position = log_tail(status)
                terminal.changed(driver.view)
                driver.drive()
        except RunBusy:
            terminal.note(f"Run {view.run_id} is driven from another terminal; this one only watches.")
            _watch(parts, view, terminal)
            return
        except Detached:
            terminal.close()
            left(load_run(parts.ledger, view.run_id), came)
            return
        finally:
            terminal.close()
        finish(driver)


def fetch(
    run: RUN,
    to: Annotated[str | None, typer.Option(help="Folder; else where the job was sent from.")] = None,
) -> None:
    """Bring a run's outputs and logs home, whether the job is over or still runs; the machine is left as it is."""
    from costgpu.runner.drive.collect import placed_summary, unreadable_error
    from costgpu.runner.files.place_outputs import fetch_and_place
    from costgpu.workflows.context import app_context

    with app_context() as parts:
        view, instance = run_and_machine(parts, run)
        run_id = view.run_id if view is not None else instance.run_id if instance else ""
        folder = parts.tools.folder / run_id
        home = Path(to).resolve() if to else Path(view.spec.workdir) if view is not None else Path.cwd()
        unread: RunError | None = None
        if view is not None and view.collected and to is None:
            typer.echo(f"The outputs of run {run_id} are home already, in {home}.", err=True)
            return
        if instance is None or not instance.state.alive:
            rescued = parts.tools.bucket.recover(view, folder) if view is not None and parts.tools.bucket else None
            if rescued is None:
                raise RunError(
                    f"The machine of run {run_id} is gone{', and nothing is in a bucket' if view else ''}.",
                    hint="Outputs live with their machine, unless --bucket was given.",
                )
            status, entries, source = rescued
            if status.detail:
                typer.echo(status.detail, err=True)
            landed = fetch_and_place(source, entries, workdir=home, run_id=run_id)
        else:
            with connection(parts, instance) as host:
                host.fetch_logs(folder)
                outputs = host.outputs()
                landed = fetch_and_place(host, outputs.files, workdir=home, run_id=run_id)
                unread = unreadable_error(outputs) if outputs.unreadable else None
        typer.echo(placed_summary(landed, str(home), run_id), err=True)
        if instance is not None and instance.state.alive:
            until = f"{instance.lease_until:%Y-%m-%d %H:%M} UTC" if instance.lease_until else "somebody ends it"
            typer.echo(f"Its machine stays until {until}; costgpu cancel {run_id} ends it now.", err=True)
        problem = unread or landed.problem
        if problem is not None:
            raise problem


def _views(parts: AppContext, ids: Sequence[str]) -> list[RunView]:
    """Runs as the ledger tells them; one that makes no sense does not hide the others."""
    from costgpu.runner.state.states import IllegalEvent, replay

    views = []
    for events in parts.ledger.events_of(ids).values():
        try:
            views.append(replay(events))
        except IllegalEvent as error:
            typer.echo(f"costgpu: not listed: {error.message}", err=True)
    return views


def _tagged(parts: AppContext, known: set[str]) -> list[TaggedInstance]:
    """Machines of ours of which the ledger knows nothing."""
    from costgpu.errors import ProviderError
    from costgpu.models.reap import TaggedInstance

    found: list[TaggedInstance] = []
    for provider in parts.providers():
        try:
            owned = provider.list_owned(None)
        except ProviderError as error:
            typer.echo(f"costgpu: {provider.name} could not be asked: {error.message}", err=True)
            continue
        found += [TaggedInstance(instance=i) for i in owned.instances if i.state.alive and i.run_id not in known]
        for region, why in owned.unreachable:
            typer.echo(f"costgpu: {provider.name}/{region} could not be asked: {why}", err=True)
    return found


def _watch(parts: AppContext, view: RunView, terminal: Terminal) -> None:
    """Shows the job's output to its end, and ends with the job's exit code; changes nothing."""
    from costgpu.runner.adopt import log_tail
    from costgpu.runner.find_run import load_run

    _, instance = run_and_machine(parts, view.run_id)
    if instance is None:
        raise RunError(f"Run {view.run_id} has no machine yet.", hint="costgpu jobs shows how far it is.")
    with contextlib.suppress(KeyboardInterrupt), connection(parts, instance) as host:
        try:
            status = host.follow(log_tail(host.status()), terminal.output)
        except HostUnreachable:
            known = load_run(parts.ledger, view.run_id).status
            if known is None:
                raise
            status = (
                known  # whoever drives the run has seen the job's end before we have, and may have ended the machine
            )
            terminal.note(f"The job is over; all of its output: costgpu logs {view.run_id}")
        terminal.close()
        raise typer.Exit(status.exit_code or 0)


def _environment(view: RunView) -> dict[str, str] | None:
    """The job's environment as far as this process has it; None if a variable is missing."""
    from costgpu.workflows.context import job_environment

    found: dict[str, str] = {}
    if view.spec.env_file is not None:
        with contextlib.suppress(UsageError):
            found = job_environment([], view.spec.env_file)
    for name in view.spec.env_names:
        if name not in found:
            if name not in os.environ:
                return None
            found[name] = os.environ[name]
    return found


def _print_files(folder: Path, view: RunView | None) -> None:
    shown = False
    for name, sink in (("stderr.log", sys.stderr.buffer), ("stdout.log", sys.stdout.buffer)):
        path = folder / name
        if path.exists():
            shown = True
            with path.open("rb") as file:
                while chunk := file.read(1 << 16):
                    sink.write(chunk)
            sink.flush()
    if not shown:
        what = f"Run {view.run_id}" if view is not None else "The run"
        raise RunError(f"{what} has left no logs here.", hint="They come home with the outputs; see costgpu jobs.")


def _tell_waiting(parts: AppContext, views: list[RunView]) -> None:
    """Runs of this computer whose client is gone say so: their outputs wait for somebody."""
    from concurrent.futures import ThreadPoolExecutor

    from costgpu.config import runs_folder
    from costgpu.models.job import JobPhase
    from costgpu.models.run import RunState
    from costgpu.runner.state.lock import is_driven

    begun = [view for view in views if view.state not in (RunState.INTENT, RunState.CLOSED)]
    ours = [view for view in begun if (runs_folder() / view.run_id).exists()]  # only here are their keys
    alone = [view for view in ours if not is_driven(runs_folder() / view.run_id)]
    if not alone:
        return
    from costgpu.runner.adopt import job_status

    now = parts.clock.now()
    with ThreadPoolExecutor(8) as pool:  # each may take seconds to answer
        answers = pool.map(lambda view: job_status(view, parts.tools), alone)
    for view, status in zip(alone, answers, strict=True):
        what = "goes on without a client"
        if status is not None and status.phase is JobPhase.FINISHED:
            what = "is over; its outputs wait"
        elif view.lease_until is not None and view.lease_until < now:
            what = "has outlived its lease"
        typer.echo(f"{view.run_id} {what}: costgpu attach {view.run_id}", err=True)
