"""One training phase: the steps inside one outermost loop of the script."""

from __future__ import annotations

from array import array

from .loops.script_frames import outwards

MOST_TRACED = 8


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
        self.blocked = array("d")  # per interval: the script's thread was not on a core, but for next(loader)
        self.gap_seconds = 0.0
        self.special = {}  # interval -> {"save": s, "validation": s, "loader_start": n, "traced": True, ...}
        self.snapshots, self.upcoming = [], ([], [], [])
        self.loader = self.batch = None
        self.trace, self.trace_steps, self.untraceable = None, 0, ""
        self.backwards = self.micro_batches = self.saved_tensor_bytes = 0
        self.model = {}
        self.first_traced = False  # the trace is of the first step
        self.first_seconds, self.first_wait, self.first_blocked = (
            None,
            0.0,
            0.0,
        )  # of the first step, where that is all there is
        self.outer = self.outer_value = None  # (frame, name): an outer loop's variable, to see an epoch end
        self.told = None  # what a trainer says of its own length
        self.own = None  # (file, line) of the script's code that led here, where the step is in a library

    def holds(self, frame):
        """Whether a step at this frame is inside the loop of the phase."""
        low, high = self.top_lines
        return any(live is self.frame and low <= live.f_lineno <= high for live in outwards(frame))

    def leave(self):
        """Another phase has begun."""
        self.frame = self.outer = None

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

    def turn(self):
        """Steps that hold one whole turn of every optimizer (a critic that steps five times per generator)."""
        anchor = (self.anchor, self.anchor_optimizer)
        anchors = self.sites.get(anchor, 1)
        others = [n for key, n in self.sites.items() if key != anchor]
        longest = max([1] + [round(anchors / n) for n in others if n and n * MOST_TRACED >= anchors])
        return min(MOST_TRACED, longest)
