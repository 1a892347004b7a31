"""Boosting rounds of LightGBM."""

from __future__ import annotations

from functools import partial

from ..loops.script_frames import locals_of
from ..patching import wrap
from .boosting_hooks import DEVICES, TRAININGS, any_stopper, count_updates, on_cpu, open_rounds
from .registry import LIGHTGBM


def attach(recorder, module):
    recorder.fits.predictions.attach_booster(LIGHTGBM, module)
    count_updates(recorder.progress, module.Booster, lightgbm_series)
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


def hooks(recorder):
    return {"lightgbm.basic": partial(attach, recorder)}
