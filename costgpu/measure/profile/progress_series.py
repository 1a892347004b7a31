"""From the probe's progress series (fits, rounds, bars, loops) to a phase of a profile. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from costgpu.measure.probe.frameworks.framework import BESIDE_TRAINING, NOTHING
from costgpu.measure.probe.frameworks.registry import BY_NAME, FRAMEWORKS
from costgpu.measure.probe.record import (
    Intervals,
    LoopProgress,
    ProbeRecord,
    SeriesFacts,
    SeriesRecord,
)
from costgpu.measure.profile.gpu_paths import gpu_path
from costgpu.measure.profile.rhythms import left_out, works_of
from costgpu.measure.profile.search_times import note_of_search, of_all_fits
from costgpu.measure.profile.series_totals import total_of, total_of_calls
from costgpu.measure.profile.step_times import extras, single_step, step_times, summarize, untold
from costgpu.measure.profile.total_steps import place_of
from costgpu.measure.profile.units import unit_of_series
from costgpu.measure.profile.waiting import run_delay_of_all
from costgpu.models.workload import (
    DataLoading,
    Extra,
    ExtraKind,
    GpuPath,
    LaterPhase,
    OptimizerFacts,
    Phase,
    Rhythm,
    StepTotals,
    Total,
    TotalKind,
    Unit,
)
from costgpu.units import format_duration

LEAST_STEPS = 2
SLOW_SECONDS = 30.0  # a step that takes so long is an answer by itself
LEAST_RUN_SECONDS = 1.0  # a script that ended sooner has done nothing that is worth a machine
LEAST_WITH_FRAMEWORK_SECONDS = 3.0  # the same beside importing a framework: a script that trains may have done nothing
ONE_STEP = "it makes a single step, of which no trace was taken: how long a GPU takes for it is not known"
WITHOUT_STEPS = (
    "No training step was seen, and the run as a whole is the answer: if it should train for longer, does it need"
    " arguments?"
)
UNSEEN = "what it computes with {} was not seen, so that no GPU time is known"


def usable(record: ProbeRecord) -> bool:
    """Return whether the record has progress that is not torch's and from which a phase can be made."""
    return shows_progress(record) or _whole_run(record)


def shows_progress(record: ProbeRecord) -> bool:
    """Return whether something other than torch's steps was seen to repeat."""
    return _chosen(record) is not None or _loops(record) is not None


def progress_phases(record: ProbeRecord) -> list[Phase]:
    """Return the phases of a script that no torch optimizer steps, and whose progress is `usable`: the one going on is last.

    A training that came before it is a phase of its own; a bar or a loop that came before is not, nor are predictions
    between trainings that repeat.
    """
    series = _chosen(record)
    if series is None:
        return [_phase_without_series(record)]
    family = _family(series)  # neither can be inside the other
    others = [one for one in record["series"] if one is not series and family and _family(one) == family]
    others = [one for one in others if one["steps"] > 0 and not one["setup"] and not one["facts"].get("inside")]
    earlier = [one for one in others if not one["open"] or one["unit"] == "fit"]
    if series["openings"] > 1 and not series["facts"].get("inference"):  # predicted between trainings: no phase
        earlier = [one for one in earlier if not one["facts"].get("inference")]
    return [_series_phase(one, record, over=True) for one in earlier] + [_series_phase(series, record)]


def later_fits(record: ProbeRecord) -> list[LaterPhase]:
    """Trainings that come after the one that was measured."""
    series = _chosen(record)
    if series is None or record["status"] == "ended":
        return []
    found = [
        LaterPhase(label=f"{one['file']}:{one['line']}", source=one["source"], steps=one["trips"])
        for one in series["later"]
    ]
    if series["facts"].get("applied") == "trains":
        found.append(LaterPhase(label="a place that was not reached", source="", steps=None))
    return found


def _family(series: SeriesRecord) -> str:
    return BY_NAME[series["source"]].family if series["source"] in BY_NAME else ""


