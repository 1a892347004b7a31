"""What a step holds: the micro-batches of the mean one of an epoch, and what a model does in eval mode each time. Pure."""

from __future__ import annotations

import math
import statistics
from typing import Any, cast

from costgpu.measure.probe.record import Op, PhaseRecord
from costgpu.measure.profile.accumulation import accumulation, first_step, loops_of
from costgpu.measure.profile.loop_bounds import number

EACH = 0.9  # of the intervals: what a model does in eval mode in so many of them belongs to the step
OFTEN = 0.1  # of the intervals: it does so, too, where these are no longer than others
LEAST_INTERVALS = 3
SAME = 0.02  # by which numbers of micro-batches may differ and be alike


def evened(raw: PhaseRecord) -> PhaseRecord:
    """Return the phase as if each step had the micro-batches of the mean one of its loop; itself if they are alike.

    Intervals get what more or fewer micro-batches take, and the trace becomes that of one whole execution of the loop.
    """
    sizes = micro_batches_of(raw)
    if not sizes or not raw["seconds"]:
        return raw
    mean, count, traced = statistics.fmean(sizes), len(raw["seconds"]), raw["micro_batches"]
    held = [sizes[(i + 1) % len(sizes)] for i in range(count)]  # interval 0 ends with the second step
    if all(abs(one - mean) <= SAME * mean for one in (*held, traced / max(1, raw["trace_steps"]) or mean)):
        return raw
    plain = [raw["seconds"][i] / held[i] for i in range(count) if str(i) not in raw["special"]]
    each = statistics.median(plain or [raw["seconds"][i] / held[i] for i in range(count)])
    changed: dict[str, Any] = {
        "seconds": [max(0.0, raw["seconds"][i] + (mean - held[i]) * each) for i in range(count)],
        "waits": [raw["waits"][i] * mean / held[i] for i in range(count)],
    }
    first, *rest = raw["snapshots"]
    if rest and rest[0]["all_batches"] - first["all_batches"] == sum(held[: rest[0]["anchor"] - first["anchor"]]):
        shots = [{**shot, "all_batches": shot["anchor"] * mean} for shot in raw["snapshots"]]  # one is drawn for each
        changed["snapshots"] = shots
    if traced and raw["trace_steps"]:
        more, turns = sum(sizes) / traced, len(sizes) / raw["trace_steps"]
        changed |= {
            "trace_steps": len(sizes),
            "micro_batches": round(sum(sizes)),
            "ops": [_times(op, turns if op["phase"] == "optimizer" else more) for op in raw["ops"]],
            "op_seconds": raw["op_seconds"] * more,
            "calls": round(raw["calls"] * more),
            "host_seconds": raw["host_seconds"] * more,
            "host_calls": round(raw["host_calls"] * more),
        }
    return cast("PhaseRecord", {**raw, **changed})


def acting_in_steps(raw: PhaseRecord) -> PhaseRecord:
    """Return the phase with what its model does in eval mode as a part of the step, where that comes with every step.

    A policy acts in its environment so (a random action needs no model, and the environment its time), and a teacher is
    asked.
    """
    special, seconds = raw["special"], raw["seconds"]
    at = [i for i, event in special.items() if "validation" in event and int(i) < len(seconds)]
    plain = [value for i, value in enumerate(seconds) if str(i) not in special]
    if len(at) < max(LEAST_INTERVALS, OFTEN * len(seconds)):
        return raw
    if len(at) < EACH * len(seconds):
        each = statistics.median(special[i]["validation"] for i in at)
        longer = statistics.median(seconds[int(i)] for i in at) - (statistics.median(plain) if plain else 0.0)
        if longer > each / 2:
            return raw
    left = {i: {name: value for name, value in event.items() if name != "validation"} for i, event in special.items()}
    changed: dict[str, Any] = {
        "special": {i: event for i, event in left.items() if event},
        "ops": [{**op, "phase": "forward"} if op["phase"] == "validation" else op for op in raw["ops"]],
    }
    return cast("PhaseRecord", {**raw, **changed})


def micro_batches_of(raw: PhaseRecord) -> list[float]:
    """Micro-batches of each step in one execution of the loop, from the phase's first step on; empty if not known."""
    snapshots = [shot for shot in raw["snapshots"] if shot["loops"]]
    loops = loops_of(snapshots)
    if not loops or not loops[-1]["ragged"] or snapshots[0]["anchor"] != 1:
        return []
    steps, trips, until = accumulation(snapshots), number(loops[-1]["trips"]), first_step(snapshots[0])
    every = steps.per_step
    if not trips or math.isinf(trips) or steps.goes_on or steps.unsure or every <= 1 or until is None or until > trips:
        return []
    count = math.ceil(trips / every - 1e-9)
    sizes = [*[every] * (count - 1), trips - every * (count - 1)]
    begin = min(count, math.ceil(until / every - 1e-9)) - 1
    return sizes[begin:] + sizes[:begin]


def _times(op: Op, times: float) -> Op:
    return cast("Op", {**op, "count": round(op["count"] * times), "seconds": op["seconds"] * times})
