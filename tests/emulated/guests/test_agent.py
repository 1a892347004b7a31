"""Boot script and agent under a real systemd, reached over SSH: what a rented machine does."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costgpu.job.agent.state_files import REMOTE_HOME
from costgpu.job.machine.agent_client import AgentHost
from costgpu.job.machine.boot_script import boot_script
from costgpu.job.machine.host import Keys, LogPosition
from costgpu.job.machine.transport.ssh import SshTransport
from costgpu.models.instance import Endpoint
from costgpu.models.job import EndReason, JobPhase
from tests.agent.harness import order, selection
from tests.agent.test_agent_network import Server, serving
from tests.emulators.guests import guest_control, network
from tests.emulators.guests.disk_seed import Traits
from tests.emulators.guests.login import Booted, OneRunKeys, boot, spec, wait_for_banner
from tests.emulators.guests.nspawn import NspawnMachines

pytestmark = pytest.mark.emulator
LISTENS = """
import signal, sys, time
def save(*_):
    open('checkpoint', 'w').write('saved')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open('up', 'w').close()
print('training', flush=True)
time.sleep(300)
"""
WRITES = """
import os
print(os.environ['TOKEN'], os.environ['HOME'])
os.makedirs('/scratch')
os.symlink('/scratch', 'big')
os.makedirs(os.path.expanduser('~/results'))
for path in ('model', 'big/x', '~/results/best', '../up.txt', '/tmp/metrics'):
    open(os.path.expanduser(path), 'w').write('w')
