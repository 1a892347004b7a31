"""`costgpu budget test-alert` and `costgpu budget cron`: that alerts arrive, and that they come by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from costgpu.cli.terminal_reporter import say
from costgpu.errors import AlertFailed, ConfigError, UsageError


def test_alert() -> None:
    """Send a test message to every alert address.

    Addresses (alert_urls in the user's config.toml, or COSTGPU_ALERT_URLS) are secrets:
    they are never shown. Exit code 82 if a message could not be delivered.
    """
    import platform

    from costgpu.alert.notify import EXAMPLES, deliver, ordinal
    from costgpu.config import config_file, load_settings

    urls = [url.get_secret_value() for url in load_settings(Path.cwd()).alert_urls]
    if not urls:
        raise ConfigError(
            "No alert addresses are configured.",
            hint=f'Write alert_urls = ["..."] into {config_file()} and chmod 600 it, '
            f"or set COSTGPU_ALERT_URLS, separated by spaces.\n{EXAMPLES}",
        )
    done = deliver(
        urls,
        "costgpu: test of budget alerts",
        f"This is a test from {platform.node()}. Nothing is wrong: budget alerts will come to you like this.",
    )
    for position, delivery in enumerate(done, 1):
        what = "delivered" if delivery.ok else "NOT delivered"
        detail = f": {delivery.detail}" if delivery.detail else ""
        say(f"{ordinal(position)} address, {delivery.service}: {what}{detail}")
    failed = sum(not delivery.ok for delivery in done)
    if failed:
        raise AlertFailed(
            f"{failed} of {len(done)} test messages could not be delivered.",
            hint="Positions count the addresses in the order in which they are configured.",
        )


def cron(
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Interval: 5m, 15m, 1h, 1d, ...")] = "15m",
    reap: Annotated[bool, typer.Option("--reap", help="Also run reap --yes: end what has outlived its lease.")] = False,
    queue: Annotated[bool, typer.Option("--queue", help="Also run queue --start: start runs that wait.")] = False,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Run budget check --enforce: end what runs beyond a budget.")
    ] = False,
    install: Annotated[bool, typer.Option("--install", help="Put the lines into your crontab.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the lines out of your crontab.")] = False,
) -> None:
    """Check budgets by cron, or show how to.

    Without --install the crontab lines are shown. Your crontab's other
    lines stay as they are, byte for byte, and a copy of it is kept.
    Installing again replaces the lines.
    """
    from costgpu.workflows import cron as workflow

    if install and remove:
        raise UsageError("--install and --remove contradict each other.")
    if remove:
        change = workflow.remove()
        if change.changed:
            say(f"Taken out of your crontab. A copy of what it was: {change.copy}")
        else:
            say("Your crontab has no lines of costgpu.")
        return
    plan = workflow.plan_cron(every, reap=reap, enforce=enforce, queue=queue)
    if not install:
        say("# crontab (costgpu budget cron --install does it):")
        for text in plan.lines:
            typer.echo(text)
        _print_notes(plan.notes)
        return
    change = workflow.install(plan)
    if change.changed:
        kept = f" A copy of what it was: {change.copy}" if change.copy else ""
        say(f"Installed in your crontab: {plan.schedule.words}.{kept}")
    else:
        say(f"Your crontab has these lines already: {plan.schedule.words}.")
    for line in plan.lines:
        typer.echo(b"  " + line)
    _print_notes(change.notes)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}", err=True)
