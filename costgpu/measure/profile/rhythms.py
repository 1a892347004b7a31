"""How often what stands beside the steps comes: from what was seen of it and from what the source says. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from costgpu.measure.probe.record import Intervals, Loop, PeriodicWork
from costgpu.measure.profile.accumulation import batches_per_step
from costgpu.measure.profile.loop_bounds import number
from costgpu.measure.profile.total_steps import epochs_between_starts, observed_epoch, steps_of_rounds
from costgpu.models.defaults import DISK_BYTES_PER_SECOND
from costgpu.models.workload import Extra, ExtraKind, Rhythm, StepTimes, Total

DISK_WORDS = f"taken as {DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s"
AT_MOST = "; at most that often"
FORWARD_SHARE = 1 / 3  # a forward pass is one of the three equal parts of a training step's FLOPs
SAME_EPOCH = 0.02  # by which two lengths of an epoch may differ
MOST_NAMED = 4  # in one note


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWork:
    """Work that the source names beside the steps."""

    raw: PeriodicWork
    rhythm: Rhythm
    every: float | None  # steps or epochs from one to the next; inf if it does not come back; None if not known
    first: float | None  # step or epoch with which it first comes, from 1; None if not known
    # intervals in which it was to come within the measurement, -1 for before the first step; None if not known
    due: list[int] | None
    times: int = 1  # how often it comes, if it does not come back

    @property
    def kind(self) -> ExtraKind:
        """Return what it is when it takes time."""
        if self.raw["kind"] == "checkpoint":
            return ExtraKind.CHECKPOINT
        validates = self.raw["kind"] == "validation" or self.raw["evaluates"]
        return ExtraKind.VALIDATION if validates else ExtraKind.OTHER

    @property
    def inside(self) -> list[int]:
        """Return the intervals of the measurement in which it was to come, as far as they are known."""
        return [i for i in self.due or () if i >= 0]

    def is_reached(self, count: int) -> bool:
        """Return whether it should have come in `count` intervals."""
        if self.due is not None:
            return bool(self.inside)
        return self.rhythm is Rhythm.STEPS and self.every is not None and 2 * self.every <= count

    def as_extra(self, kind: ExtraKind, seconds: float, *, measured: bool, note: str) -> Extra:
        """Return the work as an extra of so many seconds each; once and for all if it does not come back."""
        note += AT_MOST if self.raw["at_most"] else ""
        if self.every is None or math.isinf(self.every):
            return Extra(kind=kind, seconds_each=seconds * self.times, rhythm=Rhythm.RUN, measured=measured, note=note)
        return Extra(
            kind=kind,
            seconds_each=seconds,
            rhythm=self.rhythm,
            every=self.every,
            first=self.first,
            measured=measured,
            note=note,
        )


def works_of(phase: Intervals, total: Total, per_iteration: float) -> list[NamedWork]:
    """Return what the source names beside the steps, with its place among the intervals.

    Args:
        per_iteration: Iterations of the innermost loop for a step.
    """
    loops = phase["snapshots"][-1]["loops"] if phase["snapshots"] else []
    boundaries, rounds = epoch_starts(phase), steps_of_rounds(phase)
    return [_work(raw, loops, phase, boundaries, rounds, total, per_iteration) for raw in phase["upcoming"]["periodic"]]


def epoch_starts(phase: Intervals) -> list[int]:
    """Return the intervals in which an epoch began."""
    return sorted(
        int(i) for i, event in phase["special"].items() if event.get("opened") and int(i) < len(phase["seconds"])
    )


def _work(
    raw: PeriodicWork,
    loops: list[Loop],
    phase: Intervals,
    boundaries: list[int],
    rounds: dict[tuple[str, int], float],
    total: Total,
    per_iteration: float,
) -> NamedWork:
    every, count = number(raw["every"]), len(phase["seconds"])
    home = (raw["loop_line"], raw["path"])
    level = max((n for n, loop in enumerate(loops) if (loop["line"], loop["path"]) == home), default=None)
    if level is None:
        return NamedWork(raw=raw, rhythm=Rhythm.RUN, every=every and 1.0, first=None, due=None)
    if level == len(loops) - 1 or raw["by_steps"]:
        each = 1.0 if raw["by_steps"] else per_iteration
        due = _due_intervals(raw, every, each, count)
        steps = every and max(1.0, every / each)
        first = None
        if due is not None and raw["opens"] and level == 0 and _is_regular(raw):
            first = max(1.0, _interval(raw, raw["opens"][0], each) + (1.0 if raw["after"] else 2.0))
        ends = [_interval(raw, one, each) + 1 for one in raw["opens"] or ()]
        times = sum(total.steps is None or end <= total.steps for end in ends)
        return NamedWork(raw=raw, rhythm=Rhythm.STEPS, every=steps, first=first, due=due, times=times)
    due = _due_epochs(raw, boundaries) if level == len(loops) - 2 else None
    if due is not None and _laps(phase, level) > len(boundaries) + 1:
        due = None
    lap, epoch = rounds.get((raw["path"], raw["loop_line"])), total.steps_per_epoch
    between = max(1.0, round(lap / epoch)) if lap and epoch else 1.0  # epochs of one iteration of its loop
    if every and lap and (epoch is None or abs(lap - between * epoch) > max(1.0, SAME_EPOCH * lap)):
        return NamedWork(raw=raw, rhythm=Rhythm.STEPS, every=every * lap, first=None, due=due)
    first = None
    if due is not None and raw["opens"] and level == 0 and _is_regular(raw):
        first = max(1.0, sum(i < raw["step"] - 1 for i in boundaries) + 1.0 + raw["opens"][0])
    times = len(raw["opens"] or ())
    return NamedWork(raw=raw, rhythm=Rhythm.EPOCH, every=every and every * between, first=first, due=due, times=times)


def _is_regular(raw: PeriodicWork) -> bool:
    """Return whether it comes after always as many iterations."""
    return raw["opens"] is not None and all(b - a == raw["every"] for a, b in pairwise(raw["opens"]))


def _interval(raw: PeriodicWork, at: float, each: float) -> int:
    """Return the interval that holds what comes at an iteration, counted from the one of step `raw["step"]`."""
    return raw["step"] - 1 + math.floor((at if raw["after"] else at - 1) / each + 1e-9)


def _due_intervals(raw: PeriodicWork, every: float | None, each: float, count: int) -> list[int] | None:
    opens = list(raw["opens"]) if raw["opens"] is not None else None
    if opens is None or every is None:
        return None
    while opens and math.isfinite(every) and _interval(raw, opens[-1] + every, each) < count:
        if not _is_regular(raw):
            return None  # it goes on in a way that is not told
        opens.append(opens[-1] + every)
    return sorted({max(-1, i) for i in (_interval(raw, one, each) for one in opens) if i < count})


def _due_epochs(raw: PeriodicWork, boundaries: list[int]) -> list[int] | None:
    if raw["opens"] is None or number(raw["every"]) is None:
        return None
    gone = sum(i < raw["step"] - 1 for i in boundaries)
    places = {int(gone + one if raw["after"] else gone + one - 1) for one in raw["opens"]}
    return sorted({boundaries[n] if n >= 0 else -1 for n in places if n < len(boundaries)})


def _laps(phase: Intervals, level: int) -> float:
    """Return iterations of an outer loop that were seen to pass, by its variable; 0 if it has none."""
    first, last = (shot["loops"][level : level + 1] for shot in (phase["snapshots"][0], phase["snapshots"][-1]))
    if not first or not last or first[0]["index"] is None or last[0]["index"] is None or not last[0]["stride"]:
        return 0.0
    return (last[0]["index"] - first[0]["index"]) / last[0]["stride"]


def repeating(
    kind: ExtraKind, seen: dict[int, float], works: Sequence[NamedWork], phase: Intervals, total: Total
) -> Extra:
    """Return the rhythm of what was seen in some intervals, which is never shorter than what was seen not to happen."""
    each, at, count = usual_seconds(seen), sorted(seen), len(phase["seconds"])
    note = f"seen {len(at)} times" if len(at) > 1 else "seen once"
    own = [work for work in works if explains(work, kind)]
    for work in own:
        if work.every is not None and _agrees(work.inside, at):
            return work.as_extra(kind, each, measured=True, note=note)
    boundaries = epoch_starts(phase)
    epochs = bool(boundaries) and all(i in boundaries for i in at)
    rhythm, unit = (Rhythm.EPOCH, "epochs") if epochs else (Rhythm.STEPS, "steps")
    places, whole = ([boundaries.index(i) for i in at], len(boundaries)) if epochs else (at, count)
    silence = float(whole - places[-1])
    if len(places) > 1:
        gaps = [b - a for a, b in pairwise(places)]
        usual = statistics.fmean(gaps) if epochs else statistics.median(gaps)
        found = Extra(kind=kind, seconds_each=each, rhythm=rhythm, every=max(usual, silence), note=note)
        return _in_epochs(found, phase, total)
    least = max(places[0] + 1.0, silence)
    fitting = [
        work.every
        for work in own
        if work.due is None and work.rhythm is rhythm and work.every and least <= work.every < math.inf
        if any(abs(n / work.every - round(n / work.every)) < 1e-6 for n in (places[0], places[0] + 1))
    ]
    once = not fitting and whole > 1 and kind is not ExtraKind.EPOCH_START
    found = Extra(
        kind=kind,
        seconds_each=each,
        rhythm=rhythm,
        every=min(fitting, default=least),
        seen_once=once,
        note=f"seen once in {whole:,} {unit}" if once else note,
    )
    return _in_epochs(found, phase, total)


def _in_epochs(extra: Extra, phase: Intervals, total: Total) -> Extra:
    """Work that was seen at starts of epochs, in the epochs of the total."""
    if extra.rhythm is not Rhythm.EPOCH:
        return extra
    if total.steps_per_epoch is None:
        return replace(extra, rhythm=Rhythm.STEPS, every=extra.every * (observed_epoch(phase) or 1.0))
    every = extra.every * epochs_between_starts(phase, total)
    if every < 1:
        return replace(extra, rhythm=Rhythm.STEPS, every=max(1.0, every * total.steps_per_epoch))
    return replace(extra, every=every)


def usual_seconds(seen: dict[int, float]) -> float:
    """Return the median of what was seen; the mean where most of it took no time that can be told."""
    return statistics.median(seen.values()) or statistics.fmean(seen.values())


def explains(work: NamedWork, kind: ExtraKind) -> bool:
    """Return whether what was seen of a kind may be this work."""
    if kind is ExtraKind.CHECKPOINT:
        return work.raw["kind"] == "checkpoint"
    return kind is ExtraKind.VALIDATION and work.raw["kind"] != "checkpoint"


def _agrees(due: Sequence[int], at: Sequence[int]) -> bool:
    """Return whether it came when it was to come, give or take a step."""
    return len(due) == len(at) > 0 and all(abs(a - b) <= 1 for a, b in zip(due, at, strict=True))


def unreached(
    works: Sequence[NamedWork],
    found: Sequence[Extra],
    phase: Intervals,
    step: StepTimes,
    total: Total,
    *,
    batch_size: int | None,
    state_seconds: float,
) -> list[Extra]:
    """Return what the source says will come, and the measurement ended before.

    Args:
        state_seconds: Seconds that a checkpoint takes.
    """
    have = {extra.kind for extra in found if not _is_anothers(extra, works)}
    coming = [work for work in works if work.kind not in have and _comes(work, total, len(phase["seconds"]))]
    more: list[Extra] = []
    timed: set[tuple[str, int]] = set()
    passes: dict[tuple[ExtraKind, Rhythm, float | None], list[NamedWork]] = {}
    for work in coming:
        place, key = (work.raw["path"], work.raw["line"]), (work.kind, work.rhythm, work.every)
        if work.kind is ExtraKind.CHECKPOINT:
            if not any((one.kind, one.rhythm, one.every) == key for one in more):
                note = f"line {work.raw['line']}, not reached; {DISK_WORDS}"
                more.append(work.as_extra(ExtraKind.CHECKPOINT, state_seconds, measured=False, note=note))
        elif work.raw["timed"] and place not in timed:
            timed.add(place)
            note = f"line {work.raw['line']}: {work.raw['source']}, timed once before the first step"
            more.append(work.as_extra(ExtraKind.VALIDATION, work.raw["timed"], measured=True, note=note))
        elif work.raw["batches"] is not None and place not in timed:
            passes.setdefault(key, []).append(work)
    for alike in passes.values():
        lines = ", ".join(dict.fromkeys(str(work.raw["line"]) for work in alike))
        seen = sum(work.raw["batches"] or 0 for work in alike)
        note = f"line {lines}: {seen:,.0f} batches, not reached; taken as forward passes"
        seconds = sum(
            forward_seconds(work.raw["batches"] or 0, work.raw["batch_size"], phase, step, batch_size) for work in alike
        )
        more.append(alike[0].as_extra(alike[0].kind, seconds, measured=False, note=note))
    return more


def forward_seconds(
    batches: float, size: int | None, phase: Intervals, step: StepTimes, batch_size: int | None
) -> float:
    """Return the seconds of forward passes over so many batches of `size`, where the training's have `batch_size`.

    They wait for their batches as long as those of the training.
    """
    share = size / batch_size if batch_size and size else 1.0
    plain = [wait for i, wait in enumerate(phase["waits"]) if str(i) not in phase["special"]]
    wait = min(statistics.median(plain), step.median_seconds) if plain else 0.0
    per_step = wait + FORWARD_SHARE * (step.median_seconds - wait)
    return batches * per_step / max(1.0, batches_per_step(phase["snapshots"])) * share


def _comes(work: NamedWork, total: Total, count: int) -> bool:
    """Return whether it is still to come, and was not to be seen in `count` intervals already."""
    if work.every is None or work.is_reached(count) or (work.rhythm is Rhythm.STEPS and work.every == 1):
        return False
    if math.isinf(work.every):
        return any(one > 0 for one in work.raw["opens"] or ())
    steps = total.steps
    return not (work.rhythm is Rhythm.STEPS and steps is not None and (work.first or work.every) > steps)


def _is_anothers(extra: Extra, works: Sequence[NamedWork]) -> bool:
    """Return whether work is that of a gate which was seen to open, so that others may still come."""
    rhythm = (extra.rhythm, extra.every)
    return any(work.inside and explains(work, extra.kind) and (work.rhythm, work.every) == rhythm for work in works)


def left_out(works: Sequence[NamedWork], found: Sequence[Extra], total: Total, count: int) -> str:
    """One sentence that names what was not reached and is not in the figures; empty for nothing.

    Args:
        count: Number of intervals that were measured.
    """
    have = {extra.kind for extra in found}
    named: dict[str, None] = {}
    for work in works:
        raw, validates = work.raw, work.raw["batches"] is not None
        if raw["kind"] == "checkpoint" or (work.kind is ExtraKind.VALIDATION and work.kind in have):
            continue
        if raw["timed"] and any((extra.rhythm, extra.every) == (work.rhythm, work.every) for extra in found):
            continue  # it was timed before the first step
        if not validates and (work.is_reached(count) or work.every is None or not _comes(work, total, count)):
            continue
        if validates and work.every is not None and (work.due is not None or not work.is_reached(count)):
            continue  # it is in the figures, never comes, or came and took no time to speak of
        where = f"line {raw['line']}: {raw['source']}"
        when = f" ({_words(work)})" if work.every is not None else f" under `{raw['test']}`"
        named[where + when] = None
    if not named:
        return ""
    listed = [*named][:MOST_NAMED] + (["and others"] if len(named) > MOST_NAMED else [])
    return f"Not seen in {count:,} steps, and not in these figures: {'; '.join(listed)}."


def _words(work: NamedWork) -> str:
    if work.every is None or math.isinf(work.every) or work.rhythm is Rhythm.RUN:
        return "once"
    unit = "epoch" if work.rhythm is Rhythm.EPOCH else "step"
    return f"every {unit}" if work.every == 1 else f"every {work.every:,.0f} {unit}s"
