"""A test's hands inside a guest, from any process of the testbed: run, kill, cut off, shift its clock.

Guests are named by their instance ids. Everything here fails with `NoGuest` if the guest is not running.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.emulators.guests import network
from tests.emulators.guests.disk_seed import Traits
from tests.emulators.guests.nspawn import GUESTS, traits_of
from tests.emulators.guests.shims import CLOCK


class NoGuest(Exception):
    """The guest is not running."""


def running() -> list[str]:
    return sorted(each.parent.name for each in GUESTS.glob("*/pid"))


def set_traits(traits: Traits | None, instance_type: str = "") -> None:
    """Of every guest (or of every one of this type) whose first boot is from now on; None for ordinary ones."""
    path = traits_of(instance_type)
    if traits is None:
        path.unlink(missing_ok=True)
    else:
        traits.save(path)


def consoles() -> dict[str, str]:
    """What the guests have written, ended ones included."""
    return {
        path.parent.name: path.read_text("utf-8", "replace").replace("\r", "")
        for path in sorted(GUESTS.glob("*/console"))
    }


class InGuest:
    def __init__(self, instance_id: str) -> None:
        self.instance_id = instance_id
        self.root = GUESTS / instance_id / "root"

    @property
    def leader(self) -> int:
        try:
            supervisor = int((GUESTS / self.instance_id / "pid").read_text())
            children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
            for child in children:
                status = Path(f"/proc/{child}/status").read_text()
                if next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1] == "1":
                    return int(child)
        except (OSError, ValueError) as error:
            raise NoGuest(self.instance_id) from error
        raise NoGuest(f"{self.instance_id} is only just starting")

    def run(self, *argv: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command in it, as root, whatever its network does.

        Raises:
            AssertionError: It failed; with what it said.
        """
        enter = ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--net", "--pid", "--", *argv]
        done = carry_out(enter, stdin)
        if check and done.returncode != 0:
            raise AssertionError(f"{argv} in {self.instance_id}: {done.returncode} {done.stdout}{done.stderr}")
        return done

    def kill(self, pattern: str) -> int:
        """SIGKILL for every process whose command line matches; returns how many there were."""
        return int(self.run("pkill", "-KILL", "--count", "--full", pattern, check=False).stdout)

    def shift_clock(self, seconds: float) -> None:
        """From now on `date` and Python's `time.time` are ahead by so much; the kernel's clocks are not."""
        path = self.root / CLOCK
        fresh = path.with_name("clock.new")
        fresh.write_text(f"{seconds:.0f}\n", encoding="utf-8")
        fresh.rename(path)

    def seed_snaps(self) -> None:
        """snapd has unpacked the snaps of Google's Ubuntu image: now its first boot is over, and the startup script runs."""
        asked = ("systemctl", "show", "--property=SubState", "--value", "snapd.seeded")
        until(lambda: self.run(*asked, check=False).stdout == "start\n")
        self.run("systemctl", "kill", "snapd.seeded")

    def cut_network(self) -> None:
        """Every packet is lost in silence from now on, but for those of the metadata service."""
        network.cut(self.instance_id)

    def restore_network(self) -> None:
        network.restore(self.instance_id)


def carry_out(argv: Sequence[str], stdin: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Also while the guest shuts down: its init stops all processes for a moment, and nsenter then stops itself, too."""
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        deadline = time.monotonic() + seconds
        given: str | None = stdin
        while True:
            try:
                out, err = process.communicate(given, timeout=1)
                return subprocess.CompletedProcess(argv, process.returncode, out, err)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    process.kill()
                    raise
                process.send_signal(signal.SIGCONT)
                given = None


def until(condition: Callable[[], object], seconds: float = 20.0, what: str = "") -> None:
    """Waits for something that guests do; an assertion fails if it does not come.

    A guest that is not there (yet) counts as something that has not come yet.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except NoGuest:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}; running guests: {running()}")
        time.sleep(0.02)
