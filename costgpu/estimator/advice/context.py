"""What advice is measured against, and when a saving is one that the model can tell. Pure.

The changed workload is predicted by the same model as the unchanged one, on the best offer for it and on the
recommended machine. On one accelerator (or one CPU family) most of the model's error is in both predictions and
cancels in their ratio; between different ones it does not, and the probability is that of independent errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costgpu.estimator.advice.changes import half_for
from costgpu.estimator.cost import hourly_usd
from costgpu.estimator.interval import probability_less
from costgpu.estimator.predict import predict, scaled
from costgpu.estimator.prepared import Workload
from costgpu.estimator.verdict import Preferences, best
from costgpu.models.prediction import Advice, AdviceKind, Candidate, Prediction, Provenance

MIN_SAVED_SHARE = 0.05  # of the cost (of the time, where it costs nothing): below it nothing is said
MIN_SAVED_USD = 0.01  # of the whole job; of an epoch or 1,000 steps only the share counts
MIN_SAVED_SECONDS = 60.0  # where it costs nothing; the same
MIN_PROBABILITY = 0.8  # that the change saves anything: as sure as the intervals are wide
# Standard deviation of the logarithm of (predicted / measured) speed-up of one change on one machine.
# Source: benchmarks/advice.py rows (2026-11-21): 0.14 over 39 public pairs with and without mixed precision (median
# error 7 %), 0.06 over 12 pairs of batch sizes. The larger one is taken for every change.
PAIRED_SIGMA = 0.15
# The same where DataLoader workers and the training share the cores of a CPU, which may have other work as well.
# Source: benchmarks/advice.py workers on two busy cores (2026-11-21): errors of +0.35, -0.01 and -0.22; far larger ones
# while neighbours used the cores, so that nothing is said of a machine whose speed swings.
SHARED_CORES_SIGMA = 0.25
GPU_MODEL = "the GPU model and the traced step"
FORWARD_MODEL = "the model of forward passes and the traced unit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One kind of change of a script, a row of the table of advice."""

    kind: AdviceKind  # what it changes; rows of one kind are alternatives
    trains: bool | None  # whether it is for scripts that train, or for those that run models forward; None for both
    # how much of it is worth a try, such as numbers of workers; empty where it does not apply
    sizes: Callable[[AdviceContext], Sequence[int]]
    # the changed workload for a place; None where it does nothing there
    transform: Callable[[Workload, Candidate, int], Workload | None]
    action: Callable[[Changed], str]  # the advice in words
    short: Callable[[Changed], str]  # the same in a few words
    # seconds that the change may add to the run and that no prediction knows
    overhead: Callable[[Changed], float] = lambda _: 0.0
    sigma: Callable[[Changed], float] = lambda _: 0.0  # least error of the logarithm of its speed-up
    # error of the logarithm of its speed-up on one chip, where it is known better than that of any change
    paired_sigma: float = PAIRED_SIGMA
    basis: str = ""  # what its saving is computed from; empty for the model of its kind of work
    notes: Callable[[AdviceContext], Sequence[str]] = lambda _: ()  # further sentences for a reader
    at_most: Callable[[AdviceContext], bool] = lambda _: False  # whether the saving is an upper bound


Option = tuple[Change, int]  # a change, and how much of it


