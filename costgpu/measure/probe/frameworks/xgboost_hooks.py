"""Boosting rounds of XGBoost."""

from __future__ import annotations

from functools import partial

from ..loops.script_frames import locals_of
from ..patching import wrap
from .boosting_hooks import DEVICES, TRAININGS, any_stopper, count_updates, on_cpu, open_rounds
from .registry import XGBOOST


def attach(recorder, module):
    def set_param(inner, booster, params, value=None):
        value = "cpu" if isinstance(params, str) and params in DEVICES else value
        return inner(booster, on_cpu(params), value)

    recorder.fits.predictions.attach_booster(XGBOOST, module)
    count_updates(recorder.progress, module.Booster, xgboost_series)
    wrap(module.Booster, "set_param", set_param)


def xgboost_series(progress, booster):
    local = locals_of(TRAININGS, "xgboost/training.py")
    settings = {str(k): str(v) for k, v in dict(local.get("params") or {}).items() if v is not None}
    return open_rounds(
        progress,
        XGBOOST,
        local.get("num_boost_round"),
        folds=local.get("cvfolds"),
        settings=settings,
        # callbacks may be held by a container by now; the argument itself is kept in early_stopping_rounds
        may_stop=bool(local.get("early_stopping_rounds")) or any_stopper(local.get("callbacks")),
        asks_gpu="gpu" in settings.get("tree_method", "") or settings.get("device", "cpu").startswith(("cuda", "gpu")),
    )


def on_gpu(facts):
    if (facts.get("settings") or {}).get("booster") == "gblinear":
        return "", "XGBoost's gblinear has no GPU implementation that is kept up"
    return XGBOOST.of_option(facts)


def hooks(recorder):
    return {"xgboost.core": partial(attach, recorder)}