"""
DEAF = """
import signal, time
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
open('up', 'w').close()
time.sleep(300)
"""


class Rented:
    """A guest that booted with our script, and its host."""

    def __init__(self, machines: NspawnMachines, folder: Path, **limits: float) -> None:
        self.machines = machines
        self.folder = folder
        self.one_run = OneRunKeys.make(folder)
        self.keys = Keys(
            user_private=folder / "user",
            user_public=self.one_run.text("user.pub").strip(),
            host_private=self.one_run.text("host"),
            host_public=self.one_run.text("host.pub").strip(),
        )
        script = boot_script(
            deadline=datetime.now(UTC) + timedelta(seconds=limits.get("deadline", 3600)),
            lifetime_seconds=limits.get("lifetime", 3600),
            unclaimed_seconds=limits.get("unclaimed", 900),
            user_public_key=self.keys.user_public,
            host_private_key=self.keys.host_private,
            host_public_key=self.keys.host_public,
        )
        self.booted: Booted = boot(machines, spec(1, f"#cloud-boothook\n{script}".encode()))
        self.host = AgentHost(SshTransport(Endpoint(kind="ssh", host=self.booted.spec.public_ip), self.keys))

    def wait(self) -> Rented:
        wait_for_banner(self.booted)
        return self

    def inside(self, command: str, *, check: bool = True) -> str:
        return self.booted.inside.run("sh", "-c", command, check=check).stdout.strip()

    def run(self, script: str, uploads: Mapping[str, str] | None = None, **changes: object) -> None:
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        (source / "train.py").write_text(script)
        self.host.install()
        self.host.send(selection(source))
        what = order("train.py", **{"python": "", **changes})
        self.host.start(what, {"TOKEN": "secret"}, uploads or {})

    def console(self) -> str:
        return self.machines.console(self.booted.spec.instance_id).decode("utf-8", "replace")

    def gone(self, seconds: float) -> bool:
        return self.booted.gone.wait(seconds)


@pytest.fixture
def new_rented(machines: NspawnMachines, tmp_path: Path) -> Iterator[Callable[..., Rented]]:
    made: list[Rented] = []

    def make(**limits: float) -> Rented:
        made.append(Rented(machines, tmp_path, **limits))
        return made[-1]

    yield make
    for each in made:
        each.host.close()


def test_a_job_on_a_rented_machine(new_rented: Callable[..., Rented], tmp_path: Path) -> None:
    rented = new_rented().wait()
    rented.run(WRITES)
    output = bytearray()
    status = rented.host.follow(LogPosition(), lambda stream, data: output.extend(data))
    assert (status.reason, status.exit_code) == (EndReason.SUCCEEDED, 0)
    assert output == b"secret /root\n"
    outputs = rented.host.outputs()
    outside = ["outside/parent/up.txt", "outside/root/results/best", "outside/tmp/metrics"]
    assert ([each.path for each in outputs.files], outputs.unreadable) == (["big/x", "model", *outside], {})
    rented.host.fetch(outputs.files, tmp_path / "out")
    for name in ("model", "big/x", *outside):
        assert (tmp_path / "out" / name).read_text() == "w"
    assert rented.inside("systemctl is-active costgpu-deadline costgpu-agent") == "active\nactive"
    assert rented.inside("systemctl is-enabled costgpu-agent") == "enabled"
    assert rented.inside("systemctl is-failed '*'", check=False).count("failed") == 0
    settings = rented.inside(
        "sshd -T | grep -iE '^(hostkey|authorizedkeysfile|passwordauthentication|permitrootlogin) '"
    ).splitlines()
    assert sorted(settings) == [
        "authorizedkeysfile /etc/costgpu/authorized_keys",
        "hostkey /etc/costgpu/ssh_host_ed25519_key",
        "passwordauthentication no",
        "permitrootlogin without-password",
    ]


def test_nothing_is_upgraded_by_itself_for_the_life_of_the_machine(new_rented: Callable[..., Rented]) -> None:
    rented = new_rented().wait()
    masked = "systemctl show -p LoadState --value apt-daily.service apt-daily-upgrade.service"
    assert rented.inside(masked).split() == ["masked", "masked"]
    assert "masked" in rented.inside("systemctl start apt-daily-upgrade.service 2>&1", check=False)
    rented.inside("apt-get check && apt-get install --simulate python3")  # what a set-up does goes on working
    before = rented.booted.inside.leader
    rented.inside("systemctl reboot", check=False)
    guest_control.until(lambda: rented.booted.inside.leader != before)
    guest_control.until(lambda: rented.inside(masked, check=False).split() == ["masked", "masked"])


def test_a_process_that_hides_from_its_family_is_killed_by_its_control_group(new_rented: Callable[..., Rented]) -> None:
    rented = new_rented().wait()
    rented.run(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(777)'], env={}, start_new_session=True)\n"
        "open('up', 'w').close(); time.sleep(300)"
    )
    guest_control.until(lambda: rented.inside(f"ls {REMOTE_HOME}/work/up", check=False))
    rented.inside("kill -9 $(pgrep -f '[p]yz supervise')")  # the worst case: nobody knows the family any more
    status = rented.host.follow(LogPosition(), lambda stream, data: None)
    assert (status.reason, status.exit_code) == (EndReason.JOB_FAILED, 137)
    assert rented.inside("pgrep -f '[s]leep.777'", check=False) == ""


def test_after_a_reboot_all_guards_are_back_and_the_end_is_known(new_rented: Callable[..., Rented]) -> None:
    rented = new_rented(lifetime=60).wait()
    rented.run(LISTENS)
    guest_control.until(lambda: rented.inside(f"ls {REMOTE_HOME}/work/up", check=False))
    deadline = rented.inside(f"cat {REMOTE_HOME}/deadline")
    guest_control.until(lambda: int(rented.inside(f"cut -d' ' -f1 {REMOTE_HOME}/life")) > 10)  # it is on disk
    before = rented.booted.inside.leader
    rented.inside("systemctl reboot", check=False)
    guest_control.until(lambda: rented.booted.inside.leader != before)
    rented.booted.seconds = 0.0
    rented.wait()
    guest_control.until(
        lambda: rented.inside("systemctl is-active costgpu-deadline costgpu-agent", check=False) == "active\nactive"
    )
    assert rented.inside(f"cat {REMOTE_HOME}/deadline") == deadline
    assert int(rented.inside(f"cut -d' ' -f1 {REMOTE_HOME}/life")) >= 11
    guest_control.until(lambda: rented.host.status().phase is JobPhase.FINISHED)
    status = rented.host.status()
    assert status.reason is EndReason.JOB_FAILED
    assert "restarted" in status.detail
    assert rented.gone(100)  # a minute in all, the reboot included
    assert "powering off" in rented.console()


@pytest.fixture
def bucket() -> Iterator[Server]:
    """What the guests can reach and store things in."""
    with serving(network.GATEWAY) as made:
        yield made


@pytest.mark.parametrize("how", ["systemctl poweroff", "the daemon is a new one"])
def test_a_machine_that_is_switched_off_uploads_first(
    new_rented: Callable[..., Rented], bucket: Server, how: str
) -> None:
    rented = new_rented().wait()
    rented.run(LISTENS, {name: f"{bucket.url}/{name}" for name in ("outputs", "logs")}, grace_seconds=600.0)
    guest_control.until(lambda: rented.inside(f"ls {REMOTE_HOME}/work/up", check=False))
    if how != "systemctl poweroff":
        rented.inside("systemctl restart costgpu-agent")
        rented.host.install()  # it is there
    assert bucket.stored == {}
    rented.inside("systemctl poweroff", check=False)
    assert rented.gone(60)
    with tarfile.open(fileobj=io.BytesIO(bucket.stored["/outputs"])) as archive:
        assert archive.extractfile("checkpoint").read() == b"saved"  # type: ignore[union-attr]
    with tarfile.open(fileobj=io.BytesIO(bucket.stored["/logs"])) as archive:
        status = json.load(archive.extractfile("status.json"))  # type: ignore[arg-type]
    assert (status["reason"], status["exit_code"], status["uploaded"]) == ("job_failed", 0, True)
    assert "shut down" in status["detail"]


@pytest.mark.parametrize(
    ("limit", "word"), [("deadline", "deadline"), ("lifetime", "lifetime"), ("unclaimed", "unclaimed")]
)
def test_with_nobody_there_the_machine_ends_itself(new_rented: Callable[..., Rented], limit: str, word: str) -> None:
    rented = new_rented(**{limit: 8})
    assert rented.gone(8 + 20)
    assert f"costgpu: watchdog {word}: powering off" in rented.console()


def test_a_job_that_listens_to_nothing_does_not_hold_up_the_deadline(new_rented: Callable[..., Rented]) -> None:
    rented = new_rented().wait()
    rented.run(DEAF, grace_seconds=600.0)
    guest_control.until(lambda: rented.inside(f"ls {REMOTE_HOME}/work/up", check=False))
    rented.inside(f"rm {REMOTE_HOME}/agent-*.pyz; kill -9 $(systemctl show -p MainPID --value costgpu-agent)")
    rented.booted.inside.shift_clock(3700)
    assert rented.gone(60)
    assert time.monotonic() - rented.booted.started < 55
    assert "watchdog deadline: powering off" in rented.console()


def test_the_watchdog_comes_back_when_it_is_killed(new_rented: Callable[..., Rented]) -> None:
    rented = new_rented().wait()
    for _ in range(4):
        guest_control.until(lambda: rented.booted.inside.kill("[w]atchdog.sh") > 0)
    rented.booted.inside.shift_clock(3700)
    assert rented.gone(60)
    assert "watchdog deadline: powering off" in rented.console()


def test_a_full_disk_ends_the_job_and_not_the_guards(new_rented: Callable[..., Rented]) -> None:
    guest_control.set_traits(Traits(disk_mib=400))
    rented = new_rented(lifetime=40).wait()
    rented.run(
        "import os\n"
        "with open('big', 'wb', 0) as f:\n"
        "    try:\n"
        "        while True: f.write(bytes(1 << 20))\n"
        "    except OSError: os._exit(9)\n"
    )
    status = rented.host.follow(LogPosition(), lambda stream, data: None)
    assert status.reason in (EndReason.DISK_FULL, EndReason.JOB_FAILED)  # whoever was first
    assert status.exit_code in (143, 9)
    rented.inside(f"cat /dev/zero >{REMOTE_HOME}/work/rest", check=False)  # to the last byte
    assert rented.host.status().phase is JobPhase.FINISHED
    assert rented.gone(75)
    assert "powering off" in rented.console()


def test_a_read_only_disk_does_not_stop_the_watchdog(new_rented: Callable[..., Rented]) -> None:
    rented = new_rented(lifetime=20).wait()
    rented.inside(f"mount -o remount,ro / || mount -o bind,ro {REMOTE_HOME} {REMOTE_HOME}")
    assert rented.gone(45)


def test_a_rented_machine_prepares_its_own_python_without_network(new_rented: Callable[..., Rented]) -> None:
    """The image has neither venv nor pip, and nothing can be installed: the set-up still gets the plain Python."""
    rented = new_rented().wait()
    rented.run("import sys; print(sys.executable)", setup="python3 -c 'import sys; print(sys.executable)' >which.txt")
    status = rented.host.follow(LogPosition(), lambda stream, data: None)
    assert status.exit_code == 0, rented.inside(f"cat {REMOTE_HOME}/stderr.log")
