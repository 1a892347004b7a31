"""What an accelerator, the CPU of an instance family and the links of an instance type can do: tables in `data`, read once.

May import `snapshot`, `models` and `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from costgpu.errors import ConfigError, UsageError
from costgpu.models.offer import AcceleratorSpec, CpuSpec, Interconnect
from costgpu.pricing.snapshot import DATA, read_records, read_table
from costgpu.providers import registry

ACCELERATORS_FILE = "accelerators.csv"
CPUS_FILE = "cpus.csv"
CPU_MEASUREMENTS_FILE = "cpu_measurements.csv"
INTERCONNECTS_FILE = "interconnects.csv"


@cache
def accelerators(data: Path = DATA) -> Mapping[str, AcceleratorSpec]:
    """Return every known accelerator by its canonical name, rented by a cloud or not."""
    return MappingProxyType({spec.name: spec for _, spec in read_records(data / ACCELERATORS_FILE, AcceleratorSpec)})


@cache
def cpus() -> Mapping[tuple[str, str], CpuSpec]:
    """Return the CPU of every known instance family, by (provider, family)."""
    names = ("read_gbps", "read_vcpus", "matrix_mult_per_vcpu", "bzip2_mbps")
    measured = {row[:2]: row[2:] for row in read_table(DATA / CPU_MEASUREMENTS_FILE, ("provider", "family", *names))}

    def figures(cells: dict[str, str]) -> Mapping[str, str]:
        return dict(zip(names, measured.get((cells["provider"], cells["family"]), ("",) * len(names)), strict=True))

    brought = [spec.cpus_file for spec in registry.specs() if spec.cpus_file is not None]
    found = (spec for path in (DATA / CPUS_FILE, *brought) for _, spec in read_records(path, CpuSpec, figures))
    return MappingProxyType({(spec.provider, spec.family): spec for spec in found})


@cache
def interconnects(data: Path = DATA) -> Mapping[tuple[str, str], Interconnect]:
    """Return the links of every known instance type with GPUs, by (provider, instance type).

    A type without a row is not known.
    """
    found = (one for _, one in read_records(data / INTERCONNECTS_FILE, Interconnect))
    return MappingProxyType({(one.provider, one.instance_type): one for one in found})


def accelerator(name: str) -> AcceleratorSpec:
    """Return the accelerator that a user's spelling means: ``a100``, ``nvidia-tesla-t4``, ``A100-SXM4-80GB``.

    Besides the canonical name, the exact board is understood, and the name with its own memory size
    (``A100-40GB``).

    Raises:
        UsageError: There is no such accelerator.
    """
    try:
        return _by_key()[accelerator_key(name)]
    except KeyError:
        raise unknown("accelerator", name, accelerators(), accelerator_key) from None


def cpu(provider: str, family: str) -> CpuSpec:
    """Return the CPU of an instance family.

    Raises:
        ConfigError: The table has no such family.
    """
    try:
        return cpus()[provider, family]
    except KeyError:
        near = nearest(family, [known for owner, known in cpus() if owner == provider])
        raise ConfigError(
            f"There are no CPU figures for the family {family!r} of {provider!r}.",
            hint=f"The nearest families in {CPUS_FILE} are {', '.join(near)}."
            if near
            else f"{CPUS_FILE} has the families of {', '.join(sorted({owner for owner, _ in cpus()}))}.",
        ) from None


def accelerator_key(name: str) -> str:
    """Return a name without case, ``-``, ``_``, spaces and the prefixes nvidia and tesla."""
    key = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    return key.removeprefix("nvidia").removeprefix("tesla")


def unknown(what: str, word: str, names: Iterable[str], key: Callable[[str], str] = str.lower) -> UsageError:
    """Return the error for a word that names no such thing, with the `nearest` names."""
    return UsageError(
        f"There is no {what} named {word!r}.",
        hint=f"The nearest names are {', '.join(nearest(word, sorted(names), key))}. "
        "`costgpu offers --sort name --top 0` lists all.",
    )


def nearest(word: str, names: Iterable[str], key: Callable[[str], str] = str.lower) -> list[str]:
    """Return the three names most like a word once `key` has stripped what does not matter, best first."""
    from difflib import get_close_matches  # noqa: PLC0415  (only a mistake pays for it)

    by_key = {key(name): name for name in names}
    return [by_key[match] for match in get_close_matches(key(word), by_key, n=3, cutoff=0)]


@cache
def _by_key() -> Mapping[str, AcceleratorSpec]:
    specs = accelerators().values()
    keys = {accelerator_key(spec.name): spec for spec in specs}
    for spec in specs:
        keys.setdefault(accelerator_key(spec.model), spec)
        keys.setdefault(accelerator_key(f"{spec.name}-{spec.memory_gib:g}GB"), spec)
    return keys
