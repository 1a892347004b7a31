"""From the probe's intervals to step times and to the work beside the steps. Pure.

An interval is the time from one counted step to the next. Most hold a step and nothing else; some hold a
validation pass, a checkpoint or the start of an epoch, which repeat with a rhythm of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from costgpu.measure.probe.record import Intervals, Loader, Saves, Validation
from costgpu.measure.profile.rhythms import (
    DISK_WORDS,
    NamedWork,
    epoch_starts,
    forward_seconds,
    repeating,
    unreached,
    usual_seconds,
    works_of,
)
from costgpu.models.defaults import DISK_BYTES_PER_SECOND, MOSTLY_FROZEN
from costgpu.models.workload import DataLoading, Extra, ExtraKind, Rhythm, StepTimes, Total
from costgpu.units import plural_unit

SPIKE = 3.0  # an interval above so many medians is not a step's own variation
LEAST_SHARED = 3  # steps with work beside them that stand for all
UNEVEN = 0.02  # of the time of all steps: what they take beyond the median, from there on, is told beside it


def summarize(
    values: Sequence[float],
    mean_seconds: float,
    *,
    drift: float = 1.0,
    traced_only: bool = False,
    by_median: bool = False,
) -> StepTimes:
    """Return the figures of step times (at least one), around a mean that is computed elsewhere."""
    ordered = sorted(values)
    return StepTimes(
        count=len(ordered),
        median_seconds=statistics.median(ordered),
        mean_seconds=mean_seconds,
        low_seconds=ordered[len(ordered) // 10],
        high_seconds=ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)],
        drift=drift,
        traced_only=traced_only,
        by_median=by_median,
    )


def single_step(seconds: float) -> StepTimes:
    """Return the times of a step that was seen once."""
    return summarize([seconds], seconds)


def seconds_beside(phase: Intervals) -> dict[int, float]:
    """Return the seconds of evaluations and saves in each interval that holds nothing else beside its step."""
    return {
        int(i): event.get("validation", 0.0) + event.get("save", 0.0)
        for i, event in phase["special"].items()
        if set(event) <= {"validation", "save", "save_bytes"}
    }


def step_times(phase: Intervals) -> tuple[StepTimes, list[int]]:
    """Return the times of a plain step, and the indices of the intervals that were used."""
    seconds, special = phase["seconds"], phase["special"]
    everything = list(range(len(seconds)))
    plain = [i for i in everything if str(i) not in special]
    traced = {int(i) for i, event in special.items() if event.get("traced")}
    settled = [i for i in plain if i > 1 and i - 1 not in traced]
    used = settled if len(settled) >= 5 else plain
    beside = seconds_beside(phase)
    # each step has work beside it, of known seconds; the first one prepares
    shared = [i for i in everything if i in beside] if plain in ([], [0]) else []
    if len(shared) >= LEAST_SHARED:
        used, seconds = shared, [max(0.0, each - beside.get(i, 0.0)) for i, each in enumerate(seconds)]
    traced_only = not used
    if traced_only:
        used = [i for i in everything if set(special.get(str(i), {})) <= {"traced"}] or everything
    values = [seconds[i] for i in used]
    if not values:
        return StepTimes(count=0, median_seconds=0, mean_seconds=0, low_seconds=0, high_seconds=0), []
    ceiling = SPIKE * statistics.median(values)
    mean = statistics.fmean(min(v, ceiling) for v in values)
    usual = mean > (1 - UNEVEN) * statistics.median(values)
    return summarize(values, mean, drift=_drift(values), traced_only=traced_only, by_median=usual), used


def _drift(values: list[float]) -> float:
    """Last quarter over first, where the quarters move one way by more than the noise; else 1."""
    if len(values) < 20:
        return 1.0
    quarter = len(values) // 4
    medians = [statistics.median(values[n * quarter : (n + 1) * quarter]) for n in range(4)]
    rising = all(a < b for a, b in pairwise(medians))
    falling = all(a > b for a, b in pairwise(medians))
    ratio = medians[3] / medians[0] if medians[0] > 0 else 1.0
    return ratio if (rising and ratio > 1.15) or (falling and ratio < 0.85) else 1.0


def data_loading(phase: Intervals, used: list[int], per_step: float) -> DataLoading:
    """Return how batches arrive, from the plain intervals `used`; `per_step` batches per step."""
    loader: Loader = phase["loader"] or {}
    batch = phase["batch"]
    wait = 0.0
    if used:
        ceiling = SPIKE * statistics.median(phase["seconds"][i] for i in used)
        wait = statistics.fmean(min(phase["waits"][i], ceiling) for i in used)
    fetches = loader.get("fetches") or 0
    busy, waits = loader.get("fetch_seconds") or 0.0, loader.get("fetch_waits") or 0.0
    return DataLoading(
        wait_seconds_per_step=wait,
        fetch_seconds_per_batch=busy / fetches if fetches else None,
        # of a worker, where it is clearly more than its own work (less may be a busy machine)
        fetch_wait_seconds_per_batch=waits / fetches if fetches and waits > 2 * busy else 0.0,
        batches_per_step=per_step,
        workers=loader.get("workers") or 0,
        batch_size=(batch["size"] if batch else None) or loader.get("batch_size"),
        batch_bytes=batch["bytes"] if batch else 0,
    )


def extras(
    phase: Intervals,
    step: StepTimes,
    total: Total,
    per_iteration: float,
    batch_size: int | None,
    *,
    run_delay_seconds: float = 0.0,
    saves: Saves | None = None,
    validation: Validation | None = None,
    acts: bool = False,
) -> list[Extra]:
    """Return validation, checkpoints and whatever else takes time beside the steps.

    Args:
        saves: How often a trainer says that it saves; None if none does.
        validation: How often it says that it evaluates, and on how much.
        acts: Whether what the model does in eval mode is to act in an environment, once in each epoch.
        run_delay_seconds: Time in which threads of the script were ready and had no core: no work of its own.
    """
    seconds, special = phase["seconds"], phase["special"]
    events = {int(i): event for i, event in special.items() if int(i) < len(seconds)}
    works = works_of(phase, total, per_iteration)
    found: list[Extra] = []
    evaluating: dict[int, float] = {}
    saving = {i: event["save"] for i, event in events.items() if event.get("save")}
    starting: dict[int, float] = {}
    for i, event in events.items():
        rest = max(0.0, seconds[i] - step.median_seconds - event.get("validation", 0.0) - event.get("save", 0.0))
        if "validation" in event:  # it may have had no core of its own in all that time
            evaluating[i] = event["validation"]
        elif event.get("validation_batches"):
            evaluating[i], rest = rest, 0.0
        if event.get("opened") and not event.get("traced"):
            starting[i] = rest
    slight: set[ExtraKind] = set()
    for kind, seen in (
        (ExtraKind.VALIDATION, evaluating),
        (ExtraKind.CHECKPOINT, saving),
        (ExtraKind.EPOCH_START, starting),
    ):
        # a checkpoint is one however quickly it is saved: what an interruption loses depends on it
        counts = kind is ExtraKind.CHECKPOINT or (kind is ExtraKind.VALIDATION and validation is not None)
        if seen and (counts or usual_seconds(seen) > 0.02 * step.median_seconds):
            found.append(repeating(kind, seen, works, phase, total))
        elif seen:
            slight.add(kind)
    told: list[_Announced] = [
        (ExtraKind.VALIDATION, validation, _told_validation(validation, phase, step, batch_size)),
        (ExtraKind.CHECKPOINT, saves, (_state_seconds(phase), f"told by the trainer, not reached; {DISK_WORDS}")),
    ]
    found = _as_told(found, told, step, total)
    claimed = set(events)
    for work, at, each in _long_intervals(works, phase, step):
        claimed.update(at)
        note = f"line {work.raw['line']}: {work.raw['source']}"
        found.append(work.as_extra(work.kind, each, measured=True, note=note))
    found += _irregular(seconds, claimed, step, run_delay_seconds)
    found += unreached(
        [work for work in works if work.kind not in slight or sum(one.kind is work.kind for one in works) > 1],
        found,
        phase,
        step,
        total,
        batch_size=batch_size,
        state_seconds=_state_seconds(phase),
    )
    if not any(extra.kind is ExtraKind.EPOCH_START for extra in found):
        found += _workers_start(phase, step, total)
    return [
        replace(extra, kind=ExtraKind.ROLLOUT, rhythm=Rhythm.EPOCH, every=1.0, first=None, seen_once=False)
        if acts and extra.kind is ExtraKind.VALIDATION
        else extra
        for extra in found
    ]


def _workers_start(phase: Intervals, step: StepTimes, total: Total) -> list[Extra]:
    """Workers that start anew with each epoch, of which no second one was seen to begin."""
    loader: Loader = phase["loader"] or {}
    seconds = loader.get("start_seconds") or 0.0
    if not total.steps_per_epoch or epoch_starts(phase) or seconds <= 0.02 * step.median_seconds:
        return []
    note = f"{loader.get('workers') or 0} workers, timed once before the first step"
    return [Extra(kind=ExtraKind.EPOCH_START, seconds_each=seconds, rhythm=Rhythm.EPOCH, measured=False, note=note)]


_Announced = tuple[ExtraKind, Saves | Validation | None, tuple[float, str] | None]


def _as_told(found: list[Extra], told: Sequence[_Announced], step: StepTimes, total: Total) -> list[Extra]:
    """Work in the rhythm that the trainer tells, seen or not.

    Args:
        told: Kind, rhythm, and seconds and a note for one that was not reached; None where they are not known.
    """
    for kind, pace, missed in told:
        seen = next((extra for extra in found if extra.kind is kind), None)
        if pace is None:
            continue
        rhythm = Rhythm.EPOCH if pace["rhythm"] == "epoch" else Rhythm.STEPS
        every = max(1.0, pace["every"] / (step.seconds or 1.0)) if pace["rhythm"] == "seconds" else pace["every"]
        if rhythm is Rhythm.EPOCH and not total.steps_per_epoch and kind is ExtraKind.VALIDATION:
            continue  # there is no telling how many epochs there will be
        if seen is not None:
            found = [extra for extra in found if extra is not seen]
            found.append(replace(seen, rhythm=rhythm, every=every))
        elif missed is not None:
            each, note = missed
            found.append(
                Extra(kind=kind, seconds_each=each, rhythm=rhythm, every=every, measured=False, note=note),
            )
    return found


def untold(validation: Validation | None, beside: Sequence[Extra]) -> str | None:
    """Return a sentence on evaluations that a trainer announces and nobody has timed; None if there are none."""
    if validation is None or any(extra.kind is ExtraKind.VALIDATION for extra in beside):
        return None
    unit = {"epoch": "epoch", "steps": "step", "seconds": "second"}[validation["rhythm"]]
    number = validation["every"]
    every = f"every {unit}" if number == 1 else f"every {number:,.4g} {plural_unit(unit)}"
    why = "how long its epochs are" if validation["batches"] else "on how many batches"
    return f"Its trainer evaluates {every}, {why} is not known: that is not in these figures."


def _told_validation(
    told: Validation | None, phase: Intervals, step: StepTimes, batch_size: int | None
) -> tuple[float, str] | None:
    """Return the seconds and a note for an evaluation that a trainer tells of; None if it does not know its length."""
    if told is None or not told["batches"]:
        return None
    seconds = forward_seconds(told["batches"], told["batch_size"], phase, step, batch_size)
    return seconds, f"{told['batches']:,.0f} batches, told by the trainer, not reached; taken as forward passes"


def _state_seconds(phase: Intervals) -> float:
    """Return the seconds to write the model and its optimizer to a disk; under adapters, what is trained."""
    state = sum(optimizer["state_bytes"] for optimizer in phase["optimizers"])
    model, frozen = phase["model"].get("bytes", 0), phase["model"].get("frozen_bytes", 0)
    return (model - (frozen if frozen > MOSTLY_FROZEN * model else 0) + state) / DISK_BYTES_PER_SECOND


def _long_intervals(
    works: Sequence[NamedWork], phase: Intervals, step: StepTimes
) -> Iterator[tuple[NamedWork, list[int], float]]:
    """Work whose intervals took clearly longer than a step, though nothing was seen in them; each interval once.

    Where something was seen in most of them, the others do not stand for it: the first one prepares.

    Yields:
        The work, its intervals, and its seconds each.
    """
    taken = {int(i) for i, event in phase["special"].items() if set(event) - {"loader_start"}}
    for work in works:
        at = [i for i in work.inside if i not in taken]
        beyond = [phase["seconds"][i] - step.median_seconds for i in at]
        if not at or 2 * len(at) < len(work.inside):
            continue
        if step.median_seconds > 0 and statistics.median(beyond) > (SPIKE - 1) * step.median_seconds:
            taken.update(at)
            yield work, at, statistics.median(beyond)


def _irregular(seconds: list[float], claimed: set[int], step: StepTimes, run_delay_seconds: float) -> list[Extra]:
    plain = [seconds[i] for i in range(2, len(seconds)) if i not in claimed]
    long = [v for v in plain if v > SPIKE * step.median_seconds]
    excess = sum(plain) - len(plain) * step.seconds - run_delay_seconds  # what the step's own seconds leave out
    if not plain or excess < UNEVEN * sum(plain):
        return []
    count, note = len(plain), "steps differ: what they take on average beyond the median"
    if sum(long) - len(long) * step.seconds > excess / 2:
        count, note = len(long), f"{len(long)} steps of {len(plain)} took over {SPIKE:g} times the median"
    return [
        Extra(
            kind=ExtraKind.OTHER,
            seconds_each=excess / count,
            rhythm=Rhythm.STEPS,
            every=len(plain) / count,
            note=note,
        )
    ]