def _phase_without_series(record: ProbeRecord) -> Phase:
    if loops := _loops(record):
        return _loops_phase(loops)
    names = _frameworks(record)
    return Phase(
        label="the whole script",
        total=Total(kind=TotalKind.EXACT, steps=1.0, steps_per_epoch=None, how="it ran to its end"),
        steps_observed=1,
        step=single_step(record["wall_seconds"]),
        unit=Unit(name="run"),
        gpu=GpuPath.NONE,
        gpu_reason=ONE_STEP if _only_step(record) else UNSEEN.format(names[0]) if names else NOTHING,
    )


def framework_of(record: ProbeRecord) -> tuple[str, str]:
    """Name and version of what the phase was measured by."""
    series = _chosen(record)
    torch = record.get("torch")
    if series is None and torch is not None and _only_step(record):
        return "torch", torch["version"]
    if series is None:
        return "Python", str(record["python"])
    name = series["facts"].get("framework", "")
    if not name:
        known = BY_NAME[series["source"]]
        name = known.label or known.name
    return name, str(record["versions"].get(series["source"], record["python"] if name == "Python" else ""))


def parallel_share(record: ProbeRecord, cores: int, *, waiting: float = 0.0) -> float:
    """Share of the busy time that more cores would shorten: 0 for one busy core, 1 for all of them.

    Args:
        waiting: Share of the time in which nothing of it computed.
    """
    used = record.get("cpu_seconds", 0.0) / max((1 - waiting) * record["wall_seconds"], 1e-9)
    if cores <= 1:
        return 1.0 if used > 0.9 else 0.0
    return float(min(1.0, max(0.0, (used - 1.0) / (cores - 1))))


def notes_of(record: ProbeRecord) -> list[str]:
    """Return what a reader should know of how it was measured."""
    series = _chosen(record)
    if series is None:
        if not (progress := _loops(record)):
            return [WITHOUT_STEPS] if _frameworks(record) and not _only_step(record) else []
        places = ", ".join(f"{loop['file']}:{loop['line']}" for loop in progress["loops"])
        return [f"Only the loops at {places} are in it, not what the script does after them."]
    facts, notes = series["facts"], note_of_search(series) if record["status"] != "ended" else []
    if series["steps"] == 1 and series["unit"] != "fit" and record["status"] != "ended":
        notes.append(f"Only one {series['unit']} was seen, its first: later ones may take less.")
    if series["source"] == "tqdm" and record["status"] != "ended":
        notes.append(f"Only the progress bar at {series['label']} is in it, not what the script does after it.")
    if facts.get("asks_gpu"):
        notes.append("It asks for a GPU and was measured on the CPU.")
    phase, raw = progress_phases(record)[-1], _intervals(series)
    if left := untold(facts.get("validation"), phase.extras):
        notes.append(left)
    missed = left_out(works_of(raw, phase.total, 1.0), phase.extras, phase.total, len(raw["seconds"]))
    if missed and record["status"] != "ended":
        notes.append(missed)
    totals = facts.get("totals") or {}
    if totals.get("unknown_loops"):
        notes.append("A loop inside the jitted function has no length that can be read: its FLOPs were counted once.")
    if facts.get("applied") == "trains" and record["status"] != "ended":
        notes.append(
            f"It takes gradients somewhere, and {series['label'] or 'the jitted function that was seen'} updates nothing:"
            " if it trains afterwards, that was not reached and is not in these figures."
        )
    if facts.get("uncounted"):
        notes.append(f"The FLOPs of {series['label'] or 'the step'} could not be counted: {facts['uncounted']}.")
    analysis, counted = facts.get("cost_analysis_flops"), totals.get("flops")
    if analysis and counted and not 0.5 < analysis / counted < 2.0 and not totals.get("unknown_loops"):
        notes.append(
            f"JAX's own cost analysis says {analysis:.3g} FLOPs a step, the count of its operations {counted:.3g}."
        )
    return notes


def _chosen(record: ProbeRecord) -> SeriesRecord | None:
    """Return the series that the phase is made of: the probe ranks them; an outer bar counts once it has moved enough."""
    found = [series for series in record.get("series") or [] if _may_be_the_job(series, record)]
    found = [series for series in found if _has_enough(series, record)]
    if not found:
        return None
    first = found[0]
    if first["source"] == "tqdm" and first["facts"].get("outer"):
        outer = next((s for s in found if s["label"] == first["facts"]["outer"]), None)
        if outer is not None and len(outer["seconds"]) > LEAST_STEPS:
            return outer
    return first


