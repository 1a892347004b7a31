"""What Compute Engine has where, as far as the emulated one needs it: zones, machine types, accelerators, images.

The figures are Google's, simplified; sources: cloud.google.com/compute/docs/{general-purpose,accelerator-optimized}-machines
and .../gpus/gpu-regions-zones (2026-11). Which zone has which accelerator changes monthly: here only the pattern matters
(not every zone has everything).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_LETTERS = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd"}
REGIONS = (
    "africa-south1",
    "asia-east1",
    "asia-east2",
    "asia-northeast1",
    "asia-northeast2",
    "asia-northeast3",
    "asia-south1",
    "asia-south2",
    "asia-southeast1",
    "asia-southeast2",
    "australia-southeast1",
    "australia-southeast2",
    "europe-central2",
    "europe-north1",
    "europe-southwest1",
    "europe-west1",
    "europe-west10",
    "europe-west12",
    "europe-west2",
    "europe-west3",
    "europe-west4",
    "europe-west6",
    "europe-west8",
    "europe-west9",
    "me-central1",
    "me-west1",
    "northamerica-northeast1",
    "northamerica-northeast2",
    "northamerica-south1",
    "southamerica-east1",
    "southamerica-west1",
    "us-central1",
    "us-east1",
    "us-east4",
    "us-east5",
    "us-south1",
    "us-west1",
    "us-west2",
    "us-west3",
    "us-west4",
)
ZONES = tuple(f"{region}-{letter}" for region in REGIONS for letter in _LETTERS.get(region, "abc"))


@dataclass(frozen=True, slots=True)
class AcceleratorType:
    """One kind of GPU.

    Attributes:
        description: As the API says it.
        quota: Metric that counts it, without ``PREEMPTIBLE_``; empty if it is counted by family only.
        counts: How many can be attached to an n1 machine; empty if it comes with machine types of its own.
        zones: Where it is.
        shown: What nvidia-smi calls it.
    """

    description: str
    quota: str
    counts: tuple[int, ...]
    zones: tuple[str, ...]
    shown: str


def _zones(*places: str) -> tuple[str, ...]:
    """``us-central1:abc`` -> its zones."""
    return tuple(f"{region}-{letter}" for region, letters in (each.split(":") for each in places) for letter in letters)


ACCELERATORS = {
    "nvidia-tesla-t4": AcceleratorType(
        "NVIDIA T4",
        "NVIDIA_T4_GPUS",
        (1, 2, 4),
        _zones(
            "us-central1:abcf",
            "us-east1:cd",
            "us-east4:abc",
            "us-west1:ab",
            "us-west2:bc",
            "us-west4:ab",
            "europe-west1:bcd",
            "europe-west2:ab",
            "europe-west3:b",
            "europe-west4:abc",
            "asia-east1:ac",
            "asia-northeast1:ac",
            "asia-south1:ab",
            "asia-southeast1:abc",
        ),
        "Tesla T4",
    ),
    "nvidia-tesla-v100": AcceleratorType(
        "NVIDIA V100",
        "NVIDIA_V100_GPUS",
        (1, 2, 4, 8),
        _zones("us-central1:abcf", "us-west1:ab", "us-east1:c", "europe-west4:abc", "asia-east1:c"),
        "Tesla V100-SXM2-16GB",
    ),
    "nvidia-tesla-p100": AcceleratorType(
        "NVIDIA Tesla P100",
        "NVIDIA_P100_GPUS",
        (1, 2, 4),
        _zones("us-central1:cf", "us-west1:ab", "us-east1:bc", "europe-west1:bd", "europe-west4:a", "asia-east1:ac"),
        "Tesla P100-PCIE-16GB",
    ),
    "nvidia-tesla-p4": AcceleratorType(
        "NVIDIA Tesla P4",
        "NVIDIA_P4_GPUS",
        (1, 2, 4),
        _zones("us-central1:ac", "us-east4:abc", "us-west2:bc", "europe-west4:bc", "asia-southeast1:bc"),
        "Tesla P4",
    ),
    "nvidia-l4": AcceleratorType(
        "NVIDIA L4",
        "NVIDIA_L4_GPUS",
        (),
        _zones(
            "us-central1:abc",
            "us-east1:bcd",
            "us-east4:ac",
            "us-west1:abc",
            "us-west4:ac",
            "europe-west1:bc",
            "europe-west2:ab",
            "europe-west3:ab",
            "europe-west4:abc",
            "asia-east1:abc",
            "asia-northeast1:abc",
            "asia-south1:abc",
            "asia-southeast1:abc",
        ),
        "NVIDIA L4",
    ),
    "nvidia-tesla-a100": AcceleratorType(
        "NVIDIA A100 40GB",
        "NVIDIA_A100_GPUS",
        (),
        _zones(
            "us-central1:abcf",
            "us-east1:b",
            "us-west1:b",
            "us-west3:b",
            "us-west4:b",
            "europe-west4:ab",
            "asia-northeast1:ac",
            "asia-southeast1:bc",
        ),
        "NVIDIA A100-SXM4-40GB",
    ),
    "nvidia-a100-80gb": AcceleratorType(
        "NVIDIA A100 80GB",
        "NVIDIA_A100_80GB_GPUS",
        (),
        _zones("us-central1:ac", "us-east4:c", "us-east5:b", "europe-west4:a", "asia-southeast1:c"),
        "NVIDIA A100-SXM4-80GB",
    ),
    "nvidia-h100-80gb": AcceleratorType(
        "NVIDIA H100 80GB",
        "NVIDIA_H100_GPUS",
        (),
        _zones(
            "us-central1:abc",
            "us-east4:abc",
            "us-east5:a",
            "us-west1:ab",
            "us-west4:a",
            "europe-west1:bc",
            "europe-west4:bc",
            "asia-northeast1:b",
            "asia-southeast1:bc",
        ),
        "NVIDIA H100 80GB HBM3",
    ),
    "nvidia-h100-mega-80gb": AcceleratorType(
        "NVIDIA H100 80GB MEGA",
        "",
        (),
        _zones("us-central1:abc", "us-east4:abc", "europe-west4:b"),
        "NVIDIA H100 80GB HBM3",
    ),
    "nvidia-h200-141gb": AcceleratorType(
        "NVIDIA H200 141GB",
        "",
        (),
        _zones("us-central1:b", "us-east4:b", "us-west1:c", "europe-west1:b"),
        "NVIDIA H200",
    ),
    "nvidia-rtx-pro-6000": AcceleratorType(
        "NVIDIA RTX PRO 6000",
        "",
        (),
        _zones("us-central1:bf", "us-east1:b", "europe-west4:ac", "asia-southeast1:b"),
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    ),
}


@dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type, wherever it is.

    Attributes:
        name: Such as ``g2-standard-4``.
        vcpus: How many.
        memory_mib: How much.
        accelerator: What it comes with; empty if nothing.
        accelerators: How many of it.
        quota: Metric that counts its vCPUs.
        architecture: ``X86_64`` or ``ARM64``.
        zones: Where it is.
    """

    name: str
    vcpus: int
    memory_mib: int
    accelerator: str
    accelerators: int
    quota: str
    architecture: str
    zones: tuple[str, ...]

    @property
    def family(self) -> str:
        """``n1``."""
        return self.name.split("-", 1)[0]


