"""Boosting rounds, as XGBoost, LightGBM and CatBoost count them."""

from __future__ import annotations

import sys

from ..loops.script_frames import own_place
from ..patching import observe, put
from .registry import BOOSTED_TREES

TRAININGS = ("train", "cv")
DEVICES = ("device", "device_type")
STOPPERS = ("early_stopping", "EarlyStopping", "_EarlyStoppingCallback")


def open_rounds(progress, framework, total, folds=None, **facts):
    """Return the series of one training, or of one of the `folds` that a cross-validation trains side by side."""
    for earlier in progress.series:
        if earlier.framework.family == BOOSTED_TREES:
            earlier.close()  # one training ends before another begins
    search, around = progress.recorder.fits.facts(), None
    if search is not None:
        facts["search"] = search
    if folds is not None:
        around = [*progress.loops_around(sys._getframe(1)), {"trips": len(folds), "file": "folds", "line": 0}]
    return progress.open(framework, "round", total, key=(framework.name, own_place()), around=around, **facts)


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


def on_cpu(params):
    """Without a GPU, also where there is one: the benchmark table starts from the time on a CPU."""
    if isinstance(params, str) or params is None:
        return params
    pairs = params.items() if hasattr(params, "items") else params
    changed = [
        (k, "cpu" if k in DEVICES else "hist" if k == "tree_method" and v == "gpu_hist" else v) for k, v in pairs
    ]
    return dict(changed) if hasattr(params, "items") else changed  # of pairs, one key may come several times
