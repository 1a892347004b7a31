"""Steps, epochs and FLOPs of Keras 3 (any backend), tf.keras 2, and TensorFlow's own training loops."""

import sys
import threading

from ..loops.progress_series import FIT, frame_called, harmless, own_place, patched
from ..op_tracer import clock

STOPPERS = ("EarlyStopping", "TerminateOnNaN")
HALF = ("float16", "bfloat16")


class Keras:
    """Follows `fit` through Keras's own list of callbacks, and other loops through the optimizer."""

    def __init__(self, beats):
        self.beats = beats
        self.count = Count()
        self.fitting = None  # series of the fit that is going on
        self.functions = []  # tf.functions that are being called, outermost first
        self.steppers = set()  # ids of tf.functions that applied gradients when they were traced
        self.loops = {}
        self.epoch_steps = 0
        self.testing = None
        self.applied = False

    def attach(self, module):
        """When ``keras`` (3, or 2 as tf.keras has it) has been imported."""
        callbacks = getattr(module, "callbacks", None)
        layers = getattr(module, "layers", None)
        optimizers = getattr(module, "optimizers", None)
        if callbacks is not None and hasattr(callbacks, "CallbackList"):
            self.attach_fit(callbacks.CallbackList)
        if layers is not None and hasattr(layers, "Layer"):
            self.count.attach(layers.Layer)
        if optimizers is not None and hasattr(optimizers, "Optimizer"):
            for owner in optimizers.Optimizer.__mro__:
                for name in ("apply", "apply_gradients"):
                    if name in owner.__dict__:
                        patched(owner, name, self.on_apply)

    # -- fit

    def attach_fit(self, owner):
        keras = self

        def before(name, do):
            do = harmless(do)

            def make(inner):
                def outer(callbacks, *args, **kwargs):
                    do(callbacks, *args)
                    return inner(callbacks, *args, **kwargs)

                return outer

            patched(owner, name, make)

        def after(name, do):
            do = harmless(do)

            def make(inner):
                def outer(callbacks, *args, **kwargs):
                    result = inner(callbacks, *args, **kwargs)
                    do(callbacks, *args)
                    return result

                return outer

            patched(owner, name, make)

        before("on_train_begin", keras.fit_begins)
        before("on_epoch_begin", keras.epoch_begins)
        after("on_train_batch_end", keras.batch_ends)
        before("on_test_begin", keras.test_begins)
        after("on_test_end", keras.test_ends)
        after("on_epoch_end", keras.epoch_ends)
        after("on_train_end", keras.fit_ends)

    def fit_begins(self, callbacks, *_):
        params = getattr(callbacks, "params", None) or {}
        frame = frame_called("fit", "trainer.py") or frame_called("fit", "training.py")
        local = frame.f_locals if frame is not None else {}
        model = local.get("self") or getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        first = int(local.get("initial_epoch") or 0)
        epochs = max(0, int(params.get("epochs") or 1) - first)
        steps = params.get("steps")
        names = [type(one).__name__ for one in getattr(callbacks, "callbacks", ())]
        self.fitting = self.beats.open(
            "keras",
            "step",
            epochs * steps if steps else None,
            key=("keras", own_place()),
            epochs=epochs,
            per_epoch=steps,
            may_stop=any(name in STOPPERS for name in names),
            backend=backend(),
            batch=batch_of(local),
            **facts_of(model),
        )
        self.count.reset(self.fitting.facts.get("batch"))
        self.epoch_steps, self.seen_in_epoch = 0, 0

    def epoch_begins(self, *_):
        if self.fitting is not None:
            self.seen_in_epoch = 0
            self.beats.event(self.fitting, "opened", 1)
            self.beats.recorder.events.setdefault("opened", []).append(FIT)  # for the torch backend's own steps

    def batch_ends(self, callbacks, batch=None, *_):
        series = self.fitting
        if series is None:
            return
        done = int(batch) + 1 if isinstance(batch, int) or hasattr(batch, "__index__") else self.seen_in_epoch + 1
        more = max(1, done - self.seen_in_epoch)  # above 1 with steps_per_execution
        self.seen_in_epoch = done
        self.take_counts(series, more)
        self.beats.beat(series, more)

    def take_counts(self, series, steps=1):
        if "totals" not in series.facts:
            totals = self.count.totals()
            if totals is not None:
                series.facts["totals"] = {k: v / steps if k in SCALED else v for k, v in totals.items()}

    def test_begins(self, *_):
        self.testing = clock()
        self.count.pause = True

    def test_ends(self, *_):
        self.count.pause = False
        if self.testing is not None and self.fitting is not None:
            self.beats.event(self.fitting, "validation", clock() - self.testing)
        self.testing = None

    def epoch_ends(self, *_):
        series = self.fitting
        if series is not None and series.facts.get("per_epoch") is None and self.seen_in_epoch:
            series.facts["per_epoch"] = self.seen_in_epoch
            series.total = series.facts["epochs"] * self.seen_in_epoch

    def fit_ends(self, *_):
        if self.fitting is not None:
            self.beats.close(self.fitting)
        self.fitting = None

    # -- loops of the script's own

    def attach_functions(self, module):
        """When TensorFlow's ``polymorphic_function`` has been imported: what a tf.function's call does."""
        keras = self

        def make(inner):
            def call(function, *args, **kwargs):
                if keras.fitting is not None or threading.get_ident() != keras.beats.recorder.thread:
                    return inner(function, *args, **kwargs)
                outermost = not keras.functions
                keras.functions.append(function)
                if outermost and id(function) not in keras.steppers:
                    keras.count.reset(None)
                try:
                    return inner(function, *args, **kwargs)
                finally:
                    keras.functions.pop()
                    if outermost and id(function) in keras.steppers:
                        keras.own_step(sys._getframe(1), args)

            return call

        patched(module.Function, "__call__", make)

    def on_apply(self, inner):
        keras = self

        def apply(optimizer, *args, **kwargs):
            nested, keras.applied = keras.applied, True
            try:
                result = inner(optimizer, *args, **kwargs)
            finally:
                keras.applied = nested
            if nested or keras.fitting is not None or threading.get_ident() != keras.beats.recorder.thread:
                return result
            keras.optimizer = optimizer
            if keras.functions:
                keras.steppers.add(id(keras.functions[0]))
            elif backend() in ("tensorflow", ""):
                keras.own_step(sys._getframe(1), ())
            return result

        return apply

    @harmless
    def own_step(self, frame, args):
        series = self.loops.get("own")
        if series is None:
            optimizer = getattr(self, "optimizer", None)
            series = self.loops["own"] = self.beats.open(
                "tensorflow",
                "step",
                None,
                per_epoch=None,
                may_stop=False,
                backend="tensorflow",
                batch=first_size(args),
                optimizer=type(optimizer).__name__,
                parameters=parameters_of(optimizer),
            )
        if self.count.batch is None:
            self.count.batch = series.facts["batch"]
        self.take_counts(series)
        self.beats.beat(series, frame=frame)


