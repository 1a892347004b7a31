"""`costgpu jobs`, `queue`, `logs`, `attach`, `fetch`, `cancel` and `reap`: return to a run, or end it, from any terminal."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, print_note, say
from costgpu.errors import RunBusy, UsageError
from costgpu.workflows.context import AppContext

if TYPE_CHECKING:
    from costgpu.models.instance import Instance
    from costgpu.models.run import RunView
    from costgpu.workflows.runs.logs import KeptLogs


def jobs(
    everything: Annotated[bool, typer.Option("-a", "--all", help="List closed runs, too.")] = False,
    by_tag: Annotated[bool, typer.Option("--by-tag", help="Ask the providers, too: all our machines, by tag.")] = False,
    json: opt.Json = False,
) -> None:
    """List runs with their state, their cost so far and their lease."""
    from costgpu.render.text.run import jobs_json, jobs_text
    from costgpu.workflows.runs.list_runs import list_runs, waiting_runs

    with AppContext(TerminalReporter()) as context:
        found = list_runs(context, closed=everything, by_tag=by_tag)
        say((jobs_json if json else jobs_text)(found.runs, found.tagged, context.clock.now()))
        for line in [] if json else waiting_runs(context, found.runs):
            say(line, err=True)


def queue(
    start: Annotated[bool, typer.Option("--start", help="Start what may start; for cron, every few minutes.")] = False,
    json: opt.Json = False,
) -> None:
    """List runs that wait, and start what may start.

    Runs wait that were begun with costgpu run --queue, and jobs whose spot machine was
    taken back while no client was there. They start in their order, as soon as there is
    room (the setting max_machines) and the budgets allow it. With --start the outputs of
    finished jobs of this computer are downloaded first. There is no daemon: a line in
    crontab does it, or you.
    """
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.render.text.queue import queue_json, queue_text, started_text
    from costgpu.workflows.runs.queue import start_waiting, waiting

    with AppContext(TerminalReporter()) as context:
        if start:
            try:
                with contextlib.closing(Terminal(context.clock, ask=False)) as terminal:
                    started = start_waiting(context, terminal)
            except RunBusy:
                print_note("Another process is starting what waits.")
                return
            for view in started:
                say(started_text(view), err=True)
            if not json:
                return
        found, now = waiting(context), context.clock.now()
        say((queue_json if json else queue_text)(found, now))


def logs(
    run: opt.Run,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue as the job writes.")] = False,
    rank: Annotated[int | None, typer.Option(help="Rank of a job on several machines, from 0.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Logs of all machines of the job.")] = False,
) -> None:
    """Print what the job has written to stdout and stderr."""
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.workflows.runs.logs import fetch_all_logs, fetch_logs, follow_logs, machine_of_rank

    given = [name for name, on in (("--follow", follow), ("--rank", rank is not None), ("--all", everything)) if on]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} do not go together.", hint="Choose one of them.")
    with AppContext(TerminalReporter()) as context:
        if follow:
            with contextlib.suppress(KeyboardInterrupt):
                if not follow_logs(context, run, Terminal(context.clock)):
                    _print_logs(fetch_logs(context, run))
            return
        if everything:
            for kept in fetch_all_logs(context, run):
                say(f"==> {kept.title or kept.run_id} <==", err=True)
                _print_logs(kept)
            return
        _print_logs(fetch_logs(context, run if rank is None else machine_of_rank(context, run, rank)), rank)


def _print_logs(kept: KeptLogs, rank: int | None = None) -> None:
    from costgpu.portable.files import open_regular
    from costgpu.render.safe_text import LogFilter, is_terminal
    from costgpu.workflows.runs.logs import lines_of_rank, no_logs

    if not kept.files:
        raise no_logs(kept)
    for path in kept.files:
        sink = sys.stderr.buffer if path.name.startswith("stderr") else sys.stdout.buffer
        show = LogFilter().feed if is_terminal(sink) else bytes
        with open_regular(path) as file:
            pieces = iter(partial(file.read, 1 << 16), b"") if rank is None else lines_of_rank(file, rank)
            for piece in pieces:
                sink.write(show(piece))
        sink.flush()


def attach(run: opt.Run) -> None:
    """Watch a run again and take it to its end.

    Outputs are downloaded, the machine is terminated, and the receipt is shown.
    """
    from costgpu.cli.run import finish, followed
    from costgpu.cli.sweep import show_results, terminal_of
    from costgpu.workflows.runs.attach import attach_run, open_run, watch_run

    with AppContext(TerminalReporter()) as context:
        view = open_run(context, run)
        terminal = terminal_of(context.clock, view)
        try:
            with followed(context, view.run_id, terminal):
                driver = attach_run(context, view, terminal)
        except RunBusy:
            terminal.note(f"Run {view.run_id} is driven from another terminal; this one only watches.")
            with contextlib.closing(terminal), contextlib.suppress(KeyboardInterrupt):
                raise typer.Exit(watch_run(context, view, terminal)) from None
            return
        show_results(context, driver, terminal)
        finish(driver)


def fetch(
    run: opt.Run,
    to: Annotated[str | None, typer.Option(help="Target folder; default: the one that the job was sent from.")] = None,
) -> None:
    """Download the outputs and logs of a run.

    The job may be over or still run; the machine is left as it is.
    """
    from costgpu.workflows.runs.fetch import fetch_outputs

    with AppContext(TerminalReporter()) as context:
        remarks, problem = fetch_outputs(context, run, to)
        for remark in remarks:
            say(remark, err=True)
        if problem is not None:
            raise problem


def cancel(
    run: opt.Run,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="End it without asking.")] = False,
    now: Annotated[bool, typer.Option("--now", help="End it at once: what is on the machine is lost.")] = False,
) -> None:
    """End a run: save its outputs, terminate its machine."""
    from costgpu.cli.sweep import show_results, terminal_of
    from costgpu.render.text.receipt import receipts_text
    from costgpu.workflows.runs.cancel import cancel as cancel_found
    from costgpu.workflows.runs.find_run import find_run

    with AppContext(TerminalReporter()) as context:
        found = find_run(context, run)
        if not yes and sys.stdin.isatty() and not typer.confirm(cancel_question(found, now=now), err=True):
            return
        with contextlib.closing(terminal_of(context.clock, found, ask=False)) as terminal:
            done = cancel_found(context, found, terminal, now=now)
        for ref in done.by_tag:
            say(f"{ref.instance_id} in {ref.region} is terminated; {ref.provider} confirms.")
        if done.was_closed and done.view is not None:
            print_note(f"Run {done.view.run_id} is closed already.")
        if done.driver is not None:
            show_results(context, done.driver, terminal)
            say(receipts_text(done.driver.views), err=True)
            if done.driver.ledger_error is not None:
                raise done.driver.ledger_error


def cancel_question(found: RunView | Instance, *, now: bool) -> str:
    """Names whose run is ended, and which machine."""
    from costgpu.models.instance import Instance

    ref = found.ref if isinstance(found, Instance) else found.instance
    machine = f" on {ref.instance_id}" if ref is not None else ""
    loss = " and lose what is on its machine" if now or isinstance(found, Instance) else ""
    return f"End run {found.run_id} ({found.name}) of {found.owner or 'nobody known'}{machine}{loss}?"


def reap(
    yes: Annotated[bool, typer.Option("-y", "--yes", help="End them; without it they are only listed.")] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Minimum age of what is listed, e.g. 2h, 3d.")
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="List only what carries my name as its owner.")] = False,
    infra: opt.Infra = None,
    json: opt.Json = False,
) -> None:
    """List orphaned machines and resources; --yes ends them.

    Machines that have outlived their lease or their run, and what runs left behind, are
    found by tag alone, in every region, from any computer, with or without a ledger.
    With --yes it first takes over runs of this computer whose client is gone: the outputs
    of finished jobs are downloaded. Silent with exit code 0 when all is well; 48: something
    was orphaned (now ended, with --yes); 47: it is not ended; 46: a provider did not answer.
    """
    from costgpu.cli.terminal_observer import Terminal
    from costgpu.render.text.reap import reap_json, reap_text
    from costgpu.workflows.runs.reap import error_for
    from costgpu.workflows.runs.reap import reap as find_orphans

    with AppContext(TerminalReporter()) as context:
        with contextlib.closing(Terminal(context.clock, ask=False)) as terminal:
            found = find_orphans(context, terminal, infra or (), end=yes, older_than=older_than, mine=mine)
        now = context.clock.now()
        text = reap_json(found, now) if json else reap_text(found, now, done=yes)
        if text:
            say(text)
        error = error_for(found, ended=yes)
        if error is not None:
            raise error
