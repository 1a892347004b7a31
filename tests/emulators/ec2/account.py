"""The emulated account's circumstances: time, addresses, quotas, shortages, public images."""

import ipaddress
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

from tests.emulators.phases import Phases

ACCOUNT = "123456789012"
DEFAULT_QUOTAS = {
    "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 256.0),
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 256.0),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", 64.0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", 64.0),
    "L-417A185B": ("Running On-Demand P instances", 0.0),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", 0.0),
    "L-C4BD4855": ("All P5 Spot Instance Requests", 0.0),
}
"""Service Quotas code -> (its name, vCPUs of a young account that has asked for some G instances)."""


@dataclass(frozen=True, slots=True)
class PublicImage:
    """An image that a public parameter names."""

    parameter: str
    name: str
    architecture: str
    root_gib: int


IMAGES = (
    *(
        PublicImage(
            f"/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-ubuntu-{release}/latest/ami-id",
            f"Deep Learning {prefix}Base OSS Nvidia Driver GPU AMI (Ubuntu {release}) 20261110",
            architecture,
            60,
        )
        for architecture, prefix in (("x86_64", ""), ("arm64", "ARM64 "))
        for release in ("22.04", "24.04")
    ),
    *(
        PublicImage(
            f"/aws/service/canonical/ubuntu/server/{release}/stable/current/{arch}/hvm/ebs-{disk}/ami-id",
            f"ubuntu/images/hvm-ssd/ubuntu-{release}-{arch}-server-20261112",
            architecture,
            8,
        )
        for architecture, arch in (("x86_64", "amd64"), ("arm64", "arm64"))
        for release, disk in (("22.04", "gp2"), ("24.04", "gp3"))
    ),
)


class _Image(Ami):
    """moto gives every image 15 GB; these have their own."""

    root_gib = 15

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        """The root disk, as it was snapshot."""
        ebs = {
            "SnapshotId": self.ebs_snapshot.id,
            "VolumeSize": self.root_gib,
            "VolumeType": "gp3",
            "DeleteOnTermination": True,
            "Encrypted": False,
        }
        return [{"DeviceName": self.root_device_name, "Ebs": ebs}]


class _Parameter(Parameter):
    """A parameter outside CloudFormation."""

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return False

    def is_created(self) -> bool:
        return True


class AccountState(Phases):
    """What can be set from outside, and what the clock says."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """A new account in the present."""
        self.pending_seconds = 0.05  # from the create call to running
        self.shutdown_seconds = 0.05  # from the guest's end to terminated
        self.invisible_seconds = 0.0  # a new instance is unknown to every describe call for so long
        self.quotas: dict[tuple[str, str], float] = {}  # (region, code) -> vCPUs; what is not there is the default
        self.shortages: set[tuple[str, str]] = set()  # (instance type, zone or *) without capacity
        self.ahead = timedelta(0)
        self._seeded: set[str] = set()
        self._addresses = itertools.count(int(ipaddress.ip_address("54.210.0.10")))
        self._private = itertools.count(int(ipaddress.ip_address("172.31.128.10")))

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def public_ip(self) -> str:
        return str(ipaddress.ip_address(next(self._addresses)))

    def private_ip(self) -> str:
        return str(ipaddress.ip_address(next(self._private)))

    def quota(self, region: str, code: str) -> float:
        return self.quotas.get((region, code), DEFAULT_QUOTAS[code][1])

    def short_of(self, instance_type: str, zone: str) -> bool:
        return bool({(instance_type, zone), (instance_type, "*")} & self.shortages)

    def seed(self, region: str) -> None:
        """Puts the public images and their parameters into a region, once."""
        with self.lock:
            if region in self._seeded or region not in ec2_backends[ACCOUNT]:
                return
            self._seeded.add(region)
            backend, parameters = ec2_backends[ACCOUNT][region], ssm_backends[ACCOUNT][region]._parameters
            for number, image in enumerate(IMAGES):
                ami_id = f"ami-{abs(hash_of(region)) % 0xFFFF:04x}{number:013x}"
                ami = _Image(
                    backend,
                    ami_id,
                    name=image.name,
                    owner_alias="amazon",
                    public=True,
                    region_name=region,
                    virtualization_type="hvm",
                    architecture=image.architecture,
                    root_device_type="ebs",
                    root_device_name="/dev/sda1",
                )
                ami.root_gib = image.root_gib
                backend.amis[ami_id] = ami
                parameters[image.parameter].append(
                    _Parameter(
                        account_id=ACCOUNT,
                        name=image.parameter,
                        value=ami_id,
                        parameter_type="String",
                        description=None,
                        allowed_pattern=None,
                        keyid=None,
                        version=1,
                        last_modified_date=datetime.now(UTC),
                        data_type="aws:ec2:image",
                    )
                )


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode(), "big") % 999_983


def replace(owner: type, name: str, method: Callable[..., Any]) -> None:
    """Puts a method of ours into one of moto's classes, for the life of the process."""
    if not hasattr(owner, name):
        raise AttributeError(f"moto's {owner.__name__} has no {name} any more")
    setattr(owner, name, method)
