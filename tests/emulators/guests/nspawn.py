"""Real hosts for the emulated cloud's instances: a systemd-nspawn guest each. Works only inside a testbed namespace.

A guest has its own disk (a layer over the shared root file system, gone with the testbed), network namespace, process
tree and control group. Its state is in the file system below `STATE`, so that `guests` can reach it from any process.
"""

import contextlib
import http.server
import shutil
import signal
import subprocess
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tests.emulators.guests import cgroups, ec2_metadata_server, network, python_packages
from tests.emulators.guests.disk_seed import MIB, Install, Traits, gpus_of, seed
from tests.emulators.machines import GuestSpec, OnExit, PacketRule

STATE = Path("/run/testbed")
ROOTFS = STATE / "rootfs"
GUESTS = STATE / "guests"
REBOOT = 133  # nspawn's exit status with --keep-unit when the guest has asked for a reboot
DISKS_KEPT = 12  # of ended guests, with their consoles
OWN_SYS = """
mount --rbind /sys/fs/cgroup /mnt && mount -t sysfs sysfs /sys && mount --rbind /mnt /sys/fs/cgroup && exec "$@"
"""
"""Runs nspawn with the /sys of the network namespace that it is in. Otherwise a guest sees the interfaces of all the
others in there come and go, and its cloud-init, which reads them one after the other, fails at times."""


