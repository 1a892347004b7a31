"""A phase of inference: the units inside one outermost loop."""

from __future__ import annotations

from ..phase import Phase
from ..record import InferenceFacts
from .arguments import weights_of

MOST_SIZES = 5000
ENOUGH_UNITS = 3
REPEATS = 3  # another place so often, and the anchor not once: that place is what repeats


class InferencePhase(Phase):
    """The anchor is the place and module whose call begins a unit; all else up to its next call is part of the unit."""

    def __init__(self, frame, top_lines, looped):
        Phase.__init__(self, frame, top_lines)
        self.looped = looped
        self.began = self.ended = None  # of its first unit, and of the last call so far
        self.preceded = None  # when what was before it ended
        self.wait_before = 0.0  # waiting for data that was counted before this unit
        self.unit_began = None
        self.warm_seconds = None  # of the first unit, which pays for what is made only once
        self.roots = {}  # id -> module that was called from outside of modules
        self.nests = {}  # (site, id of the module) -> the loops around it, outermost first
        self.since = {}  # the same -> calls since the anchor's last
        self.sizes, self.kind = [], "item"
        self.grows = False  # its calls make the same sequences longer, without a cache
        self.over_modules = False  # its innermost loop is over the modules of one turn
        self.generation = None
        self.activation_bytes = 0
        self.traced_here = False  # whether the unit that goes on is traced, or was for a part of it
        self.may_train = None  # whether the source says that training follows
        self.tail_seconds = 0.0
        self.own_work = False  # whether no optimizer was made when it ended

    def is_anchor(self, site, module, nest=(), direct=False):
        """Return whether this call begins a unit; `direct` if it is part of a `forward` that was called itself."""
        key = (site, id(module))
        if not self.looped:
            key = next((known for known in self.sites if known[1] == id(module)), key)
        self.sites[key] = self.sites.get(key, 0) + 1
        self.nests.setdefault(key, nest)
        self.roots.setdefault(id(module), module)
        if self.anchor is None:
            self.anchor, self.anchor_optimizer = key
        anchor = (self.anchor, self.anchor_optimizer)
        if key == anchor:
            self.over_modules = self.over_modules or (not direct and any(other[0] == site for other in self.since))
            self.since = {}
            return True
        self.since[key] = self.since.get(key, 0) + 1
        outer = self.nests[anchor]
        if self.since[key] >= REPEATS and outer[: len(nest)] == nest:
            self.anchors += REPEATS - 1
            self.move_anchor(key)
            return True
        return False

    def move_anchor(self, key):
        """Another place begins the units from now on; what was timed so far is not of that kind."""
        self.anchor, self.anchor_optimizer = key
        self.since, self.unit_began, self.over_modules = {}, None, False

    @property
    def tried(self):
        """Return whether a model was only tried, as far as is known: a call or two outside of any loop."""
        return not self.looped and self.anchors < ENOUGH_UNITS

    def inner_key(self):
        """Return the place that repeats most inside of a unit; None without one."""
        found = max(self.since, key=lambda key: self.since[key], default=None)
        return found if found is not None and self.since[found] >= REPEATS else None

    def restart(self, key):
        """Units of an inner loop, where a whole turn of the outer one takes too long to be seen twice."""
        self.move_anchor(key)
        self.anchors, self.snapshots, self.sizes, self.warm_seconds = 0, [], [], None
        for times in (self.seconds, self.waits, self.blocked, self.run_delay, self.own_seconds):
            del times[:]
        self.special = {}
        self.trace, self.trace_steps = None, 0

    def turn(self):
        return 1

    def size(self, tensor):
        """Note how many items the unit has that begins now."""
        if len(self.sizes) < MOST_SIZES:
            self.sizes.append(int(tensor.shape[0]) if tensor is not None else None)


def describe(phase) -> InferenceFacts:
    """Return what is known of the units, as JSON-ready values."""
    return {
        "sizes": [] if phase.grows else phase.sizes,
        "kind": "item" if phase.grows else phase.kind,
        "over_modules": phase.over_modules,
        "weights_dtype": weights_of(phase.roots.values())[0],
        "activation_bytes": phase.activation_bytes,
        "warm_seconds": phase.warm_seconds,
        "tail_seconds": phase.tail_seconds,
        "generation": phase.generation.record() if phase.generation is not None else None,
    }
