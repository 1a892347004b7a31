"""The trace of one unit of inference, with the memory that it needs at once."""

from __future__ import annotations

import weakref

from ..op_tracer import StepTrace
from ..patching import known
from .arguments import weights_of


class LiveBytes:
    """Bytes of the tensors that are alive at once, of those that the traced ops make."""

    def __init__(self, known):
        self.known = known  # addresses of the parameters
        self.live, self.now, self.peak = {}, 0, 0

    def made(self, value, inputs):
        """Note a tensor that an op returned; it may be a view of one of its inputs."""
        try:
            storage = value.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            key = storage._cdata
        except Exception:  # noqa: BLE001 - sparse, nested and fake tensors
            return
        if not size or key in self.live or address in self.known:
            return
        if any(known(lambda held=one: held.untyped_storage()._cdata) == key for one in inputs):
            return

        def gone(_):
            if self.live.pop(key, None) is not None:
                self.now -= size

        self.live[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


class ForwardTrace(StepTrace):
    """Traces a unit without saved tensors, and with the layers' own ops where PyTorch would take a fast path."""

    def __init__(self, torch, modules, *, compiled, running):
        self.running = running  # a module that was called before the trace begins
        self.live_bytes = LiveBytes(weights_of(modules)[1])
        StepTrace.__init__(self, torch, (), count_saved=False, compiled=compiled, made=self.live_bytes.made)
        self.fast_path = None

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
