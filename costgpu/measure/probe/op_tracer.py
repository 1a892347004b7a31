"""Traces one iteration: every op with its shapes (of real tensors and of fake ones), saved tensors, modules that ran."""

import sys
from itertools import chain

from .autocast_types import AutocastTypes
from .schedstat import clock, cpu_clock


def make_tracer(torch):
    """Return the class of the op tracer, for this torch. It serves the real script and FakeTensorMode alike."""
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
                yield getattr(value, "_local_tensor", value)  # of a sharded one, what this rank holds
            elif isinstance(value, (list, tuple)):
                yield from tensors_in(value)

    in_inference_mode = getattr(torch, "is_inference_mode_enabled", bool)
    composite_key = getattr(getattr(torch._C, "DispatchKey", None), "CompositeImplicitAutograd", None)
    composite = {}  # op -> whether it is made of others, which autograd would have taken it apart into

    def whole(func):
        """Return whether inference mode, which is below autograd, hands us an op in one piece that is made of others."""
        if not in_inference_mode():
            return False
        if func not in composite:
            has = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)  # not those written in Python
            usable = composite_key is not None and has is not None and hasattr(func, "_op_dk")
            composite[func] = usable and bool(has(func.name(), composite_key))
        return composite[func]

    class OpTracer(TorchDispatchMode):
        """Counts every op by name, phase, shapes, strides and dtypes, with the seconds that it took."""

        def __init__(self, made=None):
            super().__init__()
            self.script_clock = cpu_clock
            self.rows, self.phase, self.muted = {}, "forward", 0
            self.masks = {}  # storage -> mask; the reference keeps the address from being used again
            self.autocast = AutocastTypes()
            self.calls, self.op_seconds = 0, 0.0
            # In the script's own code: between ops outside backward and optimizer.
            self.host_calls, self.host_seconds = 0, 0.0
            self.script_since = None  # when the script's own code took over; None while torch works
            self.made = made  # None, or called with every tensor that an op returns, and the op's inputs

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if self.muted:
                return func(*args, **kwargs)
            if whole(func):
                with self:
                    return func._op_dk(composite_key, *args, **kwargs)
            start = clock()
            if self.script_since is not None:
                self.host_seconds += self.script_clock() - self.script_since
                self.host_calls += 1
            result = func(*args, **kwargs)
            seconds = clock() - start
            self.op_seconds += seconds
            if getattr(func, "namespace", "") not in ("prim", "profiler"):  # device queries, record_function
                self.record(func, args, kwargs, result, seconds)
            self.calls += 1
            if self.script_since is not None:
                self.script_since = self.script_clock()
            return result

        def time_by(self, script_clock):
            """Take the script's own time from another clock."""
            self.script_clock = script_clock

        def pause(self, phase=None):
            """Let torch take over: a backward pass, an optimizer, a loader; ops are of this phase from now on."""
            if self.script_since is not None:
                self.host_seconds += self.script_clock() - self.script_since
                self.script_since = None
            self.phase = phase or self.phase

        def resume(self, phase=None):
            """Return to the script's own code; ops are of this phase from now on."""
            self.phase = phase or self.phase
            self.script_since = self.script_clock()

        def enter(self, phase):
            """Take ops for those of another phase from now on."""
            self.phase = phase

        def mute(self):
            """Count nothing until `unmute`: what follows is none of the script's steps."""
            self.muted += 1

        def unmute(self):
            self.muted -= 1

        def counts(self):
            """Return what was counted so far, to be told from what comes later."""
            rows = {key: (row["count"], row["seconds"]) for key, row in self.rows.items()}
            return rows, (self.calls, self.op_seconds, self.host_calls, self.host_seconds)

        def add_again(self, before, after):
            """Count once more what was counted between two calls of `counts`."""
            for key, (count, seconds) in after[0].items():
                earlier = before[0].get(key, (0, 0.0))
                row = self.rows[key]
                row["count"] += count - earlier[0]
                row["seconds"] += seconds - earlier[1]
            calls, op_seconds, host_calls, host_seconds = (now - then for now, then in zip(after[1], before[1]))
            self.calls += calls
            self.op_seconds += op_seconds
            self.host_calls += host_calls
            self.host_seconds += host_seconds

        def keep(self, phase, *, muted):
            """Count the ops of this phase, or none of them where one pass through it is enough."""
            self.phase, self.muted = phase, int(muted)

        def record(self, func, args, kwargs, result, seconds):
            name = str(getattr(func, "_schema", func).name if hasattr(func, "_schema") else func)
            inputs = list(tensors_in(chain(args, kwargs.values())))
            outputs = list(tensors_in([result]))
            for value in outputs if self.made is not None else ():
                self.made(value, inputs)
            phase = self.phase
            if phase == "backward" and torch.is_grad_enabled():
                phase = "forward"  # of a checkpoint that is computed again: by the modules' Python, and in autocast
            attributes = {}
            if name in ("aten::convolution", "aten::convolution_backward"):
                at = 6 if name == "aten::convolution" else 7
                attributes = {"transposed": bool(args[at]), "groups": int(args[at + 2])}
                if name == "aten::convolution_backward":
                    attributes["output_mask"] = [bool(flag) for flag in args[at + 3]]
            if "_dot_product_" in name and argument(func, "is_causal", args, kwargs):
                attributes["is_causal"] = True
            if name == "aten::bernoulli_":
                self.masks[self.key(inputs[0])] = inputs[0]
            masks = [n for n, value in enumerate(inputs) if self.key(value) in self.masks] if self.masks else []
            if masks:
                attributes["masks"] = masks
            attributes.update(
                self.autocast.follow(
                    name,
                    phase == "backward",
                    [(self.key(t), t.dtype is torch.float32 and t.dim() > 0) for t in inputs],
                    [(self.key(t), t.dtype is torch.float32) for t in outputs],
                )
            )
            ins, outs = [describe(t) for t in inputs], [describe(t) for t in outputs]
            key = repr((name, phase, ins, outs, attributes))
            row = self.rows.get(key)
            if row is None:
                row = {"op": name, "phase": phase, "inputs": ins, "outputs": outs, "attributes": attributes}
                row["count"], row["seconds"] = 0, 0.0
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


