"""Steps whose tensors grow or shrink: how far the times that were measured reach. Pure."""

from __future__ import annotations

from dataclasses import replace

from costgpu.measure.probe.record import FollowedSize, PhaseRecord
from costgpu.models.workload import Phase, StepTimes

LEAST_GROWTH = 1.1  # of what a step computes, between the steps that were traced
MOST_GROWTH = 1000.0


def growing(raw: PhaseRecord, step: StepTimes) -> StepTimes:
    """Let the drift of the step's times reach to what its tensors show, which a busy computer does not change."""
    growth = raw["growth"]
    seen = growth if max(growth, 1 / growth) >= LEAST_GROWTH else 1.0
    later = [_mean_growth(size) for size in raw["followed"]]
    found = max([seen, *later], key=lambda one: max(one, 1 / one))
    if max(found, 1 / found) < LEAST_GROWTH:
        return step
    return replace(step, drift=min(max(found, 1 / MOST_GROWTH), MOST_GROWTH))


def growth_notes(raw: PhaseRecord, phase: Phase) -> list[str]:
    """Say that later steps are larger or smaller than those that were measured."""
    notes, growth = [], raw["growth"]
    if growth > 0 and max(growth, 1 / growth) >= LEAST_GROWTH:
        word = f"{growth:.1f} times" if growth > 1 else f"{growth:.0%} of"
        notes.append(
            f"Its {phase.unit.name}s change in size: a late one computes {word} the values of the one that was traced first."
            " Those to come may go on so."
        )
    for size in raw["followed"]:
        factor = _mean_growth(size)
        if max(factor, 1 / factor) >= LEAST_GROWTH:
            notes.append(
                f"{size['text']} (line {size['line']}) is a side of its tensors: {size['now']:,} now, {size['mean']:,.0f}"
                " on average. The times are those of what was seen, and the intervals reach to that average."
            )
    return notes


def _mean_growth(size: FollowedSize) -> float:
    """Return the values of an average step over those of the steps that were measured."""
    measured = (size["before"] ** size["sides"] + size["now"] ** size["sides"]) / 2
    return float(size["values"] / measured) if measured > 0 and size["values"] > 0 else 1.0
