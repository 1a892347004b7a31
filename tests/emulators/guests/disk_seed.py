"""What a guest's disk gets before its first boot: identity, user data as cloud-init would run it, and its defects.

`cloud-init` itself runs only in the image of that name; in the others a unit stands for it, which costs no seconds.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.emulators.guests import python_packages
from tests.emulators.guests.shims import GPUS, NO_DRIVER, write
from tests.emulators.machines import GuestSpec

IMAGES = ("debian", "cloud-init", "no-python", "no-sshd", "no-user-data", "no-driver", "kernel-panic")
MIB = 1024 * 1024
AGENT_DROP_IN = "etc/systemd/system/costgpu-agent.service.d"
Install = Callable[[Path, GuestSpec], None]

_FILES = Path(__file__).parents[1] / "data" / "guest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What distinguishes the guests of a test from ordinary ones."""

    image: str = "debian"  # one of `IMAGES`
    disk_mib: int = 4096  # size of the disk, beyond what the image itself fills
    packages: bool = False  # whether its Python can import the packages of this one, such as torch
    agent: str = ""  # settings of its agent: variables, as systemd's Environment takes them

    def __post_init__(self) -> None:
        if self.image not in IMAGES or self.disk_mib <= 0:
            raise ValueError(f"{self}: the images are {', '.join(IMAGES)}")

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)), encoding="utf-8")
        fresh.rename(path)

    @classmethod
    def load(cls, path: Path) -> Traits:
        """The ordinary ones if there is no such file."""
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()


def seed(root: Path, spec: GuestSpec, traits: Traits, install: Install | None = None) -> None:
    """Writes a new disk's identity and contents into `root`, where it is mounted.

    `install` brings what the instance runs into the guest; None for AWS's user data.
    """
    host = f"ip-{spec.private_ip.replace('.', '-')}"
    write(root, "etc/hostname", f"{host}\n")
    write(root, "etc/hosts", f"127.0.0.1 localhost\n{spec.private_ip} {host}\n")
    write(root, "etc/machine-id", f"{uuid.uuid4().hex}\n")
    _gpus(root, spec)
    if traits.image == "cloud-init" and install is None:
        _real_cloud_init(root)
        return
    _host_keys(root)
    if traits.packages:
        python_packages.install(root)
    if traits.agent:
        write(root, f"{AGENT_DROP_IN}/testbed.conf", f"[Service]\nEnvironment={traits.agent}\n")
    if traits.image != "no-user-data":
        (install or user_data)(root, spec)
    if traits.image == "no-python":
        for each in (root / "usr/bin").glob("python3*"):
            each.unlink()
    elif traits.image == "no-sshd":
        for unit in ("ssh.service", "ssh.socket"):
            link(root, unit, "/dev/null")
    elif traits.image == "no-driver":
        write(root, "usr/bin/nvidia-smi", NO_DRIVER, 0o755)
    elif traits.image == "kernel-panic":
        (root / "usr/lib/systemd/systemd").unlink()
        write(root, "usr/lib/systemd/systemd", guest_file("kernel-panic.sh"), 0o755)


def guest_file(name: str) -> str:
    """Text of a unit or program that guests get."""
    return (_FILES / name).read_text()


def link(root: Path, name: str, target: str) -> None:
    """A unit, or what takes its place."""
    path = root / "etc/systemd/system" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _host_keys(root: Path) -> None:
    for kind in ("ed25519", "ecdsa"):
        path = root / f"etc/ssh/ssh_host_{kind}_key"
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], check=True)


def user_data(root: Path, spec: GuestSpec) -> None:
    """Has it run at every boot, before sshd, as cloud-init does with a boothook."""
    data = gzip.decompress(spec.user_data) if spec.user_data.startswith(b"\x1f\x8b") else spec.user_data
    text = data.decode("utf-8").replace("\r\n", "\n")
    home = "var/lib/cloud/instance"
    (root / home / "sem").mkdir(parents=True)
    if not text:
        return
    if not text.startswith("#cloud-boothook"):
        raise ValueError(f"this user data needs the cloud-init image: {text.partition(chr(10))[0][:40]!r}")
    write(root, f"{home}/boothooks/part-001", text.removeprefix("#cloud-boothook").lstrip(), 0o700)
    unit = "testbed-boothook.service"
    write(root, f"etc/systemd/system/{unit}", guest_file("boothook.service").format(instance_id=spec.instance_id))
    link(root, f"multi-user.target.wants/{unit}", f"../{unit}")


def gpus_of(instance_type: str) -> list[str]:
    """The name of each GPU that AWS lists for the type."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES  # takes a second, and only the hypervisor needs it

    found = INSTANCE_TYPES.get(instance_type, {}).get("GpuInfo", {}).get("Gpus", [])
    return [f"{each.get('Manufacturer', 'NVIDIA')} {each['Name']}" for each in found for _ in range(int(each["Count"]))]


def _gpus(root: Path, spec: GuestSpec) -> None:
    names = gpus_of(spec.instance_type) if spec.gpus is None else spec.gpus
    if names:
        write(root, GPUS, "".join(f"{name}, 0\n" for name in names))
        shutil.copy(root / "usr/lib/testbed/nvidia-smi", root / "usr/bin/nvidia-smi")


def _real_cloud_init(root: Path) -> None:
    """Debian's own cloud-init, made to believe that this container is an EC2 instance."""
    (root / "etc/cloud/cloud-init.disabled").unlink()
    write(root, "etc/cloud/cloud.cfg.d/99-testbed.cfg", guest_file("cloud.cfg"))
    write(root, "etc/cloud/ds-identify.cfg", "policy: enabled\n")
    write(root, "usr/sbin/dmidecode", guest_file("dmidecode.sh"), 0o755)
    dmi = root / "usr/lib/python3/dist-packages/cloudinit/dmi.py"
    source = dmi.read_text(encoding="utf-8")
    if "if is_container():" not in source:
        raise RuntimeError("this cloud-init looks for its cloud in another way")
    dmi.write_text(source.replace("if is_container():", "if False:"), encoding="utf-8")
    link(root, "cloud-init-local.service", "/dev/null")  # it wants DHCP
    link(root, "multi-user.target.wants/cloud-init.target", "/lib/systemd/system/cloud-init.target")
