"""Boosting rounds of XGBoost, LightGBM and CatBoost."""

from __future__ import annotations

import os
import sys

from ..loops.script_frames import locals_of, own_place
from ..patching import harmless, observe, put, wrap

SOURCES = ("xgboost", "lightgbm", "catboost")
TRAININGS = ("train", "cv")
DEVICES = ("device", "device_type")
STOPPERS = ("early_stopping", "EarlyStopping", "_EarlyStoppingCallback")
CATBOOST_GPU = ("task_type", "devices", "gpu_ram_part")


def open_rounds(progress, source, total, folds=None, **facts):
    """Return the series of one training, or of one of the `folds` that a cross-validation trains side by side."""
    for earlier in progress.series:
        if earlier.source in SOURCES:
            earlier.close()  # one training ends before another begins
    fits, around = progress.recorder.fits, None
    if fits.facts() is not None:
        facts["search"] = fits.facts()
    if folds is not None:
        around = [*progress.loops_around(sys._getframe(1)), {"trips": len(folds), "file": "folds", "line": 0}]
    return progress.open(source, "round", total, key=(source, own_place()), around=around, **facts)


def any_stopper(callbacks):
    return any(type(one).__name__ in STOPPERS for one in callbacks or ())


def count_updates(progress, booster_class, open_series):
    """Every `update` of a booster is a round of the series that `open_series` makes of its first one."""

    def count(booster, *args, **_):
        series = getattr(booster, "_costgpu_series", None)
        if series is None:
            series = open_series(progress, booster)
            put(booster, _costgpu_series=series)
        progress.step(series)

    observe(booster_class, "update", count)


def attach_xgboost(progress, module):
    def set_param(inner, booster, params, value=None):
        value = "cpu" if isinstance(params, str) and params in DEVICES else value
        return inner(booster, on_cpu(params), value)

    count_updates(progress, module.Booster, xgboost_series)
    wrap(module.Booster, "set_param", set_param)


def xgboost_series(progress, booster):
    local = locals_of(TRAININGS, "xgboost/training.py")
    settings = {str(k): str(v) for k, v in dict(local.get("params") or {}).items() if v is not None}
    return open_rounds(
        progress,
        "xgboost",
        local.get("num_boost_round"),
        folds=local.get("cvfolds"),
        settings=settings,
        # callbacks may be held by a container by now; the argument itself is kept in early_stopping_rounds
        may_stop=bool(local.get("early_stopping_rounds")) or any_stopper(local.get("callbacks")),
        asks_gpu="gpu" in settings.get("tree_method", "") or settings.get("device", "cpu").startswith(("cuda", "gpu")),
    )


def attach_lightgbm(progress, module):
    count_updates(progress, module.Booster, lightgbm_series)
    wrap(module, "_param_dict_to_str", lambda inner, params: inner(on_cpu(params)))


def lightgbm_series(progress, booster):
    local = locals_of(TRAININGS, "lightgbm/engine.py")
    params = dict(local.get("params") or getattr(booster, "params", None) or {})
    callbacks = local.get("callbacks_after_iter") or local.get("callbacks")
    return open_rounds(
        progress,
        "lightgbm",
        local.get("num_boost_round"),
        folds=getattr(local.get("cvbooster"), "boosters", None),
        settings={str(k): str(v) for k, v in params.items()},
        may_stop=bool(params.get("early_stopping_round")) or any_stopper(callbacks),
        asks_gpu=any(str(params.get(name, "cpu")) != "cpu" for name in DEVICES),
    )


def on_cpu(params):
    """Without a GPU, also where there is one: the benchmark table starts from the time on a CPU."""
    if isinstance(params, str) or params is None:
        return params
    pairs = params.items() if hasattr(params, "items") else params
    changed = [
        (k, "cpu" if k in DEVICES else "hist" if k == "tree_method" and v == "gpu_hist" else v) for k, v in pairs
    ]
    return dict(changed) if hasattr(params, "items") else changed  # of pairs, one key may come several times


class CatBoostRounds:
    """CatBoost's own callbacks: after every round it asks each of them whether to go on."""

    def __init__(self, progress, series, others):
        self._progress, self._series, self._callbacks = progress, series, others

    def after_iteration(self, info):
        harmless(self._progress.step)(self._series)
        return all(one.after_iteration(info) for one in self._callbacks)


def attach_catboost(progress, module):
    @harmless
    def counting(params):
        asks_gpu = str(params.get("task_type", "CPU")).upper() == "GPU"
        params = {k: v for k, v in params.items() if not asks_gpu or k not in CATBOOST_GPU}
        series = open_rounds(
            progress,
            "catboost",
            params.get("iterations", 1000),
            settings={str(k): str(v)[:100] for k, v in params.items()},
            may_stop=any(name in params for name in ("od_wait", "od_pval")),
            asks_gpu=asks_gpu,
        )
        others = getattr(params.get("callbacks"), "_callbacks", [])
        folder = os.path.join(progress.recorder.files.scratch, "catboost_info")  # it writes there in native code
        return dict(params, callbacks=CatBoostRounds(progress, series, others), train_dir=folder)

    def train(inner, model, train_pool, test_pool, params, *args, **kwargs):
        return inner(model, train_pool, test_pool, counting(params) or params, *args, **kwargs)

    wrap(module._CatBoostBase, "_train", train)
