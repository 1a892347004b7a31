"""Commands whose modules are imported when they are called: `costgpu --help` stays fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "estimate": ("costgpu.cli.estimate", "Measure a training script here and say where to run it."),
    "run": ("costgpu.cli.run", "Run a script on a rented machine, or on this one."),
    "jobs": ("costgpu.cli.jobs", "List runs with their state, their cost so far and their lease."),
    "logs": ("costgpu.cli.jobs", "Print what the job has written to stdout and stderr."),
    "attach": ("costgpu.cli.jobs", "Watch a run again and take it to its end."),
    "cancel": ("costgpu.cli.jobs", "End a run: save its outputs, terminate its machine."),
    "fetch": ("costgpu.cli.jobs", "Download the outputs and logs of a run."),
    "reap": ("costgpu.cli.reap", "List orphaned machines and resources; --yes ends them."),
    "offers": ("costgpu.cli.offers", "List machine types that can be rented, with their prices."),
    "speedups": ("costgpu.cli.speedups", "Show benchmarks of GPUs against CPUs, by kind of work."),
    "doctor": ("costgpu.cli.doctor", "Check credentials, permissions, quotas and this computer."),
    "budget": ("costgpu.cli.budget", "Set, show and check budgets."),
    "ledger": ("costgpu.cli.ledger", "Show what runs have cost."),
    "prices": ("costgpu.cli.prices", "Show the age of the prices in use, and refresh them."),
}
"""Name -> module that defines a function or a Typer group of this name, and the first line of its help."""


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Imports the module of a command."""
    from costgpu.cli.script_command import ScriptCommand

    found = getattr(import_module(COMMANDS[name][0]), name)
    if isinstance(found, typer.Typer):
        group = found
    else:
        group = typer.Typer(rich_markup_mode=None, add_completion=False)
        takes_script = name in ("estimate", "run")  # our options stand before the script; what follows it is its own
        settings = {"allow_interspersed_args": False} if takes_script else {}
        group.command(name, cls=ScriptCommand if takes_script else None, context_settings=settings)(found)
    command = typer.main.get_command(group)
    assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101 - typer makes nothing else
    return command


class LazyGroup(TyperGroup):
    """Knows names and summaries of its commands; loads the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=summary) for name, (_, summary) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and the rest of the command line."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)) if name else None, rest
