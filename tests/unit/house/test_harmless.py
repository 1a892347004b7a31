"""The probe's hooks leave the script as it is: one that fails does not end it, and parameters keep their meaning."""

from types import SimpleNamespace
from typing import Any

from costgpu.measure.probe import patching
from costgpu.measure.probe.frameworks import boosting_hooks, predict_hooks, xgboost_hooks
from costgpu.measure.probe.loops import progress_series

hooks: Any = patching
progress: Any = progress_series
trees: Any = boosting_hooks
xgboost: Any = xgboost_hooks
predictions: Any = predict_hooks


def test_what_fails_is_nothing() -> None:
    def fails(_: object) -> None:
        raise AttributeError("estimators_")

    assert hooks.harmless(fails)(1) is None
    assert hooks.harmless(lambda a, b=2: a + b)(1, b=4) == 5


def test_parameters_without_a_gpu_are_the_same_otherwise() -> None:
    assert trees.on_cpu({"device": "cuda", "eta": 0.1}) == {"device": "cpu", "eta": 0.1}
    assert trees.on_cpu({"device_type": "gpu"}) == {"device_type": "cpu"}
    pairs = [("eval_metric", "auc"), ("tree_method", "gpu_hist"), ("eval_metric", "logloss")]
    assert trees.on_cpu(pairs) == [pairs[0], ("tree_method", "hist"), pairs[2]]
    assert trees.on_cpu("device") == "device"
    assert trees.on_cpu(None) is None


def test_a_booster_of_another_kind_is_updated_all_the_same() -> None:
    class Booster:
        __slots__ = ("rounds",)  # takes no attribute of ours

        def __init__(self) -> None:
            self.rounds = 0

        def update(self, data: object) -> bool:
            self.rounds += 1
            return False

    class Module:
        pass

    module: Any = Module()
    module.Booster = Booster

    recorder: Any = SimpleNamespace(
        status="running", fits=SimpleNamespace(predictions=predictions.Predictions(None, None))
    )
    recorder.progress = progress.ProgressTracker(recorder, ())
    xgboost.attach(recorder, module)
    booster = Booster()
    assert booster.update(None) is False
    assert booster.rounds == 1
