"""What an accelerator, the CPU of an instance family and the links of an instance type can do: tables in `data`, read once.

May import `snapshot`, `models` and `errors`.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from costgpu.errors import ConfigError, UsageError
from costgpu.models.offer import AcceleratorSpec, CpuSpec, Interconnect
from costgpu.pricing.snapshot import DATA, columns, read_table
from costgpu.providers import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

T = TypeVar("T", AcceleratorSpec, CpuSpec, Interconnect)
ACCELERATOR_COLUMNS = columns(
    """
    name model vendor architecture year memory_gib memory_bandwidth_gbps fp32_tflops fp32_matrix_tflops
    tf32_tensor_tflops fp16_tensor_tflops bf16_tensor_tflops multiprocessors compute_capability tdp_watts
    source as_of
    """
)
CPU_COLUMNS = columns(
    """
    provider family model microarchitecture vcpus_per_core all_core_ghz fp32_flops_per_cycle bf16_in_hardware
    burstable source as_of
    """
)
CPU_MEASUREMENT_COLUMNS = columns("provider family read_gbps read_vcpus matrix_mult_per_vcpu bzip2_mbps source as_of")
INTERCONNECT_COLUMNS = columns(
    """
    provider instance_type link link_gbps network_gbit all_interfaces_gbit network network_gbps efa_interfaces placement
    basis source as_of
    """
)
ACCELERATORS_FILE = "accelerators.csv"
CPUS_FILE = "cpus.csv"
CPU_MEASUREMENTS_FILE = "cpu_measurements.csv"
INTERCONNECTS_FILE = "interconnects.csv"


@cache
def accelerators(data: Path = DATA) -> Mapping[str, AcceleratorSpec]:
    """Return every known accelerator by its canonical name, rented by a cloud or not."""
    specs = {}
    for row in read_table(data / ACCELERATORS_FILE, ACCELERATOR_COLUMNS):
        specs[row[0]] = _spec(AcceleratorSpec, dict(zip(ACCELERATOR_COLUMNS, row, strict=True)))
    return MappingProxyType(specs)


@cache
def cpus() -> Mapping[tuple[str, str], CpuSpec]:
    """Return the CPU of every known instance family, by (provider, family)."""
    names = CPU_MEASUREMENT_COLUMNS[2:6]
    measured = {row[:2]: row[2:6] for row in read_table(DATA / CPU_MEASUREMENTS_FILE, CPU_MEASUREMENT_COLUMNS)}
    specs = {}
    brought = [spec.cpus_file for spec in registry.specs() if spec.cpus_file is not None]
    for row in (row for path in (DATA / CPUS_FILE, *brought) for row in read_table(path, CPU_COLUMNS)):
        cells = dict(zip(CPU_COLUMNS + names, row + measured.get(row[:2], ("", "", "", "")), strict=True))
        specs[row[0], row[1]] = _spec(CpuSpec, cells)
    return MappingProxyType(specs)


@cache
def interconnects(data: Path = DATA) -> Mapping[tuple[str, str], Interconnect]:
    """Return the links of every known instance type with GPUs, by (provider, instance type).

    A type without a row is not known.
    """
    specs = {}
    for row in read_table(data / INTERCONNECTS_FILE, INTERCONNECT_COLUMNS):
        specs[row[0], row[1]] = _spec(Interconnect, dict(zip(INTERCONNECT_COLUMNS, row, strict=True)))
    return MappingProxyType(specs)


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
        raise unknown_accelerator(name) from None


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


def unknown_accelerator(name: str, among: Iterable[str] | None = None) -> UsageError:
    """Return the error for a name that means no accelerator, with the nearest `among` some names; None for all."""
    near = nearest(name, accelerators() if among is None else among, accelerator_key)
    return UsageError(
        f"There is no accelerator named {name!r}.",
        hint=f"The nearest names are {', '.join(near)}. `costgpu offers --sort name --top 0` lists all.",
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


def _spec(kind: type[T], cells: Mapping[str, str]) -> T:
    """Return a row as a value of `kind`: every field from the column of its name, by its type."""
    return kind(**{field.name: _CONVERTED[str(field.type)](cells[field.name]) for field in fields(kind)})


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def _optional(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: convert(text) if text else None


_CONVERTED: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: text == "yes",
    "int | None": _optional(int),
    "float | None": _optional(float),
    "tuple[int, int] | None": _optional(_capability),
}
