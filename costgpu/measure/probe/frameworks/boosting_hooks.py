"""Boosting rounds of XGBoost, LightGBM and CatBoost."""

import os

from ..loops.progress_series import frame_called, harmless, own_place, patched

DEVICES = ("device", "device_type")
STOPPERS = ("early_stopping", "EarlyStopping", "_EarlyStoppingCallback")


def attach_xgboost(beats):
    """A callback for when ``xgboost.core`` has been imported."""

    @harmless
    def count(booster, dtrain):
        beats.beat(xgboost_series(beats, booster, dtrain))

    def attach(module):
        def make(update):
            def update_and_count(booster, dtrain, *args, **kwargs):
                result = update(booster, dtrain, *args, **kwargs)
                count(booster, dtrain)
                return result

            return update_and_count

        def make_set(inner):
            def set_param(booster, params, value=None):
                value = "cpu" if isinstance(params, str) and params in DEVICES else value
                return inner(booster, on_cpu(params), value)

            return set_param

        patched(module.Booster, "update", make)
        patched(module.Booster, "set_param", make_set)

    return attach


def xgboost_series(beats, booster, dtrain):
    known = getattr(booster, "_costgpu_series", None)
    if known is not None:
        return known
    frame = frame_called("train", "xgboost/training.py")
    local = dict(frame.f_locals) if frame is not None else {}
    settings = {str(k): str(v) for k, v in dict(local.get("params") or {}).items() if v is not None}
    callbacks = [type(one).__name__ for one in local.get("callbacks") or ()]
    # callbacks may be held by a container by now; the argument itself is kept in early_stopping_rounds
    stops = bool(local.get("early_stopping_rounds")) or any(name in STOPPERS for name in callbacks)
    series = beats.open(
        "xgboost",
        "round",
        local.get("num_boost_round"),
        key=("xgboost", own_place()),
        settings=settings,
        rows=size_of(dtrain, "num_row"),
        columns=size_of(dtrain, "num_col"),
        may_stop=stops,
        estimator="Booster",
        held_out=len(local.get("evals") or ()),
        asks_gpu="gpu" in settings.get("tree_method", "") or settings.get("device", "cpu").startswith(("cuda", "gpu")),
    )
    booster._costgpu_series = series
    return series


def attach_lightgbm(beats):
    """A callback for when ``lightgbm.basic`` has been imported."""

    @harmless
    def count(booster):
        beats.beat(lightgbm_series(beats, booster))

    def attach(module):
        def make(update):
            def update_and_count(booster, *args, **kwargs):
                result = update(booster, *args, **kwargs)
                count(booster)
                return result

            return update_and_count

        patched(module.Booster, "update", make)
        patched(module, "_param_dict_to_str", lambda inner: lambda params: inner(on_cpu(params)))

    return attach


def on_cpu(params):
    """Without a GPU, also where there is one: the benchmark table starts from the time on a CPU."""
    if isinstance(params, str) or params is None:
        return params
    pairs = params.items() if hasattr(params, "items") else params
    changed = [
        (k, "cpu" if k in DEVICES else "hist" if k == "tree_method" and v == "gpu_hist" else v) for k, v in pairs
    ]
    return dict(changed) if hasattr(params, "items") else changed  # of pairs, one key may come several times


def lightgbm_series(beats, booster):
    known = getattr(booster, "_costgpu_series", None)
    if known is not None:
        return known
    frame = frame_called("train", "lightgbm/engine.py")
    local = dict(frame.f_locals) if frame is not None else {}
    params = dict(local.get("params") or getattr(booster, "params", None) or {})
    callbacks = [type(one).__name__ for one in (local.get("callbacks_after_iter") or local.get("callbacks") or ())]
    stops = bool(params.get("early_stopping_round")) or any(name in STOPPERS for name in callbacks)
    data = local.get("train_set") or getattr(booster, "train_set", None)
    series = beats.open(
        "lightgbm",
        "round",
        local.get("num_boost_round"),
        key=("lightgbm", own_place()),
        settings={str(k): str(v) for k, v in params.items()},
        rows=size_of(data, "num_data"),
        columns=size_of(data, "num_feature"),
        may_stop=stops,
        estimator="Booster",
        held_out=0,
        asks_gpu=any(str(params.get(name, "cpu")) != "cpu" for name in DEVICES),
    )
    booster._costgpu_series = series
    return series


class CatBoostRounds:
    """CatBoost's own callbacks: after every round it asks each of them whether to go on."""

    def __init__(self, beats, series, others):
        self._beats, self._series, self._callbacks = beats, series, others

    def after_iteration(self, info):
        harmless(self._beats.beat)(self._series)
        return all(one.after_iteration(info) for one in self._callbacks)


def attach_catboost(beats):
    """A callback for when ``catboost.core`` has been imported."""

    @harmless
    def counting(train_pool, params):
        asks_gpu = str(params.get("task_type", "CPU")).upper() == "GPU"
        params = {k: v for k, v in params.items() if not asks_gpu or k not in ("task_type", "devices", "gpu_ram_part")}
        series = beats.open(
            "catboost",
            "round",
            params.get("iterations", 1000),
            key=("catboost", own_place()),
            settings={str(k): str(v)[:100] for k, v in params.items()},
            rows=size_of(train_pool, "num_row"),
            columns=size_of(train_pool, "num_col"),
            may_stop=any(name in params for name in ("od_wait", "od_pval")),
            estimator="CatBoost",
            held_out=0,
            asks_gpu=asks_gpu,
        )
        others = getattr(params.get("callbacks"), "_callbacks", [])
        folder = os.path.join(beats.recorder.guard.scratch, "catboost_info")  # it writes there in native code
        return dict(params, callbacks=CatBoostRounds(beats, series, others), train_dir=folder)

    def attach(module):
        def make(train):
            def train_and_count(model, train_pool, test_pool, params, *args, **kwargs):
                params = counting(train_pool, params) or params
                return train(model, train_pool, test_pool, params, *args, **kwargs)

            return train_and_count

        patched(module._CatBoostBase, "_train", make)

    return attach


def size_of(data, method):
    try:
        return int(getattr(data, method)())
    except Exception:  # noqa: BLE001 - a matrix that is not made yet does not know
        return None
