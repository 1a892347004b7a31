"""From the counter of a program's log to a record with a progress series, as the probe writes one of a script. Pure.

Rates are differences of the counter over our own clock; what the program prints of its speed is not read.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from costgpu.measure.log.counters import CounterReadings, ProgressLog, Sample
from costgpu.measure.log.patterns import MAY_STOP, NETS, Tier
from costgpu.measure.probe.record import ActivityRecord, Intervals, ProbeRecord, SeriesFacts, SeriesRecord
from costgpu.measure.profile.step_times import SPIKE, step_times

SAME_MOMENT_SECONDS = 1e-3  # lines that come together were held back in a buffer; the last of them is current
WARM_UP, ENOUGH = 2, 5  # intervals that are left out at the start, if so many remain
MOST_STEPS = 20000  # of which a time is kept; beyond it each interval counts for fewer
LEAST_EXTRA_SHARE = 0.05  # of a step; less between epochs is the clock's noise
LEAST_EPOCH_PRECISION = 0.05  # an epoch's length between two printed steps is taken if they are as near as that
RESUMED_FACTOR = 2.0  # so many times the steps that its time allows were made by an earlier run
EXAMPLE_CHARS = 60
UNKNOWN_WORK = "costgpu does not know what this program computes: --like names its kind"


@dataclass(frozen=True, slots=True)
class _Interval:
    """From one reading to the next: seconds, and the steps beside those of `epochs` whole epochs."""

    seconds: float
    steps: float
    epochs: float


def read_record(
    log: ProgressLog,
    *,
    ended: bool,
    kind: str = "",
    started_at: float = 0.0,
    wall_seconds: float = 0.0,
    activity: ActivityRecord | None = None,
) -> tuple[ProbeRecord, list[str]] | None:
    """Return what was seen of a program as the probe records a script, with notes; None if no counter can be timed.

    An empty `kind` of work is recognised by the lines.
    """
    stream = log.best()
    if stream is None:
        return None
    samples, by_epochs, unit = _settled(stream.samples), starts_again(stream, log), stream.pattern.unit
    if by_epochs and stream.total:
        samples = _with_late_ends(samples, stream.total)
    found = _intervals(samples, by_epochs=bool(by_epochs))
    inside = [one for one in found if not one.epochs]
    once_an_epoch = not inside
    if once_an_epoch and by_epochs and stream.total:
        whole = [_Interval(one.seconds, one.steps + one.epochs * stream.total, 0) for one in found]
        inside = [one for one in whole if one.steps > 0]
    if not inside:
        return None
    settled = inside[next((n for n in range(WARM_UP, 0, -1) if len(inside) - n >= ENOUGH), 0) :]
    scale = min(1.0, MOST_STEPS / sum(one.steps for one in settled))
    seconds = [one.seconds / one.steps for one in settled for _ in range(max(1, round(scale * one.steps)))]
    times, _ = step_times(cast("Intervals", {"seconds": seconds, "special": {}}))
    together = any(one.steps > 1 for one in settled)
    mean = times.mean_seconds if together else times.seconds

    first, waited = samples[0], samples[0].at - started_at
    facts = _facts(stream, log, by_epochs, mean, kind)
    facts["together"] = together
    steps, each = facts.get("total"), facts.get("per_epoch")
    resumed = _is_resumed(stream, waited / mean)
    if steps is not None and by_epochs is False and unit != "percent" and resumed:
        facts["how"] += f"; it goes on from {first.step:,.0f}, where an earlier run has ended"
        steps = max(1.0, steps - first.step)
    notes = [_chosen(stream, log)]
    if len(samples) < len(stream.samples) / 2:
        notes.append("Its output comes in blocks, because the program buffers it: single steps could not be timed.")
    across = [one for one in found if one.epochs and each and one.steps + one.epochs * each >= 0]
    if once_an_epoch and unit != "epoch":
        notes.append("It prints once an epoch: a step's time includes whatever else an epoch holds.")
    elif by_epochs and not any(one.epochs for one in found) and unit not in ("epoch", "percent"):
        notes.append("No end of an epoch was seen: work between epochs (validation, checkpoints) is not counted.")
    elif across and each:
        beyond = statistics.fmean(one.seconds - (one.steps + one.epochs * each) * mean for one in across)
        if beyond >= LEAST_EXTRA_SHARE * mean:
            facts["between_epochs"] = beyond
    before = (first.step - 1) * mean  # the first step is made before its line comes
    series = SeriesRecord(
        source="log",
        unit=unit,
        total=steps,
        steps=round(_counted(stream, facts.get("total"), each))
        if ended
        else max(1, round(sum(one.steps for one in inside))),
        open=not ended,
        seconds=seconds,
        lead=waited,
        after=0.0,
        setup="",
        label=f"{stream.pattern.label} in its output",
        facts=facts,
        special={},
        snapshots=[],
        later=[],
        periodic=[],
        openings=1,
        around=[],
    )
    record = ProbeRecord(
        status="ended" if ended else "cut",
        python="",
        wall_seconds=wall_seconds,
        setup_seconds=waited - (before if before <= waited else (inside[0].steps - 1) * mean),
        peak_rss_bytes=None,
        activity=activity,
        series=[series],
        versions={},
    )
    if activity is not None and activity["wall"] > 0:
        record["cpu_seconds"] = activity["cpu"] * wall_seconds / activity["wall"]
    return record, notes


def _settled(samples: list[Sample]) -> list[Sample]:
    """Return one reading for each moment: the last of those that came together."""
    kept: list[Sample] = []
    begun = -math.inf
    for sample in samples:
        if sample.at - begun < SAME_MOMENT_SECONDS:
            kept[-1] = sample
        else:
            kept.append(sample)
            begun = sample.at
    return kept


def _with_late_ends(samples: list[Sample], total: float) -> list[Sample]:
    """Return the readings with ends of epochs that came late, after what an epoch ends with, as starts of the next."""
    pairs = [(a, b) for a, b in pairwise(samples) if b.step > a.step]
    usual = statistics.median([(b.at - a.at) / (b.step - a.step) for a, b in pairs] or [0.0])
    late = [b for a, b in pairs if b.step == total and b.at - a.at > SPIKE * usual * (b.step - a.step)]
    return [
        one._replace(step=0.0, epoch=None if one.epoch is None else one.epoch + 1) if one in late else one
        for one in samples
    ]


def _intervals(samples: list[Sample], *, by_epochs: bool) -> list[_Interval]:
    found = []
    for before, after in pairwise(samples):
        seconds, steps = after.at - before.at, after.step - before.step
        epochs = after.epoch - before.epoch if after.epoch is not None and before.epoch is not None else 0.0
        if steps < 0 or (by_epochs and epochs > 0):
            found.append(_Interval(seconds, steps, max(1.0, epochs)))
        elif steps > 0 and seconds > 0:
            found.append(_Interval(seconds, steps, 0))
    return found


def starts_again(stream: CounterReadings, log: ProgressLog) -> bool | None:
    """Return whether the counter starts again with every epoch; None if the log does not tell."""
    if stream.pattern.unit == "epoch" or stream.pattern.whole:
        return False
    if stream.restarts > 0:
        return True
    went_on = any(
        later.epoch is not None and earlier.epoch is not None and later.epoch > earlier.epoch
        for earlier, later in pairwise(stream.samples)
    )
    first = stream.samples[0]
    same = all(sample.step == first.step for sample in stream.samples)
    if went_on and not same and stream.pattern.tier is not Tier.FRAMEWORK:
        return False
    if stream.pattern.per_epoch or stream.first.epoch is not None:
        return True
    if stream.pattern.named and first.epoch is not None and first.step == 0:
        return True  # the bar was opened after the line that begins the epoch
    bars = stream.pattern.named and log.outer(stream) is not None
    return False if stream.samples[-1].epoch is None and not bars else None


def _facts(stream: CounterReadings, log: ProgressLog, by_epochs: bool | None, seconds: float, kind: str) -> SeriesFacts:
    """Return what the log says of the counter, whose steps take so many seconds each."""
    pattern = stream.pattern
    epochs, how_epochs = _epochs(stream, log)
    each, how_each = _per_epoch(stream, log, seconds) if by_epochs else (None, "")
    announced, how = pattern.announced
    whole = None
    if by_epochs is False and stream.total:
        whole, how = stream.total, f"{pattern.label} counts to {stream.total:,.0f}"
    elif by_epochs is False and announced in log.facts:
        whole = float(log.facts[announced])
    elif pattern.unit == "epoch":
        whole, how = epochs, how_epochs
    elif each and epochs:
        whole, how = each * epochs, f"{how_each} x {how_epochs}"
    if pattern.unit == "epoch":
        each = 1.0
    elif whole is not None and epochs and each is None:
        each = whole / epochs
    if whole is None:
        how = f"{pattern.label} does not tell how many {pattern.unit}s there are"
        if by_epochs is None and stream.total:
            how = f"its lines count to {stream.total:,.0f}, but not whether that is an epoch or the whole"
        elif each is not None and how_each:
            how = f"an epoch has {each:,.0f} {pattern.unit}s; its output does not tell how many epochs there are"
    reason, kind = _work(stream, log, kind)
    facts = SeriesFacts(total=whole, per_epoch=each, how=how, framework=pattern.framework, kind=kind, gpu_reason=reason)
    facts["told"] = how_each.startswith("about") and whole is not None
    if "batch_size" in log.facts:
        facts["batch"] = int(log.facts["batch_size"])
    if said := next((log.facts[name] for name in MAY_STOP if name in log.facts), ""):
        facts["may_stop_at"] = f"its output says {said!r}"
    return facts


def _is_resumed(stream: CounterReadings, possible: float) -> bool:
    """Return whether an earlier run made most steps before the first line, for which there was time for `possible`."""
    apart = max((later.step - earlier.step for earlier, later in pairwise(stream.samples[:5])), default=1.0)
    return stream.samples[0].step > RESUMED_FACTOR * (possible + apart)


def _epochs(stream: CounterReadings, log: ProgressLog) -> tuple[float | None, str]:
    """Return the number of epochs, and who says so."""
    if stream.epochs:
        return stream.epochs, f"{stream.epochs:,.0f} epochs by the same lines"
    outer = log.outer(stream) if stream.pattern.named else None
    if outer is not None and (outer.first.names_epochs or stream.restarts > 0):
        return outer.total, f"{outer.total or 0:,.0f} of the bar around it"
    if log.epochs:
        return log.epochs, f"{log.epochs:,.0f} epochs by the lines that name them"
    if "num_epochs" in log.facts:
        return float(log.facts["num_epochs"]), f"num_epochs={log.facts['num_epochs']} of its arguments"
    return None, ""


def _per_epoch(stream: CounterReadings, log: ProgressLog, seconds: float) -> tuple[float | None, str]:
    """Return steps of an epoch, and who says so."""
    facts, steps = log.facts, list(pairwise(stream.samples))
    if stream.total:
        return stream.total, f"{stream.total:,.0f} by the counter, which starts again with every epoch"
    if "num_examples" in facts and "batch_size" in facts:
        count = math.ceil(float(facts["num_examples"]) / float(facts["batch_size"]))
        return float(count), f"{count:,} (num_examples / batch_size of its arguments)"
    batches = [b.samples / (b.step - a.step) for a, b in steps if b.samples and b.step > a.step]
    if "epoch_samples" in facts and batches:
        count = math.ceil(float(facts["epoch_samples"]) / batches[0] - 1e-6)
        return float(count), f"{count:,} (samples of an epoch / samples of a step)"
    if "epoch_seconds" in facts and seconds > 0:
        count = max(1, round(float(facts["epoch_seconds"]) / seconds))
        return float(count), f"about {count:,} (time of an epoch / time of a step)"
    ends = [n for n, (before, after) in enumerate(steps) if after.step < before.step]
    if ends and ends[-1] > 0:
        before, last = steps[ends[-1] - 1]
        apart = last.step - before.step
        if 0 < apart <= LEAST_EPOCH_PRECISION * last.step or apart == 1:
            return last.step + (apart - 1) / 2, f"about {last.step:,.0f} (the last that was printed of an epoch)"
    return None, ""


def _counted(stream: CounterReadings, whole: float | None, each: float | None) -> float:
    """Return the steps of a program that ran to its end: its last lines may not have been printed."""
    steps = [sample.step for sample in stream.samples]
    if stream.pattern.unit == "percent":
        return 100.0
    if stream.restarts:
        return steps[-1] + (stream.restarts * each if each else sum(a for a, b in pairwise(steps) if b < a))
    counted = steps[-1] + (steps[0] == 0 and stream.pattern.unit in ("epoch", "round"))
    apart = max((after - before for before, after in pairwise(steps)), default=1.0)
    return max(1.0, whole if whole is not None and 0 <= whole - counted <= apart else counted)


def _work(stream: CounterReadings, log: ProgressLog, kind: str) -> tuple[str, str]:
    """Return how its seconds on a GPU can be known, and the kind of its work; an empty kind if they cannot."""
    if kind:
        return f"only its output was seen; by --like its work is taken to be of the kind {kind}", kind
    if stream.pattern.no_gpu:
        return stream.pattern.no_gpu, ""
    if stream.pattern.kind:
        return f"only its output was seen: lines of {stream.pattern.label}", stream.pattern.kind
    for fact in ("net", "network"):
        name = log.facts.get(fact, "").lower()
        if fact == "network" and name == "resnet":
            name = f"resnet{log.facts.get('num_layers', '')}"
        if name in NETS:
            return f"only its output was seen; it names its net {log.facts[fact]!r}", NETS[name]
    return UNKNOWN_WORK, ""


def _chosen(stream: CounterReadings, log: ProgressLog) -> str:
    counted = "counted as steps" if stream.pattern.step_group == 0 else "read as progress"
    text = f"Lines of {stream.pattern.label} were {counted}, such as: {_shortened(stream.first.text)}"
    others = log.others(stream) if stream.pattern.tier is not Tier.USER else []
    if others:
        text += f". Other lines count, too, and were left aside: {_shortened(others[0].first.text)}"
        text += " (--step-pattern chooses)"
    return text + "."


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= EXAMPLE_CHARS else text[: EXAMPLE_CHARS - 3] + "..."