def _may_be_the_job(series: SeriesRecord, record: ProbeRecord) -> bool:
    """Not what a library drives or what only prepares; a bar of the script's own only where no framework's work is."""
    if series["source"] == "tqdm" and record["status"] != "ended" and record.get("awaits_training"):
        return False
    if series["source"] == "tqdm" and record["status"] == "ended" and _only_beside(_seconds(series), series["after"]):
        return False
    return not series["setup"] and not (series["source"] == "tqdm" and record.get("phases"))


def _loops(record: ProbeRecord) -> LoopProgress | None:
    """Return the script's bare loops, where they may be the job."""
    found = record.get("loops")
    if found is None or record["status"] != "ended":
        return None if record.get("awaits_training") else found
    if "again" in found:
        return None  # the run as a whole says more
    share = (found["last"] - found["first"]) / math.prod(float(loop["trips"]) for loop in found["loops"])
    seconds = found["seconds"] / max(share, 1e-9)
    after = record["wall_seconds"] - found["lead"] - seconds
    before = found["lead"] - (record.get("importing") or (0.0, 0.0))[0]  # a cold import is no work of the script's
    return None if _only_beside(seconds, max(before, after)) else found


def _seconds(series: SeriesRecord) -> float:
    return series["lead"] + sum(series["seconds"])


def _only_beside(seconds: float, elsewhere: float) -> bool:
    """Return whether a script that ended did most of its work before or after this bar or loop."""
    return elsewhere > LEAST_RUN_SECONDS + seconds


def _has_enough(series: SeriesRecord, record: ProbeRecord) -> bool:
    ended = record["status"] == "ended"
    framework = BY_NAME.get(series["source"])
    if framework is None or (ended and framework.fits):
        return series["steps"] >= 1
    if series["steps"] > LEAST_STEPS or (series["steps"] == LEAST_STEPS and ended):
        return True
    # one or two steps, each so long that no more of them could be waited for
    slow = series["steps"] > 0 and min([series["lead"], *series["seconds"]]) >= SLOW_SECONDS
    return slow and framework.rank < BESIDE_TRAINING and not framework.fits


def _whole_run(record: ProbeRecord) -> bool:
    """Return whether the run as a whole is the measure: it ended, and did something beside importing."""
    if record["status"] != "ended":
        return False
    least = LEAST_WITH_FRAMEWORK_SECONDS if _frameworks(record) else LEAST_RUN_SECONDS
    wall, cpu = record.get("importing") or (0.0, 0.0)
    return record["wall_seconds"] - wall >= least and record.get("cpu_seconds", 0.0) - cpu >= 0.5 * least


def _frameworks(record: ProbeRecord) -> list[str]:
    """Return the frameworks that were imported and that compute on a GPU, too."""
    return [one.name for one in FRAMEWORKS if one.counts and one.name in (record.get("versions") or {})]


def _only_step(record: ProbeRecord) -> bool:
    """Return whether torch stepped once in all: then the run is that step, with what leads to it."""
    return sum(phase["steps"] for phase in record.get("phases") or []) == 1


