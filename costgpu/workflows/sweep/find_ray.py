"""Which interpreter of this machine has Ray Tune."""

from __future__ import annotations

import subprocess
import sys

from costgpu.errors import MissingImport
from costgpu.workflows.runs.setup_ray import OLDEST, requirement

EXTRA = "pip install 'costgpu[ray]'"
PACKAGE = "ray[tune]"
_SECONDS = 120.0


def find_ray(script_python: str) -> str:
    """Return the interpreter for the tuner: the script's own if it has Ray Tune, else the one that costgpu runs under.

    Raises:
        MissingImport: Neither has it.
    """
    for python in dict.fromkeys((script_python, sys.executable)):
        if _has_ray(python):
            return python
    raise MissingImport(
        f"A sweep on this machine needs Ray Tune, and neither {script_python} nor costgpu's own Python has it.",
        hint=f"Beside costgpu: {EXTRA}. Beside the script: {script_python} -m pip install '{PACKAGE}>={OLDEST}'",
    )


def _has_ray(python: str) -> bool:
    quiet = subprocess.DEVNULL
    try:
        program = [python, "-c", "import ray.tune"]
        done = subprocess.run(program, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def setup_with_ray(setup: str, *, users: bool) -> str:
    """Return the set-up command of a rented machine, and Ray, unless its image has that.

    Args:
        users: Whether the command is the user's, and may do anything to its shell.
    """
    ray = f"python3 -c 'import ray.tune' 2>/dev/null || pip install '{requirement(PACKAGE)}'"
    if not setup:
        return ray
    return f"( {setup}\n) && {{ {ray}; }}" if users else f"{setup} && {{ {ray}; }}"
