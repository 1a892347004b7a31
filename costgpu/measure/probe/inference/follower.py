"""Follows the calls of models from outside of models: what repeats there without a training step is inference.

Until it is clear that no training comes, the units are provisional: a check of the validation data before training, or
rollouts of a policy, are not what the script is for. A training step makes an end of them.
"""

from __future__ import annotations

import threading

from ..frameworks.trainers import DRIVERS, told_by
from ..loops.progress_series import is_snapshot_due, make_snapshot
from ..loops.script_frames import outwards
from ..patching import harmless
from ..phase import shared_out
from ..result import describe_batch
from ..schedstat import clock
from .arguments import first_tensor, kind_of, tokens_of
from .forward_trace import UnitTracer
from .generation import GenerateCall, Generation
from .phase import ENOUGH_UNITS, InferencePhase
from .places import Places

ENOUGH_DECODES = 8
GROWS = 3  # calls in a row that are each a token longer: the same sequence, and no new item
IDLE_SECONDS = 1.0
LEAST_KEPT = 5  # units of a phase before training that are work of their own


class InferenceFollower:
    """Knows which module the script is calling from outside of modules, and what that call is part of."""

    def __init__(self, recorder):
        self.recorder, self.places, self.tracer = recorder, Places(recorder), UnitTracer(recorder)
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
        return phase if isinstance(phase, InferencePhase) else None

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
            tracing.muted += 1
        try:
            self.called(module, args, frame.f_locals.get("kwargs") or {})
        finally:
            if tracing is not None:
                tracing.muted -= 1
            self.tracer.set_phase_of_ops(self.phase)
            if recorder.tracing is not None and not recorder.tracing.muted:
                recorder.tracing.resume()

    def leave(self, module):
        """After that call."""
        if threading.get_ident() != self.recorder.thread:
            return
        self.root = self.frame = None
        phase, now = self.phase, clock()
        if phase is None or self.call_began is None:
            return
        phase.ended = now
        made = phase.generation
        if made is not None and module is made.module and made.decodes:
            tracing = self.tracer.going
            if not made.decodes[-1]:
                made.prefill_seconds.append(now - self.call_began)
            elif tracing is None:
                made.decode_seconds.append(now - self.call_began)
            elif not tracing.muted:  # one decode is enough
                made.traced_decodes, phase.trace_steps, phase.traced_here = 1, 1, True
                self.tracer.end()

    def training_begins(self):
        """End the phase of inference where training begins, and keep it only if it was work of its own."""
        recorder, phase = self.recorder, self.phase
        if phase is None:
            return
        self.tracer.stop(self.phase)
        recorder.phases.remove(phase)  # its units were the forward passes of this step, or are in the same loop
        if all(isinstance(one, InferencePhase) for one in recorder.phases):
            recorder.phases = [one for one in recorder.phases if one.own_work and one.anchors >= LEAST_KEPT]
            recorder.first_step = None
            if recorder.phases:
                recorder.note_first_step(recorder.phases[0].began)
        recorder.phase = None
        recorder.last = phase.preceded
        phase.leave()

    @harmless
    def generate_begins(self, model, args, kwargs, frame):
        recorder = self.recorder
        if threading.get_ident() != recorder.thread or recorder.status != "running" or self.generating or self.root:
            return
        if self.phase is None and recorder.phase is not None and recorder.phase.holds(frame):
            return  # samples that are drawn while it trains
        self.generating = GenerateCall(model, kwargs)
        self.unit(model, first_tensor(recorder.torch, args, kwargs), frame, "prompt")

    @harmless
    def generate_ends(self, model):
        if self.generating is not None and self.generating.model is model:
            self.generating = None
            if self.phase is not None:
                self.phase.ended = clock()

    # -- units

    @harmless
    def called(self, module, args, kwargs):
        recorder = self.recorder
        torch = recorder.torch
        if self.phase is None and recorder.phase is not None and recorder.phase.holds(self.frame):
            return  # evaluation inside of training
        self.call_began = clock()
        if self.generating is not None:
            self.generated(module, tokens_of(torch, args, kwargs))
            return
        tokens = tokens_of(torch, args, kwargs)
        before, length = self.lengths.get(id(module)), tokens[1] if tokens else None
        self.lengths[id(module)] = length
        self.growing = self.growing + 1 if before and length == before + 1 else 0
        near, frame = self.places.callers(self.frame.f_back)
        if frame is None:
            return
        if before and length == 1 and self.decoding(module, before, frame):
            return
        self.unit(module, first_tensor(torch, args, kwargs), frame, None, direct=frame is not near)
        phase = self.phase
        if phase is not None and self.growing >= GROWS:
            phase.grows = True
        made = phase.generation if phase is not None else None
        if made is not None and tokens and module is made.module:
            made.prefill(*tokens)

    def generated(self, module, tokens):
        """Count a call inside of `generate`: of its model, or of an encoder before it."""
        phase, going = self.phase, self.generating
        if phase is None or module is not going.model:
            return
        if phase.generation is None:
            phase.generation = Generation(module)
        made = phase.generation
        going.calls += 1
        if going.calls == 1:
            sequences, length = tokens or (1, 0)
            made.prefill(sequences, length)
            made.most_new_tokens = going.limit(length) or made.most_new_tokens
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
            made = phase.generation = Generation(module)
            made.same_loop = self.places.nest(frame) == phase.nests.get((phase.anchor, phase.anchor_optimizer))
            made.prefill(phase.sizes[-1] if phase.sizes else 1, before)
        made.decode()
        if made.decodes[-1] == 1:
            loops = self.recorder.loop_stack.snapshot(frame)
            trips = loops[-1]["trips"] if loops else None
            if isinstance(trips, (int, float)):
                made.most_new_tokens = trips + (0 if made.same_loop else 1)
        return True

    def unit(self, module, tensor, frame, kind, *, direct=False):
        """Follow a call from outside of modules, which may begin a unit."""
        recorder, now = self.recorder, clock()
        site = (frame.f_code, frame.f_lineno)
        phase = self.phase
        nest = phase.nests.get((site, id(module))) if phase is not None else None
        if nest is None or not phase.holds(frame):
            nest = self.places.nest(frame)
            phase = self.find_phase(frame, now)
        if phase.own is None and recorder.loop_stack.is_library(frame.f_code.co_filename):
            phase.own = recorder.own_site(frame)
        self.choose_inner(phase, now)
        if not phase.is_anchor(site, module, nest, direct=direct):
            return
        phase.size(tensor)
        if phase.anchors == 0:
            phase.kind = kind or kind_of(recorder.torch, tensor)
            phase.batch = phase.batch or describe_batch(tensor, recorder.torch)
        if phase.generation is None and self.generating is not None:
            phase.generation = Generation(module)
        self.end_unit(phase, frame, now)

    def find_phase(self, frame, now):
        """Return the phase that this call is in, which may begin with it."""
        recorder, phase = self.recorder, self.phase
        top, lines, looped = self.places.outermost_loop(frame)
        if phase is not None and phase.looped == looped and phase.holds(frame):
            return phase
        if self.tracer.going is not None and phase is None:
            recorder.end_trace(recorder.phase)
        self.tracer.stop(self.phase)
        if recorder.phase is not None:
            recorder.phase.leave()
        if phase is not None and phase.tried:
            recorder.phases.remove(phase)  # it tried its model before the loop
        elif phase is not None:
            self.close(phase)
        made = InferencePhase(top, lines, looped)
        made.began, made.batch = now, recorder.batch
        made.preceded = phase.ended if phase is not None else recorder.last
        made.gap_seconds = now - (made.preceded or recorder.started)
        made.wait_before = recorder.wait
        recorder.last = None
        recorder.phase = made
        recorder.phases.append(made)
        return made

    def choose_inner(self, phase, now):
        """Units of the inner loop, where a turn of the outer one does not fit into the measurement."""
        limit = self.recorder.config["measure_for"]
        if phase.anchors == 1 and phase.generation is None and now - phase.began > 0.5 * limit:
            key = phase.inner_key()
            if key is not None:
                self.tracer.stop(self.phase)
                phase.restart(key)
                self.recorder.last = None

    def end_unit(self, phase, frame, now):
        """One unit has ended, another begins."""
        recorder = self.recorder
        earlier = phase.anchors  # units of this phase that began before
        phase.anchors += 1
        if recorder.last is not None and phase.unit_began is not None:
            if earlier == 1:
                phase.warm_seconds = recorder.lap.end(now)[0]
            else:
                wait = recorder.wait - phase.wait_before
                phase.add_interval(shared_out(recorder.lap.end(now), wait, recorder.loader_blocked))
                kept = self.events_of(phase)
                if kept:
                    phase.special[len(phase.seconds) - 1] = kept
        if phase.loader is None:
            phase.loader = recorder.loaders.last_drawn()
        if self.tracer.going is not None:
            phase.trace_steps, phase.traced_here = 1, True
            self.tracer.end()
        if phase.traced_here and earlier > 1:
            phase.mark("traced", True)
        phase.traced_here = False
        if is_snapshot_due(phase.anchors):
            self.take_snapshot(phase, frame)
        if earlier == 1:
            phase.upcoming = recorder.upcoming_work.read(frame, phase.loader, phase.anchors, training=False)
            phase.may_train = self.places.trains_around(frame)
        if phase.generation is None:
            recorder.watch_outer(phase, earlier)
        # of generation the first unit, too, lest there is no second one; its trace is given up for that of the second
        due = earlier == 1 or (phase.trace is None and (earlier > 1 or self.generating is not None))
        if due and not phase.untraceable and not recorder.first.running:
            phase.trace_steps = 0
            self.tracer.begin(phase, self.root)
        if recorder.first_step is None and phase.anchors >= ENOUGH_UNITS and not self.places.may_train(phase):
            self.note_first_step(phase)  # this is the job, and no preparation of it
        if recorder.first_step is not None and recorder.enough(now - recorder.first_step):
            self.take_snapshot(phase, frame)
            recorder.finish("cut")
        if recorder.first_step is not None:  # no more than provisional: what a training step asks for stays as it was
            recorder.events, recorder.wait = {}, 0.0
            recorder.evaluation.forget()
            recorder.loaders.forget()
        phase.wait_before = recorder.wait
        recorder.loader_blocked = 0.0
        recorder.lap.begin()
        recorder.last = phase.unit_began = recorder.lap.since
        if earlier > 1:
            phase.own_seconds.append(recorder.last - now)

    def events_of(self, phase):
        """Return what a unit held beside its work."""
        recorder = self.recorder
        kept = {}
        if recorder.first_step is not None:
            kept = {k: v for k, v in recorder.events.items() if k in ("save", "loader_start")}
            if recorder.loaders.was_opened(phase.loader):
                kept["opened"] = len(recorder.loaders.opened)
        return kept

    def take_snapshot(self, phase, frame):
        recorder = self.recorder
        loops = recorder.loop_stack.snapshot(frame)
        phase.told = told_by(frame, DRIVERS) or phase.told
        batches = recorder.loaders.batches_of(phase.loader)
        phase.snapshots.append(make_snapshot(phase.anchors, loops, batches, recorder.loaders.batches))
        if phase.outer is None:
            recorder.choose_outer(phase, frame, loops)

    # -- provisional or not

    def note_first_step(self, phase):
        recorder = self.recorder
        recorder.note_first_step(phase.began)
        recorder.evaluation.forget()
        recorder.module_hooks.narrow(list(phase.roots.values()))

    def conclude(self):
        """Return the time to reach a training step is over: whether what was seen is inference."""
        phase = self.phase
        if phase is None or self.recorder.first_step is not None:
            return False
        if phase.may_train:
            return False  # in the loop that it is in: what comes before its first step is not the job
        made = phase.generation
        if phase.anchors >= 2 or (made is not None and max(made.decodes, default=0) >= ENOUGH_DECODES):
            self.note_first_step(phase)
            return True
        return False

    def cannot_wait(self, now):
        """Return whether one call of `generate` takes longer than the measurement: then its parts tell."""
        phase = self.phase
        made = phase.generation if phase is not None else None
        return (
            made is not None
            and not self.places.may_train(phase)
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

    # -- the end

    def close(self, phase):
        """Close the phase, and time one that had hardly a unit; note whether the script could have left it out."""
        phase.own_work = not self.places.may_train(phase)
        if len(phase.seconds) == 0 and phase.ended is not None and phase.unit_began is not None:
            whole = phase.generation.unit_seconds() if phase.generation is not None else None
            last = phase.ended - phase.unit_began
            if self.generating is not None and whole is not None:
                seconds = whole
            else:
                seconds = last if phase.anchors > 1 else phase.warm_seconds or last
            phase.seconds.append(seconds)
            phase.waits.append(0.0)

    def settle(self, status):
        """End the measurement, and keep the inference that is the job, not what is only beside it."""
        recorder, now = self.recorder, clock()
        phase = self.phase
        if phase is None:
            return
        if self.tracer.going is not None:
            if self.root is None and self.generating is None:
                phase.trace_steps = 1
            self.tracer.end()
        self.close(phase)
        calls = [one for one in recorder.phases if isinstance(one, InferencePhase) and one.ended is not None]
        busy = sum(one.ended - one.began for one in calls)
        tail = now - phase.ended if phase.ended is not None and self.root is None else 0.0
        median = sorted(phase.seconds)[len(phase.seconds) // 2] if len(phase.seconds) else 0.0
        phase.tail_seconds = tail if status == "ended" else 0.0
        elsewhere = tail > busy and (phase.tried or tail > IDLE_SECONDS + 3 * median)
        if len(calls) == len(recorder.phases) and elsewhere and recorder.loops.moved():
            recorder.phases = []
        elif recorder.first_step is None:
            self.note_first_step(recorder.phases[0])