SCALED = ("flops", "bytes", "kernels", "convolutions")


class Count:
    """FLOPs and bytes of the layers that were called since `reset`, forward; symbolic sizes are the batch."""

    def __init__(self):
        self.pause, self.batch = False, None
        self.reset(None)

    def reset(self, batch):
        self.batch = batch
        self.rows, self.dtypes, self.graph = [], {}, None

    def attach(self, owner):
        count = self

        def make(inner):
            def call(layer, *args, **kwargs):
                result = inner(layer, *args, **kwargs)
                if not count.pause and len(count.rows) < 20000:
                    try:
                        count.layer(layer, args, result)
                    except Exception:  # noqa: BLE001, S110 - a layer of the user's own may be anything
                        pass
                return result

            return call

        patched(owner, "__call__", make)

    def layer(self, layer, args, result):
        kind = type(layer).__name__
        attention = 0.0
        if kind in ("MultiHeadAttention", "GroupQueryAttention") and len(args) > 1:
            query, value = self.shape(args[0]), self.shape(args[1])
            heads = float(getattr(layer, "num_heads", None) or getattr(layer, "num_query_heads", 1))
            each = float(getattr(layer, "key_dim", None) or getattr(layer, "head_dim", 1))
            attention = 4.0 * query[0] * heads * query[1] * value[1] * each
            self.add((attention, 8.0 * query[0] * heads * query[1] * value[1], 0.0), result)
            return
        recurrent = getattr(layer, "cell", None) is not None
        if kind.endswith("Cell") or (not recurrent and parts_of(layer)):
            return  # it is counted with what it is part of, or its parts are
        inputs, outputs = self.numbers(args), self.numbers((result,))
        flops, convolved = self.flops(layer, kind, args, inputs, outputs)
        weights = sum(float(product(w.shape)) for w in getattr(layer, "weights", ()))
        if kind in ("InputLayer", "Flatten", "Reshape"):
            return
        self.add((flops, 4.0 * (inputs + outputs + weights), flops if convolved else 0.0), result)
        dtype = str(getattr(layer, "compute_dtype", "float32"))
        self.dtypes[dtype] = self.dtypes.get(dtype, 0.0) + flops

    def add(self, row, result):
        """To the rows of this tracing: a function may be traced more than once before its first call ends."""
        graph = id(getattr(result, "graph", None))
        if graph != self.graph:
            self.graph, self.rows = graph, []
        self.rows.append(row)

    def flops(self, layer, kind, args, inputs, outputs):
        kernel = getattr(layer, "kernel", None)
        if kernel is None:
            kernel = getattr(layer, "_kernel", None)
        cell = getattr(layer, "cell", None)
        if cell is not None and hasattr(layer, "return_sequences"):  # LSTM, GRU, SimpleRNN
            shape = self.shape(args[0])
            weights = sum(float(product(w.shape)) for w in layer.weights if len(w.shape) > 1)
            return 2.0 * weights * shape[0] * shape[1], False
        if "DepthwiseConv" in kind and kernel is not None:
            return 2.0 * outputs * float(product(kernel.shape[:-2])), True
        if "SeparableConv" in kind:
            weights = [float(product(w.shape)) for w in layer.weights if len(w.shape) > 2]
            channels = float(self.shape_of_result_channels(layer))
            return 2.0 * outputs / max(1.0, channels) * sum(weights), True
        if "Transpose" in kind and "Conv" in kind and kernel is not None:
            return 2.0 * inputs * float(product(kernel.shape[:-1])), True
        if "Conv" in kind and kernel is not None:
            return 2.0 * outputs * float(product(kernel.shape[:-1])), True
        if kernel is not None:  # Dense, EinsumDense: batch b, in c, out o; b c, b o and c o are known
            return 2.0 * (inputs * outputs * float(product(kernel.shape))) ** 0.5, False
        return 0.0, False

    @staticmethod
    def shape_of_result_channels(layer):
        return getattr(layer, "filters", 1) or 1

    def shape(self, tensor):
        return [float(n if n is not None else (self.batch or 1)) for n in tensor.shape]

    def numbers(self, values):
        total, stack = 0.0, list(values)
        while stack:
            value = stack.pop()
            if isinstance(value, (list, tuple)):
                stack.extend(value)
            elif isinstance(value, dict):
                stack.extend(value.values())
            elif getattr(value, "shape", None) is not None:
                total += float(product(self.shape(value)))
        return total

    def totals(self):
        """Of a training step: the backward pass is twice the forward one. None if no layer was called."""
        flops, moved = sum(r[0] for r in self.rows), sum(r[1] for r in self.rows)
        if not self.rows or not moved:
            return None
        dtype = max(self.dtypes, key=self.dtypes.get) if self.dtypes else "float32"
        return {
            "flops": 3 * flops,
            "bytes": 3 * moved,
            "kernels": 3.0 * len(self.rows),
            "convolutions": 3 * sum(r[2] for r in self.rows),
            "dtype": dtype,
        }


