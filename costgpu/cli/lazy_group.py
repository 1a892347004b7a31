"""Commands whose modules are imported when they are called: `costgpu --help` stays fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from costgpu.cli.peer_words import peers_options, refuse_peers_command

COMMANDS = {
    "estimate": ("costgpu.cli.estimate", "Measure a script that trains or infers and say where to run it."),
    "run": ("costgpu.cli.run", "Run a script on a rented machine, or on this one."),
    "sweep": ("costgpu.cli.sweep", "Run a script once for each setting, and find the best."),
    "jobs": ("costgpu.cli.jobs", "List runs with their state, their cost so far and their lease."),
    "queue": ("costgpu.cli.jobs", "List runs that wait, and start what may start."),
    "logs": ("costgpu.cli.jobs", "Print what the job has written to stdout and stderr."),
    "attach": ("costgpu.cli.jobs", "Watch a run again and take it to its end."),
    "cancel": ("costgpu.cli.jobs", "End a run: save its outputs, terminate its machine."),
    "fetch": ("costgpu.cli.jobs", "Download the outputs and logs of a run."),
    "reap": ("costgpu.cli.jobs", "List orphaned machines and resources; --yes ends them."),
    "offers": ("costgpu.cli.prices", "List machine types that can be rented, with their prices."),
    "doctor": ("costgpu.cli.doctor", "Check credentials, permissions, quotas and this computer."),
    "budget": ("costgpu.cli.budget", "Set, show and check budgets."),
    "ledger": ("costgpu.cli.ledger", "Show what runs have cost."),
    "prices": ("costgpu.cli.prices", "Show the age of prices, refresh them, set your own."),
}
"""Name -> module that defines a function or a Typer group of this name, and the first line of its help."""
TAKE_SCRIPT = ("estimate", "run", "sweep")  # our options stand before the script; what follows it is its own


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import the module of a command."""
    found = getattr(import_module(COMMANDS[name][0]), name)
    if isinstance(found, typer.Typer):
        group = found
    else:
        group = typer.Typer(rich_markup_mode=None, add_completion=False)
        takes_script = name in TAKE_SCRIPT
        settings = {"allow_interspersed_args": False} if takes_script else {}
        group.command(name, cls=ScriptCommand if takes_script else None, context_settings=settings)(found)
    command = typer.main.get_command(group)
    assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101 - typer makes nothing else
    _refuse_empty_values(command)
    return command


def _refuse_empty_values(command: Any) -> None:
    """No option of a command takes an empty value, which is what a variable of the shell is that is not set."""
    for below in getattr(command, "commands", {}).values():
        _refuse_empty_values(below)
    for param in command.params:
        if param.param_type_name == "option" and not param.is_flag:
            param.process_value = partial(_process_value, param.process_value, param.opts)


def _process_value(process: Callable[[Any, Any], Any], names: Sequence[str], ctx: Any, value: Any) -> Any:
    if value == "" or (isinstance(value, list | tuple) and "" in value):
        from costgpu.workflows.options import refuse_empty

        refuse_empty(next((name for name in names if name.startswith("--")), names[0]))
    return process(ctx, value)


class ScriptCommand(TyperCommand):
    """Takes somebody else's command line: our options stand before the script.

    A script ends them by itself; ``-m module`` does it as in python's own line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put an end to our options after a module."""
        end = _after_module(args, self._takes_value)
        if end is not None and args[end : end + 1] != ["--"]:
            args = [*args[:end], "--", *args[end:]]
        return super().parse_args(ctx, args)

    def _takes_value(self, option: str) -> bool:
        for param in self.params:
            if option in (*param.opts, *param.secondary_opts):
                return not getattr(param, "is_flag", False) and not getattr(param, "count", False)
        return False


def _after_module(args: Sequence[str], takes_value: Callable[[str], bool]) -> int | None:
    """Index behind ``-m module``, if that comes before the first word that is no option of ours."""
    at = 0
    while at < len(args):
        word = args[at]
        if word == "--" or not word.startswith("-") or word == "-":
            return None
        if word.startswith("--"):
            at += 2 if "=" not in word and takes_value(word) else 1
            continue
        letters = word[1:]
        for index, letter in enumerate(letters):
            if not takes_value(f"-{letter}"):
                continue
            attached = index + 1 < len(letters)
            if letter == "m":
                return at + (1 if attached else 2)
            at += 0 if attached else 1
            break
        at += 1
    return None


class LazyGroup(TyperGroup):
    """Knows names and summaries of its commands; loads the one that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=summary) for name, (_, summary) in COMMANDS.items()}

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options before the command."""
        with peers_options():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the command's own options, and call it."""
        with peers_options():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and the rest of the command line."""
        refuse_peers_command(args, self.commands)
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)) if name else None, rest
