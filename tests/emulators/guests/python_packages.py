"""The packages of the interpreter that runs the tests, in guests: mounted read-only, behind the guest's own.

A guest downloads nothing, and a copy of torch is 700 MB: so a job that imports it uses the same files as the tests do. They
fit where the guest's Python is of the same version (the wheels are built for one), which `obstacle` tells.
"""

import importlib.util
import sys
from pathlib import Path

from tests.emulators.guests.shims import write

THERE = "/usr/lib/testbed/site-packages"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def _here() -> Path | None:
    found = importlib.util.find_spec("torch")
    return Path(found.origin).parents[1] if found is not None and found.origin else None


HERE = _here()


def obstacle(rootfs: Path) -> str:
    """Why guests of this root file system cannot import torch; empty if they can."""
    if HERE is None:
        return "torch is not installed here"
    if not (rootfs / f"usr/bin/python{VERSION}").exists():
        theirs = ", ".join(sorted(path.name for path in (rootfs / "usr/bin").glob("python3.*[0-9]")))
        return f"the guests have {theirs or 'no Python'}, and torch is installed for Python {VERSION} here"
    return ""


def install(root: Path) -> None:
    """Adds the folder to the guest's search path, after all others."""
    write(root, "usr/lib/python3/dist-packages/zz-testbed.pth", f"{THERE}\n")