def parts_of(layer):
    try:
        return list(getattr(layer, "_layers", None) or getattr(layer, "layers", None) or ())
    except Exception:  # noqa: BLE001 - a property that is not ready
        return []


def product(shape):
    total = 1
    for n in shape:
        total *= int(n if n is not None else 1)
    return total


def backend():
    keras = sys.modules.get("keras")
    try:
        return str(keras.backend.backend())
    except Exception:  # noqa: BLE001 - no Keras at all
        return ""


def facts_of(model):
    optimizer = getattr(model, "optimizer", None)
    found = {"optimizer": type(getattr(optimizer, "inner_optimizer", optimizer)).__name__, "parameters": None}
    try:
        found["parameters"] = int(sum(product(w.shape) for w in model.trainable_variables))
        found["model_bytes"] = 4 * int(sum(product(w.shape) for w in model.variables))
        found["tensors"] = len(model.trainable_variables)
        found["compiled_by_xla"] = bool(getattr(model, "jit_compile", False))
    except Exception:  # noqa: BLE001 - a model that is not built yet
        found.setdefault("model_bytes", None)
    return found


def parameters_of(optimizer):
    try:
        return int(sum(product(w.shape) for w in optimizer._trainable_variables))
    except Exception:  # noqa: BLE001 - another kind of optimizer
        return None


def batch_of(local):
    """Samples in a batch of `fit`; None if neither its arguments nor its data tell."""
    data = local.get("x")
    if hasattr(data, "element_spec") or hasattr(data, "_input_dataset"):  # tf.data
        for _ in range(20):
            size = getattr(data, "_batch_size", None)
            if size is not None:
                return int(size.numpy()) if hasattr(size, "numpy") else int(size)
            data = getattr(data, "_input_dataset", None)
            if data is None:
                return None
        return None
    for owner in (data, getattr(data, "loader", None)):
        size = getattr(owner, "batch_size", None)
        if isinstance(size, int):
            return size
    if hasattr(data, "shape") or isinstance(data, (list, tuple)):
        return int(local.get("batch_size") or 32)
    return None


def first_size(args):
    """Of the first tensor among these."""
    stack = list(args)[::-1]
    while stack:
        value = stack.pop()
        if isinstance(value, (list, tuple)):
            stack.extend(value[::-1])
        elif getattr(value, "shape", None) is not None and len(value.shape):
            return int(value.shape[0]) if value.shape[0] is not None else None
    return None
