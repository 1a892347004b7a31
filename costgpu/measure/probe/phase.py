"""One training phase: the steps inside one outermost loop of the script."""

from __future__ import annotations

from array import array

from .loops.script_frames import outwards

MOST_TRACED = 8


def shared_out(
    lap: tuple[float, float, float], wait: float, loader_blocked: float, answered: float = 0.0
) -> tuple[float, float, float, float]:
    """Return seconds of a `Lap`, of these inside of next(loader) and waiting for anything else, and beside them queued.

    Args:
        wait: Seconds inside of next(loader), in the queue or not; `loader_blocked` of them not on a core.
        answered: Seconds in which the probe answered collectives.
    """
    worked, cpu, queued = lap
    off = max(0.0, worked + queued - cpu)
    # Reading the scheduler's figures around each batch would cost more than many a batch: shared out instead.
    share, in_loader = (min(1.0, queued / off) if off > 0 else 0.0), min(loader_blocked, off)
    return max(0.0, worked - answered), max(0.0, wait - share * in_loader), (1 - share) * (off - in_loader), queued


class Phase:
    """The steps of one outermost loop. The anchor is the place and optimizer whose steps count."""

    def __init__(self, frame, top_lines):
        self.frame, self.top_lines = frame, top_lines
        self.anchor = self.anchor_optimizer = None
        self.anchors = 0
        self.sites = {}  # (site, id of the optimizer) -> steps
        self.companions, self.strangers, self.optimizers = set(), 0, {}
        self.seconds = array("d")  # per interval, without the probe's own time
        self.waits = array("d")  # of which inside next(loader)
        self.own_seconds = array("d")  # the probe's own time between steps; not part of `seconds`
        self.blocked = array("d")  # per interval: the script's thread waited for anything but a core and next(loader)
        self.queued = array("d")  # per interval: it was ready and had no core; not part of `seconds`
        self.gap_seconds = 0.0
        self.special = {}  # interval -> {"save": s, "validation": s, "loader_start": n, "traced": True, ...}
        self.snapshots, self.upcoming = [], ([], [], [])
        self.loader = self.batch = None
        self.trace, self.trace_steps, self.untraceable = None, 0, ""
        self.backwards = self.micro_batches = self.saved_tensor_bytes = 0
        self.model = {}
        self.first_traced = False  # the trace is of the first step
        self.first = None  # the first step as an interval, where that is all there is
        self.outer = self.outer_value = None  # (frame, name): an outer loop's variable, to see an epoch end
        self.told = None  # what a trainer says of its own length
        self.entry, self.call = None, 1  # the script's frame that a library calls, and how often it has done so
        self.own = None  # (file, line) of the script's code that led here, where the step is in a library

    def holds(self, frame):
        """Whether a step at this frame is inside the loop of the phase."""
        low, high = self.top_lines
        return any(live is self.frame and low <= live.f_lineno <= high for live in outwards(frame))

    def leave(self):
        """Another phase has begun."""
        self.frame = self.outer = self.entry = None

    def follow(self, entry, before):
        """Notes the script's frame that a library calls, and whether that is one more call after the phase before."""
        self.entry = entry
        if before is not None and entry is not None and before.entry is not None:
            if before.entry.f_code is entry.f_code:
                self.call = before.call + (before.entry is not entry)

    def is_anchor(self, site, optimizer):
        """Counts a step at its place, and says whether it ends an interval: the first place and optimizer do."""
        key = (site, id(optimizer))
        self.sites[key] = self.sites.get(key, 0) + 1
        if optimizer is not None:
            self.optimizers.setdefault(id(optimizer), optimizer)
        if self.anchor is None:
            self.anchor, self.anchor_optimizer = key
        if key == (self.anchor, self.anchor_optimizer):
            self.strangers = 0
            return True
        if site != self.anchor:
            return False
        self.strangers += 1
        if self.strangers > 1 and id(optimizer) not in self.companions:
            self.anchor_optimizer, self.strangers = id(optimizer), 0  # a new optimizer took its place
            return True
        self.companions.add(id(optimizer))
        return False

    def steps_elsewhere(self):
        """Steps of the anchor's optimizer at other places: what is left of an epoch after its loop, for example."""
        return sum(n for (site, one), n in self.sites.items() if one == self.anchor_optimizer and site != self.anchor)

    def mark(self, kind, value):
        """Notes what the last interval held."""
        if self.seconds:
            self.special.setdefault(len(self.seconds) - 1, {})[kind] = value

    def add_interval(self, interval):
        """Note an interval of `shared_out`."""
        for times, value in zip((self.seconds, self.waits, self.blocked, self.queued), interval):
            times.append(value)

    def turn(self):
        """Steps that hold one whole turn of every optimizer (a critic that steps five times per generator)."""
        anchor = (self.anchor, self.anchor_optimizer)
        anchors = self.sites.get(anchor, 1)
        others = [n for key, n in self.sites.items() if key != anchor]
        longest = max([1] + [round(anchors / n) for n in others if n and n * MOST_TRACED >= anchors])
        return min(MOST_TRACED, longest)
