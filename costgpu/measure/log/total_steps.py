"""How many steps a program takes, from its log alone. Pure; what the log does not tell stays unknown."""

from __future__ import annotations

import math
from enum import Enum
from itertools import pairwise

from costgpu.measure.log.counters import ProgressLog, Stream
from costgpu.measure.log.patterns import MAY_STOP, Tier
from costgpu.models.workload import Total, TotalKind

LEAST_EPOCH_PRECISION = 0.05  # an epoch's length between two printed steps is taken if they are as near as that
RESUMED_FACTOR = 2.0  # so many times the steps that its time allows were made by an earlier run


class Scope(Enum):
    """What a counter's total is the total of."""

    EPOCH = "an epoch"
    WHOLE = "the whole training"
    UNDECIDED = "either"


def scope_of(stream: Stream, log: ProgressLog) -> Scope:
    """Return whether the counter starts again with every epoch, as far as the log tells."""
    if stream.pattern.unit == "epoch":
        return Scope.WHOLE
    if stream.restarts > 0:
        return Scope.EPOCH
    went_on = any(
        later.epoch is not None and earlier.epoch is not None and later.epoch > earlier.epoch
        for earlier, later in pairwise(stream.samples)
    )
    same = all(sample.step == stream.samples[0].step for sample in stream.samples)
    if went_on and not same and stream.pattern.tier is not Tier.FRAMEWORK:
        return Scope.WHOLE
    if stream.pattern.per_epoch or stream.own_epochs:
        return Scope.EPOCH
    first = stream.samples[0]
    if stream.pattern.named and first.epoch is not None and first.step == 0:
        return Scope.EPOCH  # the bar was opened after the line that begins the epoch
    bars = stream.pattern.named and log.outer(stream) is not None
    if stream.samples[-1].epoch is None and not bars:
        return Scope.WHOLE
    return Scope.UNDECIDED


def log_total(
    stream: Stream, log: ProgressLog, scope: Scope, seconds: float, *, started_at: float, ended: bool
) -> Total:
    """Return the total of the counter's steps, of so many seconds each."""
    each, how_each = _per_epoch(stream, log, scope, seconds)
    epochs, how_epochs = _epochs(stream, log)
    whole, how = _whole(stream, log, scope)
    if stream.pattern.unit == "epoch":
        each = 1.0
    elif whole is not None and epochs and each is None:
        each = whole / epochs
    if whole is None and each is not None and epochs and stream.pattern.unit != "epoch":
        whole, how = each * epochs, f"{how_each} x {how_epochs}"
    if ended:
        return _as_it_ended(stream, scope, whole, each, how)
    if whole is None:
        how = _why_unknown(stream, scope, each, how_each)
        return Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=each, how=how)
    kind = TotalKind.EXACT
    if how_each.startswith("about") and how.startswith(how_each):
        kind = TotalKind.APPROXIMATE
    first = stream.samples[0]
    possible = (first.at - started_at) / seconds if seconds > 0 else math.inf
    apart = max((later.step - earlier.step for earlier, later in pairwise(stream.samples[:5])), default=1.0)
    resumed = first.step > RESUMED_FACTOR * (possible + apart)
    if scope is Scope.WHOLE and stream.pattern.unit != "percent" and resumed:
        whole -= first.step
        how += f"; it goes on from {first.step:,.0f}, where an earlier run has ended"
    if (said := next((log.facts[name] for name in MAY_STOP if name in log.facts), None)) is not None:
        kind = TotalKind.UPPER_BOUND
        how += f"; it may stop earlier (its output says {said!r})"
    return Total(kind=kind, steps=max(1.0, whole), steps_per_epoch=each, how=how)


def _whole(stream: Stream, log: ProgressLog, scope: Scope) -> tuple[float | None, str]:
    """Return steps of the whole training where one number tells them."""
    if scope is Scope.WHOLE:
        if stream.pattern.unit == "percent":
            return 100.0, f"100 % of {stream.pattern.label}'s progress"
        if stream.total:
            return stream.total, f"{stream.pattern.label} counts to {stream.total:,.0f}"
        if stream.pattern.name == "caffe" and "max_iter" in log.facts:
            return float(log.facts["max_iter"]), "max_iter in the solver's parameters"
        if stream.pattern.name == "gromacs" and "md_steps" in log.facts:
            return float(log.facts["md_steps"]), "the number of steps that mdrun announces"
        if stream.pattern.unit == "epoch" and (epochs := _epochs(stream, log))[0]:
            return epochs
    return None, ""


