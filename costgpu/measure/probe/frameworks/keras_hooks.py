"""Steps, epochs and FLOPs of Keras 3 (any backend), tf.keras 2, and TensorFlow's own training loops."""

from __future__ import annotations

import math
import sys
import threading
from functools import partial

from ..loops.script_frames import locals_of, own_place
from ..patching import attribute, harmless, known, observe, patch
from ..record import Saves, Validation
from ..schedstat import clock
from .distribution_hooks import DistributionHooks
from .layer_counter import LayerCounter, product
from .registry import KERAS, TENSORFLOW
from .trainers import length, paced, positive, stoppers, validation

PER_STEP = ("flops", "bytes", "kernels", "convolutions")
FORWARD_SHARE = 3.0  # a training step counts three times its forward pass


class KerasHooks:
    """Follows `fit` through Keras's own list of callbacks, and other loops through the optimizer."""

    def __init__(self, progress):
        self.progress = progress
        self.layers = LayerCounter()
        self.fitting = self.predicting = None  # series of the fit, or of the `predict` or `evaluate`, that is going on
        self.own_series = None  # of the script's own training loop
        self.functions = []  # tf.functions that are being called, outermost first
        self.steppers = set()  # ids of tf.functions that applied gradients when they were traced
        self.testing = None
        self.seen = self.predicted = 0  # batches of an epoch, and of a prediction
        self.applying = False
        self.optimizer = None

    def attach(self, module):
        """When ``keras`` (3, or 2 as tf.keras has it) has been imported."""
        callbacks = getattr(getattr(module, "callbacks", None), "CallbackList", None)
        optimizer = getattr(getattr(module, "optimizers", None), "Optimizer", None)
        observe(callbacks, "on_train_begin", self.fit_begins, before=True)
        observe(callbacks, "on_epoch_begin", self.epoch_begins, before=True)
        observe(callbacks, "on_train_batch_end", partial(self.batch_ends, "fitting"))
        observe(callbacks, "on_test_begin", self.test_begins, before=True)
        observe(callbacks, "on_test_end", self.test_ends)
        observe(callbacks, "on_epoch_end", self.epoch_ends)
        observe(callbacks, "on_train_end", self.fit_ends)
        observe(callbacks, "on_predict_begin", partial(self.prediction_begins, "predict"), before=True)
        observe(callbacks, "on_predict_end", self.prediction_ends)
        for name in ("on_predict_batch_end", "on_test_batch_end"):
            observe(callbacks, name, partial(self.batch_ends, "predicting"))
        for name in ("ModelCheckpoint", "BackupAndRestore"):
            self.progress.recorder.saving.time(
                getattr(getattr(module, "callbacks", None), name, None), "_save_model", also=self.saved
            )
        self.layers.attach(getattr(getattr(module, "layers", None), "Layer", None))
        for owner in getattr(optimizer, "__mro__", ()):
            for name in ("apply", "apply_gradients"):
                patch(owner, name, self.on_apply)

    def saved(self, seconds):
        if self.fitting is not None:
            self.progress.event(self.fitting, "save", seconds)

    # -- fit

    def fit_begins(self, callbacks, *_, **__):
        params, local, model = called("fit", callbacks)
        epochs = max(0, int(params.get("epochs") or 1) - int(local.get("initial_epoch") or 0))
        steps = params.get("steps")
        total = epochs * steps if steps else None
        names = stoppers(getattr(callbacks, "callbacks", ()))
        self.fitting = self.progress.open(
            KERAS,
            "step",
            total,
            key=("keras", own_place()),
            epochs=epochs,
            per_epoch=steps,
            may_stop=bool(names),
            saves=saves_of(getattr(callbacks, "callbacks", ())),
            validation=known(validation_of, local, total, steps, epochs),
            framework=name_with_backend(),
            batch=batch_of(local),
            **facts_of(model),
        )
        self.layers.reset(self.fitting.facts.get("batch"))
        self.seen = 0  # batches of this epoch

    def epoch_begins(self, *_, **__):
        if self.fitting is not None:
            self.seen = 0
            self.progress.event(self.fitting, "opened", 1)
            self.progress.recorder.epoch_begins()  # for the torch backend's own steps

    def batch_ends(self, kind, callbacks, batch=None, *_, **__):
        series = getattr(self, kind)
        if series is None:
            return
        seen = self.seen if series is self.fitting else self.predicted
        done = int(batch) + 1 if hasattr(batch, "__index__") else seen + 1
        more = max(1, done - seen)  # above 1 with steps_per_execution
        self.take_totals(series, more if series is self.fitting else FORWARD_SHARE * more)
        if series is self.fitting:
            self.seen = done
        else:
            self.predicted = done
        self.progress.step(series, more)

    def take_totals(self, series, steps=1):
        if "totals" not in series.facts:
            totals = self.layers.totals()
            if totals is not None:
                series.note(totals={k: v / steps if k in PER_STEP else v for k, v in totals.items()})

    def test_begins(self, callbacks, *_, **__):
        if self.fitting is None:
            self.prediction_begins("evaluate", callbacks)
            return
        self.testing = clock()
        self.layers.pause(True)

    def test_ends(self, *_, **__):
        self.layers.pause(False)
        self.prediction_ends()
        if self.testing is not None and self.fitting is not None:
            self.progress.event(self.fitting, "validation", clock() - self.testing)
        self.testing = None

    def epoch_ends(self, *_, **__):
        series = self.fitting
        if series is not None and series.facts.get("per_epoch") is None and self.seen:
            series.note(per_epoch=self.seen)
            series.is_of(series.facts["epochs"] * self.seen)

    def fit_ends(self, *_, **__):
        if self.fitting is not None:
            self.fitting.close()
        self.fitting = None

    # -- `predict`, `evaluate` and `test` outside of a fit

    def prediction_begins(self, kind, callbacks, *_, **__):
        params, local, model = called(kind, callbacks)
        batch = batch_of(local)
        self.predicting = self.progress.open(
            KERAS,
            "batch",
            params.get("steps"),
            key=("keras", kind, own_place()),
            inference=True,
            framework=name_with_backend(),
            batch=batch,
            model_bytes=facts_of(model).get("model_bytes"),
        )
        self.predicted = 0
        self.layers.reset(batch)

    def prediction_ends(self, *_, **__):
        if self.predicting is not None:
            self.predicting.close()
        self.predicting = None

    # -- loops of the script's own

    def elsewhere(self):
        """Return whether a fit tells the steps itself, or this is not the script's main thread."""
        return self.fitting is not None or threading.get_ident() != self.progress.recorder.thread

    def attach_functions(self, module):
        """When TensorFlow's ``polymorphic_function`` has been imported: what a tf.function's call does."""

        def make(inner):
            def call(function, *args, **kwargs):
                if self.elsewhere():
                    return inner(function, *args, **kwargs)
                outermost = not self.functions
                self.functions.append(function)
                if outermost and id(function) not in self.steppers:
                    self.layers.reset(None)
                try:
                    return inner(function, *args, **kwargs)
                finally:
                    self.functions.pop()
                    if outermost and id(function) in self.steppers:
                        self.own_step(sys._getframe(1), args)

            return call

        patch(module.Function, "__call__", make)

    def on_apply(self, inner):
        def apply(optimizer, *args, **kwargs):
            nested, self.applying = self.applying, True
            try:
                result = inner(optimizer, *args, **kwargs)
            finally:
                self.applying = nested
            if nested or self.elsewhere():
                return result
            self.optimizer = optimizer
            if self.functions:
                self.steppers.add(id(self.functions[0]))
            elif backend() in ("tensorflow", ""):
                self.own_step(sys._getframe(1), ())
            return result

        return apply

    @harmless
    def own_step(self, frame, args):
        series = self.own_series
        if series is None:
            series = self.own_series = self.progress.open(
                TENSORFLOW,
                "step",
                None,
                key="tensorflow",
                per_epoch=None,
                may_stop=False,
                batch=first_size(args),
                optimizer=type(self.optimizer).__name__,
                parameters=known(lambda: numbers_in(self.optimizer._trainable_variables)),
            )
        self.layers.batch_is(series.facts["batch"])
        self.take_totals(series)
        self.progress.step(series, frame=frame)


