"""Measured memory of a training and the GPUs that it fits: a line, a section of the report, a part of a JSON document."""

from __future__ import annotations

from typing import Any

from costgpu.estimator.fit import FITS, whole_percent
from costgpu.models.estimate import Estimate, GpuFit
from costgpu.models.workload import MeasuredMemory, WorkloadProfile
from costgpu.render.document import picked
from costgpu.render.phrases import percent, visible
from costgpu.render.report import Cell, Heading, ReportSection, Row, Table

GIB = 2**30
BACKWARD = "kept for the backward pass"
KIND_PHRASES = {
    "weights": "weights",
    "gradients": "gradients",
    "states": "states of optimizers",
    "activations": f"activations, {BACKWARD}",
    "logits": "logits",
    "temporaries": "temporaries",
    "data": "batches, masks and tables",
}
LEAST_CHANCE = 0.01  # of a GPU that is too small, to be told


def memory_line(found: Estimate) -> str:
    """``Memory: 20.1 GiB on a GPU (measured without weights): fits L40S (99 %), not A10G (3 %).``; empty without fits.

    The GPU that is recommended, else the smallest that it fits, and the largest that it does not.
    """
    chosen, enough = found.verdict.recommended, [one for one in found.fits if one.enough]
    spec = chosen.candidate.accelerator if chosen is not None else None
    same = (one for one in enough if chosen and spec and (one.name, one.gpus) == (spec.name, chosen.gpus))
    large = next(same, enough[0] if enough else None)
    small = next((one for one in reversed(found.fits) if not one.enough), None)
    told = large or small
    if told is None:
        return ""
    how = "measured without weights" if found.profile.without_weights else "measured"
    where = "on a GPU" if told.gpus == 1 else f"on each of {told.gpus} GPUs"
    fits = f"fits {_name(large)} ({_chance(large)})" if large is not None else "fits none that was looked at"
    chance = f" ({_chance(small)})" if small is not None and small.probability >= LEAST_CHANCE else ""
    other = f", not {_name(small)}{chance}" if small is not None else ""
    return f"Memory: {told.need_gib:.1f} GiB {where} ({how}): {fits}{other}."


def memory_section(found: Estimate) -> ReportSection:
    """Return what a training holds, when, of what kinds, and which GPUs it fits; no parts where it was not measured."""
    memory = found.profile.memory
    if memory is None or not memory.peaks or not any(phase.unit.trains for phase in found.profile.phases):
        return ReportSection(title="Memory")
    tables = [_peaks(memory), _kinds(memory), *([_fits(found.fits)] if found.fits else [])]
    return ReportSection(title="Memory of a GPU", parts=[" ".join(_sentences(found.profile, memory)), *tables])


def _sentences(profile: WorkloadProfile, memory: MeasuredMemory) -> list[str]:
    ranks, without = profile.ranks.measured_ranks, " without weights" * profile.without_weights
    whose = "its process" if ranks == 1 else f"one of its {ranks} processes"
    peak, reserved = _gib(memory.peak_bytes), _gib(memory.reserved_bytes)
    told = f"Measured{without} from every storage that {whose} makes: its tensors take {peak} at most"
    sentences = [
        f"{told}, and PyTorch's allocator reserves {reserved} for them.",
        f"After a step {_gib(memory.steady_bytes)} stay, whatever the batch.",
    ]
    sentences.append(f"A GPU that it fits with less than {percent(FITS)} is not recommended.")
    if profile.framework.compiled:
        sentences.append("Without torch.compile, which takes less.")
    return sentences


def _peaks(memory: MeasuredMemory) -> Table:
    """Return the most that each phase of a step holds."""
    rows: list[Row] = [[peak.phase, _gib(peak.bytes)] for peak in memory.peaks]
    return Table(
        "Most at once, by phase", [Heading("most at once, by phase", long="phase"), Heading("tensors", 10)], rows
    )


def _kinds(memory: MeasuredMemory) -> Table:
    """Return what the highest peak is made of, most first."""
    peak = memory.highest
    kinds = sorted(peak.kinds.items(), key=lambda one: -one[1]) if peak is not None else []
    rows: list[Row] = [
        [KIND_PHRASES.get(kind, visible(kind)), _gib(size), percent(size / max(1, memory.peak_bytes))]
        for kind, size in kinds
        if size
    ]
    phase = peak.phase if peak is not None else ""
    title = f"the highest of them ({phase})"
    return Table(
        f"What is held in {title}", [Heading(title, long="what for"), Heading("tensors", 10), Heading("share", 7)], rows
    )


def _fits(fits: tuple[GpuFit, ...]) -> Table:
    """Return how likely a training fits each kind of GPU."""
    rows: list[Row] = [
        [
            Cell(_name(one), below="" if one.enough else f"below the {percent(FITS)} that are asked for"),
            f"{one.need_gib:.1f} GiB",
            f"{one.memory_gib:.1f} GiB",
            _chance(one),
        ]
        for one in fits
    ]
    head = [Heading("GPU"), Heading("needs", 10), Heading("has", 10), Heading("fits", 7)]
    return Table("Whether it fits; a GPU has what programs get of it", head, rows)


def _name(one: GpuFit) -> str:
    return visible(one.name) if one.gpus == 1 else f"{one.gpus}x {visible(one.name)}"


def _chance(one: GpuFit) -> str:
    """Return a probability, which is never certain."""
    if one.probability > 0.99:
        return f">{percent(0.99)}"
    return (
        percent(whole_percent(one.probability) / 100)
        if one.probability >= LEAST_CHANCE
        else f"<{percent(LEAST_CHANCE)}"
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / GIB:.3f} GiB"


def memory_value(found: Estimate) -> dict[str, Any] | None:
    """Return the measured memory, bytes, and which GPUs it fits, GiB, as a part of a document; None without any."""
    memory = found.profile.memory
    if memory is None:
        return None
    fits = [picked(one, "name", "gpus", "need_gib", "memory_gib", "probability", "enough") for one in found.fits]
    peaks = [picked(peak, "phase", "bytes", "kinds") for peak in memory.peaks]
    return {
        "without_weights": found.profile.without_weights,
        **picked(memory, "peak_bytes", "reserved_bytes", "steady_bytes"),
        "peaks": peaks,
        "fits": fits,
    }
