"""Words in front of a command that start it: in another environment, with other variables, at another priority. Pure.

Options are read as those programs read them: those that take a value are listed here, every other takes none (the help
of uv 0.13, Poetry 2.5, PDM 2.29, pipenv 2026.10, Hatch 1.18, GNU coreutils and util-linux was read, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class _Program:
    """How a program is read that starts another one."""

    valued: str = ""  # its options that take the next word as their value
    verbs: tuple[str, ...] = ()  # its subcommand that starts something; empty for one that does nothing else
    words: int = 0  # between its options and the command: a mask, a time
    decides: bool = False  # which interpreter and packages the command finds
    harmless: bool = False  # what it starts does the same without it


_CONDA = _Program("-n --name -p --prefix --cwd", ("run",), decides=True)
_UV = (  # of `uv run` and of `uvx`
    "-w --with --with-editable --with-requirements -p --python --python-platform --env-file --extra --no-extra --group"
    " --no-group --only-group --package --no-editable-package --from -c --constraints -b --build-constraints --overrides"
    " --index --default-index -i --index-url --extra-index-url -f --find-links --index-strategy --keyring-provider"
    " -P --upgrade-package --upgrade-group --resolution --prerelease --prerelease-package --fork-strategy --exclude-newer"
    " --exclude-newer-package --no-sources-package --reinstall-package --refresh-package --link-mode --torch-backend"
    " -C --config-setting --config-settings-package --no-build-isolation-package --no-build-package --no-binary-package"
    " --cache-dir --color --allow-insecure-host --directory --project --config-file"
)
_PROGRAMS = {
    "uv": _Program(_UV, ("run",), decides=True),
    "uvx": _Program(_UV, decides=True),
    "poetry": _Program("-P --project -C --directory", ("run",), decides=True),
    "pdm": _Program("-p --project -c --config -k --skip --venv --env --env-file --working-dir", ("run",), decides=True),
    "pipenv": _Program("--python --pypi-mirror", ("run",), decides=True),
    "hatch": _Program("-e --env -p --project -P --data-dir --cache-dir --config", ("run",), decides=True),
    "rye": _Program("--pyproject", ("run",), decides=True),
    "pixi": _Program("-e --environment --manifest-path -m --concurrent-solves --color", ("run",), decides=True),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _Program(f"{_CONDA.valued} -r --root-prefix -a --attach", ("run",), decides=True),
    "env": _Program("-u --unset -C --chdir"),
    "nohup": _Program(harmless=True),
    "time": _Program("-f --format -o --output", harmless=True),
    "nice": _Program("-n --adjustment", harmless=True),
    "ionice": _Program("-c --class -n --classdata", harmless=True),
    "stdbuf": _Program("-i --input -o --output -e --error", harmless=True),
    "setsid": _Program(harmless=True),
    "caffeinate": _Program("-t -w", harmless=True),
    "exec": _Program("-a", harmless=True),
    "command": _Program(harmless=True),
    "chrt": _Program("-T -P -D", words=1),
    "taskset": _Program(words=1),
    "numactl": _Program("-i -p -N -m -C -l --interleave --preferred --cpunodebind --membind --physcpubind"),
    "timeout": _Program("-k --kill-after -s --signal", words=1),
}
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
        program = _PROGRAMS.get(name)
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
    """The words of a prefix, and those behind it; no words if it is told to do something else."""
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
    """Where the first word is that is no option, and whether it is a module to be run."""
    valued = program.valued.split()
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, at = words[at], at + 1
        if word == "--":
            break
        if word in ("-m", "--module") and "--with" in valued:
            return at, True
        at += 1 if word in valued else 0
    return at, False
