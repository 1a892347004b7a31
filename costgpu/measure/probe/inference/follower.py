"""Follows the calls of models from outside of models: what repeats there without a training step is inference.

Until it is clear that no training comes, the units are provisional: a check of the validation data before training, or
rollouts of a policy, are not what the script is for. A training step makes an end of them.
"""

from __future__ import annotations

import threading

from ..loops.script_frames import PROBE_ROOT, outwards, variables_of
from ..loops.source import loops_around
from ..patching import harmless
from ..phase import outermost_loop
from ..schedstat import clock
from .arguments import first_tensor, tokens_of
from .generation import GenerateCall
from .phase import IDLE_SECONDS, Inference

ENOUGH_DECODES = 8
GROWS = 3  # calls in a row that are each a token longer: the same sequence, and no new item


class InferenceFollower:
    """Knows which module the script is calling from outside of modules, and what that call is part of."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.root = self.frame = None  # the outermost module that runs now, and torch's frame that runs it
        self.generating = None
        self.lengths = {}  # id of a module -> tokens of its last call
        self.growing = 0  # calls in a row, each with one token more than the one before
        self.call_began = None
        self.no_more = False  # gradients are taken in a way that is not counted as training

    @property
    def phase(self):
        """Return the phase of inference that is going on; None in training and before anything."""
        phase = self.recorder.phase
        return phase if phase is not None and not phase.trains else None

    # -- what the hooks tell

    def enter(self, module, args, frame):
        """Before the call of a module in no other; `frame` is torch's that makes it."""
        self.recorder.evaluation.look()
        if self.root is not None and any(live is self.frame for live in outwards(frame)):
            return  # a module that calls itself
        recorder = self.recorder
        if recorder.status != "running" or self.no_more or threading.get_ident() != recorder.thread:
            return
        self.root, self.frame = module, frame
        tracing = recorder.tracing
        if tracing is not None:
            tracing.pause()
            tracing.mute()
        try:
            self.called(module, args, variables_of(frame).get("kwargs") or {})
        finally:
            if tracing is not None:
                tracing.unmute()
            phase, tracing = self.phase, recorder.tracing
            if phase is not None and phase.is_tracing(recorder):
                phase.call_enters(tracing)
            if tracing is not None and not tracing.muted:
                tracing.resume()

    def leave(self, module):
        """After that call."""
        if threading.get_ident() != self.recorder.thread:
            return
        self.root = self.frame = None
        phase, now = self.phase, clock()
        if phase is None or self.call_began is None:
            return
        phase.call_ended(now)
        made = phase.generation
        if made is not None and module is made.module:
            tracing = self.recorder.tracing if phase.is_tracing(self.recorder) else None
            if made.call_ended(now - self.call_began, tracing):
                self.recorder.step_trace.step_made()
                self.recorder.trace_ends()

    def forget_call(self):
        """Follow nothing that runs now."""
        self.root = self.frame = None

    def gradients_taken(self):
        """Expect no inference any more: what updates from gradients of its own is not counted as training."""
        self.no_more = True
        self.training_begins()

    def training_begins(self):
        """End the phase of inference where training begins, and keep it only if it was work of its own."""
        if self.phase is not None:
            self.recorder.drop_preparation(self.phase)

    @harmless
    def generate_begins(self, model, args, kwargs, frame):
        recorder = self.recorder
        if threading.get_ident() != recorder.thread or recorder.status != "running" or self.generating or self.root:
            return
        if self.phase is None and recorder.phase is not None and recorder.phase.holds(frame):
            return  # samples that are drawn while it trains
        self.generating = GenerateCall(model, kwargs)
        self.unit(model, first_tensor(recorder.torch, args, kwargs), frame)

    @harmless
    def generate_ends(self, model):
        if self.generating is not None and self.generating.model is model:
            self.generating = None
            if self.phase is not None:
                self.phase.call_ended(clock())

    # -- units

    def called(self, module, args, kwargs):
        recorder = self.recorder
        torch = recorder.torch
        if self.phase is None and recorder.phase is not None and recorder.phase.holds(self.frame):
            return  # evaluation inside of training
        self.call_began = clock()
        tokens = tokens_of(torch, args, kwargs)
        if self.generating is not None:
            self.generated(module, tokens)
            return
        before, length = self.lengths.get(id(module)), tokens[1] if tokens else None
        self.lengths[id(module)] = length
        self.growing = self.growing + 1 if before and length == before + 1 else 0
        near, frame = self.callers(self.frame.f_back)
        if frame is None:
            return
        if before and length == 1 and self.decoding(module, before, frame):
            return
        self.unit(module, first_tensor(torch, args, kwargs), frame, direct=frame is not near)
        phase = self.phase
        if phase is not None and self.growing >= GROWS:
            phase.makes_longer()
        made = phase.generation if phase is not None else None
        if made is not None and tokens and module is made.module:
            made.prefill(*tokens)

    def callers(self, frame):
        """Return the place outside of torch that called a module, and the place outside of any `forward` around it."""
        inside, torch = (self.recorder.loop_stack.torch_root, PROBE_ROOT), self.recorder.torch
        found = [live for live in outwards(frame) if not live.f_code.co_filename.startswith(inside)]
        near = best = found[0] if found else None
        for live in found[1:]:
            if best.f_code.co_name != "forward" or not isinstance(variables_of(best).get("self"), torch.nn.Module):
                break
            best = live
        return near, best

    def nest(self, frame):
        """Return the loops around a place, outermost first."""
        frames = self.recorder.loop_stack.frames(frame)
        return tuple((live.f_code.co_filename, loop.lineno) for live in frames for loop in loops_around(live))

    def generated(self, module, tokens):
        """Count a call inside of `generate`: of its model, or of an encoder before it."""
        phase, going = self.phase, self.generating
        if phase is None or module is not going.model:
            return
        made = phase.generates(module)
        if going.model_called() == 1:
            sequences, length = tokens or (1, 0)
            made.prefill(sequences, length)
            made.limited_to(going.limit(length))
        else:
            made.decode()

    def decoding(self, module, before, frame):
        """Return whether this call of one token goes on with a prompt: a loop of the script's own, with a cache."""
        phase = self.phase
        if phase is None or id(module) not in phase.roots:
            return False
        made = phase.generation
        if made is None:
            if before == 1:
                return False
            same_loop = self.nest(frame) == phase.nests.get((phase.anchor, phase.anchor_key))
            made = phase.generates(module, same_loop=same_loop)
            made.prefill(phase.sizes[-1] if phase.sizes else 1, before)
        made.decode()
        if made.decodes[-1] == 1:
            loops = self.recorder.loop_stack.snapshot(frame)
            trips = loops[-1]["trips"] if loops else None
            if isinstance(trips, (int, float)):
                made.limited_to(trips + (0 if made.same_loop else 1))
        return True

    def unit(self, module, tensor, frame, *, direct=False):
        """Follow a call from outside of modules, which may begin a unit."""
        recorder, now = self.recorder, clock()
        site = (frame.f_code, frame.f_lineno)
        phase = self.phase
        nest = phase.nests.get((site, id(module))) if phase is not None else None
        if nest is None or not phase.holds(frame):
            nest = self.nest(frame)
            phase = self.find_phase(frame, now)
        phase.led_by(recorder.loop_stack, frame)
        phase.choose_inner(recorder, now)
        if phase.is_anchor(site, module, nest, direct=direct):
            generating = self.generating.model if self.generating is not None else None
            phase.call_begins(recorder.torch, tensor, self.root, generating)
            phase.end_unit(recorder, frame, now)

    def find_phase(self, frame, now):
        """Return the phase that this call is in, which may begin with it."""
        recorder, phase = self.recorder, self.phase
        top, lines, looped = outermost_loop(recorder.loop_stack, frame)
        if phase is not None and phase.looped == looped and phase.holds(frame):
            return phase
        preceded = phase.ended if phase is not None else recorder.last
        if phase is not None and not phase.tried:
            phase.close(recorder)
        made = Inference(
            top,
            lines,
            batch=recorder.batch,
            gap_seconds=now - (preceded or recorder.started),
            looped=looped,
            began=now,
            preceded=preceded,
        )
        # a phase that only tried its model came before this loop
        recorder.phase_begins(made, instead_of=phase if phase is not None and phase.tried else None)
        return made

    # -- provisional or not

    def conclude(self):
        """Return the time to reach a training step is over: whether what was seen is inference."""
        phase = self.phase
        if phase is None or self.recorder.first_step is not None:
            return False
        if phase.may_train:
            return False  # in the loop that it is in: what comes before its first step is not the job
        made = phase.generation
        if phase.anchors >= 2 or (made is not None and max(made.decodes, default=0) >= ENOUGH_DECODES):
            phase.is_the_job(self.recorder)
            return True
        return False

    def cannot_wait(self, now):
        """Return whether one call of `generate` takes longer than the measurement: then its parts tell."""
        phase = self.phase
        made = phase.generation if phase is not None else None
        return (
            made is not None
            and not phase.may_prepare(self.recorder)
            and now - phase.began > 1.5 * self.recorder.config["measure_for"]
            and len(phase.seconds) == 0
            and phase.warm_seconds is None
            and len(made.decode_seconds) >= ENOUGH_DECODES
        )

    def idle(self, now):
        """Return whether no model has been called for long: the script may be at something else."""
        phase = self.phase
        if phase is None or self.root is not None or self.generating is not None or phase.ended is None:
            return False
        return now - phase.ended > IDLE_SECONDS or phase.tried
