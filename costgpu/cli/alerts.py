"""`costgpu budget test-alert` and `costgpu budget cron`: that alerts arrive, and that they come by themselves."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import AlertFailed, ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costgpu.alert.cron_environment import CronEnvironment
    from costgpu.alert.crontab_lines import Schedule, Task

SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail", "/usr/bin/sendmail")
CRONS = {"cron", "crond", "fcron", "dcron", "systemd-cron"}


def test_alert() -> None:
    """Send a test message to every alert address, and say what came of each.

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
        typer.echo(f"{ordinal(position)} address, {delivery.service}: {what}{detail}")
    failed = sum(not delivery.ok for delivery in done)
    if failed:
        raise AlertFailed(
            f"{failed} of {len(done)} test messages could not be delivered.",
            hint="Positions count the addresses in the order in which they are configured.",
        )


def cron(
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="5m, 15m, 1h, 1d, ...")] = "15m",
    reap: Annotated[bool, typer.Option("--reap", help="Also end what has outlived its lease: reap --yes.")] = False,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Also end what runs beyond a budget: budget check --enforce.")
    ] = False,
    install: Annotated[bool, typer.Option("--install", help="Put the lines into your crontab.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take them out of it.")] = False,
) -> None:
    """Let cron look after the budgets: show the crontab lines (and a systemd timer), or install them.

    Your crontab's other lines stay as they are, byte for byte, and a copy of it is kept.
    Installing again replaces the lines.
    """
    from costgpu.alert import crontab_lines as lines
    from costgpu.alert.cron_environment import cron_environment

    if install and remove:
        raise UsageError("--install and --remove contradict each other.")
    if remove:
        _remove()
        return
    schedule = lines.Schedule.parse(every)
    program = _program()
    environment = cron_environment(os.environ, program[0], shutil.which, _home())
    check = [*program, "budget", "check", *(["--enforce"] if enforce else [])]
    wanted = [check, *([[*program, "reap", "--yes"]] if reap else [])]
    tasks = [lines.Task(argv=[os.fsencode(word) for word in argv], variables=environment.variables) for argv in wanted]
    if install:
        _install(schedule, tasks, environment)
    else:
        _show(schedule, tasks, environment)


def _show(schedule: Schedule, tasks: Sequence[Task], environment: CronEnvironment) -> None:
    from costgpu.alert import crontab_lines as lines
    from costgpu.alert import systemd_timer

    typer.echo("# crontab (costgpu budget cron --install does it):")
    for task in tasks:
        typer.echo(lines.line(schedule, task))
    typer.echo(f"\n# or systemd, {systemd_timer.FOLDER}/{systemd_timer.NAME}.service:\n{systemd_timer.service(tasks)}")
    typer.echo(f"# {systemd_timer.FOLDER}/{systemd_timer.NAME}.timer:\n{systemd_timer.timer(schedule)}")
    typer.echo(f"# then: systemctl --user daemon-reload && systemctl --user enable --now {systemd_timer.NAME}.timer")
    typer.echo("# and, for it to run while you are not logged in: loginctl enable-linger")
    _notes(environment.notes)


def _install(schedule: Schedule, tasks: Sequence[Task], environment: CronEnvironment) -> None:
    from costgpu.alert import crontab_file
    from costgpu.alert import crontab_lines as lines
    from costgpu.clock import SystemClock

    texts = [lines.line(schedule, task) for task in tasks]
    old = crontab_file.read()
    new = lines.install(old, texts)
    if new == old:
        typer.echo(f"Your crontab has these lines already: {schedule.words}.")
    else:
        copy = crontab_file.replace(old, new, SystemClock().now())
        kept = f" A copy of what it was: {copy}" if copy else ""
        typer.echo(f"Installed in your crontab: {schedule.words}.{kept}")
    for text in texts:
        typer.echo(b"  " + text)
    notes = list(environment.notes)
    shell = lines.foreign_shell(new)
    if shell:
        notes.append(f"Your crontab says SHELL={shell}, which may read the lines otherwise than sh.")
    if not _cron_runs():
        notes.append("No cron daemon seems to run here: nothing happens until one does.")
    if not any(os.access(place, os.X_OK) for place in SENDMAIL):
        notes.append("There is no sendmail here, so what cron itself mails reaches nobody; alert_urls do.")
    _notes(notes)


def _remove() -> None:
    from costgpu.alert import crontab_file
    from costgpu.alert import crontab_lines as lines
    from costgpu.clock import SystemClock

    old = crontab_file.read()
    new = lines.remove(old)
    if new == old:
        typer.echo("Your crontab has no lines of costgpu.")
        return
    copy = crontab_file.replace(old, new, SystemClock().now())
    typer.echo(f"Taken out of your crontab. A copy of what it was: {copy}")


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def _program() -> list[str]:
    """How to start this costgpu from anywhere."""
    beside = Path(sys.executable).absolute().with_name("costgpu")
    if os.access(beside, os.X_OK) and beside.is_file():
        return [str(beside)]
    started = Path(sys.argv[0])
    if started.name == "costgpu" and os.access(started, os.X_OK) and started.is_file():
        return [str(started.absolute())]
    return [str(Path(sys.executable).absolute()), "-m", "costgpu"]


def _home() -> str:
    """The home folder that cron will give us; empty where the system does not say."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


def _cron_runs() -> bool:
    """Whether a cron daemon seems to be there; true if that cannot be found out."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        return any(process.info["name"] in CRONS for process in psutil.process_iter(["name"]))
    return True