class MetadataService(Protocol):
    """What a cloud's guests can ask about themselves."""

    def add(self, spec: GuestSpec) -> None:
        """From now on it is answered."""

    def remove(self, spec: GuestSpec) -> None:
        """Its addresses may be somebody else's now."""

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Shows the notice that a spot instance is taken back."""

    def serve(self, address: str, device: str) -> http.server.ThreadingHTTPServer:
        """Answers what comes in there, in a thread."""


@dataclass(frozen=True, slots=True)
class GuestEnvironment:
    """What is different from cloud to cloud."""

    bridge: str  # what its guests are plugged into
    metadata: MetadataService  # their metadata service
    install: Install | None = None  # see `seed`


class Guest:
    """One guest, from power-on to power-off, with its disk."""

    def __init__(self, spec: GuestSpec, house: GuestEnvironment, rules: Sequence[PacketRule] | None = None) -> None:
        self.spec = spec
        self.folder = GUESTS / spec.instance_id
        self._house = house
        self._cable = network.Cable(spec.instance_id, spec.private_ip, spec.public_ip, house.bridge)
        self._plugged = False
        self._rules = rules
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._plug_pulled = False  # by us
        self._binds: list[str] = []
        self.gone = threading.Event()

    @property
    def console(self) -> Path:
        return self.folder / "console"

    def run(self) -> bool:
        """From power-on to power-off; whether we have ended it."""
        try:
            self._prepare()
            while self._power_on() == REBOOT and not self._plug_pulled:
                self._note("reboot")
        except Exception:  # noqa: BLE001 - whatever it is, the guest is gone and its console says why
            self._note(traceback.format_exc())
        finally:
            self._clean_up()
        return self._plug_pulled

    def stop(self) -> None:
        """Presses the power button, then pulls the plug; returns when it is gone."""
        with self._lock:
            self._plug_pulled = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
        if not self.gone.wait(self.spec.soft_off_seconds):
            self.pull_plug()

    def pull_plug(self) -> None:
        """Ends it without a warning; returns when it is gone."""
        with self._lock:
            self._plug_pulled = True
            if self._process is not None:
                self._process.kill()
        cgroups.kill(self.spec.instance_id)
        self.gone.wait()

    def _prepare(self) -> None:
        disk, root = self.folder / "disk", self.folder / "root"
        for each in (disk, root):
            each.mkdir(parents=True, exist_ok=True)
        own = traits_of(self.spec.instance_type)
        traits = Traits.load(own if own.exists() else traits_of(""))
        _mount("tmpfs", "testbed", disk, f"size={traits.disk_mib * MIB},mode=755")
        (disk / "upper").mkdir()
        (disk / "work").mkdir()
        layers = f"lowerdir={ROOTFS.resolve()},upperdir={disk}/upper,workdir={disk}/work"
        _mount("overlay", "testbed", root, layers)
        seed(root, self.spec, traits, self._house.install)
        self._binds = [f"--bind-ro={python_packages.HERE}:{python_packages.THERE}"] if traits.packages else []
        with self._lock:
            self._cable.plug()
            self._plugged = True
            if self._rules is not None:
                network.admit(self._cable.namespace, self._rules)

    def admit(self, rules: Sequence[PacketRule]) -> None:
        """See `Machines.admit`."""
        with self._lock:
            self._rules = rules
            if self._plugged:
                network.admit(self._cable.namespace, rules)

    def _power_on(self) -> int:
        group = cgroups.create(self.spec.instance_id)
        enter = "".join(f"echo $$ > {each}/cgroup.procs && " for each in group)
        network_namespace = f"/run/netns/{self._cable.namespace}"
        outer = ["sh", "-c", f'{enter}exec "$@"', "sh", "nsenter", f"--net={network_namespace}"]
        inner = ["unshare", "--mount", "--propagation=slave", "sh", "-c", OWN_SYS, "sh"]
        guest = [
            *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--resolv-conf=off"),
            *("--timezone=off", "--link-journal=no", "--console=read-only", "--setenv=SYSTEMD_COLORS=0"),
            *(f"--directory={self.folder / 'root'}", f"--machine={self.spec.instance_id}"),
            f"--network-namespace-path={network_namespace}",
            "--kill-signal=SIGRTMIN+4",  # the default asks systemd to halt, and a halted machine stays on
            *self._binds,
        ]
        with self.console.open("ab") as console, self._lock:
            if self._plug_pulled:
                return 0
            self._process = subprocess.Popen(
                [*outer, *inner, *guest],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
            (self.folder / "pid").write_text(str(self._process.pid))
        return self._process.wait()

    def _clean_up(self) -> None:
        (self.folder / "pid").unlink(missing_ok=True)
        with self._lock:
            self._plugged = False
            self._cable.unplug()
        subprocess.run(["umount", "--lazy", str(self.folder / "root")], capture_output=True, check=False)
        cgroups.remove(self.spec.instance_id)
        self.gone.set()

    def forget(self) -> None:
        """Disk and console are deleted."""
        subprocess.run(["umount", "--lazy", str(self.folder / "disk")], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note(self, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.console.open("a") as console:
            console.write(f"testbed: {text}\n")


class NspawnMachines:
    """`Machines` with real guests. The disk and console of an ended guest stay for a while.

    Args:
        house: Of another cloud; None for AWS.
    """

    def __init__(self, house: GuestEnvironment | None = None) -> None:
        if not ROOTFS.exists():
            raise RuntimeError("guests need a testbed namespace: python -m tests.emulators.guests.namespace -- COMMAND")
        GUESTS.mkdir(exist_ok=True)
        if house is None:
            gpus_of("")  # its import takes a second
        self._lock = threading.Lock()
        self._running: dict[str, Guest] = {}
        self._ended: dict[str, Guest] = {}
        self._house = house or GuestEnvironment(network.BRIDGE, ec2_metadata_server.Metadata())
        self._metadata = self._house.metadata
        self._rules: dict[str, Sequence[PacketRule]] = {}
        self._server: http.server.ThreadingHTTPServer | None = None

    def boot(self, spec: GuestSpec, on_exit: OnExit) -> None:
        """Starts a guest and returns."""
        with self._lock:
            if spec.instance_id in self._running:
                raise ValueError(f"{spec.instance_id} is running")
            if self._server is None:
                self._server = self._metadata.serve(network.METADATA, self._house.bridge)
            guest = Guest(spec, self._house, self._rules.get(spec.instance_id))
            self._running[spec.instance_id] = guest
        self._metadata.add(spec)
        threading.Thread(target=self._run, args=(guest, on_exit), name=spec.instance_id, daemon=True).start()

    def _run(self, guest: Guest, on_exit: OnExit) -> None:
        by_us = guest.run()
        self._metadata.remove(guest.spec)
        with self._lock:
            self._running.pop(guest.spec.instance_id, None)
            self._ended[guest.spec.instance_id] = guest
            surplus = [self._ended.pop(each) for each in list(self._ended)[:-DISKS_KEPT]]
        for each in surplus:
            each.forget()
        on_exit(by_us)

    def stop(self, instance_id: str) -> None:
        with self._lock:
            guest = self._running.get(instance_id)
        if guest is not None:
            guest.stop()

    def console(self, instance_id: str) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return (GUESTS / instance_id / "console").read_bytes()
        return b""

    def admit(self, instance_id: str, rules: Sequence[PacketRule]) -> None:
        """What may reach a guest, from now on and whenever it runs."""
        with self._lock:
            if self._rules.get(instance_id) == rules:
                return
            self._rules[instance_id] = rules
            guest = self._running.get(instance_id)
        if guest is not None:
            guest.admit(rules)

    def interrupt(self, instance_id: str, at: datetime) -> None:
        """Shows the notice in the metadata of the guest."""
        self._metadata.interrupt(instance_id, at)

    def close(self) -> None:
        """Ends every guest at once, and deletes disks and consoles. New guests can be booted afterwards."""
        with self._lock:
            running = list(self._running.values())
        threads = [threading.Thread(target=guest.pull_plug) for guest in running]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        with self._lock:
            ended, self._ended = list(self._ended.values()), {}
            server, self._server = self._server, None
            self._rules.clear()
        for guest in {*ended, *running}:
            guest.forget()
        if server is not None:
            server.shutdown()
            server.server_close()


def traits_of(instance_type: str) -> Path:
    """File of the `Traits` for one type; for all others without a type."""
    return STATE / f"traits-{instance_type or 'all'}.json"


def make(name: str) -> NspawnMachines:
    """By the name on the command line of `tests.emulators.ec2.server`."""
    if name != "nspawn":
        raise ValueError(f"no machines called {name}")
    return NspawnMachines()


def _mount(kind: str, what: str, where: Path, options: str) -> None:
    done = subprocess.run(
        ["mount", "-t", kind, what, str(where), "-o", options], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"mount {where}: {done.stderr.strip()}")
