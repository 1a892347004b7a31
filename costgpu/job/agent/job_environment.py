"""Which Python runs the job, and with what environment."""

from __future__ import annotations

import os
import pwd
import shutil
import time
from collections.abc import Callable, Mapping

from .run_quietly import run_quietly
from .state_files import Home

APT_SECONDS = 300.0
_LOOK_SECONDS = 60.0  # for one question to an interpreter
# Where images that come with PyTorch keep it: AWS Deep Learning AMIs, Google Deep Learning VMs (2026-11).
_IMAGES = ("/opt/pytorch/bin/python3", "/opt/conda/bin/python3")
KEPT = """
HOME PATH USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH http_proxy https_proxy no_proxy
HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE
"""
KEPT_STARTS = ("LC_", "CUDA_", "NVIDIA_", "CONDA_", "ROCM_")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OUTPUTS_VARIABLE = "COSTGPU_OUTPUTS"
HOME_VARIABLE = "COSTGPU_HOME"
ENVIRONMENT = "env"  # folder of `Home` for an environment that the set-up makes, such as one of conda's


class PythonNotFound(Exception):
    """The machine has no interpreter for this job."""


def base_environment(home: Home) -> dict[str, str]:
    """Return what a login has, and where outputs are looked for."""
    entry = pwd.getpwuid(os.getuid())
    kept = {k: v for k, v in os.environ.items() if k in KEPT.split() or k.startswith(KEPT_STARTS)}
    environment = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "LANG": "C.UTF-8"}
    environment.update(kept)
    environment["PATH"] = kept.get("PATH", _DEFAULT_PATH)
    if home.remote and os.path.isdir("/usr/local/cuda/bin"):
        environment["PATH"] += os.pathsep + "/usr/local/cuda/bin"
    environment[OUTPUTS_VARIABLE] = home.work
    environment[HOME_VARIABLE] = home.path  # by which what belongs to a local machine is found
    return environment


def python_environment(environment: Mapping[str, str], python: str) -> dict[str, str]:
    """Return the environment in which `python` and its pip are the first on the path."""
    folder = os.path.dirname(python)
    changed = dict(environment)
    changed["PATH"] = folder + os.pathsep + environment.get("PATH", _DEFAULT_PATH)
    if os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
        changed["VIRTUAL_ENV"] = os.path.dirname(folder)
    if os.path.isdir(os.path.join(os.path.dirname(folder), "conda-meta")):
        changed["CONDA_PREFIX"] = os.path.dirname(folder)
    changed["PYTHONUNBUFFERED"] = "1"
    return changed


def made_by_setup(home: Home) -> str | None:
    """Return the interpreter of an environment that the set-up has made in the place for it; None without one."""
    python = os.path.join(home.path, ENVIRONMENT, "bin", "python3")
    return python if os.access(python, os.X_OK) else None


def choose_python(
    order: Mapping[str, object], home: Home, environment: Mapping[str, str], step: Callable[..., int]
) -> list[str]:
    """Return the interpreter, and ``PIP_BREAK_SYSTEM_PACKAGES`` as second item if pip needs that.

    `step` runs a command (arguments, additional environment) with its output in stderr.log and returns its exit code.

    Raises:
        PythonNotFound: The machine has no suitable interpreter.
    """
    path = environment.get("PATH", _DEFAULT_PATH)
    asked = str(order["python"])
    if asked:
        found = os.path.join(home.work, asked) if os.sep in asked else shutil.which(asked, path=path)
        if found is None or not os.access(found, os.X_OK) or os.path.isdir(found):
            raise PythonNotFound("There is no interpreter %r on the machine." % asked)
        return [os.path.abspath(found)]
    best = _best(path)
    if not order["setup"] or _exits_with_0(best, "import sys; sys.exit(sys.prefix == sys.base_prefix)"):
        return [best]  # nothing to install, or already an environment of its own
    return _own_environment(best, home, step)


def _best(path: str) -> str:
    names = ["python3"] + ["python3.%d" % minor for minor in range(20, 7, -1)]
    found = list(_IMAGES) + [shutil.which(name, path=path) or "" for name in names]
    usable = [
        each
        for each in found
        if os.access(each, os.X_OK) and _exits_with_0(each, "import sys; sys.exit(sys.version_info < (3, 8))")
    ]
    for each in usable:
        if _exits_with_0(each, "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"):
            return each
    if not usable:
        raise PythonNotFound("There is no Python 3.8 or newer on the machine.")
    return usable[0]


def _exits_with_0(python: str, program: str) -> bool:
    ended = run_quietly([python, "-c", program], _LOOK_SECONDS)
    return ended is not None and ended.returncode == 0


def _own_environment(best: str, home: Home, step: Callable[..., int]) -> list[str]:
    """Return a virtual environment on top of what the image has; the image's own Python if that cannot be made."""
    venv = home.file("venv")
    python = os.path.join(venv, "bin", "python3")

    def make() -> bool:
        if os.access(os.path.join(venv, "bin", "pip"), os.X_OK):
            return True
        made = step([best, "-m", "venv", "--clear", "--system-site-packages", venv], {}) == 0
        return made and os.access(os.path.join(venv, "bin", "pip"), os.X_OK)

    if make():
        return [python]
    if os.getuid() == 0 and shutil.which("apt-get"):
        apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-q"]
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        until = time.monotonic() + APT_SECONDS  # the image's own update holds a lock that apt does not wait for
        while step([*apt, "update"], quiet) and time.monotonic() < until:
            time.sleep(5.0)
        step([*apt, "install", "-y", "--no-install-recommends", "python3-venv", "python3-pip"], quiet)
        if make():
            return [python]
    return [best, "PIP_BREAK_SYSTEM_PACKAGES"]
