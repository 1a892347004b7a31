"""The benchmark table: measured CPU-versus-GPU speed-ups, and published claims. May import `hardware`, `validated_csv`."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from costgpu.models.offer import Grade, Speedup
from costgpu.pricing.hardware import accelerators
from costgpu.pricing.snapshot import DATA
from costgpu.pricing.validated_csv import Row, needed, read_rows

SPEEDUPS_FILE = "speedups.csv"
OF_THE_GPU = ("gpu_tflops", "gpu_gbps")  # fields that the hardware table tells
SPEEDUP_COLUMNS = tuple(field.name for field in fields(Speedup) if field.name not in OF_THE_GPU)


@cache
def speedups() -> tuple[Speedup, ...]:
    """Return the shipped table, in the order of the file.

    Raises:
        ConfigError: The file cannot be read, or a cell is not of its type.
    """
    return tuple(_speedup(row) for row in read_rows(DATA / SPEEDUPS_FILE, SPEEDUP_COLUMNS))


def kinds(rows: tuple[Speedup, ...]) -> tuple[str, ...]:
    """Return the kinds of work in the table, in its order."""
    return tuple(dict.fromkeys(row.kind for row in rows))


def _speedup(row: Row) -> Speedup:
    grade = Grade(row.text("grade"))
    claim = grade is Grade.CLAIM
    gpu = row.text("gpu", empty=claim)
    spec = accelerators()[gpu] if gpu else None
    cpu_seconds, gpu_seconds = row.number("cpu_seconds"), row.number("gpu_seconds")
    if cpu_seconds is not None and gpu_seconds is not None:
        low = high = cpu_seconds / gpu_seconds
    else:  # as it is claimed
        low, high = (needed(row, column, row.number(column)) for column in ("ratio_low", "ratio_high"))
    return row.record(
        Speedup,
        framework=row.text("framework", empty=claim),
        cpu=row.text("cpu", empty=claim),
        gpu=gpu,
        gpu_tflops=spec.fp32_tflops if spec else None,
        gpu_gbps=spec.memory_bandwidth_gbps if spec else None,
        ratio_low=low,
        ratio_high=high,
        unit=row.text("unit", empty=True),
        grade=grade,
        weight=needed(row, "weight", row.number("weight", open_end=False)),
        remark=row.text("remark", empty=True),
        measured=row.text("measured", empty=True),
    )
