"""Which of several series of a script is the job, and what around it repeats it: of the probe, without frameworks."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.measure.probe.frameworks import jax_hooks, predict_hooks
from costgpu.measure.probe.frameworks.registry import BY_NAME
from costgpu.measure.probe.loops import progress_series, script_frames

predictions: Any = predict_hooks  # for Python 3.8, without types
progress: Any = progress_series
frames: Any = script_frames


def call_from(path: str, name: str, function: Any, **local: Any) -> Any:
    """The answer of a function that is called by a function of this name in a file of this path."""
    names = "".join(f"    {key} = {value!r}\n" for key, value in local.items())
    space: dict[str, Any] = {"function": function}
    exec(compile(f"def {name}():\n{names}    return function()\n", path, "exec"), space)
    return space[name]()


@pytest.mark.parametrize(
    ("path", "name", "within"),
    [
        ("/lib/site-packages/xgboost/training.py", "train", True),  # a custom objective or metric
        ("/lib/site-packages/xgboost/core.py", "update", True),
        ("/lib/site-packages/lightgbm/engine.py", "cv", True),
        ("/lib/site-packages/xgboost/sklearn.py", "predict", False),
        ("/home/me/training.py", "train", False),
    ],
)
def test_predictions_inside_of_a_training_are_part_of_it(path: str, name: str, within: bool) -> None:
    def predict() -> bool:
        followed: Any = SimpleNamespace(boosters={"xgboost", "lightgbm"})
        return bool(predictions.Predictions.in_training(followed))

    assert call_from(path, name, predict) is within


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = progress.ProgressTracker(SimpleNamespace(), ())
    made.now = 0.0
    monkeypatch.setattr(progress, "clock", lambda: made.now)
    return made


def work(tracker: Any, source: str, unit: str, begins: float, steps: list[float], **facts: Any) -> Any:
    tracker.now = begins
    made = tracker.open(BY_NAME[source], unit, None, key=(source, unit), around=[], **facts)
    for now in steps:
        tracker.now = made_at = now
        made.step(made_at)
        made.last = made_at
    return made


def test_what_is_trained_again_and_again_and_then_used_is_training(tracker: Any) -> None:
    rounds = work(tracker, "lightgbm", "round", 0.0, [0.1, 0.2])
    used = work(tracker, "lightgbm", "call", 0.3, [5.0], inference=True, busy=4.7)
    assert tracker.ranked()[0] is used, "trained quickly, then used for long"
    used.facts["busy"] = 0.05
    assert tracker.ranked()[0] is rounds, "what is between its calls is not in it"
    used.facts["busy"] = 4.7
    work(tracker, "lightgbm", "round", 5.1, [5.2])
    assert tracker.ranked()[0] is rounds, "it trains again"


def test_a_search_repeats_what_its_trials_do() -> None:
    path = "/lib/site-packages/optuna/study/_optimize.py"
    seen = call_from(path, "_optimize_sequential", frames.library_loops, n_trials=100, timeout=None)
    assert [(loop["trips"], loop["file"], loop["position"][2]) for loop in seen] == [(100, "optuna", False)]
    timed = call_from(path, "_optimize_sequential", frames.library_loops, n_trials=100, timeout=60)
    assert timed[0]["position"][2], "the time may end it"
    assert call_from(path, "_optimize", frames.library_loops, n_trials=100) == []
    other = call_from("/lib/site-packages/hyperopt/fmin.py", "fmin", frames.library_loops)
    assert [loop["trips"] for loop in other] == [None]
    known = call_from("/lib/site-packages/hyperopt/fmin.py", "fmin", frames.library_loops, max_evals=50, timeout=9)
    assert [(loop["trips"], loop["position"][2]) for loop in known] == [(50, True)]
    without = call_from("/lib/site-packages/hyperopt/fmin.py", "fmin", frames.library_loops, max_evals=sys.maxsize)
    assert [loop["trips"] for loop in without] == [None], "until the time is over"


@pytest.mark.parametrize(
    ("file", "local", "trips", "ends"),
    [
        ("feature_selection/_rfe.py", {"step": 1, "min_features_to_select": 1}, 4 * 20, True),
        ("feature_selection/_rfe.py", {"step": 0.25, "min_features_to_select": 5}, 4 * 4, True),
        ("feature_selection/_sequential.py", {"n_iterations": 3}, 20 + 19 + 18, False),
        ("calibration.py", {}, 3, False),
        ("ensemble/_forest.py", {}, None, False),
    ],
)
def test_estimators_that_fit_others_say_how_often(file: str, local: Any, trips: int | None, ends: bool) -> None:
    space: dict[str, Any] = {"function": frames.library_loops, "local": local, "given": SimpleNamespace}
    space.update(x=SimpleNamespace(shape=(100, 20)), splits=SimpleNamespace(get_n_splits=lambda *_: 3))
    text = "def fit(y=None):\n    self, X, cv, n_features = given(**local), x, splits, 20\n"
    text += "    n_iterations = local.get('n_iterations')\n    return function()\n"
    exec(compile(text, f"/lib/site-packages/sklearn/{file}", "exec"), space)
    found = [(loop["trips"], loop["position"][2]) for loop in space["fit"]()]
    assert found == ([(trips, ends)] if trips else [])


def test_curves_of_scikit_learn_say_how_many_fits_they_are() -> None:
    class Splits:
        def get_n_splits(self, *_: Any) -> int:
            return 3

    path = "/lib/site-packages/sklearn/model_selection/_validation.py"
    space: dict[str, Any] = {"function": frames.library_loops, "splits": Splits()}
    text = "def validation_curve(X, y):\n    cv, param_range = splits, range(1, 11)\n    return function()\n"
    exec(compile(text, path, "exec"), space)
    assert [loop["trips"] for loop in space["validation_curve"]([], [])] == [30]
    proportions = [(0, 1)] * 15
    seen = call_from(path, "learning_curve", frames.library_loops, train_test_proportions=proportions)
    assert [loop["trips"] for loop in seen] == [15]


def test_gradients_taken_by_hand_are_training(tracker: Any) -> None:
    tracing: Any = SimpleNamespace(clean=False)
    tracing.trace_state_clean = lambda: tracing.clean
    jax = SimpleNamespace(
        core=tracing, jit=len, pmap=len, grad=lambda fun: lambda x: 2 * fun(x), value_and_grad=lambda fun: fun
    )
    made: Any = jax_hooks
    hooks = made.JaxHooks(tracker)
    hooks.attach(jax)
    used = work(tracker, "jax", "step", 0.0, [1.0, 2.0, 3.0], inference=True, applied="only")
    gradient = jax.grad(abs)
    assert (gradient(-3), hooks.by_hand) == (6, False), "inside of a jitted function, whose own step it is"
    assert hooks.differentiated
    tracing.clean = True
    assert (gradient(-3), hooks.by_hand) == (6, True)
    assert ("inference" in used.facts, used.rank) == (False, BY_NAME["jax"].rank)


def array(*shape: int) -> Any:
    return SimpleNamespace(aval=SimpleNamespace(shape=shape, dtype="float32", ndim=len(shape)))


@pytest.mark.parametrize(
    ("given", "returned", "counts"),
    [
        ([array(64, 64), array(32, 64)], [array()], (2, 0)),  # a loss
        ([array(64, 64), array(32, 64)], [array(64, 64), array()], (2, 1)),  # an update, or gradients
        ([array(64, 10), array(10), array(32, 64)], [array(32, 10)], (3, 0)),  # predictions
        ([array()], [array(64)], (0, 0)),  # no array goes in: nothing is known
    ],
)
def test_what_a_jitted_function_gives_back(given: Any, returned: Any, counts: Any) -> None:
    made: Any = jax_hooks
    closed = SimpleNamespace(jaxpr=SimpleNamespace(invars=given, outvars=returned), consts=[])
    assert made.taken_and_given_back(closed) == counts


def test_a_jitted_evaluation_waits_for_the_update(tracker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "prospects", SimpleNamespace(names={"value_and_grad"}))
    evaluated = work(tracker, "jax", "evaluation", 0.0, [1.0, 2.0, 3.0], applied="only")
    assert tracker.may_only_evaluate(evaluated)
    assert [one["facts"]["applied"] for one in tracker.record()] == ["trains"]
    update = work(tracker, "jax", "update", 0.5, [3.5])
    assert [one["steps"] for one in tracker.record()] == [update.steps], "the evaluation is no training"
    made: Any = jax_hooks
    made.JaxHooks(tracker).evaluates(2.0)
    assert (update.facts["evaluating"], update.events) == (2.0, {"validation": 2.0})


def test_the_jitted_function_that_takes_gradients_is_the_step(tracker: Any) -> None:
    work(tracker, "jax", "picture", 0.0, [1.0, 2.0, 30.0])  # takes no array, as a grid that is drawn does
    work(tracker, "jax", "update", 0.5, [1.5, 2.5], differentiated=True)
    assert [one["steps"] for one in tracker.record()] == [2, 3]


def test_tracing_is_told_by_old_and_new_versions_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = jax_hooks
    hooks = made.JaxHooks(None)
    hooks.jax = SimpleNamespace(core=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "jax._src.core", SimpleNamespace(trace_state_clean=lambda: False))
    assert hooks.tracing()
    hooks.jax.core.trace_state_clean = lambda: True
    assert not hooks.tracing()


@pytest.mark.parametrize(
    ("names", "defined", "expected"),
    [
        ({"run_training"}, set(), True),  # what a library's trainer is begun with
        ({"backward"}, set(), True),
        ({"run_training"}, {"run_training"}, False),
        ({"train_loader", "no_grad"}, set(), False),
    ],
)
def test_whether_a_script_may_use_its_optimizer(names: set[str], defined: set[str], expected: bool) -> None:
    tracker = progress.ProgressTracker(SimpleNamespace(), ())
    tracker.prospects = SimpleNamespace(names=names, defined=defined)
    assert tracker.names_training() is expected
