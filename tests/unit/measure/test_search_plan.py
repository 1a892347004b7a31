"""What a search fits in all, and what its fits take, by what its candidates say of their length."""

from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.loops import search_plan
from costgpu.measure.profile.search_times import note_of_search, of_all_fits, search_in_words
from costgpu.measure.profile.step_times import summarize
from costgpu.models.workload import StepTimes

plans: Any = search_plan
make_plan = plans.SearchPlan
FOLDS = 5


def grid(**values: list[Any]) -> list[dict[str, Any]]:
    """In the order of scikit-learn's `ParameterGrid`: the last name changes first."""
    found: list[dict[str, Any]] = [{}]
    for name in sorted(values):
        found = [{**one, name: value} for one in found for value in values[name]]
    return found


def plan_of(candidates: list[dict[str, Any]], *, refit: bool = True) -> Any:
    return make_plan(candidates, candidates, FOLDS, refit=refit)


def fit(plan: Any, fits: int, *, seconds: Any, estimator: Any = None) -> tuple[list[float], Any]:
    """Make the first fits of a search; their times and the facts of the plan."""
    times = []
    for n in range(fits):
        candidate = plan.candidates[n // FOLDS]
        times.append(seconds(candidate))
        plan.fitted(candidate, estimator or SimpleNamespace(), kept=True)
    return times, plan.facts


def mean_of(times: list[float], facts: Any, unit: str = "search fit") -> StepTimes:
    series: Any = {"unit": unit, "seconds": times, "facts": {"search": facts}}
    return of_all_fits(summarize(times, sum(times) / len(times)), series)


NAMES = ["n_estimators", "clf__n_estimators", "model__max_iter", "iterations", "num_boost_round", "clf__net__epochs"]


@pytest.mark.parametrize("name", NAMES)
def test_fits_are_as_long_as_their_candidates_say(name: str) -> None:
    plan = plan_of(grid(**{name: [50, 100, 300]}))
    times, facts = fit(plan, 4, seconds=lambda one: one[name] * 0.01)
    step = mean_of(times, facts)
    assert facts["fits"] == 3 * FOLDS + 1
    whole = FOLDS * (0.5 + 1.0 + 3.0) + 1.5 * FOLDS / (FOLDS - 1)
    assert step.seconds * facts["fits"] == pytest.approx(whole)
    assert step.drift == 1.0


def test_what_every_fit_takes_is_told_from_its_length() -> None:
    plan = plan_of(grid(n_estimators=[10, 20, 100]), refit=False)
    times, facts = fit(plan, 2 * FOLDS, seconds=lambda one: 2.0 + 0.1 * one["n_estimators"])
    assert mean_of(times, facts).seconds == pytest.approx((3 + 4 + 12) / 3)


def test_other_values_of_other_parameters_widen_the_answer_and_are_named() -> None:
    plan = plan_of(grid(max_depth=[4, 8, None], n_estimators=[50, 100]))
    times, facts = fit(plan, FOLDS, seconds=lambda one: 1.0)
    assert (facts["tried"], facts["unlike"], facts["names"]) == (1, pytest.approx(4 / 6), ["max_depth"])
    assert mean_of(times, facts).drift == pytest.approx(1 + 2 * 4 / 6)
    note = note_of_search({"facts": {"search": facts}})  # type: ignore[typeddict-item]
    assert "1 of 6 candidates" in note[0]
    assert "max_depth" in note[0]
    times, facts = fit(plan, 6 * FOLDS, seconds=lambda one: 1.0)
    assert (facts["unlike"], note_of_search({"facts": {"search": facts}})) == (0.0, [])  # type: ignore[typeddict-item]


def test_values_between_those_that_were_tried_are_nothing_new() -> None:
    candidates = [{"C": 0.1}, {"C": 9.0}, {"C": 3.0}, {"C": 20.0}]
    _, facts = fit(plan_of(candidates), 2 * FOLDS, seconds=lambda one: 1.0)
    assert facts["unlike"] == 0.25
    assert facts["planned"] == [], "none of them says how long it takes"


def test_a_limit_that_is_not_reached_says_nothing() -> None:
    converged = SimpleNamespace(n_iter_=[12, 14], max_iter=100)
    _, facts = fit(plan_of(grid(max_iter=[100, 10000])), 1, seconds=lambda one: 1.0, estimator=converged)
    assert facts["planned"] == []


def test_successive_halving_fits_fewer_candidates_with_more() -> None:
    search = SimpleNamespace(
        factor=3, min_resources_=100, max_resources_=900, aggressive_elimination=False, n_candidates_=[9]
    )
    rounds = plans.rounds_of({"self": search, "n_iterations": 3})
    assert rounds == [(9, 100.0), (3, 300.0), (1, 900.0)]
    candidates = grid(C=list(range(9)))
    more = {"refit": True, "rounds": rounds, "resource": "n_samples"}
    plan = make_plan(candidates, candidates, FOLDS, scale=100.0, **more)
    assert plan.facts["fits"] == FOLDS * 13 + 1
    times, facts = fit(plan, FOLDS, seconds=lambda one: 0.5)
    mean = mean_of(times, facts).seconds * facts["fits"]
    assert mean == pytest.approx(FOLDS * 3 * 9 * 0.5 + 9 * 0.5 * FOLDS / (FOLDS - 1))
    again = make_plan(candidates[:3], candidates[:3], FOLDS, scale=300.0, **more)
    again.goes_on(facts)
    assert fit(again, 1, seconds=lambda one: 1.5)[1]["seen"] == [100.0] * FOLDS + [300.0]


def test_parts_of_the_data_are_as_long_as_they_are() -> None:
    parts = [{plans.TRAIN_SIZE: size} for _ in range(2) for size in (100, 200, 600)]
    plan = make_plan(parts, parts, 1, "parts of the data")
    plan.fitted({plans.TRAIN_SIZE: 100}, None, kept=True)
    assert mean_of([1.0], plan.facts).seconds == pytest.approx(3.0)
    assert plan.facts["unlike"] == 0.0
    assert search_in_words(plan.facts) == "6 parts of the data"


@pytest.mark.parametrize("value", [object(), [object()], SimpleNamespace(n=1), ("a", 1), True, None])
def test_values_of_any_kind(value: Any) -> None:
    _, facts = fit(plan_of([{"n_estimators": value}, {"n_estimators": 5, "x": value}]), 1, seconds=lambda one: 1.0)
    assert facts["planned"] == []


def test_only_the_refit_is_left() -> None:
    plan = plan_of([{"C": 1}])
    assert not plan.is_over(0)
    fit(plan, FOLDS, seconds=lambda one: 1.0)
    assert plan.is_over(0)
    assert not plan.is_over(1), "another search's fit"


def test_parts_of_a_fit_are_what_they_were() -> None:
    times, facts = fit(plan_of(grid(n_estimators=[50, 100])), 2, seconds=lambda one: 1.0)
    assert mean_of(times, facts, unit="tree").seconds == 1.0
