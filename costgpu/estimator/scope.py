"""How much is predicted: the whole job, an epoch, a thousand steps, or a thousand items of inference. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from costgpu.estimator.throughput import inference_unit
from costgpu.models.workload import Phase, Total, WorkloadProfile
from costgpu.units import plural_unit

WHOLE_JOB = "the whole job"
PART_OF_AN_EPOCH = 0.01  # by which a number of epochs is not whole
UNKNOWN_TOTAL_STEPS = UNKNOWN_TOTAL_ITEMS = 1000.0


@dataclass(frozen=True, slots=True)
class ClockLimit:
    """The clock of a script that ends a phase of it."""

    seconds: float  # after which the phase ends, on any machine
    alone: bool  # whether nothing else ends it: its steps are then those that this machine makes in that time

    def bounded(self, seconds: float) -> float:
        """Return how long the phase lasts where its steps take so many seconds."""
        return self.seconds if self.alone else min(seconds, self.seconds)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is predicted: steps and epochs of each phase, and the words for it."""

    unit: str  # ``the whole job``, ``one epoch``, ``1,000 steps`` or ``1,000 images``
    whole: bool  # whether it is the whole job, with set-up and boot
    steps: tuple[float, ...]  # number of steps of each phase
    epochs: tuple[float, ...]  # number of epochs of each phase; 0 where a phase has none
    notes: tuple[str, ...] = ()  # remarks about the total
    # whether a phase's number of steps is given as such, and not by epochs; empty for none
    fixed: tuple[bool, ...] = field(default=(), compare=False)
    limits: tuple[ClockLimit | None, ...] = ()  # by which clock a phase ends; empty for none

    @property
    def total_steps(self) -> float | None:
        """Steps of the whole job; None for a part of it, and where it depends on the machine how many they are."""
        return None if not self.whole or any(one and one.alone for one in self.limits) else sum(self.steps)


def scope_of(
    profile: WorkloadProfile,
    *,
    epochs: float | None = None,
    total_steps: float | None = None,
    per_items: bool = False,
) -> Scope:
    """Return how much is predicted, from the profile and what the user said.

    Args:
        epochs: Overrides the number of epochs of the last phase.
        total_steps: Overrides its number of steps.
        per_items: Whether 1,000 items of the last phase are wanted, even if the length of the job is known.
    """
    if per_items and not profile.phases[-1].unit.trains:
        return items_scope(profile.phases)
    last = profile.phases[-1].total
    notes: list[str] = []
    if total_steps is not None:
        last = replace(last, steps=total_steps)
    elif epochs is not None and last.steps_per_epoch:
        last = replace(last, steps=epochs * last.steps_per_epoch)
    totals = [phase.total for phase in profile.phases[:-1]] + [last]
    limits = tuple(ClockLimit(one.seconds, one.steps is None) if one.seconds else None for one in totals)
    totals = [_in_time(total, phase) for total, phase in zip(totals, profile.phases, strict=True)]
    last = totals[-1]
    trains = [phase.unit.trains for phase in profile.phases]
    counted = [_is_fixed(total) and training for total, training in zip(totals, trains, strict=True)]
    fixed = (*counted[:-1], total_steps is not None or (epochs is None and counted[-1]))
    unknown_later = [phase for phase in profile.later_phases if phase.steps is None]
    if last.steps is None or (unknown_later and total_steps is None):
        if unknown_later:
            where = ", ".join(phase.label for phase in unknown_later)
            notes.append(f"The training at {where} is of unknown length: give --total-steps for the whole job.")
        if not profile.phases[-1].unit.trains:
            return items_scope(profile.phases, tuple(notes))
        if last.steps_per_epoch:
            steps_, epochs_ = _only(len(totals), last.steps_per_epoch), _only(len(totals), 1.0)
            return Scope("one epoch", False, steps_, epochs_, tuple(notes))
        steps_, epochs_ = _only(len(totals), UNKNOWN_TOTAL_STEPS), _only(len(totals), 0.0)
        return Scope("1,000 steps", False, steps_, epochs_, tuple(notes), (True,) * len(totals))
    steps = [float(total.steps or 0.0) for total in totals]
    later = sum(phase.steps or 0.0 for phase in profile.later_phases)
    if later and total_steps is None:
        steps[-1] += later
        notes.append(f"{later:,.0f} steps of later phases are taken to last as long as those that were seen.")
    counts = [s / t.steps_per_epoch if t.steps_per_epoch else 0.0 for s, t in zip(steps, totals, strict=True)]
    return Scope(WHOLE_JOB, True, tuple(steps), tuple(counts), tuple(notes), fixed, limits if any(limits) else ())


def _in_time(total: Total, phase: Phase) -> Total:
    """Give a phase that nothing but its clock ends the steps that this machine makes until then."""
    if total.steps is not None or not total.seconds or phase.step.seconds <= 0:
        return total
    return replace(total, steps=max(1.0, total.seconds / phase.step.seconds))


def _is_fixed(total: Total) -> bool:
    """Return whether a script that trains counts steps: it has no epochs, or ends in the middle of one."""
    if not total.steps or not total.steps_per_epoch:
        return True
    epochs = total.steps / total.steps_per_epoch
    return abs(epochs - round(epochs)) > PART_OF_AN_EPOCH


def items_scope(phases: Sequence[Phase], notes: tuple[str, ...] = ()) -> Scope:
    """1,000 items of the last phase, which is one of inference."""
    unit = inference_unit(phases[-1])
    assert unit is not None  # noqa: S101 - the caller's condition
    if len(phases) > 1:
        before = ", ".join(dict.fromkeys(phase.label for phase in phases[:-1]))
        notes = (*notes, f"What runs before it ({before}) is not in these amounts.")
    steps, epochs = _only(len(phases), UNKNOWN_TOTAL_ITEMS / unit.items), _only(len(phases), 0.0)
    return Scope(f"1,000 {plural_unit(unit.item)}", False, steps, epochs, notes)


def _only(count: int, value: float) -> tuple[float, ...]:
    """`value` for the last phase, nothing for those before it."""
    return (0.0,) * (count - 1) + (value,)
