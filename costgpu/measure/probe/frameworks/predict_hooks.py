"""Predictions of frameworks that tell them from training themselves: scikit-learn, XGBoost and LightGBM."""

from __future__ import annotations

import functools
import itertools
import sys
import threading

from ..loops.script_frames import outwards, own_place
from ..patching import attribute, harmless, known, put, replace
from ..schedstat import clock

PREDICTS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")
TRAINING_FILES = ("xgboost/training.py", "xgboost/core.py", "lightgbm/engine.py", "lightgbm/basic.py")
MOST_FRAMES = 15  # between a booster's training and the objective, metric or callback of the user's that predicts


class Predictions:
    """Calls of the `predict` methods of trained estimators and boosters, outside of fits and of each other."""

    def __init__(self, progress, fits):
        self.progress, self.fits = progress, fits
        self.depth = 0
        self.ends = {}  # of the last call of each series, by its id

    def attach_sklearn(self, module):
        """When ``sklearn.base`` has been imported, before there are estimators."""

        def make(inner):
            @classmethod
            def __init_subclass__(cls, **kwargs):
                inner.__func__(cls, **kwargs)
                for name in PREDICTS:
                    if callable(vars(cls).get(name)) and hasattr(vars(cls)[name], "__code__"):
                        put(cls, **{name: self.counted(vars(cls)[name], "sklearn")})

            return __init_subclass__

        owner = getattr(module, "BaseEstimator", None)
        inner = getattr(owner, "__init_subclass__", None)
        if hasattr(inner, "__func__"):
            put(owner, __init_subclass__=make(inner))

    def attach_booster(self, source, module):
        """When XGBoost's or LightGBM's core has been imported."""
        for name in ("predict", "inplace_predict"):
            replace(module.Booster, name, functools.partial(self.counted, source=source))

    def counted(self, inner, source):
        @functools.wraps(inner)
        def predict(model, *args, **kwargs):
            busy = self.depth or self.fits.going is not None or self.fits.scoring
            if busy or threading.get_ident() != self.progress.recorder.thread or in_training():
                return inner(model, *args, **kwargs)
            self.depth += 1
            begins = clock()
            try:
                return inner(model, *args, **kwargs)
            finally:
                self.depth -= 1
                self.ended(model, source, args or tuple(kwargs.values()), begins)

        return predict

    @harmless
    def ended(self, model, source, args, begins):
        name = type(model).__name__
        series = self.progress.open(
            source,
            "call",
            None,
            key=("predict", name, own_place()),
            inference=True,
            estimator=name,
            batch=rows_of(args),
        )
        if series.openings > 1:
            series.go_on(self.ends.get(id(series)))  # opening it again forgot it
        elif not series.steps:
            series.begin(begins)
        series.add("busy", clock() - begins)  # without what is between its calls
        self.progress.step(series)
        self.ends[id(series)] = series.last


def in_training():
    """Return whether a booster is at work on a round, or between rounds, whose objective, metric or callback predicts."""
    calls = itertools.islice(outwards(sys._getframe(2)), MOST_FRAMES)
    codes = [live.f_code for live in calls if live.f_code.co_name in ("train", "cv", "update")]
    return any(code.co_filename.replace("\\", "/").endswith(TRAINING_FILES) for code in codes)


def rows_of(args):
    """Return the rows of the first argument; None if it does not tell."""
    data = args[0] if args else None
    rows = attribute(data, "num_row")
    if callable(rows):
        return known(lambda: int(rows()))
    return known(lambda: int(data.shape[0]) if attribute(data, "shape") is not None else len(data))
