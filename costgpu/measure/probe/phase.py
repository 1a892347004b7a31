"""One training phase: the steps inside one outermost loop of the script."""

from __future__ import annotations

import sys
from array import array

from .loops.script_frames import outwards

MOST_TRACED = 8
MOST_LATE_SECONDS = 0.5
ANYWHERE = (0, 1 << 30)  # lines of a phase without a loop
MOST_IDLE = 50  # steps of others, each after a backward pass: no critic makes so many
HELD_HERE = 2  # references to an optimizer that only this phase holds, as `sys.getrefcount` counts them


def shared_out(
    lap: tuple[float, float, float], wait: float, loader_blocked: float, answered: float = 0.0
) -> tuple[float, float, float, float]:
    """Return seconds of a `Lap`, of these in next(loader) and waiting for anything else, and the run delay beside them.

    Args:
        wait: Seconds inside of next(loader), in the queue or not; `loader_blocked` of them not on a core.
        answered: Seconds in which the probe answered collectives.
    """
    worked, cpu, run_delay = lap
    off = max(0.0, worked + run_delay - cpu)
    # Reading the scheduler's figures around each batch would cost more than many a batch: shared out instead.
    share, in_loader = (min(1.0, run_delay / off) if off > 0 else 0.0), min(loader_blocked, off)
    return max(0.0, worked - answered), max(0.0, wait - share * in_loader), (1 - share) * (off - in_loader), run_delay


class LateTrace:
    """A trace of steps at the end of the measurement, in the place of a phase for `StepTrace`."""

    def __init__(self, optimizers):
        self.optimizers = optimizers
        self.trace, self.trace_steps, self.untraceable = None, 0, ""
        self.sizes = {}