def _epochs(stream: Stream, log: ProgressLog) -> tuple[float | None, str]:
    """Return the number of epochs, and who says so."""
    if stream.epochs:
        return stream.epochs, f"{stream.epochs:,.0f} epochs by the same lines"
    outer = log.outer(stream) if stream.pattern.named else None
    if outer is not None and (outer.names_epochs or stream.restarts > 0):
        return outer.total, f"{outer.total or 0:,.0f} of the bar around it"
    if log.epochs:
        return log.epochs, f"{log.epochs:,.0f} epochs by the lines that name them"
    if "num_epochs" in log.facts:
        return float(log.facts["num_epochs"]), f"num_epochs={log.facts['num_epochs']} of its arguments"
    return None, ""


def _per_epoch(stream: Stream, log: ProgressLog, scope: Scope, seconds: float) -> tuple[float | None, str]:
    """Return steps of an epoch, and who says so."""
    if scope is not Scope.EPOCH:
        return None, ""
    if stream.total:
        return stream.total, f"{stream.total:,.0f} by the counter, which starts again with every epoch"
    facts = log.facts
    if "num_examples" in facts and "batch_size" in facts:
        count = math.ceil(float(facts["num_examples"]) / float(facts["batch_size"]))
        return float(count), f"{count:,} (num_examples / batch_size of its arguments)"
    seen = [s for s in stream.samples if s.samples]
    if "epoch_samples" in facts and len(seen) >= 2:
        batch = _samples_per_step(stream)
        if batch:
            count = math.ceil(float(facts["epoch_samples"]) / batch - 1e-6)
            return float(count), f"{count:,} (samples of an epoch / samples of a step)"
    if "epoch_seconds" in facts and seconds > 0:
        count = round(float(facts["epoch_seconds"]) / seconds)
        return float(max(1, count)), f"about {count:,} (time of an epoch / time of a step)"
    last = [before for before, after in pairwise(stream.samples) if after.step < before.step]
    for before, after in pairwise(stream.samples):
        if last and after is last[-1]:
            apart = after.step - before.step
            if 0 < apart <= LEAST_EPOCH_PRECISION * after.step or apart == 1:
                return after.step + (apart - 1) / 2, f"about {after.step:,.0f} (the last that was printed of an epoch)"
    return None, ""


def _samples_per_step(stream: Stream) -> float | None:
    for before, after in pairwise(stream.samples):
        if after.samples and after.step > before.step:
            return after.samples / (after.step - before.step)
    return None


def _as_it_ended(stream: Stream, scope: Scope, whole: float | None, each: float | None, how: str) -> Total:
    """Return the total of a script that ran to its end: what it counted to, or announced if its last lines lack."""
    last = stream.samples[-1].step
    if stream.pattern.unit == "percent":
        return Total(kind=TotalKind.EXACT, steps=100.0, steps_per_epoch=each, how="it ran to its end")
    if scope is Scope.EPOCH or stream.restarts:
        counted = last + sum(b.step for b, a in pairwise(stream.samples) if a.step < b.step)
        if each:
            counted = stream.restarts * each + last
    else:
        counted = last + (1 if stream.samples[0].step == 0 and stream.pattern.unit in ("epoch", "round") else 0)
        apart = max((a.step - b.step for b, a in pairwise(stream.samples)), default=1.0)
        if whole is not None and 0 <= whole - counted <= apart:
            counted = whole
    return Total(
        kind=TotalKind.EXACT,
        steps=max(1.0, counted),
        steps_per_epoch=each if each and each <= counted else None,
        how="it ran to its end" + (f" ({how})" if how and counted == whole else ""),
    )


def _why_unknown(stream: Stream, scope: Scope, each: float | None, how_each: str) -> str:
    if scope is Scope.UNDECIDED:
        return (
            f"its lines count to {stream.total:,.0f}, but not whether that is an epoch or the whole"
            if stream.total
            else "its lines do not tell how many steps there are"
        )
    if each is not None and how_each:
        return f"an epoch has {each:,.0f} {stream.pattern.unit}s; its output does not tell how many epochs there are"
    return f"{stream.pattern.label} does not tell how many {stream.pattern.unit}s there are"
