"""How much is predicted: the whole job, an epoch, or a thousand steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimate.scope import Scope, scope_of
from costgpu.models.workload import LaterPhase, Phase, TotalKind, WorkloadProfile
from tests.unit.estimate import builders


def phase(steps: float | None, per_epoch: float | None = None, kind: TotalKind = TotalKind.EXACT) -> Phase:
    return builders.phase(total=builders.total(steps, per_epoch, kind))


def profile(*phases: Phase, later: tuple[float | None, ...] = ()) -> WorkloadProfile:
    again = [LaterPhase(label=f"train.py:{n}", source="again()", steps=s) for n, s in enumerate(later)]
    return builders.profile(*phases, later_phases=again)


def test_a_known_total() -> None:
    assert scope_of(profile(phase(5000, 500))) == Scope("the whole job", True, (5000.0,), (10.0,))
    assert scope_of(profile(phase(5000))) == Scope("the whole job", True, (5000.0,), (0.0,))


def test_several_phases() -> None:
    assert scope_of(profile(phase(100, 50), phase(900, 300))).steps == (100.0, 900.0)
    assert scope_of(profile(phase(100, 50), phase(900, 300))).epochs == (2.0, 3.0)


@pytest.mark.parametrize("kind", [TotalKind.UNKNOWN, TotalKind.UNBOUNDED])
def test_an_unknown_total_is_told_by_the_epoch_or_by_the_thousand(kind: TotalKind) -> None:
    by_epoch = scope_of(profile(phase(100, 50), phase(None, 300, kind)))
    assert (by_epoch.unit, by_epoch.whole) == ("one epoch", False)
    assert (by_epoch.steps, by_epoch.epochs) == ((0.0, 300.0), (0.0, 1.0))
    by_steps = scope_of(profile(phase(100, 50), phase(None, None, kind)))
    assert (by_steps.unit, by_steps.whole) == ("1,000 steps", False)
    assert (by_steps.steps, by_steps.epochs) == ((0.0, 1000.0), (0.0, 0.0))


@given(st.floats(1, 1e6), st.floats(1, 1e5), st.none() | st.floats(1, 1e9))
def test_epochs_override_what_was_found(epochs: float, per_epoch: float, steps: float | None) -> None:
    scope = scope_of(profile(phase(100, 50), phase(steps, per_epoch)), epochs=epochs)
    assert (scope.unit, scope.whole) == ("the whole job", True)
    assert scope.steps == pytest.approx((100.0, epochs * per_epoch))
    assert scope.epochs == pytest.approx((2.0, epochs))


@given(st.floats(1, 1e9), st.none() | st.floats(1, 1e5), st.none() | st.floats(1, 1e9))
def test_total_steps_override_what_was_found(total: float, per_epoch: float | None, steps: float | None) -> None:
    scope = scope_of(profile(phase(100, 50), phase(steps, per_epoch), later=(700, None)), total_steps=total)
    assert (scope.unit, scope.whole, scope.notes) == ("the whole job", True, ())
    assert scope.steps == (100.0, total)
    assert scope.epochs == pytest.approx((2.0, total / per_epoch if per_epoch else 0.0))


def test_later_phases_are_taken_to_be_alike() -> None:
    scope = scope_of(profile(phase(1000, 100), later=(300, 200)))
    assert (scope.steps, scope.epochs) == ((1500.0,), (15.0,))
    (note,) = scope.notes
    assert "500 steps of later phases" in note


def test_a_later_phase_of_unknown_length_makes_the_answer_per_unit() -> None:
    scope = scope_of(profile(phase(1000), later=(None, 200)))
    assert (scope.unit, scope.whole, scope.steps) == ("1,000 steps", False, (1000.0,))
    assert "train.py:0 is of unknown length" in scope.notes[0]
    assert "--total-steps" in scope.notes[0]
    assert scope_of(profile(phase(1000), later=(None,)), total_steps=5000).whole
