"""A control group of its own for each guest.

Without it, guests would share ``system.slice/ssh.service`` and the like, as each one's systemd is the root of its tree.
"""

import contextlib
import os
import time
from pathlib import Path

_FAMILY = "costgpu-testbed-"


def _hierarchies() -> list[Path]:
    """This process's place in the hierarchies that systemd manages (version 2, and version 1's named one)."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        name = "" if kind == "cgroup2" else "name=systemd"
        if (kind == "cgroup2" or "name=systemd" in options.split(",")) and name in own:
            found[name] = Path(fields.split(" ")[4]) / own[name].lstrip("/")
    return list(found.values())


def _family() -> str:
    return f"{_FAMILY}{Path('/proc/self/ns/pid').stat().st_ino}"


def create(guest: str) -> list[Path]:
    """The groups that the guest's first process must enter."""
    groups = [base / _family() / guest for base in _hierarchies()]
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    return groups


def kill(guest: str) -> None:
    """SIGKILL for everything in the guest's group, where the kernel can do that."""
    for base in _hierarchies():
        switch = base / _family() / guest / "cgroup.kill"
        if switch.exists():
            switch.write_text("1")


def remove(guest: str) -> None:
    """Once it is empty, which takes killed processes a moment."""
    groups = [base / _family() / guest for base in _hierarchies()]
    deadline = time.monotonic() + 5
    while any(group.exists() for group in groups) and time.monotonic() < deadline:
        for group in groups:
            _remove_tree(group)
        time.sleep(0.01)


def sweep() -> None:
    """Removes what ended testbeds have left behind. To be called outside of any."""
    alive = set()
    for link in Path("/proc").glob("[0-9]*/ns/pid"):
        with contextlib.suppress(OSError):
            alive.add(f"{_FAMILY}{link.stat().st_ino}")
    for base in _hierarchies():
        for each in base.glob(f"{_FAMILY}*"):
            if each.name not in alive:
                _remove_tree(each)


def _remove_tree(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            continue