def called(name, callbacks):
    """Return the parameters, the variables and the model of a call of Keras's with this name."""
    local = locals_of(name, "trainer.py", "training.py")
    model = local.get("self") or getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
    return getattr(callbacks, "params", None) or {}, local, model


def backend():
    return str(known(lambda: sys.modules["keras"].backend.backend(), default=""))


def name_with_backend():
    """Return ``keras (jax)``."""
    return "{} ({})".format(KERAS.name, backend()) if backend() else KERAS.name


def numbers_in(variables):
    return int(sum(product(one.shape) for one in variables))


def facts_of(model):
    optimizer = getattr(model, "optimizer", None)
    found = {"optimizer": type(getattr(optimizer, "inner_optimizer", optimizer)).__name__, "parameters": None}
    try:
        found["parameters"] = numbers_in(model.trainable_variables)
        found["model_bytes"] = 4 * numbers_in(model.variables)
        found["tensors"] = len(model.trainable_variables)
    except Exception:  # noqa: BLE001 - a model that is not built yet
        found.setdefault("model_bytes", None)
    return found


def batch_of(local):
    """Return samples in a batch of `fit`; None if neither its arguments nor its data tell."""
    data = local.get("x")
    if attribute(data, "element_spec") is not None or attribute(data, "_input_dataset") is not None:  # tf.data
        for _ in range(20):
            size = attribute(data, "_batch_size")
            if size is not None:
                return int(size.numpy()) if hasattr(size, "numpy") else int(size)
            data = attribute(data, "_input_dataset")
        return None
    for owner in (data, attribute(data, "loader")):
        size = attribute(owner, "batch_size")
        if isinstance(size, int):
            return size
    if attribute(data, "shape") is not None or isinstance(data, (dict, list, tuple)):
        return int(local.get("batch_size") or 32)
    return None


