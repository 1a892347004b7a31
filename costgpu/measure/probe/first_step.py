"""The first training step, traced as it runs: where a step takes longer than the window there may be no second one.

The trace begins with the first batch or forward pass with gradients after an optimizer was made, when nobody can know
yet how long the step will take. Of a quick step it is dropped as soon as a warm one has been traced.
"""

from __future__ import annotations

import sys
import threading

from .op_tracer import StepTrace
from .phase import shared_out
from .ranks.world import WORLD
from .schedstat import clock

LEAST_SECONDS = 1.0  # a shorter step is no answer by itself
SLOW_SHARE = 0.25  # of the window: the trace of a first step that takes so long is the trace
MOST_DRAWS = 64  # batches without a backward pass: this is not a step
MOST_CALLS = 2000  # of modules, before the step begins, after which it is no longer looked for
# What an optimizer does once, to make its state.
MAKES_STATE = ("aten::zeros_like", "aten::empty_like", "aten::zeros", "aten::empty", "aten::zero_")
MOST_TRACED_CALLS = 200000  # of modules, without a backward pass: a simulator asks its policy, say


class _Trace(StepTrace):
    def entered(self, module, inputs):
        super().entered(module, inputs)
        self.phase.called()


class FirstStep:
    """Begins and ends the trace, and keeps what belongs to it; in the place of a phase for `StepTrace`."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.optimizers = {}
        self.trace = self.seconds = self.interval = self.hook = None
        self.answered = 0.0
        self.micro_batches, self.backwards, self.draws, self.calls = 0, 0, 0, 0
        self.saved_tensor_bytes, self.model = 0, {}
        self.over = self.useless = False

    def optimizer_made(self, optimizer):
        """From now on a forward pass may be the beginning of a step."""
        recorder = self.recorder
        if self.over or recorder.trains or threading.get_ident() != recorder.thread:
            return
        self.optimizers[id(optimizer)] = optimizer
        register = getattr(recorder.torch.nn.modules.module, "register_module_forward_pre_hook", None)
        if self.hook is None and self.trace is None and register is not None and not recorder.compiled:
            self.hook = register(self.entered)

    def entered(self, module, inputs):
        self.calls += 1
        if self.calls > MOST_CALLS or self.recorder.compiled:  # the compiler would take the hook for the model's
            self.forget_hook()
        elif module.training:
            self.begin()

    def forget_hook(self):
        if self.hook is not None:
            self.hook.remove()
            self.hook = None

    def begin(self):
        """Begin the first step where a batch was drawn or a module is called."""
        recorder, torch = self.recorder, self.recorder.torch
        if self.over or self.trace is not None or not self.optimizers or recorder.trains:
            return
        recorder.evaluation.look()
        if recorder.evaluation.began is not None or recorder.status != "running":
            return
        if recorder.compiled:  # a trace is of the uncompiled model, and the first step is for compiling it
            self.over = True
            self.forget_hook()
            return
        if threading.get_ident() != recorder.thread or not torch.is_grad_enabled():
            return
        self.forget_hook()
        recorder.inference.tracer.stop(recorder.inference.phase)
        dispatch = sys.modules.get("torch.utils._python_dispatch")
        stack = getattr(dispatch, "_get_current_dispatch_mode_stack", None)
        try:
            if stack is None or stack():  # old, or inside a mode of the script's own, which must end before ours
                self.over = True
                return
            count_saved = recorder.config.get("saved_hooks", True)
            self.trace = _Trace(torch, self, count_saved=count_saved, compiled=False)
            self.trace.start()
        except Exception:  # noqa: BLE001 - the next step may be traced
            self.over, self.trace = True, None
            return
        self.backwards, self.answered = recorder.backwards, WORLD.collectives.seconds
        WORLD.collectives.step_begins()
        recorder.wait, recorder.loader_blocked = 0.0, 0.0
        recorder.lap.begin()
        recorder.activity.begin()
        recorder.step_trace, recorder.tracing = self.trace, self.trace.tracer
        self.trace.tracer.resume()

    def called(self):
        """Count a module that was called in the trace."""
        self.calls += 1
        if self.calls == MOST_TRACED_CALLS and self.recorder.backwards == self.backwards:
            self.trace.tracer.muted += 1  # it goes on inside whatever it is in now, and counts nothing
            self.useless = True

    def draw(self):
        """Count a batch drawn before the first step. Too many of them without a backward pass are no step."""
        self.begin()
        self.draws += 1
        if self.trace is not None and not self.over and self.draws > MOST_DRAWS:
            if self.recorder.backwards == self.backwards:
                self.end(clock())

    @property
    def running(self):
        """Return whether its trace is the one that goes on."""
        return self.trace is not None and not self.over

    def end(self, now):
        """End the first step, which was made or never will be."""
        self.forget_hook()
        running = self.running
        self.over, self.optimizers = True, {}
        if not running:
            return
        recorder = self.recorder
        recorder.tracing = None
        self.trace.stop()
        answered = WORLD.collectives.seconds - self.answered
        self.interval = shared_out(recorder.lap.end(now), recorder.wait, recorder.loader_blocked, answered)
        self.seconds = self.interval[0]
        recorder.loader_blocked = 0.0
        self.micro_batches = recorder.backwards - self.backwards
        if not self.micro_batches or self.useless:  # a step without a backward pass prepares something
            self.trace = None

    def is_slow(self):
        """Return whether it took so long that a second step should not be needed for the trace."""
        return self.trace is not None and (self.seconds or 0.0) >= SLOW_SHARE * self.recorder.config["measure_for"]

    def use(self, phase):
        """Make its trace the trace of the phase that it began."""
        rows = self.trace.tracer.rows
        for key in [one for one, row in rows.items() if row["phase"] == "optimizer" and row["op"] in MAKES_STATE]:
            del rows[key]
        phase.trace, phase.trace_steps, phase.first_traced = self.trace.tracer, 1, True
        phase.micro_batches, phase.model = self.micro_batches, self.model
        phase.saved_tensor_bytes = self.saved_tensor_bytes

    def settle(self, phase, status):
        """At the end of the measurement: its trace where there is no other, its time where there is no second step."""
        if self.trace is None or phase.first_traced:
            traced = phase.first_traced
        else:
            traced = phase.trace is None or (phase.trace_steps == 0 and not phase.untraceable)
            if traced:
                self.use(phase)
        least = LEAST_SECONDS if status == "ended" else max(LEAST_SECONDS, self.recorder.config["measure_for"])
        evaluating = status == "cut" and self.recorder.is_evaluating()
        if traced and not phase.seconds and phase.anchors == 1 and (evaluating or self.seconds >= least):
            phase.first = self.interval
            if evaluating:
                phase.special[0] = {"validation": clock() - self.recorder.last}  # so far
