"""FLOPs and bytes of Keras layers, from their shapes while they are called."""

from __future__ import annotations

import math

from ..patching import attribute, known, patch

MOST_LAYERS = 20000
FLOAT_BYTES = 4.0
NO_WORK = ("InputLayer", "Flatten", "Reshape")


class LayerCounter:
    """Forward passes of the layers that were called since `reset`; symbolic sizes are the batch."""

    def __init__(self):
        self.paused = False
        self.reset(None)

    def reset(self, batch):
        self.batch = batch
        self.rows, self.dtypes, self.graph = [], {}, None

    def pause(self, paused):
        """Count nothing from now on, or count again."""
        self.paused = paused

    def batch_is(self, batch):
        """Note the batch, unless it is known."""
        if self.batch is None:
            self.batch = batch

    def attach(self, owner):
        def make(inner):
            def call(layer, *args, **kwargs):
                result = inner(layer, *args, **kwargs)
                if not self.paused and len(self.rows) < MOST_LAYERS:
                    known(self.count, layer, args, result)  # a layer of the user's own may be anything
                return result

            return call

        patch(owner, "__call__", make)

    def count(self, layer, args, result):
        kind = type(layer).__name__
        if kind in ("MultiHeadAttention", "GroupQueryAttention") and len(args) > 1:
            query, value = self.shape(args[0]), self.shape(args[1])
            heads = float(getattr(layer, "num_heads", None) or getattr(layer, "num_query_heads", 1))
            size = float(getattr(layer, "key_dim", None) or getattr(layer, "head_dim", 1))
            scores = query[0] * heads * query[1] * value[1]
            self.add((4.0 * scores * size, 2.0 * FLOAT_BYTES * scores, 0.0), result)
            return
        recurrent = getattr(layer, "cell", None) is not None
        parts = known(lambda: list(getattr(layer, "_layers", None) or getattr(layer, "layers", None) or ()))
        if kind in NO_WORK or kind.endswith("Cell") or (not recurrent and parts):
            return  # a cell is counted with what it is part of, and a model by its parts
        inputs, outputs = self.numbers(args), self.numbers((result,))
        flops, convolved = self.flops(layer, kind, args, inputs, outputs)
        weights = sum(float(product(w.shape)) for w in getattr(layer, "weights", ()))
        self.add((flops, FLOAT_BYTES * (inputs + outputs + weights), flops if convolved else 0.0), result)
        dtype = str(getattr(layer, "compute_dtype", "float32"))
        self.dtypes[dtype] = self.dtypes.get(dtype, 0.0) + flops

    def add(self, row, result):
        """To the rows of this tracing: a function may be traced more than once before its first call ends."""
        graph = id(getattr(result, "graph", None))
        if graph != self.graph:
            self.graph, self.rows = graph, []
        self.rows.append(row)

    def flops(self, layer, kind, args, inputs, outputs):
        """FLOPs of one call, and whether they are a convolution's."""
        kernel = getattr(layer, "kernel", None)
        if kernel is None:
            kernel = getattr(layer, "_kernel", None)
        if getattr(layer, "cell", None) is not None and hasattr(layer, "return_sequences"):  # LSTM, GRU, SimpleRNN
            shape = self.shape(args[0])
            weights = sum(float(product(w.shape)) for w in layer.weights if len(w.shape) > 1)
            return 2.0 * weights * shape[0] * shape[1], False
        if "SeparableConv" in kind:
            weights = [float(product(w.shape)) for w in layer.weights if len(w.shape) > 2]
            return 2.0 * outputs / max(1.0, float(getattr(layer, "filters", 1) or 1)) * sum(weights), True
        if kernel is None:
            return 0.0, False
        if "DepthwiseConv" in kind:
            return 2.0 * outputs * float(product(kernel.shape[:-2])), True
        if "Conv" in kind:
            return 2.0 * (inputs if "Transpose" in kind else outputs) * float(product(kernel.shape[:-1])), True
        # Dense, EinsumDense: batch b, in c, out o; b c, b o and c o are known
        return 2.0 * (inputs * outputs * float(product(kernel.shape))) ** 0.5, False

    def shape(self, tensor):
        return [float(n if n is not None else (self.batch or 1)) for n in tensor.shape]

    def numbers(self, values):
        """Return the numbers in all tensors of these nested values together."""
        total, stack = 0.0, list(values)
        while stack:
            value = stack.pop()
            if isinstance(value, (list, tuple)):
                stack.extend(value)
            elif isinstance(value, dict):
                stack.extend(value.values())
            elif attribute(value, "shape") is not None:
                total += float(product(self.shape(value)))
        return total

    def totals(self):
        """Return a training step's totals: the backward pass is twice the forward one. None if no layer was called."""
        flops, moved = sum(r[0] for r in self.rows), sum(r[1] for r in self.rows)
        if not self.rows or not moved:
            return None
        return {
            "flops": 3 * flops,
            "bytes": 3 * moved,
            "kernels": 3.0 * len(self.rows),
            "convolutions": 3 * sum(r[2] for r in self.rows),
            "dtype": max(self.dtypes, key=self.dtypes.get) if self.dtypes else "float32",
        }


def product(shape):
    return math.prod(int(n if n is not None else 1) for n in shape)
