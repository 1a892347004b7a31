"""Words in front of a command that start it: in another environment, with other variables, at another priority.

Options are read as those programs read them: prefixes.toml lists those that take a value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePath


@dataclass(frozen=True, slots=True)
class _Program:
    """How a program is read that starts another one."""

    valued: str = ""  # its options that take the next word as their value
    verbs: Sequence[str] = ()  # its subcommand that starts something; empty for one that does nothing else
    words: int = 0  # between its options and the command: a mask, a time
    decides: bool = False  # which interpreter and packages the command finds
    harmless: bool = False  # what it starts does the same without it


ASKED = ("env",)  # besides those that decide: what it sets is found by asking what a program below it finds
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OF_HATCH = re.compile(r"([\w.-]+):(python[\d.]*)")  # ``hatch run test:python``


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """What stands in front of a command."""

    asked: tuple[str, ...] = ()  # all of it that decides on the interpreter and its variables
    deciding: tuple[str, ...] = ()  # programs that make the environment, for people: ``uv run``
    left_out: tuple[str, ...] = ()  # programs without which the command is measured, and which may matter
    assigned: dict[str, str] = field(default_factory=dict)  # variables that it sets by name


NO_PREFIXES = Prefixes()


@cache
def _programs() -> Mapping[str, _Program]:
    """Return the programs of prefixes.toml by name."""
    with Path(__file__).with_suffix(".toml").open("rb") as stream:
        table = tomllib.load(stream)
    same = {name: table[facts.pop("valued_as")]["valued"] for name, facts in table.items() if "valued_as" in facts}
    return {name: _Program(**{"valued": same.get(name, ""), **facts}) for name, facts in table.items()}


def split_prefixes(command: Sequence[str]) -> tuple[Prefixes, tuple[str, ...]]:
    """Return the prefixes of a command, and the command itself; empty if there is nothing behind them."""
    asked: list[str] = []
    deciding: list[str] = []
    left_out: list[str] = []
    assigned: dict[str, str] = {}
    rest = list(command)
    while rest:
        if found := _ASSIGNMENT.fullmatch(rest[0]):
            assigned[found[1]] = found[2]
            asked += ["env", rest.pop(0)]
            continue
        name = PurePath(rest[0]).name
        program = _programs().get(name)
        words, behind = _read(program, rest) if program is not None else ([], rest)
        if program is None or not words:
            break
        rest = behind
        if name == "hatch" and rest and (found := _OF_HATCH.fullmatch(rest[0])):
            words, rest = ["hatch", "-e", found[1], *words[1:]], [found[2], *rest[1:]]
        if program.decides or name in ASKED:
            asked += words
        if program.decides:
            deciding.append(" ".join([words[0], *program.verbs]))
        elif not program.harmless and name not in ASKED:
            left_out.append(name)
    return Prefixes(asked=tuple(asked), deciding=tuple(deciding), left_out=tuple(left_out), assigned=assigned), tuple(
        rest
    )


def _read(program: _Program, words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words of a prefix, and those behind it; no words if it is told to do something else."""
    at = 1
    for verb in (*program.verbs, ""):
        at, module = _skip_options(program, words, at)
        if module:
            return words[: at - 1], ["python", "-m", *words[at:]]
        if verb and (at >= len(words) or words[at] != verb):
            return [], words
        at += 1 if verb else 0
    at += program.words
    return words[:at], words[at:]


def _skip_options(program: _Program, words: list[str], at: int) -> tuple[int, bool]:
    """Return where the first word is that is no option, and whether it is a module to be run."""
    valued = program.valued.split()
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, at = words[at], at + 1
        if word == "--":
            break
        if word in ("-m", "--module") and "--with" in valued:
            return at, True
        at += 1 if word in valued else 0
    return at, False
