"""Follows the steps of a script: times, phases, snapshots, and the end of the measurement.

One file of more than 400 lines: every hook ends here, and what one of them notes the others go by.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback

from .activity import Activity
from .evaluation import Evaluation
from .first_step import FirstStep
from .frameworks.predict_hooks import Predictions
from .frameworks.registry import FRAMEWORKS
from .frameworks.saving_hooks import Saving
from .frameworks.sklearn_hooks import EstimatorFits
from .frameworks.torch_hooks import TorchHooks
from .frameworks.trainers import TRAINERS, told_by
from .inference.follower import InferenceFollower
from .inference.hooks import ModuleHooks
from .inference.phase import InferencePhase
from .loaders import VALIDATION, Loaders
from .loops.growing_sizes import elements_of, followed, sizes_at
from .loops.loop_stack import LoopStack
from .loops.progress_series import COUNTS_BYTES, ProgressTracker, is_snapshot_due, make_snapshot
from .loops.script_frames import PROBE_ROOT, called_by_libraries, library_roots, outwards
from .loops.script_loops import ScriptLoops, plain_loop_stack
from .loops.source import loops_around
from .loops.upcoming_work import UpcomingWork
from .op_tracer import StepTrace
from .patching import harmless
from .phase import ANYWHERE, LateTrace, Phase, shared_out
from .ranks.data_parts import DataParts
from .ranks.schemes import Schemes
from .ranks.world import WORLD
from .result import describe_batch, write_result
from .schedstat import Lap, clock, run_delay

MOST_ERRORS = 3
QUICK_SHARE = 0.25  # of the first step's time: the first did something once, and another one can be traced
LOOKS_FOR_MEMBERS = 20  # steps at which it is looked for loops over several optimizers


class Recorder:
    """Hooks into torch, times the steps, and writes the result."""

    def __init__(self, config, files):
        self.config, self.files = config, files
        self.start()
        self.torch = None
        self.first_step = self.last = None
        self.phases, self.phase = [], None
        self.loaders = Loaders()
        self.events, self.wait = {}, 0.0  # since the last counted step
        self.loader_blocked = 0.0
        self.lap = Lap()  # since `last`
        self.in_backward = False
        self.in_optimizer = False  # which may call a closure that runs the model
        self.activity = Activity()
        self.batch = None  # of the last interval before the first step
        self.backwards = self.optimizers_made = self.optimizer_steps = 0
        self.made = set()  # optimizers that were made since the last counted step, by their id
        self.manual = 0  # backward passes before the first optimizer step
        self.tuning = 0  # calls that are going on of what trains only to find a setting: its steps are preparation
        self.tracing, self.evaluation = None, Evaluation(self)
        self.autocast, self.compiled = {}, 0
        self.before = {"validation": 0.0, "save": 0.0}  # before the first step
        self.saving = Saving(self)
        self.fetch = self.first_fetch = None
        self.in_loader = False
        self.thread = threading.get_ident()
        self.status, self.detail = "running", {}
        self.finished = threading.Lock()
        self.libraries = ()
        self.outer_stride, self.outer_due = 1, 0
        self.progress, self.loops, self.plain_stack = ProgressTracker(self, FRAMEWORKS), ScriptLoops(self), None
        self.fits = EstimatorFits(self.progress)
        self.predictions = Predictions(self.progress, self.fits)
        self.imports = self.reads = None
        self.inference, self.module_hooks = InferenceFollower(self), None
        self.first = FirstStep(self)
        self.schemes, self.data_parts = Schemes(), DataParts(self)
        self.answered = 0.0  # seconds for answering collectives, up to the last counted step

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
        return self.phase is not None and self.inference.phase is None

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
        WORLD.attach(self, torch)
        TorchHooks(self).attach(torch)
        self.schemes.attach(torch)
        self.data_parts.attach(torch)
        self.module_hooks = ModuleHooks(self.inference, torch)
        self.module_hooks.attach()

    def add(self, kind, seconds):
        self.events[kind] = self.events.get(kind, 0.0) + seconds

    def batch_drawn(self, iterator, batch):
        validates, evaluates = not self.torch.is_grad_enabled(), self.evaluation.began is not None
        self.loaders.draw(iterator, validates=validates, libraries=self.libraries, evaluates=evaluates)
        if not self.trains:
            self.first.draw()
            self.batch = describe_batch(batch, self.torch)
        elif self.phase.batch is None:
            self.batch = self.phase.batch = describe_batch(batch, self.torch)

    def trace_as(self, phase):
        if self.tracing is not None:
            self.tracing.phase = phase

    def enter_optimizer(self):
        self.in_optimizer = threading.get_ident() == self.thread
        if self.tracing is not None:
            self.tracing.pause()
            self.tracing.phase = "optimizer"

    def training_seen(self):
        """Stop following calls of models, since a backward pass or a step was seen."""
        self.module_hooks.detach()
        self.inference.training_begins()

    def after_backward(self):
        if threading.get_ident() == self.thread:
            self.training_seen()
        if self.tracing is not None:
            self.step_trace.graph_freed()  # this graph is freed; the next micro-batch saves its own
        if self.optimizer_steps == 0 and threading.get_ident() == self.thread and not self.tuning:
            self.manual += 1
            if self.optimizers_made == 0:
                self.step(None, sys._getframe(2))

    # -- steps

    def step(self, optimizer, frame):
        """Count a step of an optimizer (or, in a script without one, the end of a backward pass)."""
        now = clock()
        if threading.get_ident() != self.thread or self.status != "running":
            return
        tracing, self.in_optimizer = self.tracing, False
        if self.tuning:
            return
        if tracing is not None:
            tracing.muted += 1
        try:
            self.count_step(optimizer, frame, now)
        except Exception:  # noqa: BLE001 - the probe's own failure must not change what the script does
            errors = self.detail.setdefault("probe_errors", [])
            if len(errors) < MOST_ERRORS:
                errors.append(traceback.format_exc()[-1500:])
            self.lap.begin()
            self.last = self.lap.since
        finally:
            if tracing is not None:
                tracing.muted -= 1
                tracing.phase = "forward"
                tracing.resume()

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
        if phase.own is None and caller is not None and self.loop_stack.is_library(caller.f_code.co_filename):
            phase.own = self.own_site(caller)
        counts = phase.is_anchor(site, optimizer, self.backwards, id(optimizer) in self.made)
        if site == phase.anchor and phase.anchors < LOOKS_FOR_MEMBERS:
            phase.look_around(self.loop_stack.variables(frame), counts=counts)
        if counts:
            self.made.clear()
            self.end_interval(phase, frame, now)

    def own_site(self, frame):
        for live in outwards(frame):
            path = live.f_code.co_filename
            if not self.loop_stack.is_library(path) and not path.startswith((PROBE_ROOT, self.loop_stack.torch_root)):
                return path, live.f_lineno
        return None

    def new_phase(self, frame, now):
        if self.tracing is not None:
            self.end_trace(self.phase)
        frames, before = self.loop_stack.frames(frame), self.phase
        top, lines = frames[0] if frames else None, ANYWHERE
        for live in frames:
            loops = loops_around(live)
            if loops:
                top, lines = live, (loops[0].lineno, loops[0].end_lineno)
                break
        self.phase = Phase(top, lines)
        called = called_by_libraries(frames)
        self.phase.follow(called[-1][0] if called else None, before)
        if before is not None:
            before.leave()
        self.phases.append(self.phase)
        if self.first_step is None:
            self.note_first_step(now)
        if len(self.phases) == 1:
            self.before["validation"] += self.events.get("validation", 0.0)
            self.before["save"] += self.events.get("save", 0.0)
        self.phase.batch = self.batch
        self.phase.gap_seconds = now - (self.last or self.started)
        self.last = None
        return self.phase

    def end_interval(self, phase, frame, now):
        earlier = phase.anchors  # steps of this phase before this one
        phase.anchors += 1
        answered, self.answered = WORLD.collectives.seconds - self.answered, WORLD.collectives.seconds
        if phase is self.phases[0]:
            WORLD.collectives.step_made()
        self.evaluation.forget()
        if self.last is not None:
            phase.add_interval(shared_out(self.lap.end(now), self.wait, self.loader_blocked, answered))
            kept = dict(self.events)
            if self.loaders.drawn.get(VALIDATION):
                kept["validation_batches"] = self.loaders.drawn[VALIDATION]
            if self.loaders.was_opened(phase.loader):
                kept["opened"] = len(self.loaders.opened)
            if kept:
                phase.special[len(phase.seconds) - 1] = kept
            self.activity.end_interval(plain=not kept)
        if phase.loader is None:
            phase.loader = self.loaders.feeds(earlier == 0)
        if phase is self.phases[0]:
            self.weigh_first(phase, earlier)
        was_traced = self.tracing is not None
        if was_traced:
            traced = phase.late or phase
            traced.trace_steps += 1
            if traced.trace_steps >= phase.turn():
                self.end_trace(phase)
                self.compare_sizes(phase, frame)
            else:
                phase.mark("traced", True)
        if is_snapshot_due(phase.anchors):
            self.take_snapshot(phase, frame)
        if earlier == 0 and phase is self.phases[0]:
            self.data_parts.look(frame)
        if earlier in (0, 2):
            phase.upcoming = self.upcoming_work.read(frame, phase.loader, phase.anchors)
        self.watch_outer(phase, earlier)
        if phase.trace is None and earlier >= 1 and not was_traced and not phase.untraceable:
            self.begin_trace(phase)
        alone = earlier == 0 and phase.first_traced and self.first.seconds > self.config["hard_limit"]
        enough = alone or self.enough(now - self.first_step)
        if enough and phase.may_trace_again():
            self.begin_trace(phase, LateTrace(phase.optimizers))
        elif enough:
            self.take_snapshot(phase, frame)
            self.finish("cut")
        self.events, self.wait = ({"traced": True} if self.tracing is not None else {}), 0.0
        self.loader_blocked = 0.0
        self.batch = None
        self.loaders.forget()
        self.lap.begin()
        self.last = self.lap.since
        phase.own_seconds.append(self.last - now)

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

    # -- loops

    def take_snapshot(self, phase, frame):
        loops = self.loop_stack.snapshot(frame)
        phase.told = told_by(frame, TRAINERS) or self.progress.fit_length() or phase.told
        batches = self.loaders.batches_of(phase.loader)
        fed = self.loaders.batches - self.loaders.batches_beside
        phase.snapshots.append(make_snapshot(phase.anchors, loops, batches, fed))
        if phase.outer is None:
            self.choose_outer(phase, frame, loops)

    def choose_outer(self, phase, frame, loops):
        loops = [loop for loop in loops if not loop["optimizers"] and (loop["path"], loop["line"]) not in phase.members]
        named = [loop for loop in loops[:-1] if loop.get("target") and not loop["library"]]
        if not named or phase.loader is not None:
            return
        frames = self.loop_stack.frames(frame)
        if named[-1]["depth"] < len(frames):
            phase.outer = (frames[named[-1]["depth"]], named[-1]["target"])

    def watch_outer(self, phase, earlier):
        """Note when an outer loop moves on, for scripts without a DataLoader to show where an epoch starts."""
        if phase.outer is None or earlier < self.outer_due:
            return
        begin = clock()
        live, name = phase.outer
        value = live.f_locals.get(name)
        if phase.outer_value is not None and value != phase.outer_value:
            phase.mark("opened", 1)
        phase.outer_value = value
        if phase.seconds and (clock() - begin) > 0.005 * phase.seconds[-1] * self.outer_stride:
            self.outer_stride = min(self.outer_stride * 2, 1024)
        self.outer_due = earlier + self.outer_stride

    # -- the trace

    def begin_trace(self, phase, late=None):
        """Trace the next steps for the phase, or `late` to compare them with those that were traced first."""
        traced = late or phase
        traced.backwards = self.backwards
        count_saved = self.config.get("saved_hooks", True)
        try:
            self.step_trace = StepTrace(self.torch, traced, count_saved=count_saved, compiled=self.compiled > 0)
        except Exception as error:  # noqa: BLE001 - torch before 2.0 has no dispatch mode that we could use
            traced.untraceable = "{}: {}".format(type(error).__name__, error)[:300]
            return
        traced.trace = self.tracing = self.step_trace.tracer
        phase.late = late
        self.step_trace.start()
        self.tracing.resume()

    def end_trace(self, phase):
        traced = phase.late or phase
        self.tracing = None
        self.step_trace.stop()
        traced.micro_batches = self.backwards - traced.backwards
        phase.mark("traced", True)

    @harmless
    def compare_sizes(self, phase, frame):
        """Note what the traced steps make of a loop's variable, and how much more or less a late step computes."""
        traced = phase.late or phase
        rows = list(traced.trace.rows.values())
        traced.sizes = sizes_at(self.loop_stack, frame, rows)
        if phase.late is not None:
            early = elements_of(phase.trace.rows.values()) / max(1, phase.trace_steps)
            phase.growth = elements_of(rows) / traced.trace_steps / early if early else 1.0
            phase.followed = followed(phase.sizes, traced.sizes)

    def weigh_first(self, phase, earlier):
        """Take the trace of a slow first step, unless other optimizers step after it, or the next is quick."""
        if earlier == 0 and self.first.is_slow():
            self.first.use(phase)
        elif earlier == 1 and phase.first_traced:
            if len(phase.sites) > 1 or (phase.seconds and phase.seconds[-1] < QUICK_SHARE * self.first.seconds):
                phase.trace, phase.trace_steps, phase.first_traced = None, 0, False

    # -- the end

    def finish(self, status, **detail):
        """Write the result and end this process at once; the parent ends its children."""
        if not self.finished.acquire(False):
            return
        self.status = status
        training = next((one for one in self.phases if not isinstance(one, InferencePhase)), None)
        if training is not None:
            self.first.settle(training, status)
        if self.reads is not None:
            self.reads.tell_modules()
        write_result(self, status, detail)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)