@dataclass(frozen=True, slots=True)
class Changed:
    """A workload after a change, of which there are words."""

    context: AdviceContext
    size: int
    after: Prediction

    @property
    def half(self) -> str:
        """Return the half precision to use there."""
        return half_for(self.after.candidate)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceContext:
    """What is to become cheaper."""

    workload: Workload  # the workload as it was measured
    before: Prediction  # the recommendation that a saving is counted from
    offers: tuple[Prediction, ...]  # places to run it: of each instance type the cheapest, and the recommended one
    preferences: Preferences  # what the user wants

    @property
    def trains(self) -> bool:
        """Return whether the script trains anything."""
        return any(phase.unit.trains for phase in self.workload.profile.phases)

    @property
    def free(self) -> bool:
        """Return whether the recommendation is this machine, where only time can be saved."""
        return self.before.candidate.offer is None

    def after(self, changed: Workload, place: Prediction) -> Prediction:
        """Return the changed workload there; scaled by what was measured there, if anything was."""
        found = predict(changed, place.candidate)
        if place.provenance is not Provenance.MEASURED or place.run_seconds.value <= 0:
            return found
        known = predict(self.workload, place.candidate).run_seconds.value
        factor = place.run_seconds.value / known if known > 0 else 1.0
        return found if abs(factor - 1) < 1e-9 else scaled(found, factor)

    def places(self) -> Iterable[Prediction]:
        """Return where the changed workload may run: offers; or this machine, if that costs nothing."""
        return [self.before] if self.free else self.offers

    def best_advice(self, *options: Option) -> Advice | None:
        """Return the advice to make these changes, on the best offer for them or else on the recommended machine.

        Or None.
        """
        found = [
            (place, self.after(changed, place))
            for place in self.places()
            if (changed := _changed(self.workload, place.candidate, options)) is not None
        ]
        first = best([after for _, after in found], self.preferences) if not self.free else None
        same = [after for place, after in found if place is self.before and not after.infeasible]
        for after in [*([first] if first is not None else []), *same]:
            advice = self._advice_of(options, after)
            if advice is not None:
                return advice
        return None

    def _advice_of(self, options: Sequence[Option], after: Prediction) -> Advice | None:
        rows = [(row, Changed(self, size, after)) for row, size in options]
        alone = rows[0][0] if len(rows) == 1 else None
        together = f"Together: {' and '.join(row.short(case) for row, case in rows)}"
        return self.advice(
            alone.kind if alone else AdviceKind.TOGETHER,
            alone.action(rows[0][1]) if alone else together,
            after,
            overhead=sum(row.overhead(case) for row, case in rows),
            sigma=max(
                error_between(self.before, after, max(row.paired_sigma for row, _ in rows)),
                *(row.sigma(case) for row, case in rows),
            ),
            basis=", ".join(dict.fromkeys(self._basis(row) for row, _ in rows)),
            notes=alone.notes(self) if alone else (),
            at_most=any(row.at_most(self) for row, _ in rows),
        )

    def _basis(self, row: Change) -> str:
        trains = self.trains if row.trains is None else row.trains
        return row.basis or (GPU_MODEL if trains else FORWARD_MODEL)

    def advice(
        self,
        kind: AdviceKind,
        action: str,
        after: Prediction,
        *,
        overhead: float = 0.0,
        other_usd: float = 0.0,
        other_seconds: float = 0.0,
        sigma: float | None = None,
        basis: str,
        notes: Sequence[str] = (),
        at_most: bool = False,
    ) -> Advice | None:
        """Return the advice that leads to `after`; None if it saves too little, or less than the model can tell.

        Args:
            overhead: Seconds of it that the prediction does not know.
            other_usd: Cost of other machines that it needs.
            other_seconds: Wall-clock time of those machines.
            sigma: Error of the logarithm of the ratio of the two; None to tell it from the two places.
            basis: What the saving is computed from.
            at_most: Whether the saving is an upper bound.
        """
        before = self.before
        usd = before.cost_usd.value - after.cost_usd.value - other_usd
        seconds = before.wall_seconds.value - after.wall_seconds.value - other_seconds
        if self.free:
            least, whole = MIN_SAVED_SECONDS, before.wall_seconds.value
            left = after.wall_seconds.value + other_seconds + overhead
        else:
            least, whole = MIN_SAVED_USD, before.cost_usd.value
            left = after.cost_usd.value + other_usd + overhead * hourly_usd(after.candidate) / 3600
        if not self.workload.scope.whole:
            least = 0.0
        if whole <= 0 or whole - left < max(least, MIN_SAVED_SHARE * whole):
            return None
        probability = probability_less(left, whole, error_between(before, after) if sigma is None else sigma)
        if probability < MIN_PROBABILITY:
            return None
        return Advice(
            kind=kind,
            action=action,
            saving_usd=max(0.0, usd),
            saving_seconds=seconds,
            before=before,
            after=after,
            other_usd=other_usd,
            other_seconds=other_seconds,
            probability=probability,
            at_most=at_most,
            basis=basis,
            notes=tuple(notes),
        )


def _changed(workload: Workload, place: Candidate, options: Sequence[Option]) -> Workload | None:
    """Return the workload after all these changes; None if one of them does not apply there."""
    for row, size in options:
        changed = row.transform(workload, place, size)
        if changed is None:
            return None
        workload = changed
    return workload


def error_between(one: Prediction, other: Prediction, on_one_chip: float = PAIRED_SIGMA) -> float:
    """Return the standard deviation of the logarithm of two predictions' ratio: small if they share their errors."""
    if paired(one.candidate, other.candidate):
        return on_one_chip
    return math.hypot(one.sigma, other.sigma)


def paired(one: Candidate, other: Candidate) -> bool:
    """Return whether two places have the same accelerator, or the same CPU family without one, or are both this machine."""
    if one.offer is None or other.offer is None:
        return one.offer is other.offer
    if one.accelerator is not None and other.accelerator is not None:
        return one.accelerator.name == other.accelerator.name
    if one.is_gpu or other.is_gpu:
        return False
    return (one.offer.provider, one.offer.family) == (other.offer.provider, other.offer.family)


def cheapest_of_each_type(offers: Sequence[Prediction], keep: Prediction | None) -> tuple[Prediction, ...]:
    """Return the cheapest place of each instance type and purchase option, as only the price differs; `keep` stays in."""
    least: dict[tuple[str, str, str, int], tuple[bool, Decimal, Prediction]] = {}
    for place in offers:
        offer = place.candidate.offer
        if offer is None:
            continue
        key = (offer.provider, offer.instance_type, offer.purchase_option.value, place.candidate.nodes)
        ranked = (place is not keep, offer.price_usd_per_hour, place)
        if key not in least or ranked[:2] < least[key][:2]:
            least[key] = ranked
    found = tuple(place for *_, place in least.values())
    if keep is None or keep.candidate.offer is None or any(place is keep for place in found):
        return found
    return (*found, keep)
