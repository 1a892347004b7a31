"""Measures with torch as PyPI gives it on Linux: built for CUDA, on a machine without a driver.

    python -m tests.default_build pinned [pytest arguments]   the release that pyproject.toml names
    python -m tests.default_build newest [pytest arguments]   the newest one that pip finds

Each has a virtual environment of about 5 GB in the user's cache, made once and brought up to date by pip. What stands in
the way is printed; DEFAULT_BUILD=no leaves it out.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import platformdirs

from tests.ledger.postgres import REQUIRED

ROOT = Path(__file__).resolve().parent.parent
CACHE = platformdirs.user_cache_path("costgpu-tests") / "default-build"
FREE_BYTES = 12 << 30  # 4.7 GB of torch 2.13.0, 5.5 GB of 2.14.1 (2026-11), and the wheels while they are unpacked
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
LOOK = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"


def requirements(which: str) -> list[str]:
    """What pip is asked for; ``===`` passes by a wheel for CPUs of the same release."""
    group: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["torch"]
    name, _, release = group[0].partition("==")
    return [f"{name}==={release}" if which == "pinned" else name, *group[1:]]


def obstacle(home: Path) -> str:
    """Why this environment cannot be made or used here, before anything is installed; empty if it can."""
    if os.environ.get("DEFAULT_BUILD") == "no":
        return "DEFAULT_BUILD=no"
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return "PyPI has a build for CUDA for Linux only, on x86-64 and ARM"
    free = shutil.disk_usage(CACHE).free
    if not (home / "bin" / "python").exists() and free < FREE_BYTES:
        return f"{CACHE} has {free >> 30} GiB free, and it takes {FREE_BYTES >> 30}"
    return ""


def prepared(which: str) -> tuple[Path, str]:
    """The interpreter with this release, and what keeps it from being used; empty if nothing does."""
    home, python = CACHE / which, CACHE / which / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    if reason := obstacle(home):
        return python, reason
    with (CACHE / f"{which}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may share it
        if not python.exists():
            venv.create(home, with_pip=True)
        installed = subprocess.run([python, *PIP, *requirements(which)], check=False, stdin=subprocess.DEVNULL)
    seen = subprocess.run([python, "-c", LOOK], check=False, capture_output=True, text=True)
    if seen.returncode:
        return python, f"pip ended with {installed.returncode}, and torch with: {seen.stderr.strip()[-300:]}"
    version, cuda, available = seen.stdout.split()
    if cuda == "None":
        return python, f"pip gave torch {version}, which is built for CPUs"
    if available == "True":
        return python, "this machine has a CUDA device"
    print(f"Measuring with torch {version}, the {which} default build, in {home}", flush=True)
    return python, ""


def main() -> int:
    """pytest's exit code where the tests can run; else a failure only where a skipped test would be a hole."""
    which, *words = sys.argv[1:]
    python, reason = prepared(which)
    if reason:
        print(f"The {which} default build of torch is not tested: {reason}.", flush=True)
        return int(REQUIRED in os.environ and os.environ.get("DEFAULT_BUILD") != "no")
    command = [sys.executable, "-m", "pytest", "-m", "default_build", "tests/measure", *words]
    return subprocess.run(command, env={**os.environ, "MEASURED_PYTHON": str(python)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