class Phase:
    """The steps of one outermost loop. The anchor is the place and optimizer whose steps count."""

    def __init__(self, frame, top_lines):
        self.frame, self.top_lines = frame, top_lines
        self.anchor = self.anchor_optimizer = None
        self.anchors = 0
        self.sites = {}  # (site, id of the optimizer) -> steps
        self.optimizers = {}
        self.runners, self.strangers = set(), 0  # optimizers that stepped twice in a row; steps since the anchor's last
        self.last_here = self.backwards_here = None  # of the last step at the anchor's place
        self.variables, self.members = (
            {},
            set(),
        )  # of the loops around the anchor's last step; loops over its optimizers
        self.seconds = array("d")  # per interval, without the probe's own time
        self.waits = array("d")  # of which inside next(loader)
        self.own_seconds = array("d")  # the probe's own time between steps; not part of `seconds`
        self.blocked = array("d")  # per interval: the script's thread waited for anything but a core and next(loader)
        self.run_delay = array("d")  # per interval: it was ready and had no core; not part of `seconds`
        self.gap_seconds = 0.0
        self.special = {}  # interval -> {"save": s, "validation": s, "loader_start": n, "traced": True, ...}
        self.snapshots, self.upcoming = [], ([], [], [])
        self.loader = self.batch = None
        self.trace, self.trace_steps, self.untraceable = None, 0, ""
        self.late, self.growth = None, 1.0  # a `LateTrace`; its forward values a step over those of the first trace
        self.sizes, self.followed = {}, []  # sides of tensors that follow a loop: at the trace, and since
        self.backwards = self.micro_batches = self.saved_tensor_bytes = 0
        self.model = {}
        self.first_traced = False  # the trace is of the first step
        self.first = None  # the first step as an interval, where that is all there is
        self.outer = self.outer_value = None  # (frame, name): an outer loop's variable, to see an epoch end
        self.told = None  # what a trainer says of its own length
        self.entry, self.call = None, 1  # the script's frame that a library calls, and how often it has done so
        self.own = None  # (file, line) of the script's code that led here, where the step is in a library

    def holds(self, frame):
        """Return whether a step at this frame is inside the loop of the phase."""
        low, high = self.top_lines
        return any(live is self.frame and low <= live.f_lineno <= high for live in outwards(frame))

    def leave(self):
        """Another phase has begun."""
        self.frame = self.outer = self.entry = None

    def follow(self, entry, before):
        """Note the script's frame that a library calls, and whether that is one more call after the phase before."""
        self.entry = entry
        if before is not None and entry is not None and before.entry is not None:
            if before.entry.f_code is entry.f_code:
                self.call = before.call + (before.entry is not entry)

    def is_anchor(self, site, optimizer, backwards, new=False):
        """Count a step at its place, and return whether it ends an interval: the first place and optimizer do.

        Optimizers that step at one place one after the other, without a backward pass in between, make one step.

        Args:
            backwards: Backward passes so far.
            new: Whether this optimizer was made after the last step that ended an interval.
        """
        one = id(optimizer)
        self.sites[site, one] = self.sites.get((site, one), 0) + 1
        if optimizer is not None:
            self.optimizers.setdefault(one, optimizer)
        by_hand = (
            self.anchor_optimizer == id(None) != one
        )  # backward passes were counted until it made its first optimizer
        if self.anchor is None or by_hand:
            self.anchor, self.anchor_optimizer, self.sites = site, one, {(site, one): 1}
            self.forget_epochs()
        if site != self.anchor:
            return False
        same_round, self.backwards_here = backwards == self.backwards_here, backwards
        if by_hand and same_round:
            return False
        if self.last_here == one and not same_round:
            self.runners.add(one)
        self.last_here = one
        if one != self.anchor_optimizer:
            self.strangers += not same_round
            if same_round or not self.is_replaced(one, new):
                return False
            self.members = set()
        self.anchor_optimizer, self.strangers = one, 0
        return True

    def is_replaced(self, one, new):
        """Return whether another optimizer, which stepped after a backward pass of its own, has taken the anchor's place.

        It has if nobody holds the anchor any more, if both step several times in a row (those of clients, or of an
        epoch each), or if the anchor has been idle for long. A critic and a generator step in turns: they are one step.
        """
        runs = self.anchor_optimizer in self.runners and (new or one in self.runners)
        dropped = new and sys.getrefcount(self.optimizers.get(self.anchor_optimizer)) <= HELD_HERE
        return runs or dropped or self.strangers > MOST_IDLE

    def look_around(self, variables, *, counts):
        """Note which loop is over the optimizers of one step: the outermost whose variable has changed since the anchor's.

        Args:
            variables: Of `LoopStack.variables`, where an optimizer steps at the anchor's place.
            counts: Whether it is the anchor.
        """
        if counts:
            self.variables = variables
        elif not self.members:
            changed = [place for place, held in variables.items() if self.variables.get(place, held) != held]
            if changed:
                self.members = set(changed[:1])
                self.forget_epochs()

    def forget_epochs(self):
        """Forget the epochs, since what was taken for an outer loop is the one that steps."""
        self.outer = None
        if self.loader is None:
            for interval in [n for n, event in self.special.items() if event.pop("opened", None) and not event]:
                del self.special[interval]

    def counted_snapshots(self):
        """Return the snapshots, in which the loops over optimizers are told: they do not multiply the steps."""
        for loop in (loop for shot in self.snapshots for loop in shot["loops"]):
            loop["optimizers"] = loop["optimizers"] or (loop["path"], loop["line"]) in self.members
        return self.snapshots

    def mark(self, kind, value):
        """Note what the last interval held."""
        if self.seconds:
            self.special.setdefault(len(self.seconds) - 1, {})[kind] = value

    def add_interval(self, interval):
        """Note an interval of `shared_out`."""
        for times, value in zip((self.seconds, self.waits, self.blocked, self.run_delay), interval):
            times.append(value)

    def whole_intervals(self, most):
        """Seconds, waits, blocked and run delay of so many intervals, without one that is noted as the watchdog looks."""
        times = (self.seconds, self.waits, self.blocked, self.run_delay)
        count = min(most, *map(len, times))
        return [[round(value, 7) for value in values[:count]] for values in times]

    def may_trace_again(self):
        """Return whether there is a late step to compare with the traced one, and it is quick enough to be traced, too."""
        seen = sorted(self.seconds)
        quick = bool(seen) and seen[len(seen) // 2] * self.turn() < MOST_LATE_SECONDS
        return quick and self.trace is not None and self.late is None and not self.first_traced

    def turn(self):
        """Return steps that hold one whole turn of every optimizer (a critic that steps five times per generator)."""
        anchor = (self.anchor, self.anchor_optimizer)
        anchors = self.sites.get(anchor, 1)
        others = [n for key, n in self.sites.items() if key != anchor]
        longest = max([1] + [round(anchors / n) for n in others if n and n * MOST_TRACED >= anchors])
        return min(MOST_TRACED, longest)
