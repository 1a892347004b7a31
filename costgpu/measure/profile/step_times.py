"""From the probe's intervals to step times and to the work beside the steps. Pure.

An interval is the time from one counted step to the next. Most hold a step and nothing else; some hold a
validation pass, a checkpoint or the start of an epoch, which repeat with a rhythm of their own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from costgpu.measure.probe.record import IntervalEvents, Intervals, Loader, Loop, PeriodicWork, Saves, Validation
from costgpu.measure.profile.accumulation import batches_per_step
from costgpu.measure.profile.total_steps import epochs_between_starts, observed_epoch, steps_of_rounds
from costgpu.models.defaults import DISK_BYTES_PER_SECOND
from costgpu.models.workload import DataLoading, Extra, ExtraKind, Rhythm, StepTimes, Total
from costgpu.units import plural_unit

DISK_WORDS = f"taken as {DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s"
SPIKE = 3.0  # an interval above so many medians is not a step's own variation
UNEVEN = 0.02  # of the time of all steps: what they take beyond the median, from there on, is told beside it
FORWARD_SHARE = 1 / 3  # a forward pass is one of the three equal parts of a training step's FLOPs


def summarize(
    values: Sequence[float],
    mean_seconds: float,
    *,
    drift: float = 1.0,
    traced_only: bool = False,
    by_median: bool = False,
) -> StepTimes:
    """The figures of step times (at least one), around a mean that is computed elsewhere."""
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
    """The times of a step that was seen once."""
    return summarize([seconds], seconds)


def step_times(phase: Intervals) -> tuple[StepTimes, list[int]]:
    """The times of a plain step, and the indices of the intervals that were used."""
    seconds, special = phase["seconds"], phase["special"]
    everything = list(range(len(seconds)))
    plain = [i for i in everything if str(i) not in special]
    traced = {int(i) for i, event in special.items() if event.get("traced")}
    settled = [i for i in plain if i > 1 and i - 1 not in traced]
    used = settled if len(settled) >= 5 else plain
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
    """How batches arrive, from the plain intervals `used`; `per_step` batches per step."""
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
        pin_memory=bool(loader.get("pin_memory")),
        batch_size=(batch["size"] if batch else None) or loader.get("batch_size"),
        batch_bytes=batch["bytes"] if batch else 0,
    )


def extras(
    phase: Intervals,
    step: StepTimes,
    total: Total,
    per_iteration: float,
    before_validation_seconds: float,
    batch_size: int | None,
    *,
    queued_seconds: float = 0.0,
    saves: Saves | None = None,
    validation: Validation | None = None,
) -> list[Extra]:
    """Validation, checkpoints and whatever else takes time beside the steps.

    Args:
        saves: How often a trainer says that it saves; None if none does.
        validation: How often it says that it evaluates, and on how much.
        queued_seconds: Time in which threads of the script were ready and had no core: no work of its own.
    """
    seconds, special = phase["seconds"], phase["special"]
    events = {int(i): event for i, event in special.items() if int(i) < len(seconds)}
    boundaries = sorted(i for i, event in events.items() if event.get("opened"))
    found: list[Extra] = []
    evaluating: dict[int, float] = {}
    saving = {i: event["save"] for i, event in events.items() if event.get("save")}
    starting: dict[int, float] = {}
    for i, event in events.items():
        rest = max(0.0, seconds[i] - step.median_seconds - event.get("validation", 0.0) - event.get("save", 0.0))
        if event.get("validation"):
            evaluating[i] = event["validation"]
        elif event.get("validation_batches"):
            evaluating[i], rest = rest, 0.0
        if event.get("opened") and not event.get("traced"):
            starting[i] = rest
    for kind, seen in (
        (ExtraKind.VALIDATION, evaluating),
        (ExtraKind.CHECKPOINT, saving),
        (ExtraKind.EPOCH_START, starting),
    ):
        # a checkpoint is one however quickly it is saved: what an interruption loses depends on it
        counts = kind is ExtraKind.CHECKPOINT or (kind is ExtraKind.VALIDATION and validation is not None)
        if seen and (counts or statistics.median(seen.values()) > 0.02 * step.median_seconds):
            extra = _repeating(kind, seen, boundaries, per_iteration, phase)
            found.append(_in_epochs(extra, phase, total))
    told: list[_Told] = [
        (ExtraKind.VALIDATION, validation, _told_validation(validation, phase, step, batch_size)),
        (ExtraKind.CHECKPOINT, saves, (_state_seconds(phase), f"told by the trainer, not reached; {DISK_WORDS}")),
    ]
    found = _as_told(found, told, step, total)
    found += _irregular(seconds, events, step, queued_seconds)
    found += _unreached(phase, step, total, per_iteration, before_validation_seconds, batch_size, found)
    sizes = [event["save_bytes"] for event in events.values() if event.get("save_bytes")]
    return [_with_size(extra, sizes) for extra in found]


_Told = tuple[ExtraKind, Saves | Validation | None, tuple[float, str] | None]


def _as_told(found: list[Extra], told: Sequence[_Told], step: StepTimes, total: Total) -> list[Extra]:
    """Work in the rhythm that the trainer tells, seen or not.

    Args:
        told: Kind, rhythm, and seconds and a note for one that was not reached; None where they are not known.
    """
    for kind, pace, unreached in told:
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
        elif unreached is not None:
            each, note = unreached
            found.append(
                Extra(kind=kind, seconds_each=each, rhythm=rhythm, every=every, measured=False, note=note),
            )
    return found


def left_out(validation: Validation | None, beside: Sequence[Extra]) -> str | None:
    """A sentence for evaluations that a trainer tells of, and that are in no figure: how long they are is not known."""
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
    """Seconds and a note for an evaluation that a trainer tells of; None if it does not know its length."""
    if told is None or not told["batches"]:
        return None
    seconds = _forward_seconds(told["batches"], told["batch_size"], phase, step, batch_size)
    return seconds, f"{told['batches']:,.0f} batches, told by the trainer, not reached; taken as forward passes"


def _forward_seconds(
    batches: float, size: int | None, phase: Intervals, step: StepTimes, batch_size: int | None
) -> float:
    """Seconds of forward passes over so many batches of `size`, where the training's have `batch_size`.

    They wait for their batches as long as those of the training.
    """
    share = size / batch_size if batch_size and size else 1.0
    plain = [wait for i, wait in enumerate(phase["waits"]) if str(i) not in phase["special"]]
    wait = min(statistics.median(plain), step.median_seconds) if plain else 0.0
    per_step = wait + FORWARD_SHARE * (step.median_seconds - wait)
    return batches * per_step / max(1.0, batches_per_step(phase)) * share


def _in_epochs(extra: Extra, phase: Intervals, total: Total) -> Extra:
    """Work that was seen at starts of epochs, in the epochs of the total."""
    if extra.rhythm is not Rhythm.EPOCH:
        return extra
    if total.steps_per_epoch is None:
        return replace(extra, rhythm=Rhythm.STEPS, every=extra.every * (observed_epoch(phase) or 1.0))
    return replace(extra, every=extra.every * epochs_between_starts(phase, total))


def _with_size(extra: Extra, sizes: Sequence[float]) -> Extra:
    if extra.kind is not ExtraKind.CHECKPOINT or not extra.measured or not sizes:
        return extra
    return replace(extra, bytes_each=statistics.median(sizes))


def _state_seconds(phase: Intervals) -> float:
    """Seconds to write the model and its optimizer to a disk."""
    state = sum(optimizer["state_bytes"] for optimizer in phase["optimizers"])
    return (phase["model"].get("bytes", 0) + state) / DISK_BYTES_PER_SECOND


def _repeating(
    kind: ExtraKind,
    seen: dict[int, float],
    boundaries: list[int],
    per_iteration: float,
    phase: Intervals,
) -> Extra:
    each = statistics.median(seen.values())
    at = sorted(seen)
    note = f"seen {len(at)} times" if len(at) > 1 else "seen once"
    if boundaries and all(i in boundaries for i in at):
        reached = [b for b in boundaries if b <= at[-1]]
        return Extra(kind=kind, seconds_each=each, rhythm=Rhythm.EPOCH, every=len(reached) / len(at), note=note)
    if len(at) > 1:
        every = statistics.median(b - a for a, b in pairwise(at))
        return Extra(kind=kind, seconds_each=each, rhythm=Rhythm.STEPS, every=float(every), note=note)
    loops = phase["snapshots"][-1]["loops"] if phase["snapshots"] else []
    gates = [
        g["every"] / per_iteration
        for g in phase["upcoming"]["periodic"]
        if g["every"] and loops and _in_loop(g, loops[-1])
    ]
    fitting = [g for g in gates if g >= 1 and abs((at[0] + 1) / g - round((at[0] + 1) / g)) < 1e-6]
    every = max(fitting) if fitting else float(at[0] + 1)  # a shorter one would have been seen before
    return Extra(kind=kind, seconds_each=each, rhythm=Rhythm.STEPS, every=every, note=note)


def _irregular(
    seconds: list[float], events: dict[int, IntervalEvents], step: StepTimes, queued_seconds: float
) -> list[Extra]:
    plain = [seconds[i] for i in range(2, len(seconds)) if i not in events]
    long = [v for v in plain if v > SPIKE * step.median_seconds]
    excess = sum(plain) - len(plain) * step.seconds - queued_seconds  # what the step's own seconds leave out
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


def _unreached(
    phase: Intervals,
    step: StepTimes,
    total: Total,
    per_iteration: float,
    before_validation_seconds: float,
    batch_size: int | None,
    found: list[Extra],
) -> list[Extra]:
    """What the source says will come, and the measurement ended before."""
    have = {extra.kind for extra in found}
    loops = phase["snapshots"][-1]["loops"] if phase["snapshots"] else []
    more: list[Extra] = []
    rounds = steps_of_rounds(phase)
    for work in phase["upcoming"]["periodic"]:
        rhythm, every = _place(work, loops, per_iteration, rounds, total)
        if rhythm is Rhythm.STEPS and total.steps is not None and every > total.steps:
            continue
        kind = ExtraKind.CHECKPOINT if work["kind"] == "checkpoint" else ExtraKind.VALIDATION
        if kind in have:
            continue
        if work["kind"] == "validation":
            each = _forward_seconds(work["batches"] or 0, work["batch_size"], phase, step, batch_size)
            note = f"line {work['line']}: {work['batches']} batches, not reached; taken as forward passes"
        elif work["kind"] == "checkpoint":
            if rhythm is Rhythm.STEPS and work["every"] == 1:
                continue  # after every step: it would have been seen
            each = _state_seconds(phase)
            note = f"line {work['line']}, not reached; {DISK_WORDS}"
        elif before_validation_seconds > 0:
            each = before_validation_seconds
            note = f"line {work['line']}: {work['source']}, timed once before the first step"
        else:
            continue
        measured = work["kind"] == "gated"
        more.append(Extra(kind=kind, seconds_each=each, rhythm=rhythm, every=every, measured=measured, note=note))
        have.add(kind)
    return more


def _in_loop(work: PeriodicWork, loop: Loop) -> bool:
    return work["loop_line"] == loop["line"] and work["path"] == loop["path"]


def _place(
    work: PeriodicWork, loops: list[Loop], per_iteration: float, rounds: dict[tuple[str, int], float], total: Total
) -> tuple[Rhythm, float]:
    every = work["every"] or 1.0
    places = [n for n, loop in enumerate(loops) if _in_loop(work, loop)]
    if not places:
        return Rhythm.RUN, 1.0
    if places[-1] == len(loops) - 1:
        return Rhythm.STEPS, max(1.0, every / per_iteration)
    each, epoch = rounds.get((work["path"], work["loop_line"])), total.steps_per_epoch
    if each is not None:
        return (Rhythm.EPOCH, every * each / epoch) if epoch else (Rhythm.STEPS, every * each)
    between = loops[places[-1] + 1 : -1]
    inner = math.prod(t if isinstance(t := loop["trips"], (int, float)) and t else 1 for loop in between)
    return Rhythm.EPOCH, every * inner
