"""Changes of a training with which a cheaper GPU holds it: which are worth a run, and what they save after it. Pure.

What a change would leave of the measured memory at best decides whether the script runs again with it; what is said of it
comes from that run. Half the batch is computed, for memory and work are known by sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costgpu.estimator.advice.context import MIN_SAVED_SHARE, AdviceContext, cheapest_of_each_type
from costgpu.estimator.gpu import ADAM_FAMILY
from costgpu.estimator.measured_memory import with_shares
from costgpu.estimator.memory import needs_of
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload
from costgpu.estimator.resize import resized
from costgpu.estimator.verdict import Preferences, best, effective_cost
from costgpu.estimator.verdict_sentence import describe
from costgpu.models.memory_change import Changes, MemoryChange
from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.models.workload import MeasuredMemory, MemoryKind, Phase, WorkloadProfile
from costgpu.units import format_duration, format_usd

MOST_RUNS = 3
SHORT = 40  # letters of what a script calls, that is told in the advice itself
LEAST_SHARE = 0.1  # of the highest peak, that a change must be about to be worth a look
MOSTLY = 0.5  # of the bytes of weights, that are not frozen where all are trained
TWICE = 1.5  # calls of a kernel for one of its backward pass, from which on it is computed again
VIEWS = ("aten::slice", "aten::select")  # whose calls are of any kind
LEAST_UNCHECKED = 0.3  # of the highest peak, of activations that are not checkpointed, whatever runs twice
BATCH_SHARES = (2, 4, 8)
# What is left of each kind at best. Of checkpointed activations, 2 of 34 bytes of a layer, and one layer whole (Korthikanti
# et al. 2022, arXiv:2205.05198, section 5). Two states of Adam in 8 bits, with their scales: 2.03 of 8 bytes. Weights in
# 4 bits with double quantization: 4.13 of 16 bits (Dettmers et al. 2023, arXiv:2305.14314), and embeddings whole. Adapters
# of rank 16: 0.3 to 1 % of a model's parameters; weights that are in half precision are not cast to it.
FEW_ADAPTERS = {MemoryKind.GRADIENTS: 0.01, MemoryKind.STATES: 0.01, MemoryKind.TEMPORARIES: 0.1}
AT_BEST: dict[MemoryChange, dict[MemoryKind, float]] = {
    MemoryChange.CHECKPOINTING: {MemoryKind.ACTIVATIONS: 0.1},
    MemoryChange.EIGHT_BIT_STATES: {MemoryKind.STATES: 0.26},
    MemoryChange.LORA: FEW_ADAPTERS,
    MemoryChange.QLORA: {**FEW_ADAPTERS, MemoryKind.WEIGHTS: 0.3},
    MemoryChange.FOUR_BIT_WEIGHTS: {MemoryKind.WEIGHTS: 0.3},
    MemoryChange.HALF_SEQUENCES: dict.fromkeys((MemoryKind.ACTIVATIONS, MemoryKind.LOGITS), 0.5),
}
# What is worth a run together.
TOGETHER = (
    (MemoryChange.CHECKPOINTING, MemoryChange.EIGHT_BIT_STATES),
    (MemoryChange.CHECKPOINTING, MemoryChange.LORA),
    (MemoryChange.CHECKPOINTING, MemoryChange.QLORA),
    (MemoryChange.CHECKPOINTING, MemoryChange.FOUR_BIT_WEIGHTS),
)
CUT = (MemoryChange.HALF_SEQUENCES,)
WORDS = {
    MemoryChange.CHECKPOINTING: "checkpoint activations",
    MemoryChange.EIGHT_BIT_STATES: "hold the optimizer's states in 8 bits",
    MemoryChange.LORA: "train LoRA adapters instead of all weights",
    MemoryChange.QLORA: "train QLoRA adapters instead of all weights",
    MemoryChange.FOUR_BIT_WEIGHTS: "hold the frozen weights in 4 bits",
    MemoryChange.HALF_SEQUENCES: "train on sequences half as long",
}
NOTES = {
    MemoryChange.CHECKPOINTING: "The gradients stay the same; the forward pass is computed twice.",
    MemoryChange.EIGHT_BIT_STATES: "The updates are rounded a little.",
    MemoryChange.LORA: "It trains other weights, adapters beside the model's own: the result is another model.",
    MemoryChange.QLORA: "It trains other weights, adapters beside rounded ones: the result is another model.",
    MemoryChange.FOUR_BIT_WEIGHTS: "The adapters are trained beside rounded weights: the result is a little different.",
    MemoryChange.HALF_SEQUENCES: "It learns from half of each text: the result is another model.",
}
BY_SHAPES = "a run of the script with this change, measured by shapes"
BY_SAMPLE = "its memory and work, by sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedChange:
    """What the script is with a change, by a run."""

    changes: Changes
    how: tuple[str, ...]  # in the script's words, for each of them
    workload: Workload


# ------------------------------------------------------------------------------------------- what is worth a run


def worth_a_run(
    workload: Workload, before: Prediction | None, offers: Sequence[Prediction], preferences: Preferences
) -> tuple[Changes, ...]:
    """Return the changes that could make a cheaper GPU fit, or any where none does; the cheapest first, at most three.

    Args:
        before: The recommendation; None where there is none.
    """
    possible = sensible(workload.profile)
    if not possible or (before is not None and before.candidate.offer is None):
        return ()
    places = [place for place in cheapest_of_each_type(offers, None) if place.candidate.is_gpu]

    def cost(changes: Changes) -> float | None:
        """Return what the job would cost at best; None if that is nowhere, or no less than it costs now."""
        found = best([predict(at_best(workload, changes), place.candidate) for place in places], preferences)
        if found is None:
            return None
        usd = effective_cost(found, preferences)
        most = None if before is None else (1 - MIN_SAVED_SHARE) * effective_cost(before, preferences)
        return usd if most is None or usd < most else None

    costs: dict[Changes, float] = {(one,): usd for one in possible if (usd := cost((one,))) is not None}
    for pair in TOGETHER:
        alone = [costs[one,] for one in pair if (one,) in costs]
        usd = cost(pair) if set(pair) <= set(possible) else None
        if usd is not None and (not alone or usd < (1 - MIN_SAVED_SHARE) * min(alone)):
            costs[pair] = usd

    others = [changes for changes in costs if changes != CUT]  # ways to the same end: then texts stay whole
    return tuple(sorted(others, key=lambda changes: (costs[changes], len(changes)))[:MOST_RUNS] or costs)


def words_of(changes: Changes) -> str:
    """``checkpoint activations and hold the frozen weights in 4 bits``."""
    return " and ".join(WORDS[change] for change in changes)


def sensible(profile: WorkloadProfile) -> tuple[MemoryChange, ...]:
    """Return the changes that are about a part of what a training holds, and that it has not made already."""
    phase, memory = profile.phases[-1], profile.memory
    peak = memory.highest if memory is not None else None
    if peak is None or not profile.without_weights or any(not one.unit.trains for one in profile.phases):
        return ()
    trained = sum(one.parameters for one in phase.optimizers)
    every = phase.frozen_bytes < MOSTLY * phase.model_bytes
    states = sum(one.state_bytes for one in phase.optimizers if one.name in ADAM_FAMILY)
    weights = peak.kinds.get(MemoryKind.WEIGHTS, 0)
    kept = peak.kinds.get(MemoryKind.ACTIVATIONS, 0)
    ops = {row.op for row in phase.ops}
    loaded = profile.weights_bytes  # adapters make sense beside what was trained before
    applies = {
        MemoryChange.CHECKPOINTING: kept > LEAST_UNCHECKED * peak.bytes or not computes_again(phase),
        MemoryChange.EIGHT_BIT_STATES: states > 6 * trained,
        MemoryChange.LORA: loaded > 0 and every,
        MemoryChange.QLORA: loaded > 0 and every,
        MemoryChange.FOUR_BIT_WEIGHTS: loaded > 0 and not every and weights > 0.8 * loaded,
        MemoryChange.HALF_SEQUENCES: phase.data.batch_size is not None and "aten::embedding" in ops,
    }
    return tuple(
        one
        for one, kinds in AT_BEST.items()
        if applies[one] and sum(peak.kinds.get(kind, 0) for kind in kinds) >= LEAST_SHARE * peak.bytes
    )


def computes_again(phase: Phase) -> bool:
    """Return whether kernels run twice for each of their backward passes, as where activations are checkpointed already.

    A model beside it that only runs forward looks the same.
    """
    calls: dict[tuple[str, bool], int] = {}
    for row in phase.ops:
        if row.phase in ("forward", "backward") and row.op.removesuffix("_backward") not in VIEWS:
            key = row.op.removesuffix("_backward"), row.op.endswith("_backward")
            calls[key] = calls.get(key, 0) + row.count
    back = {name: count for (name, is_backward), count in calls.items() if is_backward and (name, False) in calls}
    return sum(calls[name, False] for name in back) > TWICE * sum(back.values()) > 0


def samples_of(phase: Phase) -> int | None:
    """Return the samples that are computed at a time; of texts without a loader, by their shape; None if it is not known."""
    if phase.data.batch_size is not None:
        return phase.data.batch_size
    looked_up = [row.inputs[1][0] for row in phase.ops if row.op == "aten::embedding" and len(row.inputs) > 1]
    return max((shape[0] for shape in looked_up if len(shape) == 2), default=None)


def at_best(workload: Workload, changes: Changes) -> Workload:
    """Return the workload with the least memory that it could hold after changes, and the time that it takes before."""
    memory = workload.profile.memory
    for change in changes:
        memory = _at_best(memory, AT_BEST[change], workload.profile) if memory is not None else None
    return replace(workload, profile=replace(workload.profile, memory=memory))


def _at_best(memory: MeasuredMemory, left: dict[MemoryKind, float], profile: WorkloadProfile) -> MeasuredMemory:
    if MemoryKind.GRADIENTS in left:  # adapters: the weights are not trained, and may be in half precision
        stored = sum(one.parameters for one in profile.phases[-1].optimizers) * 2
        peak = memory.highest
        weights = peak.kinds.get(MemoryKind.WEIGHTS, 0) if peak is not None else 0
        half = min(1.0, stored / weights) if weights else 1.0
        left = {**left, MemoryKind.WEIGHTS: left.get(MemoryKind.WEIGHTS, 1.0) * half}
    return with_shares(memory, left)


# --------------------------------------------------------------------------------------------- what was measured


def less_memory(
    workload: Workload,
    before: Prediction | None,
    offers: Sequence[Prediction],
    preferences: Preferences,
    tried: Sequence[TriedChange],
) -> list[Advice]:
    """Return the advice to make changes with which a cheaper GPU fits, or any; the best three.

    Args:
        before: The recommendation; None where there is none.
        tried: Changes with which the script ran.
    """
    profile = workload.profile
    if profile.memory is None or (before is not None and before.candidate.offer is None):
        return []
    places = [place for place in cheapest_of_each_type(offers, None) if place.candidate.is_gpu]
    context = (
        None
        if before is None
        else AdviceContext(workload=workload, before=before, preferences=preferences, offers=tuple(places))
    )
    found: list[Advice] = []
    for one in tried:
        words, how = words_of(one.changes), "; ".join(one.how)
        notes = [NOTES[change] for change in one.changes]
        if len(how) <= SHORT:
            words += f" ({how})"
        else:
            notes.append(f"In the script: {how}.")
        found += _advice(workload, context, places, preferences, one.workload, words, notes, BY_SHAPES)
    size = samples_of(profile.phases[0])
    for share in BATCH_SHARES if len(profile.phases) == 1 and profile.phases[0].unit.trains else ():
        if size is not None and size % share == 0:
            words = f"micro-batches of {size // share} instead of {size}, {share} times as many"
            notes = ["The gradients stay the same (but for batch normalization)."]
            smaller = resized(workload, 0, 1.0, share)
            if advice := _advice(workload, context, places, preferences, smaller, words, notes, BY_SAMPLE):
                found += advice
                break
    return sorted(found, key=_rank)[:MOST_RUNS]


def _rank(one: Advice) -> float:
    return -one.saving_usd if one.before is not None or one.after is None else one.after.cost_usd.value


def _advice(
    workload: Workload,
    context: AdviceContext | None,
    places: Sequence[Prediction],
    preferences: Preferences,
    changed: Workload,
    words: str,
    notes: Sequence[str],
    basis: str,
) -> list[Advice]:
    """Return the advice for one change; none where it fits nothing, or saves less than can be told."""
    after = best([predict(changed, place.candidate) for place in places], preferences)
    if after is None:
        return []
    need, had = (max(one.gib for one in needs_of(each.profile)) for each in (changed, workload))
    action = f"{words[0].upper()}{words[1:]}, {need:.1f} instead of {had:.1f} GiB"
    if context is not None:
        priced = context.advice(AdviceKind.LESS_MEMORY, action, after, basis=basis, notes=notes)
        return [] if priced is None else [priced]
    time, usd = format_duration(after.wall_seconds.value), format_usd(after.cost_usd.value)
    action += f": it fits {describe(after)}, about {time} and {usd}"
    return [
        Advice(kind=AdviceKind.LESS_MEMORY, action=action, before=None, after=after, basis=basis, notes=tuple(notes))
    ]
