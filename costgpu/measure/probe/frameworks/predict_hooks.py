"""Predictions of frameworks that tell them from training themselves: fitted estimators and boosters."""

from __future__ import annotations

import functools
import itertools
import sys
import threading

from ..loops.script_frames import outwards, own_place, package_of_file
from ..patching import attribute, harmless, known, put, replace
from ..schedstat import clock

PREDICTS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")
MOST_FRAMES = 15  # between a booster's training and the objective, metric or callback of the user's that predicts


class Predictions:
    """Calls of the `predict` methods of trained estimators and boosters, outside of fits and of each other."""

    def __init__(self, progress, fits):
        self.progress, self.fits = progress, fits
        self.depth = 0
        self.ends = {}  # of the last call of each series, by its id
        self.boosters = set()  # packages whose trainings may predict

    def attach_estimators(self, framework, module):
        """Follow the estimators of a module with a `BaseEstimator`, before there are any."""

        def make(inner):
            @classmethod
            def __init_subclass__(cls, **kwargs):
                inner.__func__(cls, **kwargs)
                for name in PREDICTS:
                    if callable(vars(cls).get(name)) and hasattr(vars(cls)[name], "__code__"):
                        put(cls, **{name: self.counted(vars(cls)[name], framework)})

            return __init_subclass__

        owner = getattr(module, "BaseEstimator", None)
        inner = getattr(owner, "__init_subclass__", None)
        if hasattr(inner, "__func__"):
            put(owner, __init_subclass__=make(inner))

    def attach_booster(self, framework, module):
        """Follow the `Booster` of a module."""
        self.boosters.add(framework.name)
        for name in ("predict", "inplace_predict"):
            replace(module.Booster, name, functools.partial(self.counted, framework=framework))

    def counted(self, inner, framework):
        @functools.wraps(inner)
        def predict(model, *args, **kwargs):
            busy = self.depth or self.fits.going is not None or self.fits.scoring
            if busy or threading.get_ident() != self.progress.recorder.thread or self.in_training():
                return inner(model, *args, **kwargs)
            self.depth += 1
            begins = clock()
            try:
                return inner(model, *args, **kwargs)
            finally:
                self.depth -= 1
                self.ended(model, framework, args or tuple(kwargs.values()), begins)

        return predict

    def in_training(self):
        """Return whether a booster is at work on, or between, rounds whose objective, metric or callback predicts."""
        calls = itertools.islice(outwards(sys._getframe(2)), MOST_FRAMES)
        codes = [live.f_code for live in calls if live.f_code.co_name in ("train", "cv", "update")]
        return any(package_of_file(code.co_filename) in self.boosters for code in codes)

    @harmless
    def ended(self, model, framework, args, begins):
        name = type(model).__name__
        series = self.progress.open(
            framework,
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


def rows_of(args):
    """Return the rows of the first argument; None if it does not tell."""
    data = args[0] if args else None
    rows = attribute(data, "num_row")
    if callable(rows):
        return known(lambda: int(rows()))
    return known(lambda: int(data.shape[0]) if attribute(data, "shape") is not None else len(data))
