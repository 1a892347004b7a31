"""Ray on the machines of a job, and for jobs on this computer. costgpu itself imports no Ray."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path

from costgpu.errors import MissingImport

PACKAGE = "ray[default,data,train,tune]"
OLDEST = "2.52"
"""The first version whose ports ask for a token.

Source: https://docs.ray.io/en/latest/ray-security/token-auth.html (2026-11-24).
"""

_NAMES_RAY = re.compile(r"ray\s*($|[\[<>=!~;@#,]|\s)", re.IGNORECASE)
_CHECK_SECONDS = 60


def ray_setup(workdir: Path) -> str:
    """The set-up command of a machine of a Ray cluster: the requirements, and Ray if they do not name it."""
    requirements = workdir / "requirements.txt"
    there = requirements.is_file()
    if there and any(_NAMES_RAY.match(line) for line in requirements.read_text(errors="replace").splitlines()):
        return "pip install -r requirements.txt"
    return f"pip install '{requirement()}'" + (" -r requirements.txt" if there else "")


def requirement(package: str = PACKAGE) -> str:
    """Ray of the version that is here, as pip takes it; of any that can be used, if there is none here."""
    try:
        return f"{package}=={metadata.version('ray')}"
    except metadata.PackageNotFoundError:
        return f"{package}>={OLDEST}"


def check_ray(python: str) -> None:
    """Checks that an interpreter of this computer has Ray.

    Raises:
        MissingImport: It has not.
    """
    program = "from importlib import metadata; metadata.version('ray')"
    done = subprocess.run(
        [python, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_CHECK_SECONDS
    )
    if done.returncode:
        raise MissingImport(
            f"{python} has no Ray, which --engine ray needs.",
            hint="pip install 'costgpu[ray]', or choose another interpreter with --python.",
        )
