"""Many seeds, one after the other; what fails is shrunk, and told with the command that repeats it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation import seams
from tests.simulation.planted import Bug
from tests.simulation.schedule import Schedule, draw
from tests.simulation.shrinking import shrink
from tests.simulation.simulation import Outcome, simulate


@dataclass(kw_only=True)
class Exploration:
    """What many simulations have come to."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)  # in words, with the shrunk schedule
    broken: Counter[str] = field(default_factory=Counter)  # invariant -> number of seeds that violated it

    def add(self, other: Exploration) -> None:
        """Adds what another process has found."""
        self.counts.update(other.counts)
        self.failures += other.failures
        self.broken.update(other.broken)


def explore(seeds: Iterable[int], *, alone: bool = False, most_shrunk: int = 3) -> Exploration:
    """Simulates them all."""
    found = Exploration()
    with seams.in_place():
        for seed in seeds:
            outcome = simulate(draw(seed, alone=alone))
            found.counts.update(outcome.counts)
            found.broken.update(outcome.broken)
            if outcome.violations:
                found.failures.append(
                    told(outcome) if len(found.failures) < most_shrunk else f"seed {seed}: {outcome.violations[0]}"
                )
    return found


def told(outcome: Outcome) -> str:
    """What has failed, how to repeat it, and the smallest schedule that fails in the same way."""
    smallest = simulate(shrink(outcome.schedule, lambda schedule: bool(simulate(schedule).broken & outcome.broken)))
    seed = outcome.schedule.seed
    lines = [
        f"Seed {seed} violates {len(outcome.violations)}:",
        *(f"  {one}" for one in outcome.violations),
        f"Repeat it: python -m benchmarks.simulation --first {seed} --seeds 1 --log",
        f"Shrunk to {len(smallest.schedule.steps)} of {len(outcome.schedule.steps)} steps: {smallest.violations[:1]}",
        str(smallest.schedule),
    ]
    return "\n".join(lines)


def find(bug: Bug, seeds: Iterable[int]) -> Outcome | None:
    """The first simulation that finds a planted bug."""
    with seams.in_place(), bug.planted():
        return next((outcome for outcome in map(simulate, map(draw, seeds)) if outcome.violations), None)


__all__ = ["Exploration", "Schedule", "explore", "find", "told"]
