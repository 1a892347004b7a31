"""From the probe's record to a `WorkloadProfile`. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

from costgpu.measure.launcher import Launch
from costgpu.measure.probe.record import (
    ActivityRecord,
    Op,
    Optimizer,
    PhaseRecord,
    ProbeRecord,
    TorchFacts,
    TrainerLength,
)
from costgpu.measure.profile.accumulation import accumulation, batches_per_step
from costgpu.measure.profile.growth import growing
from costgpu.measure.profile.neighbours import Neighbours, neighbours_of
from costgpu.measure.profile.parallelism import of_whole_model, parallel_notes, parallelism_of
from costgpu.measure.profile.progress_series import (
    framework_of,
    later_fits,
    notes_of,
    parallel_share,
    progress_phases,
    shows_progress,
)
from costgpu.measure.profile.series_totals import within_budget
from costgpu.measure.profile.step_times import data_loading, extras, step_times
from costgpu.measure.profile.torch_notes import stepped, stepped_once, torch_notes, trains_again
from costgpu.measure.profile.total_steps import FOREVER_EPOCH, FOREVER_STEPS, called_again, total_steps
from costgpu.measure.profile.uneven_steps import evened
from costgpu.measure.profile.units import unit_of
from costgpu.measure.profile.waiting import notes_of_queue, run_delay_of_all, waiting_of_phase, waiting_share
from costgpu.measure.profile.without_weights import measured_memory, with_written_saves
from costgpu.measure.profile.without_weights import notes_of as notes_without_weights
from costgpu.models.workload import (
    Autocast,
    Extra,
    ExtraKind,
    Framework,
    LaterPhase,
    Machine,
    OpRow,
    OptimizerFacts,
    Phase,
    Rhythm,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.units import format_duration

MAPPED_BYTES = 1 << 20  # larger blocks are mapped, and unmapped when they are freed (glibc)
UNMAP_BYTES_PER_SECOND = 15e9  # measured: 2 ms for 33 MB (Linux 6, 2026-11)
LEAST_TAIL_SECONDS = 0.1  # after the last unit of an ended script
VIEW_SECONDS = 50e-6  # an op that is quicker than this made no large tensor
LEAST_PAUSE_SECONDS = 1e-3  # between two phases; less is nothing to tell
CALL_SECONDS = 40e-6  # an op's way through Python under the tracer, beyond what the tracer itself times
# The same without weights, where storages are followed and a second mode is entered: 12 to 16 us more than of the same
# model with its weights, in three pairs of runs; 60 us and more where a neighbour is busy (2026-11-30). What is told too
# much here is paid twice, for the Python of modules is in what a GPU's host takes for a call.
UNTOUCHED_CALL_SECONDS = 66e-6


def build_profile(
    record: ProbeRecord,
    machine: Machine,
    *,
    script: str,
    arguments: list[str],
    created: str,
    version: str,
    launch: Launch | None = None,
) -> WorkloadProfile:
    """Return the profile of one measurement, of which at least one phase stepped. `created` is ISO 8601, UTC."""
    later: list[LaterPhase] = []
    setup = record.get("setup_seconds", 0.0)
    torch = record.get("torch")
    memory = record.get("memory")
    activity = record.get("activity") if memory is None else None  # no other program takes a part of modelled times
    found = neighbours_of(activity, torch["threads"] if torch is not None else machine.threads)
    if torch is not None and trained_by_torch(record):
        phases = _torch_phases(record, found)
        framework = _framework(record, torch)
        setup -= record["before"]["validation"] + record["before"]["save"]
        warm, step = stepped(record)[0]["warm_seconds"], phases[0].step
        if warm and step.count:  # the first unit pays for what is made only once
            setup += max(0.0, warm - step.median_seconds)
        if record["status"] != "ended":
            later = _later_phases(record, phases[-1])
        notes = torch_notes(phases, later, record, torch)
    else:
        share = 0.0 if machine.accelerators else waiting_share(activity)
        # what a program that is known by its lines does on one core is not known without a look at it
        serial = 1.0 - parallel_share(record, machine.cores, waiting=share) if "cpu_seconds" in record else 0.0
        phases = []
        for phase in map(found.undisturbed_phase, progress_phases(record)):
            idle = share * phase.step.seconds
            busy = serial * (phase.step.seconds - idle)
            phases.append(replace(phase, host_seconds_per_step=busy, waiting_seconds_per_step=idle))
        later = later_fits(record)
        name, number = framework_of(record)
        framework = Framework(version=number, python=record["python"], name=name)
        notes = notes_of(record) + [trains_again(one, phases[-1].unit.name) for one in later if one.source]
    phases[-1] = replace(phases[-1], total=within_budget(phases[-1].total, record.get("budget")))
    if phases[-1].total.kind is TotalKind.UPPER_BOUND:
        notes.append("The script may stop early: the number of steps is an upper bound.")
    notes += notes_of_queue(activity, found)
    parallelism = parallelism_of(record, launch)
    notes += parallel_notes(parallelism, record, launch)
    if memory is not None:
        notes += notes_without_weights(memory)
    if record.get("probe_errors"):
        notes.append("The probe failed at some steps; its figures may be incomplete.")
    return WorkloadProfile(
        script=script,
        arguments=arguments,
        created=created,
        costgpu_version=version,
        machine=replace(machine, disturbed_share=found.share),
        framework=framework,
        setup_seconds=max(0.0, setup - (phases[0].step.median_seconds if phases[0].unit.trains else 0.0)),
        ended=record["status"] == "ended",
        wall_seconds=record["wall_seconds"],
        peak_rss_bytes=record["peak_rss_bytes"],
        phases=[of_whole_model(phase, parallelism) for phase in phases],
        later_phases=later,
        notes=notes,
        parallelism=parallelism,
        memory=measured_memory(memory) if memory is not None else None,
        without_weights=memory is not None,
        weights_bytes=memory["pretrained"] if memory is not None else 0,
    )


def trained_by_torch(record: ProbeRecord) -> bool:
    """Return whether torch's optimizers (or backward passes) tell the steps; else it is the probe's progress series."""
    for phase in record.get("phases") or []:
        # one unit of inference tells enough where it was traced, and timed as a whole or by its parts
        if phase["steps"] > 1 or (not phase["trains"] and phase["seconds"] and phase["trace_steps"]):
            return True
    return stepped_once(record) and not shows_progress(record)


def _torch_phases(record: ProbeRecord, found: Neighbours) -> list[Phase]:
    ended, raws = record["status"] == "ended", [found.undisturbed(raw) for raw in stepped(record)]
    if not ended:
        raws = _one_of_calls(raws)
    phases = []
    for raw in raws:
        first = raw is raws[0]
        over = ended or raw is not raws[-1]
        mapped = record.get("memory") is None
        phases.append(_phase(raw, record.get("activity"), ended=over, gap=not first, mapped=mapped))
    return _unite(phases)


def _one_of_calls(stepped: list[PhaseRecord]) -> list[PhaseRecord]:
    """Keep only the best timed one of phases that are calls of one function by a library, as the last call."""
    kept: list[PhaseRecord] = []
    for raw in stepped:
        call = raw.get("call", 1)
        if call > 1 and kept and kept[-1].get("call", 1) == call - 1:
            best = max(kept.pop(), raw, key=lambda one: len(one["seconds"]))
            raw = cast("PhaseRecord", {**best, "call": call})
        kept.append(raw)
    return kept


def _later_phases(record: ProbeRecord, last: Phase) -> list[LaterPhase]:
    whole = last.total.steps if last.total.kind is TotalKind.EXACT else None
    return [
        LaterPhase(
            label=f"{found['file']}:{found['line']}",
            source=found["source"],
            steps=found["trips"] / max(1.0, last.micro_batches)
            if found["trips"]
            else found.get("times", 0.0) * (whole or 0.0) or None,
        )
        for found in stepped(record)[-1]["upcoming"]["later"]
    ]


def told_total(told: TrainerLength, seen: int) -> Total | None:
    """Return the number of steps as the trainer says it, of which some were seen; None if it does not know either."""
    how = f"{told['trainer']}: {told['how']}"
    each, seconds = told["per_epoch"], told.get("seconds")
    if each is not None and each >= FOREVER_EPOCH:
        each = None
    stops = told["may_stop"][:1]
    if seconds is not None:
        stops = [f"{stops[0] if stops else 'its clock'}={format_duration(seconds)}"]
    endless = told["total"] == "inf" or (told["total"] is not None and float(told["total"]) >= FOREVER_STEPS)
    if seconds is not None and (endless or told["total"] is None):
        how = f"{how}; {stops[0]} ends it"
        return Total(kind=TotalKind.TIMED, steps=None, steps_per_epoch=each, how=how, seconds=seconds)
    if endless:
        how += ": it has no end of its own"
        return Total(kind=TotalKind.UNBOUNDED, steps=None, steps_per_epoch=each, how=how)
    if told["total"] is None:
        return None
    kind = TotalKind.EXACT
    if stops:
        kind, how = TotalKind.UPPER_BOUND, f"{how}; {stops[0]} may stop it earlier"
    steps = max(float(told["total"]), float(seen))
    return Total(kind=kind, steps=steps, steps_per_epoch=each, how=how, seconds=seconds)


def _phase(raw: PhaseRecord, activity: ActivityRecord | None, *, ended: bool, gap: bool, mapped: bool = True) -> Phase:
    raw = evened(with_written_saves(raw))
    step, used = step_times(raw)
    step = growing(raw, step)
    once = raw.get("first") is not None
    micro_batches = float(max(1, raw["micro_batches"])) if once else 1.0
    drawn = raw["snapshots"][0]["all_batches"] if once and raw["snapshots"] else 0
    data = data_loading(raw, used, batches_per_step(raw["snapshots"]) or min(micro_batches, drawn))
    unit = unit_of(raw)
    total = total_steps(raw, ended=ended, micro_batches=micro_batches)
    if raw.get("call", 1) > 1 and not ended and total.steps is not None:
        by = next((loop["caller"] for shot in raw["snapshots"] for loop in shot["loops"] if "caller" in loop), "")
        total = replace(called_again(total.how, raw["call"], by, total.steps), loops=total.loops)
    if unit.trains and raw["told"] and not ended:
        total = told_total(raw["told"], raw["steps"]) or total
    if 0 < raw.get("elsewhere", 0) < raw["steps"] / 2 and total.kind is TotalKind.EXACT and not ended:
        how = f"{total.how}; {raw['elsewhere']} steps at another place for {raw['steps']} here are not counted"
        total = replace(total, kind=TotalKind.APPROXIMATE, how=how)
    iterations = accumulation([s for s in raw["snapshots"] if s["loops"]], micro_batches).per_step
    found = extras(
        raw,
        step,
        total,
        iterations,
        data.batch_size,
        run_delay_seconds=run_delay_of_all(activity),
        saves=raw["told"].get("saves") if raw["told"] else None,
        validation=raw["told"].get("validation") if raw["told"] else None,
        acts=bool(raw["told"] and raw["told"].get("acts")),
    )
    pause = raw["gap_seconds"] - step.median_seconds
    if gap and pause > LEAST_PAUSE_SECONDS:
        found.append(Extra(kind=ExtraKind.OTHER, seconds_each=pause, rhythm=Rhythm.RUN, note="before this phase"))
    tail = raw["tail_seconds"]
    if tail >= LEAST_TAIL_SECONDS:
        found.append(Extra(kind=ExtraKind.OTHER, seconds_each=tail, rhythm=Rhythm.RUN, note="after the last unit"))
    steps = max(1, raw["trace_steps"])
    return Phase(
        label=f"{raw['file']}:{raw['line']}",
        total=total,
        steps_observed=raw["steps"],
        step=step,
        data=data,
        optimizers=_optimizers(raw),
        ops=[_op_row(row) for row in raw["ops"]],
        trace_steps=raw["trace_steps"],
        op_seconds_per_step=raw["op_seconds"] / steps,
        host_seconds_per_step=_host_seconds(raw, mapped=mapped) / steps,
        calls_per_step=raw["calls"] / steps,
        saved_tensor_bytes=raw["saved_tensor_bytes"],
        model_bytes=raw["model"].get("bytes", 0),
        frozen_bytes=raw["model"].get("frozen_bytes", 0),
        micro_batches=max(1.0, raw["micro_batches"] / steps),
        waiting_seconds_per_step=waiting_of_phase(raw, used, activity),
        extras=found,
        unit=unit,
    )


def _op_row(row: Op) -> OpRow:
    tensors = {side: [tuple(tensor) for tensor in row[side]] for side in ("inputs", "outputs")}
    return OpRow(**{**cast("dict[str, Any]", row), **tensors})


def _host_seconds(raw: PhaseRecord, *, mapped: bool) -> float:
    """CPU time of the traced steps in the script's own code, between ops outside backward, optimizer and loader.

    Giving large intermediate tensors back to the system happens there too, and only on a CPU: it is taken off.

    Args:
        mapped: Whether they had memory.
    """
    given_back = sum(
        row["count"] * math.prod(shape) * 4.0
        for row in raw["ops"]
        if mapped and row["phase"] == "forward" and row["seconds"] > VIEW_SECONDS * row["count"]
        for shape, _, _ in row["outputs"]
        if math.prod(shape) * 4 > MAPPED_BYTES
    )
    each = CALL_SECONDS if mapped else UNTOUCHED_CALL_SECONDS
    known = each * raw["host_calls"] + given_back / UNMAP_BYTES_PER_SECOND
    return float(max(0.0, raw["host_seconds"] - known))


def _unite(phases: list[Phase]) -> list[Phase]:
    """Give phases too short to have been timed the times and the trace of their longest neighbour."""
    if len({phase.unit.trains for phase in phases}) > 1:  # training and inference have nothing to lend each other
        united = {kind: iter(_unite([p for p in phases if p.unit.trains is kind])) for kind in (True, False)}
        return [next(united[phase.unit.trains]) for phase in phases]
    best = max(phases, key=lambda phase: (phase.step.count, phase.steps_observed))
    return [
        phase
        if phase.step.count and phase.ops
        else replace(
            phase,
            step=phase.step if phase.step.count else best.step,
            ops=phase.ops or best.ops,
            trace_steps=phase.trace_steps or best.trace_steps,
            op_seconds_per_step=phase.op_seconds_per_step or best.op_seconds_per_step,
            calls_per_step=phase.calls_per_step or best.calls_per_step,
        )
        for phase in phases
    ]


def _optimizers(raw: PhaseRecord) -> list[OptimizerFacts]:
    """Return the optimizers of the phase; those of equal kind and size that replaced each other are one."""
    united: dict[tuple[str, int, int], Optimizer] = {}
    found, counted = [], raw["steps"]
    for number, facts in enumerate(raw["optimizers"]):
        beside = facts["steps"] >= counted - 1  # in every step, and in nobody's place
        key = (facts["name"], facts["parameters"], number if beside else -1)
        earlier = united[key]["steps"] if key in united else 0
        united[key] = {**facts, "steps": facts["steps"] + earlier}
    for facts in united.values():
        same: dict[str, Any] = {**facts}
        steps = same.pop("steps")
        share = 1.0 if abs(steps - counted) <= 1 else steps / max(1, counted)  # cut off within the last turn: in each
        found.append(OptimizerFacts(**same, updates_per_step=share))
    return found


def _framework(record: ProbeRecord, facts: TorchFacts) -> Framework:
    return Framework(
        version=facts["version"],
        python=record["python"],
        cuda_build=facts["cuda_build"],
        float32_matmul_precision=facts["float32_matmul_precision"],
        matmul_tf32=facts["matmul_tf32"],
        conv_tf32=facts["conv_tf32"],
        autocast=[Autocast(device=a["device"], dtype=a["dtype"], enabled=a["enabled"]) for a in facts["autocast"]],
        compiled=facts["compiled"],
        device="cuda" if any(phase["device"] == "cuda" for phase in record["phases"]) else "cpu",
        channels_last=any(_channels_last(row) for phase in record["phases"] for row in phase["ops"]),
    )


def _channels_last(row: Op) -> bool:
    """Return whether this is a convolution whose input has its channels innermost, and that is not so by chance."""
    if row["op"] != "aten::convolution" or not row["inputs"]:
        return False
    shape, strides, _ = row["inputs"][0]
    return len(shape) == len(strides) >= 4 and strides[1] == 1 < shape[1] and math.prod(shape[2:]) > 1