def argument(func, name, args, kwargs):
    """Return the value of an op's argument, given by place, by name or not at all; None if it has no such argument."""
    for at, one in enumerate(getattr(getattr(func, "_schema", None), "arguments", ())):
        if one.name == name:
            return args[at] if at < len(args) else kwargs.get(name, one.default_value)
    return None


class StepTrace:
    """Traces whole steps: switches the tracer on between two of them, and what must go with it; holds what was found."""

    def __init__(self, torch, optimizers, *, count_saved, compiled, backwards=0, made=None, called=None):
        self.torch, self.backwards = torch, backwards  # backward passes before it began
        self.called = called  # None, or called whenever a module is
        self.steps = self.micro_batches = 0  # that it holds whole
        self.saved_tensor_bytes, self.model = 0, {}
        self.sizes = {}  # sides of tensors that follow a loop
        self.compiled = compiled and hasattr(getattr(torch, "compiler", None), "set_stance")
        self.tracer = make_tracer(torch)(made)
        self.roots = {}
        self.seen, self.live, self.peak = {}, 0, 0
        hooks = getattr(torch.autograd.graph, "saved_tensors_hooks", None) if count_saved else None
        self.saved_hooks = hooks(self.pack, lambda value: value) if hooks is not None else None
        self.parameters = {
            storage_key(value)[0]
            for optimizer in optimizers
            for group in optimizer.param_groups
            for value in group["params"]
        }

    def pack(self, value):
        key, size = storage_key(value)
        if key is not None and key not in self.parameters and key not in self.seen:
            self.seen[key] = size
            self.live += size
            self.peak = max(self.peak, self.live)
        return value

    def entered(self, module, inputs):
        self.roots.setdefault(id(module), module)
        if self.tracer.phase == "optimizer" and self.torch.is_grad_enabled():
            self.tracer.resume("forward")  # a closure that the optimizer calls
        if self.called is not None:
            self.called()

    def graph_freed(self):
        """Forget what a backward pass has freed; the next micro-batch saves its own tensors."""
        self.seen.clear()
        self.live = 0

    def step_made(self):
        """Count a step that it holds whole, and return their number."""
        self.steps += 1
        return self.steps

    def note_sizes(self, sizes):
        self.sizes = sizes

    def start(self):
        register = getattr(sys.modules.get("torch.nn.modules.module"), "register_module_forward_pre_hook", None)
        self.module_hook = register(self.entered) if register is not None else None
        if self.compiled:
            self.torch.compiler.set_stance("force_eager")
        if self.saved_hooks is not None:
            self.saved_hooks.__enter__()
        self.tracer.__enter__()

    def stop(self, backwards):
        """Switch it off, after so many backward passes in all."""
        self.micro_batches = backwards - self.backwards
        self.tracer.__exit__(None, None, None)
        if self.saved_hooks is not None:
            self.saved_hooks.__exit__(None, None, None)
        if self.module_hook is not None:
            self.module_hook.remove()
        if self.compiled:
            self.torch.compiler.set_stance("default")
        sizes = {}
        for module in self.roots.values():
            for value in chain(module.parameters(recurse=False), module.buffers(recurse=False)):
                key, size = storage_key(value)
                sizes[key] = (size, value.requires_grad)
        self.saved_tensor_bytes = self.peak
        self.model = {
            "bytes": sum(size for size, _ in sizes.values()),
            "frozen_bytes": sum(size for size, grad in sizes.values() if not grad),
        }
        self.tracer.masks.clear()
        self.roots = {}


def storage_key(value):
    try:
        storage = value.untyped_storage() if hasattr(value, "untyped_storage") else value.storage()
        size = storage.nbytes() if hasattr(storage, "nbytes") else storage.size() * value.element_size()
        return storage.data_ptr(), int(size)
    except Exception:  # noqa: BLE001 - sparse, nested and fake tensors
        return None, 0
