"""The boot script and its watchdog, as real processes in a temporary home."""

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costgpu.job.machine.boot_script import boot_script
from costgpu.portable.clock import boot_id, uptime
from costgpu.portable.processes import processes
from tests.agent.harness import Machine, order
from tests.unit.job.test_boot_script import PRIVATE, PUBLIC
from tests.until import until

pytestmark = pytest.mark.slow


class Box:
    """A home with a power-off command that only writes down that it was called."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "it's a home"
        self.home.mkdir()
        self.shims = folder / "shims"
        self.shims.mkdir()
        off = self.home / "poweroff"
        off.write_text('#!/bin/sh\nprintf "%s\\n" "$1" >>"${0%/*}/off"\n')
        off.chmod(0o755)
        self.folder = folder
        self.shim("sleep", "exec /bin/sleep 0.1")  # the watchdog looks at its clocks all the time

    def boot(
        self, deadline: float = 3600, lifetime: float = 3600, unclaimed: float = 900, *, keys: bool = False
    ) -> None:
        script = boot_script(
            deadline=datetime.now(UTC) + timedelta(seconds=deadline),
            lifetime_seconds=lifetime,
            unclaimed_seconds=unclaimed,
            user_public_key=PUBLIC if keys else "",
            host_private_key=PRIVATE if keys else "",
            host_public_key=PUBLIC if keys else "",
        )
        environment = {
            "PATH": f"{self.shims}:{os.environ['PATH']}",
            "COSTGPU_HOME": str(self.home),
            "COSTGPU_ETC": str(self.folder / "etc"),
            "COSTGPU_VOLATILE": str(self.folder),
        }
        done = subprocess.run(
            ["/bin/sh"], input=script.encode(), env=environment, capture_output=True, timeout=20, check=True
        )
        assert done.stderr == b""
        until(lambda: self.watchdogs() or self.off())  # before that, `crash` would not see it

    def off(self) -> str:
        return (self.home / "off").read_text().strip() if (self.home / "off").exists() else ""

    def ended_by(self) -> str:
        return (self.home / "ended_by").read_text().strip()

    def watchdogs(self) -> list[int]:
        return [
            pid
            for pid in processes()
            if (words := _words(pid))
            and b"watchdog.sh" in words[min(1, len(words) - 1)]
            and os.fsencode(str(self.folder)) in b" ".join(words)
        ]

    def crash(self) -> None:
        """Everything stops at once, as at a power cut."""
        for pid in self.watchdogs():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def shim(self, name: str, script: str) -> None:
        """Puts a program of that name in front of the machine's own."""
        new = self.folder / f"{name}.new"
        new.write_text(f"#!/bin/sh\n{script}\n")
        new.chmod(0o755)
        new.replace(self.shims / name)

    def clock_shim(self, now: str) -> None:
        """The wall clock says this from now on."""
        self.shim("date", f"echo {now}")

    def await_armed(self) -> None:
        """Waits until the watchdog is armed."""
        until((self.home / "life").exists)


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.crash()


def test_the_deadline_powers_off(box: Box) -> None:
    box.boot(deadline=3600)
    box.await_armed()
    assert box.off() == ""
    box.clock_shim("$(( $(/bin/date +%s) + 3600 ))")
    assert until(box.off) == "watchdog deadline"
    assert box.ended_by() == "watchdog deadline"
    assert "costgpu: watchdog deadline: powering off" in (box.home / "console.log").read_text()
    until(lambda: not box.watchdogs())


@pytest.mark.parametrize(
    ("life", "limits", "why"),
    [
        (None, {"lifetime": 1}, "lifetime"),
        (None, {"unclaimed": 1}, "unclaimed"),
        ("900 {boot} {earlier}\n", {"lifetime": 1000}, "lifetime"),  # it goes on within a boot
        *((rubbish, {"deadline": 1}, "deadline") for rubbish in ("", "x y z", "-5 b 1", "12")),  # it starts again
    ],
)
def test_the_counter_of_its_life(box: Box, life: str | None, limits: dict[str, float], why: str) -> None:
    if life is not None:
        (box.home / "life").write_text(life.format(boot=boot_id(), earlier=max(0, int(uptime()) - 200)))
    box.boot(**limits)  # type: ignore[arg-type]
    assert until(box.off) == f"watchdog {why}"


def test_a_machine_that_was_claimed_is_not(box: Box) -> None:
    (box.home / "claimed").touch()
    box.boot(unclaimed=1, lifetime=3)
    assert until(box.off) == "watchdog lifetime"


@pytest.mark.parametrize("now", ["$(( $(/bin/date +%s) - 86400 ))", "broken"])
def test_a_clock_that_is_behind_or_broken_does_not_extend_life(box: Box, now: str) -> None:
    box.clock_shim(now)
    box.boot(deadline=1, lifetime=2)
    assert until(box.off) == "watchdog lifetime"


