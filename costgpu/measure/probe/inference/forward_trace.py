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

    def __init__(self, torch, phase, *, compiled):
        StepTrace.__init__(self, torch, phase, count_saved=False, compiled=compiled)
        self.live_bytes = LiveBytes(weights_of(phase.roots.values())[1])
        self.tracer.made = self.live_bytes.made
        self.fast_path = None

    def start(self):
        attention = getattr(self.torch.backends, "mha", None)
        if attention is not None and attention.get_fastpath_enabled():
            self.fast_path = attention
            attention.set_fastpath_enabled(False)
        StepTrace.start(self)
        self.tracer.muted += 1
        self.torch.zeros(1, device="cpu")  # the first op under any mode imports parts of torch for a second
        self.tracer.muted -= 1

    def stop(self):
        StepTrace.stop(self)
        if self.fast_path is not None:
            self.fast_path.set_fastpath_enabled(True)
        self.tracer.made = None
        self.phase.activation_bytes = self.live_bytes.peak


class UnitTracer:
    """Begins and ends the trace of a unit."""

    def __init__(self, recorder):
        self.recorder = recorder

    @property
    def going(self):
        """Return the tracer that goes on, unless it follows what may be the first training step."""
        return None if self.recorder.first.running else self.recorder.tracing

    def begin(self, phase, root):
        """Trace from here on; `root` is the module that runs now."""
        recorder = self.recorder
        try:
            trace = ForwardTrace(recorder.torch, phase, compiled=recorder.compiled > 0)
        except Exception as error:  # noqa: BLE001 - torch before 2.0 has no dispatch mode that we could use
            phase.untraceable = "{}: {}".format(type(error).__name__, error)[:300]
            return
        recorder.step_trace = trace
        phase.trace = recorder.tracing = trace.tracer
        if phase.generation is not None:
            trace.tracer.phase, phase.generation.traced_decodes = "prefill", 0
        trace.start()
        if root is not None:
            trace.entered(root, ())  # it was called before the trace began

    def end(self):
        self.recorder.tracing = None
        self.recorder.step_trace.stop()

    def stop(self, phase):
        """End the trace of a unit that will not be complete."""
        if phase is not None and self.going is not None:
            self.end()

    def set_phase_of_ops(self, phase):
        """Ops of a unit are ``forward``, or of generation ``prefill`` and ``decode``."""
        going = self.going
        if going is None or phase is None:
            return
        made = phase.generation
        if made is None or not made.decodes:
            going.phase = "prefill" if made is not None else "forward"
            return
        decodes = made.decodes[-1]
        going.phase = "decode" if decodes else "prefill"
        if decodes and not made.traced_decodes:
            earlier = made.decodes[-2] if len(made.decodes) > 1 else 2
            going.muted = 0 if decodes >= max(1, earlier // 2) else 1
