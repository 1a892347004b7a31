"""Boosting rounds of LightGBM."""

from __future__ import annotations

from ..loops.script_frames import locals_of
from ..patching import wrap
from .boosting_hooks import (
    DEVICES,
    FAMILY,
    ROUNDS_RANK,
    TRAININGS,
    any_stopper,
    count_updates,
    on_cpu,
    on_gpu,
    open_rounds,
)
from .framework import FrameworkSpec


def hooks(recorder):
    def attach(module):
        attach_lightgbm(recorder.progress, module)
        recorder.fits.predictions.attach_booster(LIGHTGBM, module)

    return {"lightgbm.basic": attach}


def attach_lightgbm(progress, module):
    count_updates(progress, module.Booster, lightgbm_series)
    wrap(module, "_param_dict_to_str", lambda inner, params: inner(on_cpu(params)))


def lightgbm_series(progress, booster):
    local = locals_of(TRAININGS, "lightgbm/engine.py")
    params = dict(local.get("params") or getattr(booster, "params", None) or {})
    callbacks = local.get("callbacks_after_iter") or local.get("callbacks")
    return open_rounds(
        progress,
        LIGHTGBM,
        local.get("num_boost_round"),
        folds=getattr(local.get("cvbooster"), "boosters", None),
        settings={str(k): str(v) for k, v in params.items()},
        may_stop=bool(params.get("early_stopping_round")) or any_stopper(callbacks),
        asks_gpu=any(str(params.get(name, "cpu")) != "cpu" for name in DEVICES),
    )


LIGHTGBM = FrameworkSpec(
    name="lightgbm",
    hooks=hooks,
    computes=True,
    telling=frozenset(("LGBMClassifier", "LGBMRegressor")),
    rank=ROUNDS_RANK,
    family=FAMILY,
    on_gpu=on_gpu("a CUDA build of LightGBM and device_type='cuda'"),
    refusals="no opencl device|(gpu|cuda) tree learner was not enabled",  # version 4
)