_SIZES = {
    "e2": (2, 4, 8, 16, 32),
    "n1": (1, 2, 4, 8, 16, 32, 64, 96),
    "n2": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2d": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224),
    "c2": (4, 8, 16, 30, 60),
    "c2d": (2, 4, 8, 16, 32, 56, 112),
    "c3": (4, 8, 22, 44, 88, 176),
    "c3d": (4, 8, 16, 30, 60, 90, 180, 360),
    "c4": (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288),
    "c4a": (1, 2, 4, 8, 16, 32, 48, 64, 72),
    "t2d": (1, 2, 4, 8, 16, 32, 48, 60),
}
_GIB_PER_VCPU = {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0}
_OTHER_GIB = {
    "n1-standard": 3.75,
    "n1-highmem": 6.5,
    "n1-highcpu": 0.9,
    "e2-highcpu": 1.0,
    "n2-highcpu": 1.0,
    "n2d-highcpu": 1.0,
    "c4-standard": 3.75,
    "c4-highmem": 7.75,
}
_KINDS = {"c2": ("standard",), "t2d": ("standard",)}
_SHARED = {"e2-micro": 1.0, "e2-small": 2.0, "e2-medium": 4.0, "f1-micro": 0.6, "g1-small": 1.7}  # name -> GiB
_CPUS_OF_THEIR_OWN = ("n2", "n2d", "c2", "c2d", "t2d", "c3", "a2")  # e2 and n1 share CPUS
_WITH_GPUS = (  # name, vCPUs, GiB, accelerator, count
    *(
        (f"g2-standard-{n}", n, 4 * n, "nvidia-l4", {24: 2, 48: 4, 96: 8}.get(n, 1))
        for n in (4, 8, 12, 16, 24, 32, 48, 96)
    ),
    *((f"a2-highgpu-{n}g", 12 * n, 85 * n, "nvidia-tesla-a100", n) for n in (1, 2, 4, 8)),
    ("a2-megagpu-16g", 96, 1360, "nvidia-tesla-a100", 16),
    *((f"a2-ultragpu-{n}g", 12 * n, 170 * n, "nvidia-a100-80gb", n) for n in (1, 2, 4, 8)),
    *((f"a3-highgpu-{n}g", 26 * n, 234 * n, "nvidia-h100-80gb", n) for n in (1, 2, 4, 8)),
    ("a3-megagpu-8g", 208, 1872, "nvidia-h100-mega-80gb", 8),
    ("a3-ultragpu-8g", 224, 2952, "nvidia-h200-141gb", 8),
    *((f"g4-standard-{48 * n}", 48 * n, 180 * n, "nvidia-rtx-pro-6000", n) for n in (1, 2, 4, 8)),
)


