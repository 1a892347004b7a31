"""Follows the steps of a script: times, phases, snapshots, and the end of the measurement."""

import os
import sys
import threading
import traceback

from .frameworks.torch_hooks import Hooks
from .frameworks.trainers import told_by_trainer
from .loops.loop_stack import HERE, LoopStack
from .loops.progress_series import FIT, TRAINERS, Beats
from .loops.source import Source
from .loops.tqdm_and_loops import Loops, plain_nest
from .loops.upcoming_work import Ahead
from .op_tracer import clock
from .phase import Phase, describe_batch
from .result import write_result
from .step_trace import StepTrace

MOST_ERRORS = 3
SNAPSHOT_AT = {1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 4097, 16385, 65537}


class Recorder:
    """Hooks into torch, times the steps, and writes the result."""

    def __init__(self, config, guard):
        self.config, self.guard = config, guard
        self.started = clock()
        self.torch = None
        self.first_step = None
        self.phases, self.phase = [], None
        self.events = {}  # what happened since the last anchor
        self.wait = 0.0
        self.last = None
        self.batches = self.backwards = 0
        self.by_loader = {}
        self.loaders_by_line = {}
        self.loader_counts = {}
        self.loader_seen = {}
        self.optimizers_made = 0
        self.optimizer_steps = 0
        self.manual = []
        self.eval_started = None
        self.in_backward = False
        self.tracing = None
        self.autocast, self.compiled, self.cuda_wanted = {}, 0, 0
        self.before = {"validation": 0.0, "save": 0.0}  # before the first step
        self.fetch = None
        self.thread = threading.get_ident()
        self.status, self.detail = "running", {}
        self.finished = threading.Lock()
        self.libraries = ()
        self.outer_stride, self.outer_due = 1, 0
        self.beats, self.loops, self.nest_without_torch = Beats(self), Loops(self), None
        self.fits = None

    def plain_nest(self):
        """Reads loops where torch is not what trains."""
        if self.nest_without_torch is None:
            roots = {os.path.dirname(os.__file__) + os.sep}
            roots.update(path + os.sep for path in sys.path if path.endswith(("site-packages", "dist-packages")))
            self.nest_without_torch = plain_nest(tuple(roots))
        return self.nest_without_torch

    @staticmethod
    def trains():
        """Whether something has been imported that trains, and whose steps will be seen."""
        return any(name in sys.modules for name in TRAINERS)

    def begun(self, now):
        """The first step, of whatever kind."""
        self.first_step = now
        self.detail["setup_seconds"] = now - self.started
        self.guard.real_open(os.path.join(self.guard.scratch, "stepping"), "w").close()

    # -- torch arrives

    def attach(self, torch):
        """Torch has been imported."""
        self.torch = torch
        roots = {os.path.dirname(os.path.dirname(torch.__file__)), os.path.dirname(os.__file__)}
        roots.add(os.path.dirname(os.path.dirname(os.path.realpath(torch.__file__))))
        self.libraries = tuple(root + os.sep for root in roots)
        self.nest = LoopStack(torch, self.libraries, self.loaders_by_line)
        self.ahead = Ahead(torch, self.nest)
        Hooks(self, self.guard).attach(torch)

    def add(self, kind, seconds):
        self.events[kind] = self.events.get(kind, 0.0) + seconds

    def mode_changed(self, training):
        if threading.get_ident() != self.thread:
            return
        if not training and self.eval_started is None:
            self.eval_started, self.saved_before = clock(), self.events.get("save", 0.0)
            if self.tracing is not None:
                self.tracing.phase = "validation"
        elif training and self.eval_started is not None:
            saving = self.events.get("save", 0.0) - self.saved_before
            self.add("validation", max(0.0, clock() - self.eval_started - saving))
            self.eval_started = None
            if self.tracing is not None:
                self.tracing.phase = "forward"

    def batch_drawn(self, it, batch):
        loader = self.loader_seen.get(id(it))
        self.batches += 1
        self.by_loader[id(loader)] = self.by_loader.get(id(loader), 0) + 1
        drawn = self.events.setdefault("drawn", {})
        drawn[id(loader)] = drawn.get(id(loader), 0) + 1
        if self.eval_started is None and loader is not None and not self.torch.is_grad_enabled():
            drawn["validation"] = drawn.get("validation", 0) + 1
        if loader is not None and self.loader_counts.get(id(loader), 0) < 3:
            self.loader_counts[id(loader)] = self.loader_counts.get(id(loader), 0) + 1
            frame = sys._getframe(2)
            for _ in range(6):
                if frame is None:
                    break
                if not frame.f_code.co_filename.startswith(self.libraries):
                    source = Source.of(frame.f_code.co_filename)
                    scope = source.scope(frame.f_code) if source is not None else None
                    loops = source.loops_at(scope, frame.f_lineno) if scope is not None else []
                    for node in loops:
                        self.loaders_by_line[(frame.f_code, node)] = loader
                    break
                frame = frame.f_back
        if (self.phase is not None and self.phase.batch is None) or self.phase is None:
            size = describe_batch(batch, self.torch)
            self.events["batch"] = size
            if self.phase is not None:
                self.phase.batch = size

    def enter_optimizer(self):
        if self.tracing is not None:
            self.tracing.pause()
            self.tracing.phase = "optimizer"

    def after_backward(self):
        if self.tracing is not None:
            self.step_trace.graph_freed()  # this graph is freed; the next micro-batch saves its own
        if self.optimizer_steps == 0 and threading.get_ident() == self.thread:
            self.manual.append(clock())
            if self.optimizers_made == 0:
                self.step(None, sys._getframe(2))

    # -- anchors

    def step(self, optimizer, frame):
        """An optimizer stepped (or, in a script without one, a backward pass ended)."""
        now = clock()
        if threading.get_ident() != self.thread or self.status != "running":
            return
        tracing = self.tracing
        if tracing is not None:
            tracing.muted += 1
        try:
            self.anchor(optimizer, frame, now)
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception:  # noqa: BLE001 - the probe's own failure must not change what the script does
            errors = self.detail.setdefault("probe_errors", [])
            if len(errors) < MOST_ERRORS:
                errors.append(traceback.format_exc()[-1500:])
            self.last = clock()
        finally:
            if tracing is not None:
                tracing.muted -= 1
                tracing.phase = "forward"
                tracing.resume()

    def anchor(self, optimizer, frame, now):
        if optimizer is not None:
            self.optimizer_steps += 1
        phase = self.phase
        if phase is None or not self.inside(phase, frame):
            phase = self.new_phase(frame, now)
        caller = frame
        while caller is not None and caller.f_code.co_filename.startswith(self.nest.torch_root):
            caller = caller.f_back
        site = (caller.f_code, caller.f_lineno) if caller is not None else None
        if phase.own is None and site is not None and self.nest.is_library(site[0].co_filename):
            phase.own = self.own_site(caller)
        key = (site, id(optimizer))
        phase.sites[key] = phase.sites.get(key, 0) + 1
        if optimizer is not None and id(optimizer) not in phase.optimizers:
            phase.optimizers[id(optimizer)] = optimizer
        if phase.anchor is None:
            phase.anchor, phase.anchor_optimizer = site, id(optimizer)
        elif site != phase.anchor or (id(optimizer) != phase.anchor_optimizer):
            if site == phase.anchor:
                phase.strangers += 1
            if site == phase.anchor and phase.strangers > 1 and id(optimizer) not in phase.companions:
                phase.anchor_optimizer, phase.strangers = id(optimizer), 0  # a new optimizer took its place
            else:
                if site == phase.anchor:
                    phase.companions.add(id(optimizer))
                if self.tracing is not None:
                    self.tracing.phase = "forward"
                return
        phase.strangers = 0
        self.iteration(phase, frame, now)

    def own_site(self, frame):
        while frame is not None:
            path = frame.f_code.co_filename
            if not self.nest.is_library(path) and not path.startswith((HERE, self.nest.torch_root)):
                return path, frame.f_lineno
            frame = frame.f_back
        return None

    def inside(self, phase, frame):
        walker = frame
        while walker is not None:
            if walker is phase.frame:
                low, high = phase.top_lines
                return low <= walker.f_lineno <= high
            walker = walker.f_back
        return False

    def new_phase(self, frame, now):
        if self.tracing is not None:
            self.end_trace(self.phase)
        if self.phase is not None:
            self.phase.frame = None
            self.phase.outer = None
        top, lines = None, (0, 1 << 30)
        for live in self.nest.frames(frame):
            source = Source.of(live.f_code.co_filename)
            scope = source.scope(live.f_code) if source is not None else None
            loops = source.loops(scope, live.f_lineno) if scope is not None else []
            if loops:
                top, lines = live, (loops[0].lineno, loops[0].end_lineno)
                break
            if top is None:
                top = live
        self.phase = Phase(top, lines, now)
        self.phases.append(self.phase)
        if len(self.phases) == 1:
            if self.first_step is None:
                self.begun(now)
            self.before["validation"] += self.events.get("validation", 0.0)
            self.before["save"] += self.events.get("save", 0.0)
        self.phase.batch = self.events.get("batch")
        self.phase.gap = {"seconds": now - (self.last or self.started), "events": self.event_summary()}
        self.last = None
        return self.phase

    def event_summary(self):
        kept = {k: v for k, v in self.events.items() if k in ("save", "validation", "loader_start", "traced")}
        drawn = self.events.get("drawn", {})
        if drawn.get("validation"):
            kept["validation_batches"] = drawn["validation"]
        opened = self.events.get("opened", [])
        training = self.phase.loader if self.phase is not None else None
        if (training is None and opened) or (training is not None and id(training) in opened) or FIT in opened:
            kept["opened"] = len(opened)
        return kept

    def iteration(self, phase, frame, now):
        number = phase.anchors  # how many steps of this phase came before
        phase.anchors += 1
        self.eval_started = None  # it trains in eval mode, or a frozen part stays in it: no validation pass
        if self.last is not None:
            phase.seconds.append(now - self.last)
            phase.waits.append(self.wait)
            if self.events and (set(self.events) != {"drawn"} or "validation" in self.events["drawn"]):
                kept = self.event_summary()
                if kept:
                    phase.special[len(phase.seconds) - 1] = kept
        drawn = self.events.get("drawn")
        if drawn and phase.loader is None:
            training = [i for i in drawn if i != "validation"]
            last = self.loader_by_id(training[-1]) if training else None
            phase.loader = last
        phase.drawn = drawn
        was_traced = self.tracing is not None
        if was_traced:
            wanted = min(8, max(1, self.period(phase)))
            phase.trace_steps += 1
            if phase.trace_steps >= wanted:
                self.end_trace(phase)
            else:
                phase.special.setdefault(len(phase.seconds) - 1, {})["traced"] = True
        if number + 1 in SNAPSHOT_AT or (number + 1) % 100000 == 0:
            self.take_snapshot(phase, frame)
        if number == 2 or number == 0:
            phase.ahead = self.ahead.ahead(frame, phase.loader)
        self.watch_outer(phase, number)
        if phase.trace is None and number >= 1 and not was_traced and not phase.untraceable:
            self.begin_trace(phase)
        elapsed = now - self.first_step
        if self.enough(elapsed):
            self.take_snapshot(phase, frame)
            self.finish("cut")
        self.events, self.wait = ({"traced": True} if self.tracing is not None else {}), 0.0
        self.last = clock()
        phase.hooks.append(self.last - now)

    def enough(self, elapsed):
        """Whether what was seen answers the question, after `elapsed` seconds from the first step."""
        phase, steps, limit = self.phase, self.config.get("steps"), self.config["measure_for"]
        if phase is None:
            return self.beats.enough(clock())
        untraced = len(phase.seconds) - phase.trace_steps
        if self.tracing is not None or (phase.trace is None and not phase.untraceable and phase is self.phases[0]):
            return False
        if steps:
            return untraced >= steps
        return elapsed >= limit and (untraced >= 5 or (untraced >= 1 and elapsed >= 1.5 * limit))

    def loader_by_id(self, wanted):
        for loader in self.loader_seen.values():
            if id(loader) == wanted:
                return loader
        return None

    def period(self, phase):
        """Iterations that hold one whole turn of every optimizer (a critic that steps five times per generator)."""
        anchors = phase.sites.get((phase.anchor, phase.anchor_optimizer), 1)
        others = [n for key, n in phase.sites.items() if key != (phase.anchor, phase.anchor_optimizer)]
        return max([1] + [round(anchors / n) for n in others if n and n * 8 >= anchors])

    def take_snapshot(self, phase, frame):
        loops = self.nest.snapshot(frame)
        phase.told = told_by_trainer(frame) or self.beats.told() or phase.told
        phase.snapshots.append(
            {
                "anchor": phase.anchors,
                "batches": max(self.by_loader.values(), default=0),
                "all_batches": self.batches,
                "backwards": self.backwards,
                "loops": loops,
                "steps": self.optimizer_steps,
            }
        )
        if phase.outer is None:
            self.choose_outer(phase, frame, loops)

    def choose_outer(self, phase, frame, loops):
        names = [loop for loop in loops[:-1] if loop.get("target") and not loop["library"]]
        if not names or phase.loader is not None:
            return
        frames = self.nest.frames(frame)
        loop = names[-1]
        if loop["depth"] < len(frames):
            phase.outer = (frames[loop["depth"]], loop["target"])

    def watch_outer(self, phase, number):
        """Notes when an outer loop moves on, for scripts without a DataLoader to show where an epoch starts."""
        if phase.outer is None or number < self.outer_due:
            return
        begin = clock()
        live, name = phase.outer
        value = live.f_locals.get(name)
        if phase.outer_values is not None and value != phase.outer_values and phase.seconds:
            phase.special.setdefault(len(phase.seconds) - 1, {})["opened"] = 1
        phase.outer_values = value
        if phase.seconds and (clock() - begin) > 0.005 * phase.seconds[-1] * self.outer_stride:
            self.outer_stride = min(self.outer_stride * 2, 1024)
        self.outer_due = number + self.outer_stride

    def begin_trace(self, phase):
        phase.backwards = self.backwards
        try:
            self.step_trace = StepTrace(
                self.torch, phase, count_saved=self.config.get("saved", True), compiled=self.compiled > 0
            )
        except Exception as error:  # noqa: BLE001 - torch before 2.0 has no dispatch mode that we could use
            phase.untraceable = "{}: {}".format(type(error).__name__, error)[:300]
            return
        phase.trace = self.tracing = self.step_trace.tracer
        self.step_trace.start()
        self.tracing.resume()

    def end_trace(self, phase):
        self.tracing = None
        self.step_trace.stop()
        phase.micro_batches = self.backwards - phase.backwards
        if phase.seconds:
            phase.special.setdefault(len(phase.seconds) - 1, {})["traced"] = True

    def finish(self, status, **detail):
        """Writes the result and ends this process at once; the parent ends its children."""
        if not self.finished.acquire(False):
            return
        self.write(status, **detail)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)

    def write(self, status, **detail):
        self.status = status
        write_result(self, status, detail)
