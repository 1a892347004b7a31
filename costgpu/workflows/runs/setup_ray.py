"""Ray on the machines of a job, and for jobs on this computer. costgpu itself imports no Ray."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from importlib import metadata

from costgpu.errors import MissingImport
from costgpu.workflows.runs.packages import PackageSource
from costgpu.workflows.runs.packages.source import PIP, normal, parse

PACKAGE = "ray[default,data,train,tune]"
OLDEST = "2.52"
"""The first version whose ports ask for a token.

Source: https://docs.ray.io/en/latest/ray-security/token-auth.html (2026-11-24).
"""

NO_ESTIMATE = "No estimate: a script on a Ray cluster cannot be measured on one computer."
_CHECK_SECONDS = 60


def with_ray(packages: PackageSource) -> PackageSource:
    """Return what a machine installs, with Ray if that is not named."""
    if any(need is not None and normal(need.name) == "ray" for need in map(parse, packages.requirements)):
        return packages
    ray = requirement(PACKAGE)
    install = f"pip install '{ray}'"
    return replace(
        packages,
        label=f"{packages.label} + Ray" if packages.label else "Ray",
        installer=packages.installer or PIP,
        setup=f"{packages.setup} && {install}" if packages.setup else install,
        requirements=(*packages.requirements, ray),
    )


def requirement(package: str) -> str:
    """Ray of the version that is here, as pip takes it; of any that can be used, if there is none here."""
    try:
        return f"{package}=={metadata.version('ray')}"
    except metadata.PackageNotFoundError:
        return f"{package}>={OLDEST}"


def check_installed(python: str) -> None:
    """Check that an interpreter of this computer has Ray.

    Raises:
        MissingImport: It has not.
    """
    program = "from importlib import metadata; metadata.version('ray')"
    done = subprocess.run(
        [python, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_CHECK_SECONDS
    )
    if done.returncode:
        raise MissingImport(
            f"{python} has no Ray, which --launcher ray needs.",
            hint="pip install 'costgpu[ray]', or choose another interpreter with --python.",
        )
