"""Which Python runs the user's script."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from costgpu.errors import InterpreterError

OLDEST = (3, 8)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that was started once and answered; `origin` says why it was chosen."""

    path: str
    version: str
    origin: str


def find_interpreter(asked: str | None, environment: dict[str, str]) -> Interpreter:
    """The interpreter for the script: the one asked for, else the active venv's, else ``python``.

    Raises:
        InterpreterError: It is missing, does not start, or is older than 3.8.
    """
    hint = "Name the Python that has the script's packages: --python /path/to/python."
    if asked is not None:
        path, origin = shutil.which(os.path.expanduser(asked)), "--python"  # noqa: PTH111 - which() wants str
        if path is None:
            raise InterpreterError(f"There is no interpreter {asked!r}.", hint=hint)
    else:
        path, origin = default_interpreter(environment)
        if path is None:
            raise InterpreterError("There is no python on PATH.", hint=hint)
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
        raise InterpreterError(f"{path} does not start: {error}.", hint=hint) from error
    version = answer.stdout.strip()
    try:
        numbers = tuple(int(part) for part in version.split("."))
    except ValueError:
        raise InterpreterError(f"{path} is not a Python interpreter.", hint=hint) from None
    if numbers < OLDEST:
        raise InterpreterError(f"{path} is Python {version}; costgpu measures with 3.8 or newer.", hint=hint)
    return Interpreter(path, version, origin)


def default_interpreter(environment: dict[str, str]) -> tuple[str | None, str]:
    """The active environment's Python, else the one on PATH, and which of the two it is; None without any."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := environment.get(variable):
            for place in ("bin/python", "Scripts/python.exe", "python.exe"):
                if (candidate := Path(folder, place)).exists():
                    return str(candidate), variable
    search = environment.get("PATH")
    return shutil.which("python", path=search) or shutil.which("python3", path=search), "PATH"
