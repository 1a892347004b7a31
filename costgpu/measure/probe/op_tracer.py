"""The op tracer: every op of a step with its shapes, for real tensors and for fake ones."""

import time
from itertools import chain

clock = time.perf_counter
cpu_clock = getattr(time, "thread_time", time.perf_counter)  # of this thread: a busy neighbour does not lengthen it


def make_tracer(torch):
    """The class of the op tracer, for this torch. It serves the real script and FakeTensorMode alike."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def describe(value):
        try:
            strides = list(value.stride())
        except Exception:  # noqa: BLE001 - sparse and nested tensors have none
            strides = []
        try:
            shape = [int(n) for n in value.shape]
        except Exception:  # noqa: BLE001 - data-dependent sizes
            shape = []
        return [shape, [int(n) for n in strides], str(value.dtype).replace("torch.", "")]

    def tensors_in(values):
        for value in values:
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                for inner in tensors_in(value):
                    yield inner

    class OpTracer(TorchDispatchMode):
        """Counts every op by name, phase, shapes, strides and dtypes, with the seconds that it took."""

        def __init__(self):
            super().__init__()
            self.rows = {}
            self.phase = "forward"
            self.muted = 0
            self.masks = {}  # storage -> mask; the reference keeps the address from being used again
            self.op_seconds = 0.0
            self.own_seconds = 0.0
            self.host_seconds = 0.0  # in the script's own code: between ops outside backward and optimizer
            self.host_calls = 0
            self.script_since = None  # when the script's own code took over; None while torch works
            self.calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if self.muted:
                return func(*args, **kwargs)
            start = clock()
            if self.script_since is not None:
                self.host_seconds += cpu_clock() - self.script_since
                self.host_calls += 1
            result = func(*args, **kwargs)
            seconds = clock() - start
            self.op_seconds += seconds
            if getattr(func, "namespace", "") not in ("prim", "profiler"):  # device queries, record_function
                self.record(func, args, kwargs, result, seconds)
            self.own_seconds += clock() - start - seconds
            self.calls += 1
            if self.script_since is not None:
                self.script_since = cpu_clock()
            return result

        def pause(self):
            """Torch takes over: a backward pass, an optimizer, a loader."""
            if self.script_since is not None:
                self.host_seconds += cpu_clock() - self.script_since
                self.script_since = None

        def resume(self):
            """The script's own code goes on."""
            self.script_since = cpu_clock()

        def record(self, func, args, kwargs, result, seconds):
            name = str(getattr(func, "_schema", func).name if hasattr(func, "_schema") else func)
            inputs = list(tensors_in(chain(args, kwargs.values())))
            outputs = list(tensors_in([result]))
            attributes = {}
            if name in ("aten::convolution", "aten::convolution_backward"):
                at = 6 if name == "aten::convolution" else 7
                attributes = {"transposed": bool(args[at]), "groups": int(args[at + 2])}
                if name == "aten::convolution_backward":
                    attributes["output_mask"] = [bool(flag) for flag in args[at + 3]]
            if name == "aten::bernoulli_":
                self.masks[self.key(inputs[0])] = inputs[0]
            masks = [n for n, value in enumerate(inputs) if self.key(value) in self.masks] if self.masks else []
            if masks:
                attributes["masks"] = masks
            ins, outs = [describe(t) for t in inputs], [describe(t) for t in outputs]
            key = repr((name, self.phase, ins, outs, attributes))
            row = self.rows.get(key)
            if row is None:
                row = {
                    "op": name,
                    "phase": self.phase,
                    "inputs": ins,
                    "outputs": outs,
                    "count": 0,
                    "seconds": 0.0,
                }
                row["attributes"] = attributes
                self.rows[key] = row
            row["count"] += 1
            row["seconds"] += seconds

        @staticmethod
        def key(value):
            try:
                return value.untyped_storage()._cdata
            except Exception:  # noqa: BLE001 - a tensor without storage is never a dropout mask
                return None

    return OpTracer
