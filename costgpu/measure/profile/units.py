"""What the units of a phase are, from the probe's record of it, and which loops count them. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import cast

from costgpu.measure.probe.record import GenerationFacts, Loop, PhaseRecord, SeriesRecord, Snapshot, new_loop
from costgpu.models.workload import Generation, Unit

MOST_SIZES = 2  # numbers of items of a unit, beside the last: with more, the leading dimension is something else


def unit_of(raw: PhaseRecord) -> Unit:
    """Return what the phase repeats, by the loops that count its units."""
    if raw["trains"]:
        return Unit()
    items, generation = _items(raw), _generation(raw["generation"])
    item = "prompt" if generation is not None else raw["item"]
    if generation is not None:
        name = "prompt batch" if (items or 1) > 1 else "prompt"
    else:
        name = "call" if items is None else "batch" if items > 1 else item
    return Unit(
        name=name,
        trains=False,
        items=items,
        item=item,
        independent=_independent(raw),
        weights_dtype=raw["weights_dtype"] or "float32",
        activation_bytes=raw["activation_bytes"],
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


def counted_by_loops(raw: PhaseRecord) -> PhaseRecord:
    """Return the phase with those loops only whose iterations are units.

    None is over the parts of one unit. Where a library drives the units and says how many they are, that is a loop, too,
    and its own loops are none.
    """
    if raw["trains"]:
        return raw
    made, told = raw["generation"], raw["told"]
    inner = raw["over_modules"] or (made is not None and made["same_loop"])
    shots: list[Snapshot] = [
        {**shot, "loops": shot["loops"][: len(shot["loops"]) - inner]} for shot in raw["snapshots"]
    ]
    if told is not None:
        name = told["trainer"]
        place = {"file": name, "path": name, "line": 0, "function": "", "depth": 1 << 10, "library": False}
        driver = new_loop(kind="for", trips=told["total"], source="batches", **place)
        for shot in shots:
            around = [loop for loop in shot["loops"] if not loop["library"] and not _over_results(loop)]
            shot["loops"] = [*around, driver]
    return cast("PhaseRecord", {**raw, "snapshots": shots})


def _over_results(loop: Loop) -> bool:
    """Return whether a comprehension (or the like) runs over what a call gives: the driver's own iterations."""
    return loop["kind"] == "for" and loop["trips"] is None and loop["source"].endswith(")")


def _items(raw: PhaseRecord) -> float | None:
    sizes = [size for size in raw["sizes"] if size]
    if not sizes:
        return None
    counts = Counter(sizes)
    if len(counts) > MOST_SIZES + 1 and counts.most_common(1)[0][1] < len(sizes) / 2:
        loader = raw["loader"]
        size = loader["batch_size"] if loader is not None else None
        return float(size) if size else None
    return float(statistics.median_low(sizes))


def _independent(raw: PhaseRecord) -> bool:
    """Return True if items can be grouped otherwise, since they come out of a loader, a driver or a collection."""
    if raw["loader"] is not None or raw["told"] is not None:
        return True
    loops = raw["snapshots"][-1]["loops"] if raw["snapshots"] else []
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
