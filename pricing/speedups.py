"""The benchmark table: measured CPU-versus-GPU speed-ups, and published claims. May import `hardware`, `snapshot`."""

from __future__ import annotations

from functools import cache

from costgpu.models.offer import Speedup
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.snapshot import DATA, read_records

SPEEDUPS_FILE = "speedups.csv"


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
