"""From the probe's record of a phase that only runs models forward to what its units are. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace

from costgpu.measure.probe.record import (
    GenerationFacts,
    InferenceFacts,
    Loop,
    PhaseRecord,
    SeriesRecord,
    Snapshot,
    new_loop,
)
from costgpu.measure.profile.total_steps import total_steps
from costgpu.models.workload import Extra, ExtraKind, Generation, Phase, Rhythm, Total, Unit

MOST_SIZES = 2  # numbers of items of a unit, beside the last: with more, the leading dimension is something else


def unit_of(raw: PhaseRecord) -> Unit:
    """Return what the phase repeats."""
    facts = raw.get("inference")
    if facts is None:
        return Unit()
    items, generation = _items(facts, raw), _generation(facts["generation"])
    item = "prompt" if generation is not None else facts["kind"]
    if generation is not None:
        name = "prompt batch" if (items or 1) > 1 else "prompt"
    else:
        name = "call" if items is None else "batch" if items > 1 else item
    return Unit(
        name=name,
        trains=False,
        items=items,
        item=item,
        independent=_independent(raw, _counting_loops(raw, facts)),
        weights_dtype=facts["weights_dtype"] or "float32",
        activation_bytes=facts["activation_bytes"],
        generation=generation,
    )


def unit_of_series(series: SeriesRecord) -> Unit:
    """Return what a framework's series repeats: steps of a training, or predictions."""
    facts = series["facts"]
    name = {"it": "iteration"}.get(series["unit"], series["unit"])
    if not facts.get("inference"):
        return Unit(name=name)
    totals, items = facts.get("totals") or {}, facts.get("batch")
    return Unit(
        name=name,
        trains=False,
        items=float(items) if items else None,
        item="row" if series["unit"] == "call" else "item",
        independent=True,
        weights_dtype=totals.get("dtype", "float32"),
    )


def known_by_one(raw: PhaseRecord) -> bool:
    """Return whether one unit of inference tells enough: it was traced, and timed as a whole or by its parts."""
    return bool(raw.get("inference") and raw["seconds"] and raw["trace_steps"])


def inference_total(raw: PhaseRecord, *, ended: bool) -> Total:
    """Return the units of the phase: those that their driver announces, times the trips of the loops around it."""
    facts = raw["inference"]
    assert facts is not None  # noqa: S101 - asked for phases of inference only
    shots: list[Snapshot] = [
        {**shot, "loops": loops} for shot, loops in zip(raw["snapshots"], _counting_loops(raw, facts), strict=True)
    ]
    changed: PhaseRecord = {**raw, "snapshots": shots}
    total = total_steps(changed, ended=ended)
    told = raw["told"]
    return replace(total, how=total.how.replace(f"{told['trainer']}:0", told["trainer"])) if told is not None else total


def _counting_loops(raw: PhaseRecord, facts: InferenceFacts) -> list[list[Loop]]:
    """Return the loops around each snapshot whose iterations are units: not those over the parts of one unit."""
    made, told = facts["generation"], raw["told"]
    inner = facts["over_modules"] or (made is not None and made["same_loop"])
    found = [shot["loops"][: len(shot["loops"]) - inner] for shot in raw["snapshots"]]
    if told is None:
        return found
    driver = _driver(told["total"], told["trainer"])
    return [[*(loop for loop in loops if not loop["library"] and not _over_results(loop)), driver] for loops in found]


def _over_results(loop: Loop) -> bool:
    """Return whether a comprehension (or the like) runs over what a call gives: the driver's own iterations."""
    return loop["kind"] == "for" and loop["trips"] is None and loop["source"].endswith(")")


def warm_up_seconds(raw: PhaseRecord, phase: Phase) -> float:
    """Return what the first unit took beyond the others: it pays for what is made only once."""
    facts = raw.get("inference")
    seconds = facts["warm_seconds"] if facts is not None else None
    return max(0.0, seconds - phase.step.median_seconds) if seconds and phase.step.count else 0.0


def tail(raw: PhaseRecord) -> list[Extra]:
    """Return what an ended script did after its last unit."""
    facts = raw.get("inference")
    if facts is None or facts["tail_seconds"] < 0.1:
        return []
    seconds = facts["tail_seconds"]
    return [Extra(kind=ExtraKind.OTHER, seconds_each=seconds, rhythm=Rhythm.RUN, note="after the last unit")]


def _driver(trips: float | str | None, name: str) -> Loop:
    """Return a loop of a library's that says how long it is."""
    place = {"file": name, "path": name, "line": 0, "function": "", "depth": 1 << 10, "library": False}
    return new_loop(kind="for", trips=trips, source="batches", **place)


def _items(facts: InferenceFacts, raw: PhaseRecord) -> float | None:
    sizes = [size for size in facts["sizes"] if size]
    if not sizes:
        return None
    counts = Counter(sizes)
    if len(counts) > MOST_SIZES + 1 and counts.most_common(1)[0][1] < len(sizes) / 2:
        loader = raw["loader"]
        size = loader["batch_size"] if loader is not None else None
        return float(size) if size else None
    return float(statistics.median_low(sizes))


def _independent(raw: PhaseRecord, loops_of_shots: list[list[Loop]]) -> bool:
    """Return True if items can be grouped otherwise, since they come out of a loader, a driver or a collection."""
    if raw["loader"] is not None or raw["told"] is not None:
        return True
    loops = loops_of_shots[-1] if loops_of_shots else []
    if not loops or loops[-1]["kind"] != "for" or loops[-1]["trips"] in (None, "inf"):
        return False
    return not loops[-1]["source"].startswith("range(") or loops[-1]["stride"] > 1


def _generation(facts: GenerationFacts | None) -> Generation | None:
    if facts is None or not facts["prompt_tokens"]:
        return None
    # the last one may be cut off, the first ones may be all that there is
    decodes = facts["decodes"][:-1] or facts["decodes"]
    most = facts["most_new_tokens"]
    whole = statistics.median(decodes) if len(facts["decodes"]) > 1 or most is None else most - 1
    return Generation(
        sequences=float(statistics.median(facts["sequences"])),
        prompt_tokens=float(statistics.median(facts["prompt_tokens"])),
        new_tokens=whole + 1.0,
        decodes=float(whole),
        most_new_tokens=most,
        traced_decodes=facts["traced_decodes"],
        cache_bytes_per_token=float(facts["cache_bytes_per_token"]),
        layers=facts["layers"],
    )
