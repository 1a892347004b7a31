"""Follows the steps of a script: times, phases, snapshots, and the end of the measurement.

One file of more than 400 lines: every hook ends here, and what one of them notes the others go by.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import nullcontext
from functools import partial
from importlib import import_module

from .activity import Activity
from .evaluation import Evaluation
from .first_step import FirstStep
from .frameworks.registry import FRAMEWORKS
from .frameworks.saving_hooks import Saving
from .frameworks.sklearn_hooks import EstimatorFits
from .frameworks.torch_hooks import TorchHooks
from .inference.follower import InferenceFollower
from .inference.hooks import ModuleHooks
from .interval import ScriptTime, Waits
from .loaders import VALIDATION, Loaders
from .loops.loop_stack import LoopStack
from .loops.progress_series import COUNTS_BYTES, ProgressTracker
from .loops.script_frames import called_by_libraries, library_roots, outwards
from .loops.script_loops import ScriptLoops, plain_loop_stack
from .loops.upcoming_work import UpcomingWork
from .patching import harmless
from .phase import outermost_loop
from .ranks.data_parts import DataParts
from .ranks.schemes import Schemes
from .ranks.world import WORLD
from .result import describe_batch, write_result
from .schedstat import clock, run_delay
from .training import LOOKS_FOR_MEMBERS, Training
from .trip_wires import TripWires
from .without_weights.limits import WithoutStandIn, check
from .without_weights.memory_ledger import BACKWARD, EVALUATION, FORWARD, LOAD, OPTIMIZER, PREPARATION

MOST_ERRORS = 3
OVER = ("ended", "exited", "crashed")  # states of a script that does nothing any more
LEAST_KEPT = 5  # units of inference before training that are work of their own


class Recorder:
    """Holds what was seen of the script: hooks tell it by its events, and nobody else writes to it."""

    def __init__(self, config, files, reads):
        self.config, self.files, self.reads = config, files, reads
        self.start()
        self.torch = None
        self.first_step = self.last = None
        self.phases, self.phase = [], None
        self.loaders = Loaders()
        self.events, self.waits = {}, Waits()  # the events of now since the last counted step
        self.interval = ScriptTime(self.waits)  # since `last`
        self.backwards_going = 0  # one in the other
        self.stepped_inside = []  # optimizers that hooks of parameters called in the backward pass that goes on
        self.in_optimizer = False  # which may call a closure that runs the model
        self.activity = Activity()
        self.batch = self.unit_batch = None  # of the last interval before the first step; of the unit that ended last
        self.backwards = self.optimizers_made = self.optimizer_steps = 0
        self.made = set()  # optimizers that were made since the last counted step, by their id
        self.manual = 0  # backward passes before the first optimizer step
        self.tunings_going = 0  # calls of what trains only to find a setting: its steps are preparation
        self.tracing, self.step_trace, self.evaluation = None, None, Evaluation(self)
        self.autocast, self.compiled = {}, 0
        self.before = {"validation": 0.0, "save": 0.0}  # before the first step
        self.saving = Saving(self)
        self.fetch = self.first_fetch = None
        self.in_loader = False
        self.thread = threading.get_ident()
        self.status, self.detail = "running", {}
        self.finished = threading.Lock()
        self.libraries = ()
        self.progress, self.loops, self.plain_stack = ProgressTracker(self, FRAMEWORKS), ScriptLoops(self), None
        self.fits, self.importing = EstimatorFits(self.progress), (0.0, 0.0)
        self.inference, self.module_hooks = InferenceFollower(self), None
        self.first = FirstStep(self)
        self.schemes, self.data_parts = Schemes(), DataParts(self)
        self.without_weights = None  # the room, where it is measured so
        self.changes = None  # that are made to the training in it
        self.trip_wires = TripWires(self, config["free_memory"] if config["weights"] == "tried" else 0)

    def start(self):
        self.started, self.run_delay_before = clock(), run_delay()

    def plain_loop_stack(self):
        """Read loops where torch is not what trains."""
        if self.plain_stack is None:
            self.plain_stack = plain_loop_stack(library_roots())
        return self.plain_stack

    def forked(self):
        """In a child of the script's (a loader's worker): it is not measured, and its tensors are not traced."""
        self.status = "child"
        tracing, self.tracing = self.tracing, None
        if tracing is not None:
            tracing.__exit__(None, None, None)
        if self.without_weights is not None:
            self.without_weights.leave()

    def note_first_step(self, now):
        """Note the first step, of whatever kind."""
        self.first_step = now
        if now > self.started and not self.first.is_slow():
            self.activity.begin()
        self.detail["setup_seconds"] = max(0.0, now - self.started - (run_delay() - self.run_delay_before))
        self.files.real_open(os.path.join(self.files.scratch, "stepping"), "w").close()

    @property
    def trains(self):
        """Return whether a training phase has begun; a phase of inference may be what comes before it."""
        return self.phase is not None and self.phase.trains

    def loops_count(self):
        """Return whether the script's bare loops have been seen to advance, and may be what it is for."""
        # the loop that a bar which counts bytes is in is no work either
        transfers = any(one.open and one.setup == COUNTS_BYTES for one in self.progress.series)
        return self.loops.moved() and not transfers and not self.progress.awaits_training()

    # -- what the hooks tell

    def attach(self, torch):
        """Torch has been imported."""
        self.torch = torch
        self.libraries = library_roots(torch.__file__)
        self.loop_stack = LoopStack(torch, self.libraries, self.loaders.by_line)
        self.upcoming_work = UpcomingWork(torch, self.loop_stack)
        if self.config["weights"] == "none":
            self.check_for_shapes(torch)
            room = import_module(".without_weights.run", __package__)  # which imports torch
            self.without_weights = room.WithoutWeights(self.memory_phase, partial(self.add, "unwritten_bytes"))
            self.without_weights.attach(self)
            changes = import_module(".without_weights.changes", __package__)
            self.changes = changes.ScriptChanges(filter(None, self.config["change"].split("+")))
        WORLD.attach(self, torch)
        TorchHooks(self).attach(torch)
        self.schemes.attach(torch)
        self.data_parts.attach(torch)
        self.module_hooks = ModuleHooks(self.inference, torch)
        self.module_hooks.attach()
        if self.without_weights is not None:
            self.without_weights.enter()

    def imported(self, seconds, cpu_seconds):
        """Count the time of an import, with what the module imported itself."""
        self.importing = self.importing[0] + seconds, self.importing[1] + cpu_seconds

    def add(self, kind, seconds):
        """Count seconds of something beside the steps, or bytes of what was saved."""
        self.events[kind] = self.events.get(kind, 0.0) + seconds

    def saved(self, seconds, size=None):
        """Count a checkpoint, of so many bytes where they are known."""
        self.add("save", seconds)
        if size is not None:
            self.add("save_bytes", size)

    def tuning_begins(self):
        """Take steps for preparation, up to `tuning_ends`: they look for a setting."""
        self.tunings_going += 1

    def tuning_ends(self):
        self.tunings_going -= 1

    def autocast_entered(self, device, dtype, enabled):
        self.autocast[device, dtype, enabled] = True

    def file_is_missing(self, source, name):
        """Note that a file of a hub could not be had."""
        self.detail.setdefault("missing_files", []).append([source, name])

    def compiling(self):
        """Note that the script compiles a model."""
        self.compiled += 1

    @property
    def compiles(self):
        """Return whether what the script compiles runs compiled: not without weights."""
        return self.compiled > 0 and self.without_weights is None

    def check_for_shapes(self, torch):
        """End the measurement where it cannot be made without weights: libraries would keep an error to themselves."""
        try:
            check(torch.__version__)
        except WithoutStandIn as error:
            kind = type(error).__name__
            nothing = {"refused_path": None, "missing": None, "trail": "", "while_tracing": False, "no_module": False}
            self.finish("crashed", kind=kind, raised_in="probe", message=str(error), bases=[kind], **nothing)

    def foreign_modes(self, stack):
        """Return the dispatch modes of a stack that are not the probe's."""
        return stack if self.without_weights is None else self.without_weights.foreign_modes(stack)

    def shapes_only(self):
        """Return a context that goes on without weights where it is left for an op, if it is measured so."""
        return nullcontext() if self.without_weights is None else self.without_weights.again()

    def memory_phase(self):
        """Return what new tensors are for."""
        if self.in_optimizer:
            return OPTIMIZER
        if self.backwards_going:
            return BACKWARD
        if self.trains and self.evaluation.began is not None and self.evaluation.used:
            return EVALUATION
        begun = self.first.trace is not None or self.first.over or self.phase is not None or self.backwards
        return FORWARD if begun else PREPARATION if self.inference.root is not None else LOAD

    def fetches_are_timed(self, others, firsts):
        """Keep the figures of the fetches of batches, which the workers share: of each one's first, and of the others."""
        self.fetch, self.first_fetch = others, firsts

    def epoch_begins(self):
        """Note that an epoch of a fit begins, as its framework says."""
        self.loaders.fit_begins_epoch()

    def loader_opened(self, iterator, loader, seconds):
        self.loaders.open(iterator, loader, seconds)

    def batch_asked(self):
        """Note that the script asks a loader for a batch, and return the tracer that looks away until the loader answers."""
        self.evaluation.look()
        tracing, self.in_loader = self.tracing, True
        if tracing is not None:
            tracing.pause()
            tracing.mute()
        return tracing

    def batch_awaited(self, iterator, seconds, blocked, tracing):
        """Note that the loader has answered, or raised, after so many seconds, `blocked` of them not on a core."""
        self.in_loader = False
        self.waits.add(seconds, blocked)
        self.loaders.fetched(iterator, seconds)
        if tracing is not None:
            tracing.unmute()

    def batch_fetched(self, iterator, batch, tracing):
        """Note that the script gets this batch, and return it."""
        if self.changes is not None:
            batch = self.changes.batch(batch)
        validates, evaluates = not self.torch.is_grad_enabled(), self.evaluation.began is not None
        self.loaders.draw(iterator, validates=validates, libraries=self.libraries, evaluates=evaluates)
        if not self.trains:
            self.first.draw()
            self.batch = describe_batch(batch, self.torch)
        elif self.phase.batch is None:
            self.batch = describe_batch(batch, self.torch)
            self.phase.batch_is(self.batch)
        if tracing is not None:
            tracing.resume()
        return batch

    def trace_as(self, phase):
        """Take ops from now on for those of a ``forward`` pass or of a ``validation``."""
        if self.tracing is not None:
            self.tracing.enter(phase)

    def trace_begins(self, trace):
        """Follow what the script does by this trace."""
        if self.without_weights is not None:
            trace.tracer.time_by(self.without_weights.script_clock)
        trace.start()
        self.step_trace, self.tracing = trace, trace.tracer

    def trace_ends(self):
        """Stop the trace that goes on."""
        self.tracing = None
        self.step_trace.stop(self.backwards)

    def stop_trace(self):
        """Stop the trace of a unit that will not be complete."""
        if self.tracing is not None and not self.first.running:
            self.trace_ends()

    def optimizer_made(self, optimizer):
        self.optimizers_made += 1
        self.made.add(id(optimizer))
        self.first.optimizer_made(optimizer)
        if self.changes is not None and threading.get_ident() == self.thread:
            harmless(self.changes.optimizer_made)(optimizer)
        self.trip_wires.optimizer_made(optimizer)
        if self.without_weights is not None:
            self.without_weights.optimizer_made(optimizer)

    def optimizer_enters(self):
        """Note that an optimizer is about to step."""
        self.in_optimizer = threading.get_ident() == self.thread
        if self.tracing is not None:
            self.tracing.pause("optimizer")

    def training_seen(self):
        """Stop following calls of models, since a backward pass or a step was seen."""
        self.module_hooks.detach()
        self.inference.training_begins()

    def backward_begins(self):
        """Note that a backward pass begins, and return the tracer that follows it."""
        self.backwards_going += 1
        if self.tracing is not None:
            self.tracing.pause("backward")
        return self.tracing

    def backward_ends(self, tracing, frame):
        """Note that a backward pass has ended, which was called at this frame."""
        self.backwards_going -= 1
        self.backwards += 1
        if tracing is not None and self.in_optimizer:
            tracing.enter("optimizer")
        elif tracing is not None:
            tracing.resume("forward")
        if self.backwards_going:
            return
        if threading.get_ident() == self.thread:
            self.training_seen()
        if self.tracing is not None:
            self.step_trace.graph_freed()  # this graph is freed; the next micro-batch saves its own
        if self.without_weights is not None:
            self.without_weights.part_ends(self.tracing)
            if self.first.tells_enough(self.backwards):
                self.finish("cut")
        if self.optimizer_steps == 0 and threading.get_ident() == self.thread and not self.tunings_going:
            self.manual += 1
            if self.optimizers_made == 0:
                self.step(None, frame)
        inside, self.stepped_inside = self.stepped_inside, []
        for optimizer in inside:
            self.step(optimizer, frame)

    # -- steps

    def step(self, optimizer, frame):
        """Count a step of an optimizer (or, in a script without one, the end of a backward pass)."""
        now = clock()
        if threading.get_ident() != self.thread or self.status != "running":
            return
        tracing, self.in_optimizer = self.tracing, False
        if self.tunings_going:
            return
        if self.backwards_going and optimizer is not None:  # counted when the pass is over, of which it is a part
            self.stepped_inside.append(optimizer)
            if tracing is not None:
                tracing.pause("backward")
            return
        if tracing is not None:
            tracing.mute()
        try:
            self.count_step(optimizer, frame, now)
        except Exception:  # noqa: BLE001 - the probe's own failure must not change what the script does
            errors = self.detail.setdefault("probe_errors", [])
            if len(errors) < MOST_ERRORS:
                errors.append(traceback.format_exc()[-1500:])
            self.last = self.interval.begin()
            if self.phase is not None:
                self.phase.begin_unit(self.last)
        finally:
            if tracing is not None:
                tracing.unmute()
                tracing.resume("forward")

    def count_step(self, optimizer, frame, now):
        if optimizer is not None:
            self.optimizer_steps += 1
        self.training_seen()
        self.evaluation.step_made()
        phase = self.phase
        if phase is None:
            self.first.end(now)
        if phase is None or not phase.holds(frame):
            phase = self.new_phase(frame, now)
        torch_root = self.loop_stack.torch_root
        caller = next((live for live in outwards(frame) if not live.f_code.co_filename.startswith(torch_root)), None)
        site = (caller.f_code, caller.f_lineno) if caller is not None else None
        if caller is not None:
            phase.led_by(self.loop_stack, caller)
        counts = phase.is_anchor(site, optimizer, self.backwards, id(optimizer) in self.made)
        if site == phase.anchor and phase.anchors < LOOKS_FOR_MEMBERS:
            phase.look_around(self.loop_stack.variables(frame), counts=counts)
        if counts:
            self.made.clear()
            if self.without_weights is not None:
                self.without_weights.step_made()
            phase.end_unit(self, frame, now)

    def new_phase(self, frame, now):
        """Begin a phase of training with this step."""
        frames, before, last = self.loop_stack.frames(frame), self.phase, self.last
        top, lines, _ = outermost_loop(self.loop_stack, frame)
        phase = Training(top, lines, batch=self.batch, gap_seconds=now - (last or self.started))
        called = called_by_libraries(frames)
        phase.follow(called[-1][0] if called else None, before)
        self.phase_begins(phase)
        if self.first_step is None:
            self.note_first_step(now)
        if len(self.phases) == 1:
            self.before["validation"] += self.events.get("validation", 0.0)
            self.before["save"] += self.events.get("save", 0.0)
        return phase

    def enough(self, elapsed):
        """Return whether what was seen answers the question, after `elapsed` seconds from the first step."""
        phase, steps, limit = self.phase, self.config.get("steps"), self.config["measure_for"]
        if phase is None:
            return self.progress.enough(clock())
        untraced = len(phase.seconds) - (0 if phase.first_traced else phase.trace_steps)
        if self.tracing is not None or (phase.trace is None and not phase.untraceable and phase is self.phases[0]):
            return False
        if steps:
            return untraced >= steps
        return elapsed >= limit and (untraced >= 5 or (untraced >= 1 and elapsed >= 1.5 * limit))

    def is_evaluating(self):
        """Return whether an evaluation goes on after the last counted step."""
        return (self.evaluation.began is not None and self.evaluation.used) or VALIDATION in self.loaders.drawn

    # -- phases

    @property
    def provisional(self):
        """Return whether what goes on may be a preparation: what training asks for stays as it was."""
        return self.phase is not None and not self.phase.trains and self.first_step is None

    def phase_begins(self, phase, instead_of=None):
        """Begin a phase: another loop makes the units from now on."""
        self.stop_trace()
        if self.phase is not None:
            self.phase.leave()
        if instead_of is not None:
            self.phases.remove(instead_of)
        self.phases.append(phase)
        self.phase, self.last = phase, None

    def drop_preparation(self, phase):
        """Drop a phase of inference where training begins: its units were forward passes of it, or came before it."""
        self.stop_trace()
        self.phases.remove(phase)
        if not any(one.trains for one in self.phases):
            self.phases = [one for one in self.phases if one.own_work and one.anchors >= LEAST_KEPT]
            self.first_step = None
            if self.phases:
                self.note_first_step(self.phases[0].began)
        self.phase, self.last = None, phase.preceded
        self.batch = self.batch or self.unit_batch
        phase.leave()

    def nothing_was_work(self):
        """Drop what was seen: it is only beside what the script is for."""
        self.phases = []

    def unit_ended(self):
        """End a unit, and return when the next one begins."""
        if not self.provisional:
            self.events, self.unit_batch, self.batch = {}, self.batch, None
            self.loaders.forget()
        self.last = self.interval.begin()
        return self.last

    # -- the end

    def resume(self):
        """Go on after a result that could not be written."""
        self.finished.release()
        self.status = "running"

    def finish(self, status, **detail):
        """Write the result and end this process at once; the parent ends its children.

        The script that is over waits for the watchdog, if that is at it; the other way round, the script goes on.
        """
        if not self.finished.acquire(status in OVER):
            return
        try:
            self.status = status
            training = next((one for one in self.phases if one.trains), None)
            for phase in (training, self.inference.phase):
                if phase is not None:
                    phase.settle(self, status)
            self.reads.tell_modules()
            write_result(self, status, detail)
        except BaseException:
            self.resume()
            raise
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)
