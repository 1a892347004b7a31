"""Phases from the probe's progress series, from hand-made records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.profile.progress_series import (
    framework_of,
    later_fits,
    notes_of,
    parallel_share,
    progress_phases,
    usable,
)
from costgpu.models.workload import GpuPath, Phase, TotalKind
from tests.unit.measure import records

LATER = {"file": "a.py", "line": 7, "source": "model.fit(x)", "trips": None}


def series(source: str = "xgboost", unit: str = "round", total: float | None = 100, **more: Any) -> Any:
    more = {"seconds": [0.5] * (more.get("steps", 12) - 1)} | more
    more["facts"] = {"per_epoch": None, "may_stop": False} | more.get("facts", {})
    return records.record("series", source=source, unit=unit, total=total, **more)


def record(*series: Any, **more: Any) -> Any:
    return records.record("series_result", series=list(series), **more)


def progress_phase(record: Any) -> Phase:
    """The only phase, or the last."""
    return progress_phases(record)[-1]


def loop(trips: Any, line: int = 2, **more: Any) -> Any:
    return records.record("plain_loop", trips=trips, line=line, **more)


def test_rounds_are_steps() -> None:
    phase = progress_phase(record(series()))
    assert (phase.unit.name, phase.total.kind, phase.total.steps) == ("round", TotalKind.EXACT, 100)
    assert phase.step.median_seconds == 0.5
    assert (phase.gpu, phase.kind) == (GpuPath.TABLE, "gradient-boosted-trees")
    assert phase.steps_observed == 12


@pytest.mark.parametrize("seen", [0, 1, 2])
def test_too_few_steps_are_no_measure(seen: int) -> None:
    assert not usable(record(series(steps=max(seen, 1), seconds=[0.5] * max(0, seen - 1))))


@pytest.mark.parametrize(("lead", "seconds", "each"), [(52.0, [], 52.0), (60.0, [50.0], 50.0)])
def test_steps_that_take_as_long_as_the_window_are_an_answer(lead: float, seconds: list[float], each: float) -> None:
    seen = record(series("keras", "step", lead=lead, seconds=seconds, steps=len(seconds) + 1))
    assert usable(seen)
    assert progress_phase(seen).step.mean_seconds == each
    assert any("Only one step was seen" in note for note in notes_of(seen)) is not bool(seconds)


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
    assert once.total.kind is TotalKind.UNKNOWN, "a loop that has not come round may yet do so"
    trials = progress_phase(record(series(around=[loop(7, 0, trials=True)]))).total
    assert (trials.kind, trials.steps) == (TotalKind.APPROXIMATE, 700), "each trial may be of another length"


def test_trainings_one_after_the_other_are_phases_of_their_own() -> None:
    first = series(label="a.py:3", steps=30, total=30, open=False)
    second = series("lightgbm", label="a.py:4", steps=12, total=50, later=[LATER])
    cut = record(second, first)
    assert [(one.label, one.total.steps) for one in progress_phases(cut)] == [("a.py:3", 30), ("a.py:4", 50)]
    assert [(one.label, one.steps) for one in later_fits(cut)] == [("a.py:7", None)]
    ended = record(second, first, status="ended")
    assert sum(one.total.steps or 0 for one in progress_phases(ended)) == 42
    assert later_fits(ended) == []
    bar_before = record(second, bar("a.py:1", 10, 10))
    assert len(progress_phases(bar_before)) == 1


def test_what_only_prepares_is_not_the_job() -> None:
    prepares = bar("a.py:1", 250, 40)
    assert usable(record(prepares))
    assert not usable(record(prepares, awaits_training=True))
    assert usable(record(prepares, awaits_training=True, status="ended", wall_seconds=0.1))
    assert not usable(record(prepares, phases=[{"steps": 1}]))
    assert not usable(record({**prepares, "setup": "it counts bytes"}))
    loops: Any = {"loops": [loop(4)], "first": 1.0, "last": 4.0, "seconds": 2.0, "times": [[0.0, 1.0], [2.0, 4.0]]}
    assert usable(record(loops=loops))
    assert not usable(record(loops=loops, awaits_training=True))


def test_the_loops_around_a_bar_multiply() -> None:
    inner = bar("a.py:5", 300, 50)
    total = progress_phase(record({**inner, "around": [loop(4), loop(7)]})).total
    assert (total.kind, total.steps, total.steps_per_epoch) == (TotalKind.EXACT, 8400, 300)
    unread = progress_phase(record({**inner, "around": [loop(4), loop(None)]})).total
    assert (unread.kind, unread.steps, unread.steps_per_epoch) == (TotalKind.UNKNOWN, None, 300)
    stops = progress_phase(record({**inner, "facts": {**inner["facts"], "may_stop_at": "line 9: loss < 1"}})).total
    assert (stops.kind, stops.steps) == (TotalKind.UPPER_BOUND, 300)
    assert "line 9" in stops.how
    told = progress_phase(record({**inner, "facts": {**inner["facts"], "told": True}})).total
    assert (told.kind, told.steps) == (TotalKind.APPROXIMATE, 300), "total= of a bar that goes through nothing"
    more = progress_phase(record(bar("a.py:5", 30, 50))).total
    assert more.kind is TotalKind.UNKNOWN, "it has come further than it said it would"


def test_what_a_script_that_ended_did_beside_its_work_is_not_the_job() -> None:
    short = bar("a.py:1", 6, 6)
    ended: Any = {"status": "ended", "wall_seconds": 60.0, "cpu_seconds": 60.0}
    assert progress_phase(record(short, **ended)).label == "a.py:1"
    assert progress_phase(record({**short, "after": 30.0}, **ended)).unit.name == "run"
    assert progress_phase(record({**short, "after": 30.0}, **ended, versions={"torch": "2.9"})).unit.name == "run"
    loops: Any = {"loops": [loop(4)], "first": 0.0, "last": 4.0, "seconds": 2.0, "times": [[0.0, 1.0], [2.0, 4.0]]}
    for lead, wall, importing, unit in (
        (1.5, 5.0, 0.0, "iteration"),
        (57.0, 60.0, 0.0, "run"),
        (57.0, 60.0, 55.0, "iteration"),  # a cold disk is no work of the script's
        (1.5, 60.0, 0.0, "run"),
    ):
        times = {**ended, "wall_seconds": wall, "importing": [importing, 1.0]}
        assert progress_phase(record(loops={**loops, "lead": lead}, **times)).unit.name == unit


def test_a_single_step_of_a_script_that_ends_is_an_answer() -> None:
    phase = progress_phase(record(status="ended", phases=[{"steps": 1}], versions={"torch": "2.9"}))
    assert (phase.total.kind, phase.total.steps, phase.step.median_seconds) == (TotalKind.EXACT, 1, 10)
    assert "single step" in phase.gpu_reason
    torch = record(status="ended", phases=[{"steps": 1}], versions={"torch": "2.9"}, torch={"version": "2.9"})
    assert framework_of(torch) == ("torch", "2.9")
    assert not usable(record(phases=[{"steps": 1}], versions={"torch": "2.9"}))


def test_a_limit_that_is_never_reached_is_none() -> None:
    assert progress_phase(record(series(total=1e10))).total.kind is TotalKind.UNBOUNDED


@given(total=st.integers(1, 10**9 - 1), folds=st.integers(1, 50), seen=st.integers(3, 40))
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
    assert (nameless.total.kind, nameless.unit.name) == (TotalKind.UNKNOWN, "iteration")
    assert progress_phase(record(inner, bar("a.py:4", None, 0))).total.steps is None


def test_keras_says_its_own_length_and_counts() -> None:
    facts = {
        "epochs": 20,
        "per_epoch": 50,
        "optimizer": "Adam",
        "parameters": 1000,
        "framework": "keras (jax)",
        "batch": 32,
    }
    facts |= {"model_bytes": 4000, "totals": records.record("series_totals")}
    kept = record(series("keras", "step", 1000, facts=facts), versions={"keras": "3.15.1"})
    phase = progress_phase(kept)
    assert phase.gpu is GpuPath.COUNTED
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
    timed = {**progress, "loops": [loop(3600, 2)], "first": 0.0, "clock": "time.time() - t0 < 3600"}
    total = progress_phase(record(loops=timed)).total
    assert (total.kind, total.steps, total.seconds) == (TotalKind.TIMED, None, 3600)


def test_loops_that_a_library_begins_again_and_again() -> None:
    again = {"by": "scipy", "times": 41.0, "around": []}
    progress: Any = {"loops": [loop(60, 3)], "first": 0.0, "last": 2460.0, "seconds": 24.6, "lead": 1.0}
    called: Any = {**progress, "times": [[0.0, 0.0], [24.6, 2460.0]], "again": again}
    phase = progress_phase(record(loops=called))
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.UNKNOWN, None, 60)
    assert phase.total.how.startswith("60 (train.py:3) a call by scipy, begun about 41 times so far")
    assert phase.step.mean_seconds == pytest.approx(0.01)
    trials = {"trips": 100, "file": "optuna", "line": 0, "position": (100, None, False), "trials": True}
    searched = {**called, "again": {**again, "by": "optuna", "around": [trials]}}
    total = progress_phase(record(loops=searched)).total
    assert (total.kind, total.steps) == (TotalKind.APPROXIMATE, 6000)
    assert "a trial may choose another length" in total.how
    assert progress_phase(record(status="ended", loops=called)).unit.name == "run"


def test_a_script_that_ends_is_one_run_if_it_did_something() -> None:
    phase = progress_phase(record(status="ended"))
    assert (phase.unit.name, phase.total.steps, phase.step.median_seconds) == ("run", 1, 10)
    assert not usable(record(status="ended", wall_seconds=0.2))
    assert not usable(record(status="ended", cpu_seconds=0.1)), "it slept"
    assert not usable(record())


@pytest.mark.parametrize("framework", ["torch", "jax", "keras", "tensorflow"])
def test_a_script_that_ends_without_a_step_is_its_own_run(framework: str) -> None:
    ended: Any = {"status": "ended", "versions": {framework: "2.9"}}
    seen = record(**ended)
    phase = progress_phase(seen)
    assert (phase.unit.name, phase.total.steps, phase.gpu) == ("run", 1, GpuPath.NONE)
    assert phase.gpu_reason == f"what it computes with {framework} was not seen, so that no GPU time is known"
    assert "does it need arguments?" in notes_of(seen)[0]
    assert notes_of(record(status="ended")) == []
    assert not usable(record(**ended, wall_seconds=2.5)), "it printed how it is used"
    assert not usable(record(**ended, importing=[8.0, 7.0])), "it imported"
    assert not usable(record(**ended, cpu_seconds=1.0)), "it slept"


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
    ("cpu", "cores", "share"), [(10, 4, 0), (40, 4, 1), (25, 4, 0.5), (80, 4, 1), (2, 4, 0), (10, 1, 1), (1, 1, 0)]
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


def test_an_evaluation_before_a_training_that_was_not_reached_is_not_the_whole_job() -> None:
    applied = series("jax", "call", facts={"applied": "trains"})
    profile = records.build(record(applied, status="cut", peak_rss_bytes=1))
    assert [one.steps for one in profile.later_phases] == [None]
    assert any("It takes gradients somewhere" in note for note in profile.notes)
    assert not any("It trains again" in note for note in profile.notes)
