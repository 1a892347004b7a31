"""What is published of work: CPU-versus-GPU speed-ups, measured and claimed, and well-known training workloads.

May import `hardware`, `snapshot`, `models` and `errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from costgpu.errors import UsageError
from costgpu.models.offer import Reference, Speedup
from costgpu.pricing.hardware import accelerators, nearest
from costgpu.pricing.snapshot import DATA, read_records

SPEEDUPS_FILE = "speedups.csv"
REFERENCES_FILE = "references.csv"


@cache
def speedups() -> tuple[Speedup, ...]:
    """Return the shipped table, in the order of the file.

    Raises:
        ConfigError: The file is missing or damaged.
    """
    return tuple(row for _, row in read_records(DATA / SPEEDUPS_FILE, Speedup, _computed))


def kinds(rows: tuple[Speedup, ...]) -> tuple[str, ...]:
    """Return the kinds of work in the table, in its order."""
    return tuple(dict.fromkeys(row.kind for row in rows))


def _computed(cells: dict[str, str]) -> dict[str, str]:
    """Return what the hardware table tells of the GPU, and the ratio of the seconds where there are both."""
    gpu = accelerators()[cells["gpu"]] if cells["gpu"] else None
    found = {
        "gpu_tflops": f"{gpu.fp32_tflops}" if gpu else "",
        "gpu_gbps": f"{gpu.memory_bandwidth_gbps}" if gpu else "",
    }
    if cells["cpu_seconds"] and cells["gpu_seconds"]:
        ratio = f"{float(cells['cpu_seconds']) / float(cells['gpu_seconds'])}"
        found |= {"ratio_low": ratio, "ratio_high": ratio}
    return found


@cache
def references() -> Mapping[str, Reference]:
    """Return every shipped reference workload by its name.

    Raises:
        ConfigError: The file is missing or damaged.
    """
    return MappingProxyType({one.name: one for _, one in read_records(DATA / REFERENCES_FILE, Reference)})


def reference(name: str) -> Reference:
    """Return the workload that a user's spelling means: ``resnet50``, ``ResNet-50``, ``resnet_50``.

    Raises:
        UsageError: There is no such workload.
    """
    known = references()
    by_key = {_key(one): one for one in known}
    try:
        return known[by_key[_key(name)]]
    except KeyError:
        near = ", ".join(nearest(name, known, _key))
        raise UsageError(
            f"There is no reference workload named {name!r}.",
            hint=f"The nearest are {near}; known are {', '.join(known)}.",
        ) from None


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
