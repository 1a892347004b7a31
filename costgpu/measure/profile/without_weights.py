"""What a script that was measured without weights would hold on an accelerator, and what of its times stays. Pure."""

from __future__ import annotations

from typing import Any, cast

from costgpu.measure.probe.record import MemoryPeakRecord, MemoryRecord, PhaseRecord
from costgpu.models.defaults import DISK_BYTES_PER_SECOND
from costgpu.models.workload import MeasuredMemory, MemoryKind, MemoryPeak

# What is kept of what each phase makes, and what is of no phase.
KEPT = {
    "load": MemoryKind.WEIGHTS,
    "forward": MemoryKind.ACTIVATIONS,
    "backward": MemoryKind.GRADIENTS,
    "optimizer": MemoryKind.STATES,
    "preparation": MemoryKind.TEMPORARIES,
    "evaluation": MemoryKind.TEMPORARIES,
    "logits": MemoryKind.LOGITS,
    "data": MemoryKind.DATA,
}
MOST_NAMED = 3


def measured_memory(record: MemoryRecord) -> MeasuredMemory:
    """Return the memory of the process by phase and by kind."""
    return MeasuredMemory(
        peaks=[
            MemoryPeak(phase=peak["phase"], bytes=peak["bytes"], kinds=_kinds(peak))
            for peak in record["peaks"]
            if peak["bytes"]
        ],
        reserved_bytes=record["reserved"],
        steady_bytes=record["steady"],
    )


def _kinds(peak: MemoryPeakRecord) -> dict[str, int]:
    """Return the bytes of a peak by kind: what its own phase made and did not keep are temporaries."""
    found: dict[str, int] = {}
    for birth, size in peak["births"].items():
        kept = min(size, peak["kept"]) if birth == peak["phase"] else size
        for kind, part in ((KEPT.get(birth, MemoryKind.TEMPORARIES), kept), (MemoryKind.TEMPORARIES, size - kept)):
            if part:
                found[kind.value] = found.get(kind.value, 0) + part
    return found


def with_written_saves(raw: PhaseRecord) -> PhaseRecord:
    """Return the phase with the time that its checkpoints would have taken, had their weights been written."""
    seconds, special = list(raw["seconds"]), dict(raw["special"])
    for key, event in special.items():
        unwritten = event.get("unwritten_bytes")
        if not unwritten or int(key) >= len(seconds):
            continue
        more = unwritten / DISK_BYTES_PER_SECOND
        seconds[int(key)] += more
        left: dict[str, Any] = {name: value for name, value in event.items() if name != "unwritten_bytes"}
        special[key] = cast("Any", {**left, "save": event.get("save", 0.0) + more})
    return cast("PhaseRecord", {**raw, "seconds": seconds, "special": special})


def notes_of(record: MemoryRecord) -> list[str]:
    """Return what is not certain without values, and what was left out; one sentence each."""
    notes = []
    if steered := record["steered"]:
        notes.append(
            f"Values that were not there chose shapes ({', '.join(steered)}): memory and times are approximate."
        )
    if computed := record["computed"]:
        named = ", ".join(computed[:MOST_NAMED])
        notes.append(f"Nobody tells the shapes that these make, and they were computed on zeros: {named}.")
    return notes
