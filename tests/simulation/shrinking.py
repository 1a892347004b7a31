"""Makes a schedule that fails smaller as long as it fails: fewer steps first, then a more usual setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.simulation.schedule import Schedule, Setting, Step

MOST_TRIES = 400


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool], *, tries: int = MOST_TRIES) -> Schedule:
    """The smallest schedule that was found which still fails; deterministic.

    Args:
        fails: Carries a schedule out and says whether it fails in the same way.
    """
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _simpler(schedule):
            tries -= 1
            if tries < 0:
                break
            if fails(candidate):
                schedule, smaller = candidate, True
                break
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """One simplification each, the largest ones first."""
    run, *rest = schedule.steps or (None,)
    size = len(rest)
    while size >= 1:  # delta debugging: without each half, quarter, ..., step
        for start in range(0, len(rest), size):
            yield _with(schedule, run, [*rest[:start], *rest[start + size :]])
        size //= 2
    usual = Setting()
    for one in fields(Setting):
        if getattr(schedule.setting, one.name) != getattr(usual, one.name):
            yield replace(schedule, setting=replace(schedule.setting, **{one.name: getattr(usual, one.name)}))
    for number, step in enumerate(schedule.steps):
        for simpler in _simpler_steps(step):
            yield replace(schedule, steps=(*schedule.steps[:number], simpler, *schedule.steps[number + 1 :]))


def _simpler_steps(step: Step) -> Iterator[Step]:
    if step.chases:
        yield replace(step, chases="")
    if step.dies is not None:
        yield replace(step, dies=None)
    for number in range(len(step.signals)):
        answers = (*step.answers[:number], *step.answers[number + 1 :])
        yield replace(step, signals=(*step.signals[:number], *step.signals[number + 1 :]), answers=answers)


def _with(schedule: Schedule, run: Step | None, rest: list[Step]) -> Schedule:
    return replace(schedule, steps=(*((run,) if run is not None else ()), *rest))