def test_a_reboot_does_not_extend_life(box: Box) -> None:
    (box.home / "life").write_text("995 another-boot 50\n")
    box.boot(lifetime=1000)
    assert until(box.off) == "watchdog lifetime"
    # What was not written before the reboot, ten seconds at most, counts as lived.
    assert "1005s of 1000s lived" in (box.home / "console.log").read_text()


def test_a_later_boot_cannot_move_the_deadline(box: Box) -> None:
    box.boot(deadline=1000)
    box.await_armed()
    box.crash()
    box.boot(deadline=4000)
    box.clock_shim("$(( $(/bin/date +%s) + 1000 ))")
    assert until(box.off) == "watchdog deadline"


def test_signals_of_a_terminal_do_not_end_the_watchdog(box: Box) -> None:
    box.boot(deadline=1000)
    box.await_armed()  # written when the signals are ignored
    until(lambda: len(box.watchdogs()) == 1)  # and no child of it that is about to become another program
    (watchdog,) = box.watchdogs()
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(watchdog, number)
    box.clock_shim("$(( $(/bin/date +%s) + 1000 ))")
    assert until(box.off) == "watchdog deadline"


def test_a_home_that_cannot_be_written_does_not_disarm_it(box: Box) -> None:
    for name in ("deadline", "limits", "life", "watchdog.sh", "ended_by", "console.log", "life.new", "watchdog.sh.new"):
        (box.home / name).mkdir()  # even root cannot write a file over a folder
        (box.home / name / "x").touch()
    (box.home / "poweroff").write_text(f'#!/bin/sh\necho "$1" >>"{box.folder}/off"\n')
    box.boot(deadline=2)
    until((box.folder / "off").exists)
    until(lambda: (box.folder / "off").read_text() == "watchdog deadline\n")


def test_a_power_off_that_fails_is_tried_again(box: Box) -> None:
    (box.home / "poweroff").write_text(
        '#!/bin/sh\nh=${0%/*}\n[ -e "$h/tried" ] || { touch "$h/tried"; exit 1; }\nprintf "%s\\n" "$1" >>"$h/off"\n'
    )
    box.boot(deadline=1)
    assert until(box.off) == "watchdog deadline"
    assert (box.home / "off").read_text().count("\n") == 1


def test_a_folder_without_a_power_off_command_never_ends_the_real_machine(box: Box) -> None:
    (box.home / "poweroff").unlink()
    for name in ("systemctl", "poweroff", "shutdown", "halt"):
        box.shim(name, f'touch "{box.folder}/called"')
    box.shim("sleep", f'[ ! -e "{box.home}/ended_by" ] || touch "{box.folder}/tried"; exec /bin/sleep 0.1')
    box.boot(deadline=1)
    until((box.folder / "tried").exists)  # it waits before it tries again
    assert not (box.folder / "called").exists()


def test_sshd_gets_the_one_run_keys_and_no_others(box: Box) -> None:
    etc = box.folder / "etc"
    (etc / "ssh").mkdir(parents=True)
    (etc / "ssh/sshd_config").write_text(
        "HostKey /etc/ssh/ssh_host_rsa_key\n  hostkey=/x\nPasswordAuthentication yes\n"
    )
    box.boot(keys=True)
    box.boot(keys=True)
    key = etc / "costgpu/ssh_host_ed25519_key"
    assert key.read_text() == PRIVATE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (etc / "costgpu/authorized_keys").read_text() == PUBLIC + "\n"
    dropin = (etc / "ssh/sshd_config.d/10-costgpu.conf").read_text()
    assert f"HostKey {key}\n" in dropin
    assert "PasswordAuthentication no\n" in dropin
    main = (etc / "ssh/sshd_config").read_text().splitlines()
    assert main[0] == f"Include {etc}/ssh/sshd_config.d/*.conf"
    assert main.count(main[0]) == 1
    assert not [line for line in main if line.strip().lower().startswith("hostkey")]


def test_without_keys_sshd_is_left_alone(box: Box) -> None:
    box.boot()
    assert not (box.folder / "etc").exists()


def test_an_agent_that_was_there_comes_back_with_the_boot(new_machine: Callable[..., Machine], tmp_path: Path) -> None:
    machine = new_machine()
    machine.run("import time; open('up', 'w').close(); time.sleep(300)", deadline_epoch=time.time() + 1000)
    until((machine.home / "work/up").exists)
    machine.destroy()
    status = machine.host.status()
    assert status.reason is None
    script = boot_script(
        deadline=datetime.now(UTC) + timedelta(hours=1),
        lifetime_seconds=3600,
        user_public_key="",
        host_private_key="",
        host_public_key="",
    )
    environment = machine.transport.environment | {"COSTGPU_HOME": str(machine.home)}
    subprocess.run(["/bin/sh"], input=script.encode(), env=environment, check=True, timeout=20)
    status = machine.follow()
    assert status.exit_code == 137
    machine.host.start(order("train.py"), {}, {})  # a job is never started twice
    assert machine.host.status().exit_code == 137
