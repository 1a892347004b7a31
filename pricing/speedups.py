"""The benchmark table: measured CPU-versus-GPU speed-ups, and published claims. May import `hardware`, `validated_csv`."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from costgpu.errors import UsageError
from costgpu.models.offer import Grade, Speedup
from costgpu.pricing.hardware import accelerators, nearest
from costgpu.pricing.snapshot import DATA
from costgpu.pricing.validated_csv import Row, needed, read_rows

if TYPE_CHECKING:
    from pathlib import Path

SPEEDUPS_FILE = "speedups.csv"
OF_THE_GPU = ("gpu_tflops", "gpu_gbps")  # fields that the hardware table tells
SPEEDUP_COLUMNS = tuple(field.name for field in fields(Speedup) if field.name not in OF_THE_GPU)
_KIND = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_WHEN = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?)?")


@cache
def speedups() -> tuple[Speedup, ...]:
    """Return the shipped table, in the order of the file.

    Raises:
        ConfigError: A row is malformed.
    """
    return read_speedups(DATA / SPEEDUPS_FILE)


def read_speedups(path: Path) -> tuple[Speedup, ...]:
    """Return the rows of a table of speed-ups.

    Raises:
        ConfigError: The file cannot be read, or a row is malformed: with file, line and column.
    """
    return tuple(_speedup(row) for row in read_rows(path, SPEEDUP_COLUMNS))


def kinds(rows: tuple[Speedup, ...]) -> tuple[str, ...]:
    """Return the kinds of work in the table, in its order."""
    return tuple(dict.fromkeys(row.kind for row in rows))


def of_kind(rows: tuple[Speedup, ...], kind: str) -> tuple[Speedup, ...]:
    """Return the rows of one kind.

    Raises:
        UsageError: There is no such kind.
    """
    wanted = kind.strip().lower().replace("_", "-").replace(" ", "-")
    found = tuple(row for row in rows if row.kind == wanted)
    if not found:
        near = ", ".join(nearest(wanted, kinds(rows)))
        raise UsageError(f"There is no kind of work named {kind!r} in the table.", hint=f"The nearest are {near}.")
    return found


def _speedup(row: Row) -> Speedup:
    kind = row.text("kind")
    if not _KIND.fullmatch(kind):
        raise row.wrong("kind", f"{kind!r} is not of small letters, digits and single hyphens")
    grade = Grade(row.text("grade", among=tuple(Grade)))
    measured = row.text("measured", empty=True)
    if measured and not _WHEN.fullmatch(measured):
        raise row.wrong("measured", f"{measured!r} is not a year, month or day")
    low, high = _ratio(row, row.number("cpu_seconds"), row.number("gpu_seconds"))
    claim = grade is Grade.CLAIM
    gpu = row.text("gpu", empty=claim)
    spec = accelerators().get(gpu)
    if gpu and spec is None:
        near = ", ".join(nearest(gpu, accelerators()))
        raise row.wrong("gpu", f"{gpu!r} is not in the hardware table; near are {near}")
    found = row.record(
        Speedup,
        kind=kind,
        framework=row.text("framework", empty=claim),
        cpu=row.text("cpu", empty=claim),
        gpu=gpu,
        gpu_tflops=spec.fp32_tflops if spec else None,
        gpu_gbps=spec.memory_bandwidth_gbps if spec else None,
        ratio_low=low,
        ratio_high=high,
        unit=row.text("unit", empty=True),
        grade=grade,
        weight=needed(row, "weight", row.number("weight", most=1.0, open_end=False)),
        remark=row.text("remark", empty=True),
        measured=measured,
    )
    _check(row, found)
    return found


def _ratio(row: Row, cpu_seconds: float | None, gpu_seconds: float | None) -> tuple[float, float]:
    """From the seconds, or as it is claimed; both together would be two truths."""
    low, high = row.number("ratio_low"), row.number("ratio_high")
    if (cpu_seconds is None) != (gpu_seconds is None):
        missing = "cpu_seconds" if cpu_seconds is None else "gpu_seconds"
        raise row.wrong(missing, "is empty, but the other machine's seconds are given")
    if cpu_seconds is not None and gpu_seconds is not None:
        if low is not None or high is not None:
            raise row.wrong("ratio_low", "is given beside the seconds, from which it follows")
        return cpu_seconds / gpu_seconds, cpu_seconds / gpu_seconds
    if low is None or high is None:
        raise row.wrong("ratio_low" if low is None else "ratio_high", "is empty, and there are no seconds")
    if high < low:
        raise row.wrong("ratio_high", f"{high:g} is below ratio_low, {low:g}")
    return low, high


def _check(row: Row, found: Speedup) -> None:
    """Check that the columns fit together."""
    if found.grade is Grade.MEASURED:
        for column, value in (("cpu_cores", found.cpu_cores), ("cpu_core_gflops", found.cpu_core_gflops)):
            needed(row, column, value)
        needed(row, "cpu_seconds", found.cpu_seconds)
        if not found.plausible:
            raise row.wrong("plausible", "a measured row cannot be implausible")
    if (found.units is None) != (not found.unit):
        raise row.wrong("units", "unit and units are given together or not at all")
    if not found.plausible and found.weight:
        raise row.wrong("weight", "an implausible row has weight 0")
