"""The trace of one unit of inference, with the memory that it needs at once."""

from __future__ import annotations

import weakref

from ..op_tracer import StepTrace
from ..patching import known
from .arguments import weights_of


class ForwardTrace(StepTrace):
    """Traces a unit without saved tensors, and with the layers' own ops where PyTorch would take a fast path."""

    def __init__(self, torch, modules, *, compiled, running):
        self.running = running  # a module that was called before the trace begins
        self.weights = weights_of(modules)[1]  # addresses of the parameters
        self.alive = {}  # storage -> reference to it, of the tensors that the ops made
        self.alive_bytes = self.activation_bytes = 0  # of these: now, and at most
        StepTrace.__init__(self, torch, (), count_saved=False, compiled=compiled, made=self.tensor_made)
        self.fast_path = None

    def tensor_made(self, value, inputs):
        """Note a tensor that an op returned; it may be a view of one of its inputs."""
        try:
            storage = value.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            key = storage._cdata
        except Exception:  # noqa: BLE001 - sparse, nested and fake tensors
            return
        if not size or key in self.alive or address in self.weights:
            return
        if any(known(lambda held=one: held.untyped_storage()._cdata) == key for one in inputs):
            return

        def gone(_):
            if self.alive.pop(key, None) is not None:
                self.alive_bytes -= size

        self.alive[key] = weakref.ref(storage, gone)
        self.alive_bytes += size
        self.activation_bytes = max(self.activation_bytes, self.alive_bytes)

    def start(self):
        attention = getattr(self.torch.backends, "mha", None)
        if attention is not None and attention.get_fastpath_enabled():
            self.fast_path = attention
            attention.set_fastpath_enabled(False)
        StepTrace.start(self)
        self.tracer.mute()
        self.torch.zeros(1, device="cpu")  # the first op under any mode imports parts of torch for a second
        self.tracer.unmute()
        if self.running is not None:
            self.entered(self.running, ())

    def stop(self, backwards):
        StepTrace.stop(self, backwards)
        if self.fast_path is not None:
            self.fast_path.set_fastpath_enabled(True)
