"""Traces one iteration: ops, saved tensors and the modules that ran."""

import sys
from itertools import chain

from .op_tracer import make_tracer


class StepTrace:
    """Switches the tracer on between two steps, and what must go with it."""

    def __init__(self, torch, phase, *, count_saved, compiled):
        self.torch, self.phase = torch, phase
        self.compiled = compiled and hasattr(getattr(torch, "compiler", None), "set_stance")
        self.tracer = make_tracer(torch)()
        self.roots = {}
        self.seen, self.live, self.peak = {}, 0, 0
        hooks = getattr(torch.autograd.graph, "saved_tensors_hooks", None) if count_saved else None
        self.saved_hooks = hooks(self.pack, lambda value: value) if hooks is not None else None
        self.parameters = {
            storage_key(value)[0]
            for optimizer in phase.optimizers.values()
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
        if id(module) not in self.roots:
            self.roots[id(module)] = module

    def graph_freed(self):
        """A backward pass ended; the next micro-batch saves its own tensors."""
        self.seen.clear()
        self.live = 0

    def start(self):
        register = getattr(sys.modules.get("torch.nn.modules.module"), "register_module_forward_pre_hook", None)
        self.module_hook = register(self.entered) if register is not None else None
        if self.compiled:
            self.torch.compiler.set_stance("force_eager")
        if self.saved_hooks is not None:
            self.saved_hooks.__enter__()
        self.tracer.__enter__()

    def stop(self):
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
        self.phase.saved_bytes = self.peak
        self.phase.model = {
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
