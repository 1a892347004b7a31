"""Phases from the probe's progress series, from hand-made records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.profile.progress_series import framework_of, notes_of, parallel_share, progress_phase, usable
from costgpu.models.workload import GpuPath, TotalKind
from tests.unit.measure import records


def series(source: str = "xgboost", unit: str = "round", total: float | None = 100, **more: Any) -> Any:
    more = {"seconds": [0.5] * (more.get("steps", 12) - 1)} | more
    more["facts"] = {"per_epoch": None, "may_stop": False} | more.get("facts", {})
    return records.record("series", source=source, unit=unit, total=total, **more)


def record(*series: Any, **more: Any) -> Any:
    return records.record("series_result", series=list(series), **more)


def loop(trips: Any, line: int = 2, **more: Any) -> Any:
    return records.record("plain_loop", trips=trips, line=line, **more)


def test_rounds_are_steps() -> None:
    phase = progress_phase(record(series()))
    assert (phase.unit, phase.total.kind, phase.total.steps) == ("round", TotalKind.EXACT, 100)
    assert phase.step.median_seconds == 0.5
    assert (phase.gpu, phase.kind) == (GpuPath.TABLE, "gradient-boosted-trees")
    assert phase.steps_observed == 12


@pytest.mark.parametrize("seen", [0, 1, 2])
def test_too_few_steps_are_no_measure(seen: int) -> None:
    assert not usable(record(series(steps=max(seen, 1), seconds=[0.5] * max(0, seen - 1))))


def test_what_may_stop_is_an_upper_bound_and_what_ended_is_known() -> None:
    assert progress_phase(record(series(facts={"may_stop": True}))).total.kind is TotalKind.UPPER_BOUND
    ended = progress_phase(record(series(facts={"may_stop": True}), status="ended"))
    assert (ended.total.kind, ended.total.steps) == (TotalKind.EXACT, 12)


def test_the_loops_around_a_fit_multiply() -> None:
    phase = progress_phase(record(series(around=[loop(5), loop(1)], openings=2)))
    assert (phase.total.steps, phase.total.steps_per_epoch) == (500, 100)
    assert "5 (train.py:2)" in phase.total.how
    unread = progress_phase(record(series(around=[loop(None)], openings=2)))
    assert (unread.total.kind, unread.total.steps_per_epoch) == (TotalKind.UNKNOWN, 100)
    once = progress_phase(record(series(around=[loop(None)])))
    assert once.total.steps == 100, "a loop that has not come round is not known to"


@given(total=st.integers(1, 10**9), folds=st.integers(1, 50), seen=st.integers(3, 40))
def test_a_total_is_never_less_than_what_was_seen(total: int, folds: int, seen: int) -> None:
    found = progress_phase(record(series(total=total, steps=seen, around=[loop(folds)]))).total
    assert found.steps is not None
    assert found.steps >= seen
    assert found.steps in (seen, total * folds)


def bar(label: str, total: int | None, steps: int, outer: str = "") -> Any:
    return series("tqdm", "it", None, steps=steps, label=label, facts={"total": total, "outer": outer})


def test_nested_bars() -> None:
    inner, outer = bar("a.py:5", 300, 50, "a.py:4"), bar("a.py:4", 100, 0)
    phase = progress_phase(record(inner, outer))
    assert (phase.total.steps, phase.total.steps_per_epoch, phase.gpu) == (30_000, 300, GpuPath.NONE)
    fast = progress_phase(record(inner, bar("a.py:4", 100, 9)))
    assert (fast.label, fast.total.steps) == ("a.py:4", 100)
    nameless = progress_phase(record(bar("a.py:4", None, 9)))
    assert (nameless.total.kind, nameless.unit) == (TotalKind.UNKNOWN, "iteration")
    assert progress_phase(record(inner, bar("a.py:4", None, 0))).total.steps is None


def test_keras_says_its_own_length_and_counts() -> None:
    facts = {"epochs": 20, "per_epoch": 50, "optimizer": "Adam", "parameters": 1000, "backend": "jax", "batch": 32}
    facts |= {"model_bytes": 4000, "totals": records.record("series_totals")}
    kept = record(series("keras", "step", 1000, facts=facts), versions={"keras": "3.15.1"})
    phase = progress_phase(kept)
    assert phase.gpu is GpuPath.COUNTED
    assert phase.totals is not None
    assert (phase.totals.convolutions, phase.totals.dtype) == (0.25, "float16")
    assert (phase.total.steps, phase.total.steps_per_epoch) == (1000, 50)
    assert phase.total.how == "epochs=20 × 50 steps"
    assert phase.optimizers[0].state_bytes == 8000
    assert framework_of(kept) == ("keras (jax)", "3.15.1")
    without = progress_phase(record(series("keras", "step", 1000, facts={**facts, "totals": None})))
    assert (without.gpu, without.totals) == (GpuPath.NONE, None)
    assert "could not be counted" in without.gpu_reason


def test_loops_of_the_script_itself() -> None:
    times = [[0.0, 10.0], [1.0, 20.0], [2.0, 40.0]]
    progress: Any = {"loops": [loop(4, 2), loop(500, 3)], "first": 10.0, "last": 40.0, "seconds": 2.0, "times": times}
    phase = progress_phase(record(loops=progress))
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.EXACT, 2000, 500)
    assert phase.step.mean_seconds == pytest.approx(2 / 30)
    assert phase.label == "train.py:3"
    early = {**progress, "loops": [loop(4, 2, early=True), loop(500, 3)]}
    assert progress_phase(record(loops=early)).total.kind is TotalKind.UPPER_BOUND


def test_a_script_that_ends_is_one_run_if_it_did_something() -> None:
    phase = progress_phase(record(status="ended"))
    assert (phase.unit, phase.total.steps, phase.step.median_seconds) == ("run", 1, 10)
    assert not usable(record(status="ended", wall_seconds=0.2))
    assert not usable(record(status="ended", cpu_seconds=0.1)), "it slept"
    assert not usable(record(status="ended", versions={"torch": "2"})), "it should have trained"
    assert not usable(record())


@pytest.mark.parametrize(
    ("estimator", "gpu", "words"),
    [
        ("RandomForestClassifier", GpuPath.TABLE, "cuML"),
        ("HistGradientBoostingRegressor", GpuPath.NONE, "XGBoost and LightGBM have one"),
        ("GaussianNB", GpuPath.NONE, "no GPU implementation of scikit-learn's GaussianNB: CPU"),
    ],
)
def test_what_a_gpu_does_for_an_estimator(estimator: str, gpu: GpuPath, words: str) -> None:
    phase = progress_phase(record(series("sklearn", "tree", 50, facts={"estimator": estimator})))
    assert phase.gpu is gpu
    assert words in phase.gpu_reason


@pytest.mark.parametrize(
    ("cpu", "cores", "share"), [(10, 4, 0), (40, 4, 1), (25, 4, 0.5), (80, 4, 1), (2, 4, 0), (10, 1, 1)]
)
def test_how_much_more_cores_would_shorten(cpu: float, cores: int, share: float) -> None:
    assert parallel_share(record(cpu_seconds=cpu), cores) == pytest.approx(share)


TOTALS = records.record("series_totals")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"totals": TOTALS, "cost_analysis_flops": 1.1e9}, ""),
        ({"totals": TOTALS, "cost_analysis_flops": 9e9}, "JAX's own cost analysis says 9e+09"),
        ({"totals": TOTALS | {"unknown_loops": True}}, "counted once"),
        ({"uncounted": "X"}, "could not be counted"),
    ],
)
def test_what_a_reader_is_told_of_jax(facts: Any, words: str) -> None:
    notes = notes_of(record(series("jax", "step", None, facts=facts)))
    assert [words in note for note in notes] == ([True] if words else [])
