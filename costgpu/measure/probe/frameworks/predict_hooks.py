"""Predictions of frameworks that tell them from training themselves: Keras, scikit-learn, XGBoost and LightGBM."""

from __future__ import annotations

import functools
import itertools
import sys
import threading

from ..loops.script_frames import locals_of, outwards, own_place
from ..patching import attribute, harmless, observe, replace
from ..schedstat import clock

PREDICTS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")
FORWARD_SHARE = 3.0  # a training step counts three times its forward pass
TRAINING_FILES = ("xgboost/training.py", "xgboost/core.py", "lightgbm/engine.py", "lightgbm/basic.py")
MOST_FRAMES = 15  # between a booster's training and the objective, metric or callback of the user's that predicts
COUNTED = ("flops", "bytes", "kernels", "convolutions")


class KerasPredictions:
    """`predict`, `evaluate` and `test` outside of a fit, by Keras's own callbacks."""

    def __init__(self, progress, layers):
        self.progress, self.layers = progress, layers
        self.going, self.seen = None, 0

    def attach(self, callbacks, facts_of, backend, batch_of):
        """`callbacks` is Keras's list of them; the functions tell of a model, the backend, and the arguments of a call."""
        self.facts_of, self.backend, self.batch_of = facts_of, backend, batch_of
        observe(callbacks, "on_predict_begin", functools.partial(self.begins, "predict"), before=True)
        observe(callbacks, "on_predict_batch_end", self.batch_ends)
        observe(callbacks, "on_predict_end", self.ends)
        observe(callbacks, "on_test_batch_end", self.batch_ends)

    def begins(self, kind, callbacks, *_, **__):
        local = locals_of(kind, "trainer.py", "training.py")
        model = local.get("self") or getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        facts = self.facts_of(model)
        batch = self.batch_of(local)
        self.going = self.progress.open(
            "keras",
            "batch",
            (getattr(callbacks, "params", None) or {}).get("steps"),
            key=("keras", kind, own_place()),
            inference=True,
            backend=self.backend(),
            batch=batch,
            model_bytes=facts.get("model_bytes"),
        )
        self.seen = 0
        self.layers.reset(batch)

    def batch_ends(self, callbacks, batch=None, *_, **__):
        series = self.going
        if series is None:
            return
        done = int(batch) + 1 if hasattr(batch, "__index__") else self.seen + 1
        more, self.seen = max(1, done - self.seen), done  # above 1 with steps_per_execution
        if "totals" not in series.facts:
            totals = self.layers.totals()
            if totals is not None:
                each = FORWARD_SHARE * more
                series.facts["totals"] = {k: v / each if k in COUNTED else v for k, v in totals.items()}
        self.progress.step(series, more)

    def ends(self, *_, **__):
        if self.going is not None:
            self.going.open = False
        self.going = None


class Predictions:
    """Calls of the `predict` methods of trained estimators and boosters, outside of fits and of each other."""

    def __init__(self, progress, fits):
        self.progress, self.fits = progress, fits
        self.depth = 0

    def attach_sklearn(self, module):
        """When ``sklearn.base`` has been imported, before there are estimators."""

        def make(inner):
            @classmethod
            def __init_subclass__(cls, **kwargs):
                inner.__func__(cls, **kwargs)
                for name in PREDICTS:
                    if callable(vars(cls).get(name)) and hasattr(vars(cls)[name], "__code__"):
                        setattr(cls, name, self.counted(vars(cls)[name], "sklearn"))

            return __init_subclass__

        owner = getattr(module, "BaseEstimator", None)
        inner = getattr(owner, "__init_subclass__", None)
        if hasattr(inner, "__func__"):
            owner.__init_subclass__ = make(inner)

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
            series.last = series.ended  # opening it again forgot it
        elif not series.steps:
            series.opened = begins
        series.facts["busy"] = series.facts.get("busy", 0.0) + clock() - begins  # without what is between its calls
        self.progress.step(series)
        series.ended = series.last


def in_training():
    """Return whether a booster is at work on a round, or between rounds, whose objective, metric or callback predicts."""
    for live in itertools.islice(outwards(sys._getframe(2)), MOST_FRAMES):
        if live.f_code.co_name in ("train", "cv", "update"):
            if live.f_code.co_filename.replace("\\", "/").endswith(TRAINING_FILES):
                return True
    return False


def rows_of(args):
    """Return the rows of the first argument; None if it does not tell."""
    data = args[0] if args else None
    rows = attribute(data, "num_row")
    try:
        return (
            int(rows()) if callable(rows) else int(data.shape[0]) if attribute(data, "shape") is not None else len(data)
        )
    except Exception:  # noqa: BLE001 - any container
        return None
