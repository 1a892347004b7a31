"""The first training step, traced as it runs: where a step takes longer than the window there may be no second one.

The trace begins with the first batch or forward pass with gradients after an optimizer was made, when nobody can know
yet how long the step will take. Of a quick step it is dropped as soon as a warm one has been traced.
"""

from __future__ import annotations

import sys
import threading

from .interval import ScriptTime
from .op_tracer import StepTrace
from .ranks.world import WORLD
from .schedstat import clock

SLOW_SHARE = 0.25  # of the window: the trace of a first step that takes so long is the trace
TOO_SLOW_SECONDS = 8.0  # of a step without weights, a second one of which is not waited for
MOST_DRAWS = 64  # batches without a backward pass: this is not a step
MOST_CALLS = 2000  # of modules, before the step begins, after which it is no longer looked for
# What an optimizer does once, to make its state.
MAKES_STATE = ("aten::zeros_like", "aten::empty_like", "aten::zeros", "aten::empty", "aten::zero_")
MOST_TRACED_CALLS = 200000  # of modules, without a backward pass: a simulator asks its policy, say


class FirstStep:
    """Begins and ends the trace, and keeps what belongs to it."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.optimizers = {}
        self.trace = self.seconds = self.interval = self.times = self.hook = None
        self.draws = self.calls = 0
        self.over = self.useless = False

    def optimizer_made(self, optimizer):
        """From now on a forward pass may be the beginning of a step."""
        recorder = self.recorder
        if self.over or recorder.trains or threading.get_ident() != recorder.thread:
            return
        self.optimizers[id(optimizer)] = optimizer
        register = getattr(recorder.torch.nn.modules.module, "register_module_forward_pre_hook", None)
        if self.hook is None and self.trace is None and register is not None and not recorder.compiles:
            self.hook = register(self.entered)

    def entered(self, module, inputs):
        self.calls += 1
        most = MOST_CALLS if self.recorder.without_weights is None else MOST_TRACED_CALLS
        if self.calls > most or self.recorder.compiles:  # the compiler would take the hook for the model's
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
        if recorder.compiles:  # a trace is of the uncompiled model, and the first step is for compiling it
            self.over = True
            self.forget_hook()
            return
        if threading.get_ident() != recorder.thread or not torch.is_grad_enabled():
            return
        self.forget_hook()
        recorder.stop_trace()
        dispatch = sys.modules.get("torch.utils._python_dispatch")
        stack = getattr(dispatch, "_get_current_dispatch_mode_stack", None)
        try:
            # old, or inside a mode of the script's own, which must end before ours
            if stack is None or recorder.foreign_modes(stack()):
                self.over = True
                return
            count_saved = recorder.config.get("saved_hooks", True)
            trace = StepTrace(
                torch,
                self.optimizers.values(),
                count_saved=count_saved,
                compiled=False,
                backwards=recorder.backwards,
                called=self.called,
            )
            recorder.trace_begins(trace)
        except Exception:  # noqa: BLE001 - the next step may be traced
            self.over = True
            return
        self.trace, self.interval = trace, ScriptTime(recorder.waits)
        WORLD.collectives.step_begins()
        recorder.activity.begin()
        self.interval.begin()
        self.trace.tracer.resume()

    def called(self):
        """Count a module that was called in the trace."""
        self.calls += 1
        if self.calls == MOST_TRACED_CALLS and self.recorder.backwards == self.trace.backwards:
            self.trace.tracer.mute()  # it goes on inside whatever it is in now, and counts nothing
            self.useless = True

    def draw(self):
        """Count a batch drawn before the first step. Too many of them without a backward pass are no step."""
        self.begin()
        self.draws += 1
        if self.trace is not None and not self.over and self.draws > MOST_DRAWS:
            if self.recorder.backwards == self.trace.backwards:
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
        self.recorder.trace_ends()
        self.times = self.interval.end(now)
        self.seconds = self.times[0]
        if not self.trace.micro_batches or self.useless:  # a step without a backward pass prepares something
            self.trace = None

    def is_slow(self):
        """Return whether it took so long that a second step should not be needed for the trace."""
        return self.trace is not None and (self.seconds or 0.0) >= SLOW_SHARE * self.recorder.config["measure_for"]

    def tells_enough(self, backwards):
        """Return whether after so many backward passes in all another step would show nothing new: without weights only.

        Two micro-batches after a slow step have held all that it leaves: the optimizer's states, and gradients.
        """
        if (
            self.trace is None
            or not self.over
            or (self.seconds or 0.0) < TOO_SLOW_SECONDS
            or self.recorder.phase is None
        ):
            return False
        parts = self.trace.micro_batches
        return self.recorder.phase.anchors == 1 and parts > 2 and backwards - self.trace.backwards - parts == 2

    def whole_trace(self):
        """Return its trace, without what optimizers do once."""
        rows = self.trace.tracer.rows
        for key in [one for one, row in rows.items() if row["phase"] == "optimizer" and row["op"] in MAKES_STATE]:
            del rows[key]
        if not self.trace.steps:
            self.trace.step_made()
        return self.trace
