"""Every framework that a user may bring, each with its real package: steps, totals, FLOPs, and what a GPU could do."""

import importlib.util
import os
from pathlib import Path

import pytest

from costgpu.errors import NoTrainingStep
from costgpu.measure.failures import explain
from costgpu.measure.profile.progress_series import notes_of, progress_phases
from costgpu.models.workload import ExtraKind, GpuPath, Phase, Rhythm, TotalKind, WorkloadProfile
from tests.measure.harness import HERE, SCRIPTS, profile_of, request, run

FRAMEWORKS = SCRIPTS / "frameworks"
pytestmark = [pytest.mark.torch, pytest.mark.frameworks]


def needs(*names: str) -> None:
    """Skips where a framework is not installed; where everything has to be there, that is a failure."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing and os.environ.get("TESTBED_REQUIRED") == "1":
        pytest.fail(f"not installed: {missing}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (pip install --group frameworks)")


def line_of(script: str, text: str) -> int:
    """The first line of a script with this text."""
    lines = (FRAMEWORKS / script).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def measured(
    folder: Path, script: str, *arguments: str, steps: int | None = 60, seconds: float = 600, before: int = 0
) -> tuple[WorkloadProfile, Phase]:
    """By the number of steps, so that a busy machine sees the same; the last phase, after so many others."""
    asked = request(FRAMEWORKS / script, *arguments, seconds=seconds, steps=steps, workdir=folder)
    profile, _ = profile_of(asked, folder)
    assert len(profile.phases) == 1 + before
    return profile, profile.phases[-1]


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    needs("keras", backend)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    profile, phase = measured(tmp_path, "keras_fit.py")
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.EXACT, 4000, 20)
    assert phase.label.startswith("keras_fit.py:")
    validation = next(extra for extra in phase.extras if extra.kind is ExtraKind.VALIDATION)
    assert (validation.rhythm, validation.every) == (Rhythm.EPOCH, 1)
    if backend == "torch":
        assert phase.gpu is GpuPath.TRACED
        assert phase.ops
        return
    assert profile.framework.name == f"keras ({backend})"
    assert phase.gpu is GpuPath.COUNTED
    assert phase.totals is not None
    convolution = 2 * 32 * 14 * 14 * 8 * (3 * 3 * 3)
    dense = 2 * 32 * (7 * 7 * 8 * 32 + 32 * 10)
    assert phase.totals.flops == pytest.approx(3 * (convolution + dense), rel=1e-6)
    assert phase.totals.convolutions == pytest.approx(convolution / (convolution + dense))
    assert phase.optimizers[0].name == "Adam"
    assert phase.optimizers[0].parameters == 3 * 3 * 3 * 8 + 8 + 392 * 32 + 32 + 330


def test_keras_that_may_stop_and_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("keras", "jax")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    _, phase = measured(tmp_path, "keras_fit.py", "300", "--stop")
    assert (phase.total.kind, phase.total.steps) == (TotalKind.UPPER_BOUND, 6000)
    profile, phase = measured(tmp_path, "keras_fit.py", "2", steps=None)
    assert profile.ended
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, 40)


def test_keras_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("keras", "jax")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    _, phase = measured(tmp_path, "keras_fit.py", "200", "--save")
    (saved,) = [extra for extra in phase.extras if extra.kind is ExtraKind.CHECKPOINT]
    assert (saved.rhythm, saved.every, saved.measured) == (Rhythm.STEPS, 25, True)
    assert saved.seconds_each > 0


@pytest.mark.parametrize(
    ("package", "options", "rhythm", "every", "seen"),
    [
        ("lightning", ["saves"], Rhythm.EPOCH, 1, True),
        ("lightning", ["saves", "validates"], Rhythm.STEPS, 10, True),  # after each validation
        ("transformers", ["saves"], Rhythm.STEPS, 300, False),
        ("transformers", ["saves", "often"], Rhythm.STEPS, 25, True),
    ],
)
def test_what_trainers_save(
    tmp_path: Path, package: str, options: list[str], rhythm: Rhythm, every: int, seen: bool
) -> None:
    needs(package)
    _, phase = measured(tmp_path, "trainers.py", package, *options, steps=110)
    (saved,) = [extra for extra in phase.extras if extra.kind is ExtraKind.CHECKPOINT]
    assert (saved.rhythm, saved.every, saved.measured) == (rhythm, every, seen)
    assert saved.seconds_each > 0
    evaluated = [extra for extra in phase.extras if extra.kind is ExtraKind.VALIDATION]
    assert len(evaluated) == ("validates" in options)
    for one in evaluated:
        assert (one.rhythm, one.every, one.measured) == (rhythm, every, seen)
        assert 5 * phase.step.seconds < one.seconds_each < 500 * phase.step.seconds, (
            "a hundred batches, half a step each"
        )


def test_evaluations_that_a_trainer_tells_of(tmp_path: Path) -> None:
    needs("transformers")
    _, phase = measured(tmp_path, "trainers.py", "transformers", "validates", "max-steps", steps=20)
    assert (phase.total.steps, phase.total.steps_per_epoch) == (700, 63)
    (one,) = phase.extras
    assert (one.kind, one.rhythm, one.every, one.measured) == (ExtraKind.VALIDATION, Rhythm.STEPS, 700 / 12, False)


def test_tensorflow_with_its_own_loop(tmp_path: Path) -> None:
    needs("tensorflow")
    profile, phase = measured(tmp_path, "tf_loop.py")
    assert profile.framework.name == "tensorflow"
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.EXACT, 20000, 40)
    assert phase.totals is not None
    assert phase.totals.flops == pytest.approx(3 * 2 * 50 * (784 * 128 + 128 * 10), rel=1e-6)


def test_jax_finds_the_update_among_the_jitted_functions(tmp_path: Path) -> None:
    needs("jax", "flax", "optax")
    profile, phase = measured(tmp_path, "jax_flax.py")
    assert profile.framework.name == "jax"
    assert (phase.total.kind, phase.total.steps, phase.total.steps_per_epoch) == (TotalKind.EXACT, 30000, 100)
    assert phase.gpu is GpuPath.COUNTED
    assert phase.totals is not None
    convolution = 2 * 32 * 14 * 14 * 8 * 9  # of one channel: its input needs no gradient
    dense = 2 * 32 * (14 * 14 * 8 * 64 + 64 * 10)
    assert phase.totals.flops == pytest.approx(2 * convolution + 3 * dense, rel=0.01)
    (evaluation,) = [extra for extra in phase.extras if extra.kind is ExtraKind.VALIDATION]
    assert (evaluation.rhythm, evaluation.every, evaluation.measured) == (Rhythm.EPOCH, 50, False)
    assert "20 batches" in evaluation.note


def test_jax_counts_a_scan_with_its_length(tmp_path: Path) -> None:
    needs("jax")
    _, phase = measured(tmp_path, "jax_scan.py")
    assert phase.total.steps == 100000
    assert phase.totals is not None
    forward = 100 * 2 * 16 * (64 * 64 + 32 * 64)
    assert 2.5 * forward < phase.totals.flops < 3.2 * forward


@pytest.mark.parametrize(
    ("library", "way", "kind", "steps", "per_epoch", "words"),
    [
        ("xgboost", "fit", TotalKind.UPPER_BOUND, 20000, None, ""),
        ("xgboost", "folds", TotalKind.EXACT, 5 * 4000, 4000, ""),
        ("xgboost", "cv", TotalKind.UPPER_BOUND, 3 * 4000, 4000, "3 (folds)"),
        ("lightgbm", "fit", TotalKind.UPPER_BOUND, 50000, None, ""),
        ("lightgbm", "cv", TotalKind.EXACT, 4 * 2000, 2000, "4 (folds)"),
        ("lightgbm", "cross", TotalKind.EXACT, 4 * 3000, 3000, "4 (cross_validate)"),
        ("catboost", "fit", TotalKind.UPPER_BOUND, 3 * 20000, None, ""),
    ],
)
def test_boosted_trees(
    tmp_path: Path, library: str, way: str, kind: TotalKind, steps: float, per_epoch: float | None, words: str
) -> None:
    needs(library)
    profile, phase = measured(tmp_path, "trees.py", library, way)
    assert profile.framework.name == library
    assert (phase.unit.name, phase.total.kind, phase.total.steps) == ("round", kind, steps)
    assert per_epoch in (None, phase.total.steps_per_epoch)
    assert words in phase.total.how
    assert (phase.gpu, phase.kind) == (GpuPath.TABLE, "gradient-boosted-trees")
    assert library != "xgboost" or "device='cuda'" in phase.gpu_reason


def test_xgboost_without_a_gpu(tmp_path: Path) -> None:
    needs("xgboost")
    _, phase = measured(tmp_path, "trees.py", "xgboost", "linear")
    assert phase.gpu is GpuPath.NONE
    assert "gblinear" in phase.gpu_reason


def test_catboost_whose_own_callbacks_still_decide(tmp_path: Path) -> None:
    needs("catboost")
    profile, phase = measured(tmp_path, "trees.py", "catboost", "callback", steps=None)
    assert (profile.ended, phase.total.steps) == (True, 300)
    assert not list(FRAMEWORKS.glob("catboost_info"))


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_trees_that_ask_for_a_gpu_are_measured_without(tmp_path: Path, library: str) -> None:
    needs(library)
    asked = request(FRAMEWORKS / "trees.py", library, "gpu", steps=20, workdir=tmp_path)
    outcome = run(asked, tmp_path)
    assert explain(outcome, asked, HERE) is None
    assert outcome.record is not None
    assert not outcome.record.get("probe_errors")
    (phase,) = progress_phases(outcome.record)
    assert (phase.unit.name, phase.total.steps, phase.gpu) == ("round", 20000, GpuPath.TABLE)
    assert notes_of(outcome.record)[0] == "It asks for a GPU and was measured on the CPU."


NO_GPU = "no GPU implementation"


@pytest.mark.parametrize(
    ("model", "unit", "steps", "gpu", "words"),
    [
        ("forest", "tree", 5000, GpuPath.TABLE, "cuML"),
        ("boosting", "stage", 5000, GpuPath.NONE, f"{NO_GPU} of scikit-learn's GradientBoostingClassifier"),
        ("histogram", "tree", 20000, GpuPath.NONE, NO_GPU),
        ("grid", "search fit", 201, GpuPath.TABLE, "SVC"),
        ("grid-trees", "tree", 1510, GpuPath.TABLE, "RandomForestClassifier"),
        ("crossed", "search fit", 180, GpuPath.TABLE, "SVC"),
        ("aftertrees", "fit", 399, GpuPath.TABLE, "SVC"),
        ("afterfolds", "tree", 7000, GpuPath.TABLE, "cuML"),
        ("network", "epoch", 4000, GpuPath.NONE, ""),
    ],
)
def test_what_is_counted_inside_a_fit(
    tmp_path: Path, model: str, unit: str, steps: float, gpu: GpuPath, words: str
) -> None:
    needs("sklearn")
    after = int(model.startswith("after"))  # a forest, or the folds of one, which is a phase of its own
    profile, phase = measured(tmp_path, "sklearn_fits.py", model, steps=30 if after else 6, before=after)
    kind = TotalKind.UPPER_BOUND if model == "network" else TotalKind.EXACT  # its loss may end it any time
    assert profile.framework.name == "scikit-learn"
    assert (phase.unit.name, phase.total.kind, phase.total.steps) == (unit, kind, steps)
    assert phase.gpu is gpu
    assert words in phase.gpu_reason


def test_a_whole_fit_is_its_own_measure(tmp_path: Path) -> None:
    needs("sklearn")
    profile, phase = measured(tmp_path, "sklearn_fits.py", "svm", "3000", steps=None)
    assert profile.ended
    assert (phase.unit.name, phase.total.steps, phase.kind) == ("fit", 1, "svm")
    assert 0.01 < phase.step.median_seconds < profile.wall_seconds


def test_a_search_in_other_processes_still_runs(tmp_path: Path) -> None:
    needs("sklearn")
    asked = request(FRAMEWORKS / "sklearn_fits.py", "grid-processes", steps=None, workdir=tmp_path)
    profile, outcome = profile_of(asked, tmp_path)
    assert profile.ended
    # joblib starts no processes where it gets no semaphores: shared memory that others use is not lent to a copy
    serial = "joblib will operate in serial mode" in outcome.log.read_text()
    assert profile.phases[-1].total.steps == (5 if serial else 1)


def test_a_fit_that_does_not_end_in_time_is_named(tmp_path: Path) -> None:
    needs("sklearn")
    asked = request(FRAMEWORKS / "sklearn_fits.py", "svm", "60000", limit=20.0, workdir=tmp_path)
    error = explain(run(asked, tmp_path), asked, HERE)
    assert isinstance(error, NoTrainingStep)
    where = line_of("sklearn_fits.py", "models[sys.argv[1]].fit")
    assert f"SVC.fit (sklearn_fits.py:{where}) did not end in 20 s" in error.message
    assert "a tenth of the rows" in error.hint


def test_plain_loops(tmp_path: Path) -> None:
    needs("numpy")
    profile, phase = measured(tmp_path, "plain_numpy.py", steps=None, seconds=3)
    assert profile.framework.name == "Python"
    assert (phase.unit.name, phase.total.kind, phase.total.steps) == ("iteration", TotalKind.EXACT, 1_000_000)
    assert phase.total.steps_per_epoch == 500
    assert (phase.gpu, phase.gpu_reason) == (GpuPath.NONE, "a GPU does nothing for this code as it is written")


def test_nested_bars(tmp_path: Path) -> None:
    needs("tqdm")
    _, phase = measured(tmp_path, "bars.py", steps=20)
    assert phase.gpu is GpuPath.NONE
    assert phase.total.kind is TotalKind.EXACT
    assert (phase.total.steps, phase.total.steps_per_epoch) in ((600_000, 300), (2000, None))


@pytest.mark.parametrize(
    ("package", "option", "steps", "per_epoch", "words"),
    [
        ("transformers", "", 3150, 63, "Hugging Face Trainer: num_train_epochs=50"),
        ("transformers", "max-steps", 700, None, "Hugging Face Trainer: max_steps=700"),
        ("lightning", "", 35000, 50, "Lightning Trainer: max_epochs=700"),
        ("ignite", "", 300_000, 100, "Ignite Engine: max_epochs=3000"),
        ("accelerate", "", 40000, 100, "400 (trainers.py:{}) × 100 (trainers.py:{})"),
    ],
)
def test_trainers_of_torch(
    tmp_path: Path, package: str, option: str, steps: float, per_epoch: float | None, words: str
) -> None:
    needs(package)
    profile, phase = measured(tmp_path, "trainers.py", package, option)
    assert profile.framework.name == "torch"
    assert (phase.total.kind, phase.total.steps) == (TotalKind.EXACT, steps)
    assert per_epoch in (None, phase.total.steps_per_epoch)
    assert words.format(*[line_of("trainers.py", text) for text in ("range(400)", "in data:")]) in phase.total.how
    assert phase.label.startswith("trainers.py")
    assert phase.gpu is GpuPath.TRACED
    assert phase.ops
