"""What to say of a profile of torch's steps, and which phases it is made of. Pure."""

from __future__ import annotations

from typing import cast

from costgpu.measure.probe.record import PhaseRecord, ProbeRecord, TorchFacts
from costgpu.measure.profile.accumulation import accumulation
from costgpu.measure.profile.growth import growth_notes
from costgpu.measure.profile.rhythms import left_out, works_of
from costgpu.measure.profile.step_times import untold
from costgpu.measure.profile.uneven_steps import acting_in_steps
from costgpu.measure.profile.units import counted_by_loops
from costgpu.models.workload import LaterPhase, Phase
from costgpu.units import format_duration, plural_unit


def stepped_once(record: ProbeRecord) -> bool:
    """Return whether the only step that was seen took so long that its time is an answer."""
    return any(phase.get("first") is not None for phase in record.get("phases") or [])


def stepped(record: ProbeRecord) -> list[PhaseRecord]:
    """Return the phases in which a step was made, by the loops that count; timed by their only step if there is no other."""
    phases = [counted_by_loops(phase) for phase in record["phases"] if phase["steps"] > 0]
    return [_with_its_only_step(acting_in_steps(phase)) for phase in phases]


def _with_its_only_step(raw: PhaseRecord) -> PhaseRecord:
    """With the first step's time in the place of an interval, where it was the only one."""
    first = raw.get("first")
    if first is None or raw["seconds"]:
        return raw
    seconds, waits, blocked, run_delay = ([value] for value in first)
    times = {"seconds": seconds, "waits": waits, "blocked": blocked, "run_delay": run_delay}
    special = {"0": {**raw["special"].get("0", {}), "traced": True}}
    return cast("PhaseRecord", {**raw, **times, "special": special})


def trains_again(later: LaterPhase, unit: str) -> str:
    """Say that the script trains once more, and for how long if that is known."""
    known = f"about {later.steps:,.0f} {plural_unit(unit)}" if later.steps else "of unknown length"
    return f"It trains again at {later.label} ({later.source}): {known}."


def torch_notes(phases: list[Phase], later: list[LaterPhase], record: ProbeRecord, facts: TorchFacts) -> list[str]:
    """Return what to know of a profile that torch's steps tell, one sentence each."""
    notes = []
    last = phases[-1]
    raw = stepped(record)[-1]
    notes += growth_notes(raw, last)
    if abs(last.step.drift - 1) > 0.01 and not notes:
        word = "grew" if last.step.drift > 1 else "fell"
        notes.append(f"The step time {word} by a factor of {last.step.drift:.2f} while it was measured.")
    if stepped_once(record):
        seconds = format_duration(last.step.seconds)
        notes.append(f"Only its first step was seen, which took {seconds}: later ones may take less.")
    elif last.step.traced_only:
        notes.append("Only traced steps could be timed; their times are a little high.")
    if not last.unit.trains and last.steps_observed == 1:
        notes.append(f"Only one {last.unit.name} was begun: its time is that of its parts.")
    if not last.optimizers and last.unit.trains:
        notes.append("No optimizer steps: backward passes were counted.")
    told = [raw["told"] for raw in stepped(record)]
    beside = [untold(one.get("validation"), phase.extras) for one, phase in zip(told, phases, strict=True) if one]
    notes += [note for note in beside if note]
    notes += [trains_again(phase, "step") for phase in later]
    if record["status"] != "ended":
        notes += [
            f"It runs a model again at {one['file']}:{one['line']} ({one['source']}): not reached, and not in these figures."
            for one in raw["upcoming"]["applied"]
        ]
        per_iteration = accumulation([shot for shot in raw["snapshots"] if shot["loops"]]).per_step
        works = works_of(raw, last.total, per_iteration)
        missed = left_out(works, last.extras, last.total, len(raw["seconds"]))
        notes += [missed] if missed else []
    if record.get("cut_in_validation"):
        notes.append("The measurement ended inside a validation pass, which is longer than what was seen of it.")
    if facts["fake_cuda"]:
        notes.append("It asks for CUDA and was measured on the CPU: what it puts on a GPU stayed in main memory.")
        if any(region["enabled"] and region["device"] == "cuda" for region in facts["autocast"]):
            notes.append("Its mixed precision was not in effect here; GPU times are predicted with it.")
        if facts["fake_cuda_devices"] > 1:
            devices = facts["fake_cuda_devices"]
            notes.append(f"It names {devices} CUDA devices; the prediction is for all its work on one.")
    if facts["compiled"]:
        notes.append("torch.compile was asked for: the trace is of the uncompiled model.")
    if any(phase.trace_steps == 0 for phase in phases):
        version = facts["version"]
        notes.append(f"No step could be traced with torch {version} (2.0 or newer is needed): GPU times are not known.")
    return notes
