"""What Compute Engine has where: zones, machine types, accelerators, images; the figures are in ``data/``."""

import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILES = Path(__file__).parents[1] / "data"
_DATA: dict[str, Any] = tomllib.loads((_FILES / "compute_engine.toml").read_text())
REGIONS: tuple[str, ...] = tuple(_DATA["regions"])
ZONES = tuple(f"{region}-{letter}" for region in REGIONS for letter in _DATA["zone_letters"].get(region, "abc"))
DISK_TYPES: tuple[str, ...] = tuple(_DATA["disk_types"])


@dataclass(frozen=True, slots=True)
class AcceleratorType:
    """One kind of GPU."""

    description: str
    quota: str  # metric that counts it
    counts: tuple[int, ...]  # how many can be attached to an n1 machine; empty: it comes with machine types of its own
    zones: tuple[str, ...]
    shown: str  # what nvidia-smi calls it
    preemptible: str  # metric that counts it on spot machines


def _accelerator(entry: dict[str, Any]) -> AcceleratorType:
    places = (each.split(":") for each in entry["zones"])  # us-central1:abc
    zones = tuple(f"{region}-{letter}" for region, letters in places for letter in letters)
    preemptible = f"PREEMPTIBLE_{entry['quota']}"
    return AcceleratorType(**{"preemptible": preemptible, **entry, "counts": tuple(entry["counts"]), "zones": zones})


ACCELERATORS = {name: _accelerator(entry) for name, entry in _DATA["accelerators"].items()}


@dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type, wherever it is."""

    name: str
    vcpus: int
    memory_mib: int
    accelerator: str  # what it comes with; empty if nothing
    accelerators: int
    quota: str  # metric that counts its vCPUs
    architecture: str  # X86_64 or ARM64
    zones: tuple[str, ...]

    @property
    def family(self) -> str:
        return self.name.split("-", 1)[0]

    @property
    def goes_with(self) -> "Combination":
        return next(each for each in COMBINATIONS if re.fullmatch(each.types, self.name))


@dataclass(frozen=True, slots=True)
class Combination:
    """What some machine types can be combined with."""

    types: str  # regular expression
    disks: list[str]  # disk types
    models: Sequence[str] = ("STANDARD", "SPOT", "FLEX_START")  # of provisioning
    maintenance: Sequence[str] = ("MIGRATE", "TERMINATE")  # what is done at host maintenance, without a GPU, on demand


COMBINATIONS = [
    Combination(**entry)
    for entry in tomllib.loads((_FILES / "compute_engine_combinations.toml").read_text())["combinations"]
]


def _cpu_quota(family: str) -> str:
    if family in _DATA["own_cpu_quota"]:
        return f"{family.upper()}_CPUS"
    return "CPUS" if family in _DATA["common_cpu_quota"] else "CPUS_PER_VM_FAMILY"


def _machine_types() -> Iterator[MachineType]:
    for name, gib in _DATA["shared_core_gib"].items():
        yield MachineType(name, 2, round(gib * 1024), "", 0, "CPUS", "X86_64", ZONES)
    memory = _DATA["gib_per_vcpu"]
    for family, sizes in _DATA["vcpus"].items():
        architecture = "ARM64" if family == "c4a" else "X86_64"
        for kind in _DATA["kinds"].get(family, ("standard", "highmem", "highcpu")):
            mib = 1024 * memory.get(f"{family}-{kind}", memory[kind])
            for size in sizes:
                name = f"{family}-{kind}-{size}"
                yield MachineType(name, size, round(mib * size), "", 0, _cpu_quota(family), architecture, ZONES)
    for name, (vcpus, gib, accelerator, count) in _DATA["with_gpus"].items():
        zones, quota = ACCELERATORS[accelerator].zones, _cpu_quota(name.split("-")[0])
        yield MachineType(name, vcpus, gib * 1024, accelerator, count, quota, "X86_64", zones)


@functools.cache
def machine_types() -> dict[str, MachineType]:
    return {each.name: each for each in _machine_types()}


@dataclass(frozen=True, slots=True)
class Image:
    """A public image, the newest of its family."""

    project: str
    name: str
    family: str
    disk_gib: int
    architecture: str


IMAGES = tuple(Image(**entry) for entry in _DATA["images"])
IMAGE_PROJECTS = tuple(sorted({image.project for image in IMAGES}))


def region_of(zone: str) -> str:
    """``us-central1`` of ``us-central1-a``."""
    return zone.rpartition("-")[0]


def last_part(link: str) -> str:
    """The name at the end of a URL, whole or partial."""
    return re.sub(r"^.*/", "", link.rstrip("/"))
