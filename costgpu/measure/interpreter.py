"""Which Python runs the user's script."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costgpu.errors import InterpreterError
from costgpu.measure.prefixes import Prefixes

OLDEST = (3, 8)
ENVIRONMENT_SECONDS = 1800.0  # in which a program such as uv may install what a script needs
_TELL = "import json, os, sys; print(chr(10) + json.dumps([sys.executable, dict(os.environ)]), flush=True)"
_INLINE_METADATA = re.compile(rb"^# /// script\s*$", re.MULTILINE)
_HINT = "Name the Python that has the script's packages: --python /path/to/python."


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that was started once and answered; `origin` says why it was chosen."""

    path: str
    version: str
    origin: str
    environment: Mapping[str, str] | None = None  # variables that it runs with; None for those of this process

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the variables that it runs with."""
        return os.environ if self.environment is None else self.environment


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command finds that is started through other programs, such as ``uv run`` or ``env``."""

    python: str
    environment: dict[str, str]


def find_surroundings(prefixes: Prefixes, python: str, folder: Path) -> Surroundings:
    """Return what `python` behind these prefixes finds, by starting it there.

    An environment that lasts as long as its program (``uv run --with``) is kept until this process ends.

    Raises:
        InterpreterError: One of them is no program here, or it starts no Python.
    """
    for what in prefixes.deciding:
        if shutil.which(program := what.partition(" ")[0]) is None:
            raise InterpreterError(f"{what}: {program} is not on PATH.", hint=_HINT)
    command = [*prefixes.asked, python, "-c"]
    found = _told(_run([*command, _TELL], folder))
    if found is None:
        raise InterpreterError(f"{' '.join(command[:-1])} started no Python.", hint=_HINT)
    if not Path(found.python).exists():
        found = _keep([*command, f"{_TELL}; sys.stdin.read()"], folder) or found
    return found


def has_inline_metadata(source: bytes) -> bool:
    """Return whether a script names its packages itself (PEP 723)."""
    return _INLINE_METADATA.search(source) is not None


def python_of_script(uv: str, script: Path, folder: Path) -> str:
    """Return the interpreter in which uv runs a script that names its packages itself, and which has them.

    Raises:
        InterpreterError: uv cannot make it.
    """
    _run([uv, "sync", "--script", str(script)], folder)
    return _run([uv, "python", "find", "--script", str(script)], folder).strip()


def _run(command: Sequence[str], folder: Path) -> str:
    """Return what a command prints."""
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ENVIRONMENT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=folder,
        )
    except FileNotFoundError as error:
        raise InterpreterError(f"{command[0]} is not on PATH.", hint=_HINT) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(f"{command[0]} does not start: {error}.", hint=_HINT) from error
    if answer.returncode:
        said = [line.strip() for line in answer.stderr.splitlines() if line.strip()][-4:]
        shown = " ".join(word for word in command if word not in ("-c", _TELL))
        raise InterpreterError(f"{shown} ended with status {answer.returncode}: {' '.join(said)[-600:]}", hint=_HINT)
    return answer.stdout


def _told(text: str) -> Surroundings | None:
    """Return what `_TELL` has printed, among other lines."""
    for line in reversed(text.splitlines()):
        if line.startswith("["):
            python, environment = json.loads(line)
            return Surroundings(python, environment)
    return None


def _keep(command: Sequence[str], folder: Path) -> Surroundings | None:
    """Return the same from a process that stays until this one ends, and with it what it runs in."""
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
    )
    atexit.register(child.communicate)
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    for line in child.stdout:
        if found := _told(line):
            return found
    return None


def find_interpreter(asked: str | None, environment: dict[str, str]) -> Interpreter:
    """Return the interpreter for the script: the one asked for, else the active venv's, else ``python``.

    Raises:
        InterpreterError: It is missing, does not start, or is older than 3.8.
    """
    if asked is not None:
        path, origin = shutil.which(os.path.expanduser(asked)), "--python"  # noqa: PTH111 - which() wants str
        if path is None:
            raise InterpreterError(f"There is no interpreter {asked!r}.", hint=_HINT)
    else:
        path, origin = default_interpreter(environment)
        if path is None:
            raise InterpreterError("There is no python on PATH.", hint=_HINT)
    path = os.path.abspath(path)  # noqa: PTH100 - it is started from other folders; a link is what makes it a venv's
    try:
        answer = subprocess.run(
            [path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(f"{path} does not start: {error}.", hint=_HINT) from error
    version = answer.stdout.strip()
    try:
        numbers = tuple(int(part) for part in version.split("."))
    except ValueError:
        raise InterpreterError(f"{path} is not a Python interpreter.", hint=_HINT) from None
    if numbers < OLDEST:
        raise InterpreterError(f"{path} is Python {version}; costgpu measures with 3.8 or newer.", hint=_HINT)
    return Interpreter(path, version, origin)


def default_interpreter(environment: dict[str, str]) -> tuple[str | None, str]:
    """Return the active environment's Python, else the one on PATH, and which of the two it is; None without any."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := environment.get(variable):
            for place in ("bin/python", "Scripts/python.exe", "python.exe"):
                if (candidate := Path(folder, place)).exists():
                    return str(candidate), variable
    search = environment.get("PATH")
    return shutil.which("python", path=search) or shutil.which("python3", path=search), "PATH"