def first_size(args):
    """Return the first dimension of the first tensor among these."""
    stack = list(args)[::-1]
    while stack:
        value = stack.pop()
        if isinstance(value, (list, tuple)):
            stack.extend(value[::-1])
        elif attribute(value, "shape") is not None and len(value.shape):
            return int(value.shape[0]) if value.shape[0] is not None else None
    return None


def validation_of(local, steps, per_epoch, epochs) -> Validation | None:
    """By the arguments of `fit`, whose variables these are.

    Args:
        epochs: Epochs of this call, from `initial_epoch` on.
    """
    data = local.get("validation_data")
    if data is None:
        return None
    inputs = data[0] if isinstance(data, (tuple, list)) and data else data
    asked = {"x": inputs, "batch_size": local.get("validation_batch_size") or local.get("batch_size")}
    size, limit = positive(known(batch_of, asked)), positive(local.get("validation_steps"))
    batches = batches_of(inputs, size)
    if limit is not None:
        batches = min(batches or limit, limit)
    begun, frequency = int(positive(local.get("initial_epoch")) or 0), local.get("validation_freq", 1)
    last = begun + int(epochs)
    if isinstance(frequency, (list, tuple, set)):
        times = sum(begun < one <= last for one in set(frequency))
        pace = paced("epoch", epochs / times if times else 1, times, steps or epochs, per_epoch if steps else 1)
    else:
        every = positive(frequency) or 1
        times = last // every - begun // every
        pace = paced("epoch", every, times, steps or epochs, per_epoch if steps else 1)
    return validation(pace, [(batches, size)])


def batches_of(inputs, size):
    """Return the batches of arrays, or of data that comes in batches; None if that cannot be told."""
    while isinstance(inputs, (dict, list, tuple)) and inputs:
        inputs = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0]
    shape = known(tuple, attribute(inputs, "shape"))
    if shape:
        return math.ceil(shape[0] / size) if size and positive(shape[0]) else None
    return length(inputs)


def saves_of(callbacks) -> Saves | None:
    """By ModelCheckpoint or BackupAndRestore; None without one, and where only improvements are saved."""
    for one in callbacks:
        every = getattr(one, "save_freq", None)
        if every is None or getattr(one, "save_best_only", False):
            continue
        return Saves(rhythm="epoch", every=1.0) if every == "epoch" else Saves(rhythm="steps", every=float(every))
    return None


def hooks(recorder):
    keras, distribution = KerasHooks(recorder.progress), DistributionHooks(recorder.schemes)

    def attach(module):
        keras.attach(module)
        distribution.attach_keras(module)

    functions = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
    return {"keras": attach, "tf_keras": keras.attach, functions: keras.attach_functions}