def _series_phase(series: SeriesRecord, record: ProbeRecord, *, over: bool = False) -> Phase:
    """Return the phase of one series; `over` if another has begun since."""
    raw = _intervals(series)
    facts = series["facts"]
    step, _ = step_times(raw)
    if not step.count:  # a fit that steps once: from its opening
        step = single_step((series["lead"] or record["wall_seconds"]) / max(1, series["steps"]))
    if facts.get("together"):
        step = replace(step, by_median=False)
    ended = record["status"] == "ended" or (over and not series["around"])
    total = total_of(series, raw, record, ended=ended)
    gpu, reason, kind = gpu_path(series)
    typical, run_delay = of_all_fits(step, series), run_delay_of_all(record.get("activity"))
    found = extras(
        raw,
        step,
        total,
        1.0,
        facts.get("batch"),
        run_delay_seconds=run_delay,
        saves=facts.get("saves"),
        validation=facts.get("validation"),
    )
    if between := facts.get("between_epochs"):
        note = "between the last line of an epoch and the first of the next"
        found.append(Extra(kind=ExtraKind.EPOCH_START, seconds_each=between, rhythm=Rhythm.EPOCH, note=note))
    totals = facts.get("totals") if gpu is GpuPath.COUNTED else None
    unit = unit_of_series(series)
    return Phase(
        label=series["label"] or series["source"],
        total=total,
        steps_observed=series["steps"],
        step=typical,
        data=DataLoading(batch_size=facts.get("batch")),
        optimizers=_optimizers(facts) if facts.get("parameters") else [],
        # of three passes, the outputs of one
        saved_tensor_bytes=int(totals["bytes"] / 6) if totals and unit.trains else 0,
        model_bytes=int(facts.get("model_bytes") or 0),
        # what steps take beyond the median is in the mean of fits whose lengths are known
        extras=found if typical.median_seconds == step.median_seconds else [],
        unit=unit,
        gpu=gpu,
        gpu_reason=reason,
        kind=kind,
        totals=StepTotals(
            flops=totals["flops"],
            bytes_moved=totals["bytes"],
            kernels=totals["kernels"],
            convolutions=totals["convolutions"] / totals["flops"] if totals["flops"] else 0.0,
            dtype=totals["dtype"],
            source=BY_NAME[series["source"]].counts,
        )
        if totals
        else None,
    )


def _optimizers(facts: SeriesFacts) -> list[OptimizerFacts]:
    parameters, name = int(facts["parameters"] or 0), str(facts.get("optimizer") or "")
    state = 8 * parameters if "Adam" in name else 0
    tensors = int(facts.get("tensors") or 1)
    return [OptimizerFacts(name=name, parameters=parameters, tensors=tensors, momentum=True, state_bytes=state)]


def _loops_phase(progress: LoopProgress) -> Phase:
    loops, libraries, again = progress["loops"], progress.get("libraries", []), progress.get("again")
    passed = progress["last"] - progress["first"]
    mean = progress["seconds"] / passed
    early = next((loop for loop in loops if loop["early"]), None)
    how = " × ".join(f"{loop['trips']:,.0f} ({place_of(loop)})" for loop in loops)
    steps = math.prod(float(loop["trips"]) for loop in loops)
    clock = progress.get("clock")
    if clock is not None:
        how = f"it runs for at most {format_duration(steps)} by its clock (line {loops[0]['line']}: {clock})"
        total = Total(kind=TotalKind.TIMED, steps=None, steps_per_epoch=None, how=how, seconds=steps)
    elif again is not None:
        total = total_of_calls(how, steps, again)
    else:
        how += f"; the loop at {place_of(early)} may end earlier" if early is not None else ""
        kind = TotalKind.UPPER_BOUND if early is not None else TotalKind.EXACT
        inner = float(loops[-1]["trips"]) if len(loops) > 1 else None
        total = Total(kind=kind, steps=steps, steps_per_epoch=inner, how=how)
    texts = [f"{place_of(loop)} for … in {loop['source']}: {loop['trips']:,.0f}" for loop in loops]
    return Phase(
        label=place_of(loops[-1]),
        total=replace(total, loops=texts),
        steps_observed=max(1, round(passed)),
        step=summarize(_rates(progress["times"]) or [mean], mean),
        unit=Unit(name="second" if clock is not None else "iteration"),
        gpu=GpuPath.NONE,
        gpu_reason=f"what its loop computes with {libraries[0]} was not traced, so that no GPU time is known"
        if libraries
        else NOTHING,
    )


def _rates(times: list[tuple[float, float]]) -> list[float]:
    """Return the seconds of one iteration in each stretch in which it moved."""
    found, (at, where) = [], times[0]
    for now, position in times[1:]:
        if position > where:
            found.append((now - at) / (position - where))
            at, where = now, position
    return found


def _intervals(series: SeriesRecord) -> Intervals:
    """In the form in which the probe records torch's phases."""
    return {
        "steps": series["steps"],
        "seconds": series["seconds"],
        "waits": [0.0] * len(series["seconds"]),
        "special": series["special"],
        "snapshots": series["snapshots"],
        "upcoming": {"periodic": series["periodic"], "later": [], "applied": []},
        "loader": None,
        "batch": None,
        "optimizers": [],
        "model": {},
    }
