"""The units inside one outermost loop of the script: what is the same of training steps and of units of inference."""

from __future__ import annotations

from array import array

from .loaders import VALIDATION
from .loops.progress_series import is_snapshot_due, make_snapshot
from .loops.script_frames import outwards, variables_of
from .loops.source import loops_around
from .schedstat import clock

ANYWHERE = (0, 1 << 30)  # lines of a phase without a loop


def outermost_loop(loop_stack, frame):
    """Return frame and lines of the outermost loop around a unit, and whether there is one."""
    frames = loop_stack.frames(frame)
    for live in frames:
        loops = loops_around(live)
        if loops:
            return live, (loops[0].lineno, loops[0].end_lineno), True
    own = [live for live in frames if not loop_stack.is_library(live.f_code.co_filename)]
    return (own or frames or [None])[0], ANYWHERE, False


class LivePhase:
    """The units of one outermost loop. The anchor is the place, and the optimizer or module, that begins a unit."""

    trains = True
    warm_units = 0  # that begin a phase and are none of its intervals
    looks_ahead: tuple[int, ...] = (0, 2)  # numbers of the units after which it is read what comes later
    kept_events: tuple[str, ...] | None = None  # of what happens beside a unit; None for all

    def __init__(self, frame, top_lines, batch=None, gap_seconds=0.0):
        self.frame, self.top_lines = frame, top_lines
        self.anchor = self.anchor_key = None
        self.anchors = 0
        self.sites = {}  # (site, id of the optimizer or module) -> calls
        self.optimizers = {}  # id -> optimizer
        self.unit_began = None
        self.seconds = array("d")  # per interval, without the probe's own time
        self.waits = array("d")  # of which inside next(loader)
        self.own_seconds = array("d")  # the probe's own time between units; not part of `seconds`
        self.blocked = array("d")  # per interval: the script's thread waited for anything but a core and next(loader)
        self.run_delay = array("d")  # per interval: it was ready and had no core; not part of `seconds`
        self.warm_seconds = None  # of the warm-up units
        self.tail_seconds = 0.0  # from the last unit to the end of a script that ended
        self.gap_seconds = gap_seconds
        self.special = {}  # interval -> {"save": s, "validation": s, "loader_start": n, "traced": True, ...}
        self.snapshots, self.upcoming = [], ([], [], [])
        self.loader, self.batch = None, batch
        self.trace, self.untraceable = None, ""  # the `StepTrace` that the figures are of; why there is none
        self.traced_here = False  # whether a part of the unit that goes on is traced
        self.first_traced = False  # the trace is of the first step
        self.first = None  # its times, where it is all there is
        self.late, self.growth = None, 1.0  # another trace, of late steps; their forward values over those of the first
        self.followed = []  # sides of tensors that followed a loop from the first trace to the late one
        self.outer = self.outer_value = None  # (frame, name): an outer loop's variable, to see an epoch end
        self.outer_stride, self.outer_due = 1, 0
        self.told = None  # what a trainer says of its own length
        self.entry, self.call = None, 1  # the script's frame that a library calls, and how often it has done so
        self.own = None  # (file, line) of the script's code that led here, where the unit is in a library

    def holds(self, frame):
        """Return whether a unit at this frame is inside the loop of the phase."""
        low, high = self.top_lines
        return any(live is self.frame and low <= live.f_lineno <= high for live in outwards(frame))

    def leave(self):
        """Let go of the script's frames: another phase has begun."""
        self.frame = self.outer = self.entry = None

    def led_by(self, loop_stack, caller):
        """Note the script's own place that led to a library's units, if it is a library's frame that makes them."""
        if self.own is None and loop_stack.is_library(caller.f_code.co_filename):
            frames = [live for live in loop_stack.frames(caller) if not loop_stack.is_library(live.f_code.co_filename)]
            self.own = (frames[-1].f_code.co_filename, frames[-1].f_lineno) if frames else None

    def batch_is(self, batch):
        """Note the first batch."""
        self.batch = self.batch or batch

    # -- units

    def end_unit(self, seen, frame, now):
        """End a unit where another one begins, at this frame and time; `seen` is the recorder."""
        earlier = self.anchors  # units of this phase before this one
        self.anchors += 1
        if not seen.provisional:
            seen.evaluation.forget()
        plain = False
        if self.unit_began is not None and 0 < earlier <= self.warm_units:
            self.warm_seconds = seen.interval.end(now)[0]
        elif self.unit_began is not None:
            self.add_interval(seen.interval.end(now))
            kept = self.events_of(seen)
            plain = not kept
            if kept:
                self.special[len(self.seconds) - 1] = kept
        seen.activity.end_interval(plain=plain)
        if self.loader is None:
            self.loader = self.loader_of(seen.loaders, earlier)
        self.begins_count(seen, frame, earlier)
        was_traced = self.is_tracing(seen)
        if was_traced and seen.step_trace.step_made() >= self.turn():
            seen.trace_ends()
            self.compare_sizes(seen, frame)
        if is_snapshot_due(self.anchors):
            self.take_snapshot(seen, frame)
        if earlier in self.looks_ahead:
            self.look_ahead(seen, frame)
        self.watch_outer(earlier)
        if self.trace_is_due(seen, earlier, was_traced=was_traced) and not self.untraceable:
            self.begin_trace(seen)
        if self.is_enough(seen, earlier, now):
            self.take_snapshot(seen, frame)
            seen.finish("cut")
        self.traced_here = self.is_tracing(seen)
        self.begin_unit(seen.unit_ended())
        if earlier >= 2 * self.warm_units:
            self.own_seconds.append(self.unit_began - now)

    def begin_unit(self, now):
        """Time the unit that begins now."""
        self.unit_began = now

    def begins_count(self, seen, frame, earlier):
        """Look at what is to be seen where a unit was counted, after so many."""

    def look_ahead(self, seen, frame):
        """Read in the sources what comes later."""
        self.upcoming = seen.upcoming_work.read(frame, self.loader, self.anchors, training=self.trains)

    def add_interval(self, interval):
        """Note an interval of `shared_out`."""
        for times, value in zip((self.seconds, self.waits, self.blocked, self.run_delay), interval):
            times.append(value)

    def events_of(self, seen):
        """Return what the last interval held beside its unit."""
        events, loaders = {} if seen.provisional else dict(seen.events), seen.loaders
        if VALIDATION in loaders.drawn:
            events["validation_batches"] = loaders.drawn[VALIDATION]
        kept = {kind: value for kind, value in events.items() if self.kept_events is None or kind in self.kept_events}
        if not seen.provisional and loaders.was_opened(self.loader):
            kept["opened"] = len(loaders.opened)
        if self.traced_here:
            kept["traced"] = True
        return kept

    def mark(self, kind, value):
        """Note what the last interval held."""
        if self.seconds:
            self.special.setdefault(len(self.seconds) - 1, {})[kind] = value

    def whole_intervals(self, most):
        """Seconds, waits, blocked and run delay of so many intervals, without one that is noted as the watchdog looks."""
        times = (self.seconds, self.waits, self.blocked, self.run_delay)
        count = min(most, *map(len, times))
        return [[round(value, 7) for value in values[:count]] for values in times]

    # -- loops

    def take_snapshot(self, seen, frame):
        """Note the loops around this frame, and what their drivers say."""
        loops = seen.loop_stack.snapshot(frame)
        self.told = self.told_at(seen, frame) or self.told
        batches = seen.loaders.batches_of(self.loader)
        self.snapshots.append(make_snapshot(self.anchors, loops, batches, self.fed_batches(seen.loaders)))
        if self.outer is None:
            self.choose_outer(seen, frame, loops)

    def counted_snapshots(self):
        """Return the snapshots, with what is known by now of the loops in them."""
        return self.snapshots

    def choose_outer(self, seen, frame, loops):
        """Choose the loop whose iterations are epochs, for scripts without a DataLoader to show where one begins."""
        named = [loop for loop in loops[:-1] if loop.get("target") and not loop["library"]]
        if not named or self.loader is not None:
            return
        frames = seen.loop_stack.frames(frame)
        if named[-1]["depth"] < len(frames):
            self.outer = (frames[named[-1]["depth"]], named[-1]["target"])

    def watch_outer(self, earlier):
        """Note when that loop moves on."""
        if self.outer is None or earlier < self.outer_due:
            return
        begin = clock()
        live, name = self.outer
        value = variables_of(live).get(name)
        if self.outer_value is not None and value != self.outer_value:
            self.mark("opened", 1)
        self.outer_value = value
        if self.seconds and (clock() - begin) > 0.005 * self.seconds[-1] * self.outer_stride:
            self.outer_stride = min(self.outer_stride * 2, 1024)
        self.outer_due = earlier + self.outer_stride

    # -- the trace

    def is_tracing(self, seen):
        """Return whether a unit of this phase is traced now, and not what may be the first step of a training."""
        return seen.tracing is not None and not seen.first.running

    def begin_trace(self, seen, *, late=False):
        """Trace the next units, or `late` ones to compare them with those that were traced first."""
        try:
            trace = self.make_trace(seen)
        except Exception as error:  # noqa: BLE001 - torch before 2.0 has no dispatch mode that we could use
            self.untraceable = "{}: {}".format(type(error).__name__, error)[:300]
            return
        if late:
            self.late = trace
        else:
            self.trace = trace
        seen.trace_begins(trace)

    @property
    def trace_steps(self):
        """Return how many units the trace holds whole."""
        return self.trace.steps if self.trace is not None else 0

    def compare_sizes(self, seen, frame):
        """Note what the traced units make of a loop's variable."""

    def is_enough(self, seen, earlier, now):
        """Return whether what was seen answers the question."""
        return seen.first_step is not None and seen.enough(now - seen.first_step)

    def turn(self):
        """Return units that make one whole turn of all that they hold."""
        return 1

    # -- the record

    def own_facts(self):
        """Return what only this kind of phase knows, as JSON-ready values."""
        return {}
