"""From the counter of a program's log to a training phase: seconds per step, the total, and what lies between epochs.

Pure. Rates are differences of the counter over our own clock; what the program prints of its speed is only compared.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from itertools import pairwise

from costgpu.measure.log.counters import ProgressLog, Sample, Stream
from costgpu.measure.log.patterns import NETS, Tier
from costgpu.measure.log.total_steps import Scope, log_total, scope_of
from costgpu.measure.profile.step_times import SPIKE, summarize
from costgpu.models.workload import DataLoading, Extra, ExtraKind, GpuPath, Phase, Rhythm, StepTimes

SAME_MOMENT_SECONDS = 1e-3  # lines that come together were held back in a buffer; the last of them is current
PAUSE_SECONDS = 0.5  # a spike that is longer by so much held other work; a shorter one is the machine's
WARM_UP, ENOUGH = 2, 5  # intervals that are left out at the start, if so many remain
PRINTED_RATIO = 1.3  # a printed speed that differs by more is mentioned
LEAST_EXTRA_SHARE = 0.05  # of a step; less between epochs is the clock's noise
EXAMPLE_CHARS = 60
UNKNOWN_WORK = "costgpu does not know what this program computes: --like names its kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """What a log says."""

    phase: Phase  # the training
    framework: str  # whose lines they are; ``log lines`` if nobody's in particular
    setup_seconds: float  # from the start to the first step
    notes: list[str]  # one sentence each


@dataclass(frozen=True, slots=True)
class _Interval:
    """From one reading to the next: seconds, steps, and the counter at its end."""

    seconds: float
    steps: float
    end: float

    @property
    def each(self) -> float:
        return self.seconds / self.steps


@dataclass(slots=True)
class _Pace:
    """The intervals inside an epoch, and the seconds, steps and epochs from the last reading of one to the next."""

    inside: list[_Interval] = field(default_factory=list)
    across: list[tuple[float, float, float]] = field(default_factory=list)

    def beyond(self, each: float | None) -> list[_Interval]:
        """Return the intervals across the ends of epochs that have `each` steps."""
        if not each:
            return []
        return [_Interval(s, steps + n * each, 0.0) for s, steps, n in self.across if steps + n * each >= 0]


def read_phase(log: ProgressLog, *, started_at: float, ended: bool, kind: str = "") -> LogReading | None:
    """Return the training that a log tells of; None if no counter in it can be timed. An empty `kind` is recognised."""
    stream = log.best()
    if stream is None:
        return None
    samples = _settled(stream.samples)
    scope = scope_of(stream, log)
    pace = _pace(samples, scope)
    by_epoch = not pace.inside
    whole = pace.beyond(stream.total if scope is Scope.EPOCH else None)
    intervals = pace.inside or [interval for interval in whole if interval.steps > 0]
    if not intervals:
        return None
    skip = next((n for n in range(WARM_UP, 0, -1) if len(intervals) - n >= ENOUGH), 0)
    settled = intervals[skip:]

    def at_end(interval: _Interval) -> bool:
        return scope is Scope.EPOCH and interval.end == stream.total

    median = statistics.median(interval.each for interval in settled)
    long = [
        i for i in settled if i.each > SPIKE * median and (i.seconds - i.steps * median > PAUSE_SECONDS or at_end(i))
    ]
    times = _times([interval for interval in settled if interval not in long], median)
    total = log_total(stream, log, scope, times.mean_seconds, started_at=started_at, ended=ended)
    mean = times.mean_seconds
    notes = [_chosen(stream, log)]
    extras = []
    across = [] if by_epoch else pace.beyond(total.steps_per_epoch)
    if across and _excess(across, mean) >= LEAST_EXTRA_SHARE * mean:
        extras.append(_epoch_extra(across, mean, "between the last line of an epoch and the first of the next"))
    if last := [interval for interval in long if at_end(interval)]:
        extras.append(_epoch_extra(last, mean, "before the last line of an epoch"))
    if amid := [interval for interval in long if not at_end(interval)]:
        pauses = _pauses(settled, amid, mean, stream, log)
        if isinstance(pauses, Extra):
            extras.append(pauses)
        else:
            notes.append(pauses)
    path, reason, kind = _gpu(stream, log, kind)
    batch = float(log.facts["batch_size"]) if "batch_size" in log.facts else None
    phase = Phase(
        label=f"{stream.pattern.label} in its output",
        total=total,
        steps_observed=max(1, round(sum(interval.steps for interval in intervals))),
        step=times,
        data=DataLoading(batch_size=int(batch) if batch else None),
        extras=extras,
        unit=stream.pattern.unit,
        gpu=path,
        gpu_reason=reason,
        kind=kind,
    )
    if len(samples) < len(stream.samples) / 2:
        notes.append("Its output comes in blocks, because the program buffers it: single steps could not be timed.")
    if by_epoch and stream.pattern.unit != "epoch":
        notes.append("It prints once an epoch: a step's time includes whatever else an epoch holds.")
    elif scope is Scope.EPOCH and not pace.across and stream.pattern.unit not in ("epoch", "percent"):
        notes.append("No end of an epoch was seen: work between epochs (validation, checkpoints) is not counted.")
    notes += _printed(samples, mean, batch)
    first = samples[0]
    before = first.step * mean  # steps that it made before its first line
    waited = first.at - started_at
    if before > waited:  # it goes on where an earlier run has ended, or counts from another start
        before = intervals[0].steps * mean
    return LogReading(
        phase=phase, framework=stream.pattern.framework, setup_seconds=max(0.0, waited - before), notes=notes
    )


def _settled(samples: list[Sample]) -> list[Sample]:
    """One reading for each moment: the last of those that came together."""
    kept: list[Sample] = []
    begun = -math.inf
    for sample in samples:
        if sample.at - begun < SAME_MOMENT_SECONDS:
            kept[-1] = sample
        else:
            kept.append(sample)
            begun = sample.at
    return kept


def _pace(samples: list[Sample], scope: Scope) -> _Pace:
    pace = _Pace()
    for before, after in pairwise(samples):
        seconds, steps = after.at - before.at, after.step - before.step
        epochs = after.epoch - before.epoch if after.epoch is not None and before.epoch is not None else 0.0
        if steps < 0 or (scope is Scope.EPOCH and epochs > 0):
            pace.across.append((seconds, steps, max(1.0, epochs)))
        elif steps > 0 and seconds > 0:
            pace.inside.append(_Interval(seconds, steps, after.step))
    return pace


def _times(intervals: list[_Interval], median: float) -> StepTimes:
    """Return the times of a step; for the mean an interval counts by its steps, and with three medians at most."""
    seconds = sum(min(i.seconds, SPIKE * median * i.steps) for i in intervals)
    return summarize([interval.each for interval in intervals], seconds / sum(i.steps for i in intervals))


def _excess(intervals: list[_Interval], mean: float) -> float:
    """Return what an interval holds beyond its steps, in seconds."""
    return statistics.fmean(interval.seconds - interval.steps * mean for interval in intervals)


def _epoch_extra(intervals: list[_Interval], mean: float, note: str) -> Extra:
    seconds = _excess(intervals, mean)
    return Extra(kind=ExtraKind.EPOCH_START, seconds_each=seconds, rhythm=Rhythm.EPOCH, note=note)


def _pauses(
    intervals: list[_Interval], amid: list[_Interval], mean: float, stream: Stream, log: ProgressLog
) -> Extra | str:
    """Intervals that held other work amid an epoch: an extra if their rhythm is seen, else a note."""
    if "test_interval" in log.facts and stream.pattern.name == "caffe":
        every = float(log.facts["test_interval"])
    elif len(amid) > 1:
        first, last = intervals.index(amid[0]), intervals.index(amid[-1])
        every = sum(i.steps for i in intervals[first + 1 : last + 1]) / (len(amid) - 1)
    else:
        pause = amid[0].seconds - amid[0].steps * mean
        return f"One pause of {pause:.2g} s before {amid[0].end:,.0f} is not counted: its rhythm was not seen."
    return Extra(
        kind=ExtraKind.OTHER,
        seconds_each=_excess(amid, mean),
        rhythm=Rhythm.STEPS,
        every=max(1.0, every),
        note="pauses between its lines",
    )


def _gpu(stream: Stream, log: ProgressLog, kind: str) -> tuple[GpuPath, str, str]:
    """Return how its seconds on a GPU can be known, why, and the kind of its work."""
    if kind:
        return GpuPath.TABLE, f"only its output was seen; by --like its work is taken to be of the kind {kind}", kind
    if stream.pattern.no_gpu:
        return GpuPath.NONE, stream.pattern.no_gpu, ""
    if stream.pattern.kind:
        return GpuPath.TABLE, f"only its output was seen: lines of {stream.pattern.label}", stream.pattern.kind
    for fact in ("net", "network"):
        name = log.facts.get(fact, "").lower()
        if fact == "network" and name == "resnet":
            name = f"resnet{log.facts.get('num_layers', '')}"
        if name in NETS:
            return GpuPath.TABLE, f"only its output was seen; it names its net {log.facts[fact]!r}", NETS[name]
    return GpuPath.NONE, UNKNOWN_WORK, ""


def example_of(text: str) -> str:
    """Return a line, short enough to be quoted."""
    text = " ".join(text.split())
    return text if len(text) <= EXAMPLE_CHARS else text[: EXAMPLE_CHARS - 3] + "..."


def _chosen(stream: Stream, log: ProgressLog) -> str:
    counted = "counted as steps" if stream.pattern.step_group == 0 else "read as progress"
    text = f"Lines of {stream.pattern.label} were {counted}, such as: {example_of(stream.example)}"
    others = log.others(stream) if stream.pattern.tier is not Tier.USER else []
    if others:
        text += f". Other lines count, too, and were left aside: {example_of(others[0].example)}"
        text += " (--step-pattern chooses)"
    return text + "."


def _printed(samples: list[Sample], mean: float, batch: float | None) -> list[str]:
    """Return a note if the program's own speed is not the clock's."""
    later = samples[len(samples) // 2 :]  # averages since the start have settled
    said = [s.printed_seconds for s in later if s.printed_seconds]
    if not said and batch:
        said = [batch / s.samples_rate for s in later if s.samples_rate]
    if not said:
        return []
    printed = statistics.median(said)
    if 1 / PRINTED_RATIO <= printed / mean <= PRINTED_RATIO:
        return []
    return [
        f"It prints a speed of {printed:.3g} s per step; by the clock it is {mean:.3g} s, which is what counts here."
    ]
