"""Boosting rounds of XGBoost and LightGBM."""

from .beats import frame_called, harmless, own_place, patched

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

        patched(module.Booster, "update", make)

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
        "xgboost", "round", local.get("num_boost_round"), key=("xgboost", own_place()), settings=settings,
        rows=size_of(dtrain, "num_row"), columns=size_of(dtrain, "num_col"), may_stop=stops,
        estimator="Booster", held_out=len(local.get("evals") or ()),
    )  # fmt: skip
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

    return attach


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
        "lightgbm", "round", local.get("num_boost_round"), key=("lightgbm", own_place()),
        settings={str(k): str(v) for k, v in params.items()}, rows=size_of(data, "num_data"),
        columns=size_of(data, "num_feature"), may_stop=stops, estimator="Booster", held_out=0,
    )  # fmt: skip
    booster._costgpu_series = series
    return series


def size_of(data, method):
    try:
        return int(getattr(data, method)())
    except Exception:  # noqa: BLE001 - a matrix that is not made yet does not know
        return None