def _machine_types() -> Iterator[MachineType]:
    for name, gib in _SHARED.items():
        yield MachineType(name, 2, round(gib * 1024), "", 0, "CPUS", "X86_64", ZONES)
    for family, sizes in _SIZES.items():
        quota = f"{family.upper()}_CPUS" if family in _CPUS_OF_THEIR_OWN else "CPUS"
        architecture = "ARM64" if family == "c4a" else "X86_64"
        for kind in _KINDS.get(family, tuple(_GIB_PER_VCPU)):
            gib = _OTHER_GIB.get(f"{family}-{kind}", _GIB_PER_VCPU[kind])
            for size in sizes:
                yield MachineType(
                    f"{family}-{kind}-{size}", size, round(gib * 1024 * size), "", 0, quota, architecture, ZONES
                )
    for name, vcpus, gib, accelerator, count in _WITH_GPUS:
        quota = "A2_CPUS" if name.startswith("a2-") else "CPUS"
        yield MachineType(name, vcpus, gib * 1024, accelerator, count, quota, "X86_64", ACCELERATORS[accelerator].zones)


@functools.cache
def machine_types() -> dict[str, MachineType]:
    """By name."""
    return {each.name: each for each in _machine_types()}


@dataclass(frozen=True, slots=True)
class Image:
    """A public image, the newest of its family."""

    project: str
    name: str
    family: str
    disk_gib: int
    architecture: str


IMAGES = (
    *(
        Image("deeplearning-platform-release", f"{family}-v20261105", family, 50, "X86_64")
        for family in (
            "common-cu128-ubuntu-2204-nvidia-570",
            "common-cu129-ubuntu-2204-nvidia-580",
            "common-cu129-ubuntu-2404-nvidia-580",
            "common-cu128-ubuntu-2404-nvidia-570",
            "common-cpu-ubuntu-2204",
            "common-cu124-debian-11",
            "pytorch-2-7-cu128-ubuntu-2204-nvidia-570",
            "pytorch-2-9-cu129-ubuntu-2204-nvidia-580",
            "pytorch-2-9-cu129-ubuntu-2404-nvidia-580",
        )
    ),
    *(
        Image(
            "ubuntu-os-cloud", f"ubuntu{kind}-2404-noble-{short}-v20261112", f"ubuntu{kind}-2404-lts-{short}", 10, arch
        )
        for kind in ("", "-minimal")
        for arch, short in (("X86_64", "amd64"), ("ARM64", "arm64"))
    ),
    Image("ubuntu-os-cloud", "ubuntu-2204-jammy-v20261110", "ubuntu-2204-lts", 10, "X86_64"),
    Image("ubuntu-os-cloud", "ubuntu-2204-jammy-arm64-v20261110", "ubuntu-2204-lts-arm64", 10, "ARM64"),
    *(
        Image("debian-cloud", f"{family}-{codename}{suffix}-v20261111", f"{family}{suffix}", 10, arch)
        for family, codename in (("debian-12", "bookworm"), ("debian-13", "trixie"))
        for suffix, arch in (("", "X86_64"), ("-arm64", "ARM64"))
    ),
)
IMAGE_PROJECTS = tuple(sorted({image.project for image in IMAGES}))
DISK_TYPES = ("pd-standard", "pd-balanced", "pd-ssd", "pd-extreme", "hyperdisk-balanced", "hyperdisk-extreme")


def region_of(zone: str) -> str:
    """``us-central1`` of ``us-central1-a``."""
    return zone.rpartition("-")[0]


def last_part(link: str) -> str:
    """The name at the end of a URL, whole or partial."""
    return re.sub(r"^.*/", "", link.rstrip("/"))
