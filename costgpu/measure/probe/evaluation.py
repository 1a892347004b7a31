"""Where an evaluation amid training begins and ends: by the modes of modules, and by who wants gradients."""

from __future__ import annotations

import sys
import threading

from .schedstat import work_clock


class Evaluation:
    """The evaluation that goes on, if one does; its seconds go to the recorder's events.

    It begins with `eval()` and ends with `train()`, if anything was called or drawn in between: a model that is loaded is
    put into eval mode, too. A module may as well be given its mode back behind torch's back (`module.training = True`,
    as Lightning does) or stay in eval mode: then the next batch or forward pass of the training ends it, which wants
    gradients where the evaluation wanted none.
    """

    def __init__(self, recorder):
        self.recorder = recorder
        self.forget()

    def forget(self):
        """Take what runs for training, and not for an evaluation: models are also trained with frozen parts."""
        self.began = None  # on the work clock; None without one
        self.modules = {}  # id -> module that was put into eval mode
        self.used = False  # whether anything was drawn or called since then
        self.blind = False  # whether anything was drawn or called without gradients since then
        self.resumed = None  # when gradients were wanted again after that

    def mode_changed(self, module, training):
        """Outside of any other such call, `module.train(training)` has been called."""
        if threading.get_ident() != self.recorder.thread:
            return
        if training:
            self.end()
            return
        if self.began is None:
            self.began, self.saved_before = work_clock(), self.recorder.events.get("save", 0.0)
            self.recorder.trace_as("validation")
            self.recorder.module_hooks.attach()
        self.modules[id(module)] = module

    def look(self):
        """Note that a batch is about to be drawn, or a model to be called."""
        if self.began is None or threading.get_ident() != self.recorder.thread:
            return
        if self.trains():
            self.end()
            return
        if not self.used:
            self.used = True
            self.recorder.upcoming_work.note_evaluating(sys._getframe(1))
            if not self.recorder.trains:  # before it, the script may have read its data
                self.began = work_clock()
        if not self.recorder.torch.is_grad_enabled():
            if self.resumed is not None:
                self.recorder.trace_as("validation")
            self.blind, self.resumed = True, None
        elif self.blind and self.resumed is None:
            self.resumed = work_clock()
            self.recorder.trace_as("forward")

    def trains(self):
        """Return whether a module of it is in training mode again."""
        return any(vars(one).get("training") for one in self.modules.values())

    def step_made(self):
        """End the evaluation, since an optimizer stepped: what followed it was training."""
        if self.resumed is not None or self.trains():
            self.end(self.resumed)

    def end(self, at=None):
        """End the evaluation `at` this time of the work clock, or now."""
        if self.began is None:
            return
        recorder, at = self.recorder, work_clock() if at is None else at
        saving = recorder.events.get("save", 0.0) - self.saved_before
        seconds = max(0.0, at - self.began - saving)
        if self.used or recorder.module_hooks.compiled:  # calls of a compiled function are not seen
            recorder.add("validation", seconds)
        if self.used and not recorder.trains:
            recorder.upcoming_work.note_evaluated(seconds)
        self.forget()
        recorder.trace_as("forward")
