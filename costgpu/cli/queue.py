"""`costgpu queue`: what waits, and what for; starts what may start."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from costgpu.cli import options as opt
from costgpu.cli.terminal_reporter import TerminalReporter, print_note, say
from costgpu.errors import RunBusy
from costgpu.workflows.context import AppContext


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
                with closing(Terminal(context.clock, ask=False)) as terminal:
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
