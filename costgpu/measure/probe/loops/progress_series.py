"""Progress of everything that is not a torch optimizer: what repeats, how often, and how often it will have done so.

A series is one thing that repeats: the steps of a framework's fit, boosting rounds, the fits of a search, a progress bar.
Frameworks rank before bars, and bars before the script's bare loops: a bar over files that are read is not the training.
"""

from __future__ import annotations

import math
import sys
import threading
import types
from array import array

from ..frameworks.framework import BESIDE_TRAINING
from ..patching import harmless, known
from ..record import SeriesRecord, Snapshot, TrainerLength
from ..schedstat import clock
from .later_fits import later_fits
from .prospects import USES_OPTIMIZERS, Prospects
from .script_frames import library_loops, own_place
from .script_loops import NO_TORCH
from .upcoming_work import UpcomingWork

TAKES_GRADIENTS = frozenset(("grad", "value_and_grad"))
MOST_TIMES, MOST_EVENTS, MOST_SERIES = 20000, 5000, 20
ENOUGH_STEPS, LEAST_STEPS = 5, 3
MOST_AT_ONCE = 1000  # times that are kept of steps that are told together
LOOKS_AHEAD = (1, 3)  # steps at which the source is read for what is still to come
COUNTS_BYTES = "it counts bytes"
SNAPSHOT_AT = {1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 4097, 16385, 65537}


def is_snapshot_due(steps):
    return steps in SNAPSHOT_AT or steps % 100000 == 0


def make_snapshot(anchor, loops, batches=0, all_batches=0) -> Snapshot:
    """Return the loops around the step of this number, and the batches that were drawn up to it."""
    return {"anchor": anchor, "batches": batches, "all_batches": all_batches, "loops": loops}


class Series:
    """One thing that repeats. Times are seconds of the probe's clock; `facts` travel to the result as they are."""

    def __init__(self, framework, unit, total, facts, around):
        self.framework, self.source = framework, framework.name
        self.unit, self.total, self.facts, self.around = unit, total, facts, around
        self.opened, self.last = clock(), None
        self.label, self.open, self.openings = own_place(), True, 1
        self.steps, self.seconds, self.special, self.events = 0, array("d"), {}, {}
        self.later = []  # fits that the script will make afterwards
        self.periodic = []  # what its source names beside the steps
        self.setup = ""  # why this is no more than preparation: who drives it, or what it does
        self.busy = 0.0  # all intervals together, also those that are not kept
        self.lead = 0.0  # from the opening to the first step
        self.snapshots = []

    def note(self, **facts):
        self.facts.update(facts)

    def reopen(self):
        """Go on with a second fit of the same kind."""
        self.open, self.last = True, None
        self.openings += 1

    def event(self, kind, seconds):
        self.events[kind] = self.events.get(kind, 0.0) + seconds

    def look_ahead(self, **found):
        """Note what is still to come: `later` fits, `periodic` work."""
        self.later, self.periodic = found.get("later", self.later), found.get("periodic", self.periodic)

    def close(self):
        """End it, unless it is opened again."""
        self.open = False

    def add(self, fact, seconds):
        """Add seconds to those that are one of its facts."""
        self.facts[fact] = self.facts.get(fact, 0.0) + seconds

    def is_of(self, total, around=None):
        """Note how many steps it has, and the loops around it where these are known better by now."""
        self.total = total
        if around is not None:
            self.around = around

    def label_with(self, place):
        self.label = place

    def is_preparation(self, why):
        self.setup = why

    def begin(self, at):
        """Time it from here on: it was opened after its first step had begun."""
        self.opened = at

    def go_on(self, at):
        """Time the current step from here on; None for one that is not timed."""
        self.last = at

    def settle(self):
        """Begin the next interval now: what was done here since the step is none of its time."""
        self.last = clock()

    def step(self, now, steps=1):
        if self.last is None:
            self.lead += now - self.opened if not self.steps else 0.0
        else:
            self.busy += now - self.last
            for _ in range(min(steps, MOST_AT_ONCE) if len(self.seconds) < MOST_TIMES else 0):
                self.seconds.append((now - self.last) / steps)
            if self.events:
                self.special[len(self.seconds) - 1] = self.events
        self.events = {}
        self.steps += steps

    def only_applies(self, model, items):
        """Note that its steps update nothing; those of a `model` are predictions for so many items."""
        self.facts["applied"] = "only"
        if model:
            self.unit = "batch"
            self.facts.update(inference=True, batch=items)

    def trains_after_all(self):
        """Note that what it seemed only to apply is a part of training steps."""
        if self.facts.pop("applied", None):
            self.facts.pop("inference", None)
            self.unit = "step"

    @property
    def rank(self):
        """Return where it stands among others: what is trained here and then used is for the training."""
        if self.facts.get("inference"):
            return self.framework.rank + 0.5
        beside = self.facts.get("inside") or self.facts.get("applied")
        return self.framework.rank + (0.25 if beside else -0.25 if self.facts.get("differentiated") else 0.0)

    @property
    def weight(self):
        """Return a key that is larger for series that are open, then for those that took most of the time."""
        return (self.open, self.all_seconds)

    @property
    def all_seconds(self):
        busy = self.facts.get("busy")
        return busy if busy is not None else self.busy + self.lead

    @property
    def after(self):
        return clock() - (self.last or self.opened)

    def record(self):
        found = {name: getattr(self, name) for name in SeriesRecord.__annotations__}
        found["seconds"] = [round(value, 7) for value in self.seconds]
        found["special"] = {str(k): v for k, v in list(self.special.items())[:MOST_EVENTS]}
        return found


class ProgressTracker:
    """All series of a script."""

    def __init__(self, recorder, frameworks):
        self.recorder, self.frameworks = recorder, frameworks
        self.series, self.keyed = [], {}
        self.prospects = None
        self.models = ()  # what runs a model when it is called: the class, or classes
        self.lock = threading.RLock()

    def open(self, framework, unit, total, /, key, around=None, **facts):
        """Open a series, or the one of this key again, with which a second fit of the same kind goes on."""
        with self.lock:
            known = self.keyed.get(key)
            if known is not None:
                known.reopen()
                return known
            made = self.keyed[key] = Series(
                framework, unit, total, facts, self.loops_around() if around is None else around
            )
            self.series.append(made)
            return made

    def runs_models(self, kind):
        """Take calls of this class for calls of models."""
        self.models = kind

    def event(self, series, kind, seconds):
        """Work inside the current interval that is not the step's own (validation, the start of an epoch)."""
        with self.lock:
            series.event(kind, seconds)

    def loops_around(self, frame=None):
        """Return the loops around this place, of the script and of searches, outermost first."""
        return self.own_loops_around(frame or sys._getframe(2)) + library_loops()

    def own_loops_around(self, frame):
        loops = known(lambda: self.recorder.plain_loop_stack().snapshot(frame, own=True), default=[])
        for loop in loops:
            trips, at, early = loop["position"]
            if loop["trips"] in (None, "inf") and trips is not None:
                loop["trips"] = trips
            if "gate" in loop and isinstance(loop["trips"], (int, float)):
                loop["trips"] = math.ceil(loop["trips"] / loop["gate"]["every"])
            loop["position"] = (trips, at, early or any(name in loop for name in ("guard", "skips", "opens")))
        return loops

    def take_snapshot(self, series, frame):
        """Record the loops around a step that no framework counts."""
        loops = known(lambda: self.recorder.plain_loop_stack().snapshot(frame))
        if loops is not None:  # else the total is unknown
            series.snapshots.append(make_snapshot(series.steps, loops))

    def step(self, series, steps=1, frame=None):
        recorder, now = self.recorder, clock()
        if recorder.status != "running":
            return
        with self.lock:
            series.step(now, steps)
            if series.rank < BESIDE_TRAINING and series.steps in LOOKS_AHEAD:
                series.look_ahead(later=harmless(later_fits)(sys._getframe(1)) or [])
            if frame is not None and series.steps in LOOKS_AHEAD:
                series.look_ahead(periodic=harmless(self.read_periodic)(frame, series.steps) or [])
            if frame is not None and is_snapshot_due(series.steps):
                self.take_snapshot(series, frame)
            if recorder.first_step is None and self.counts(series):
                recorder.note_first_step(now)
            if self.enough(now):
                if frame is not None:
                    self.take_snapshot(series, frame)
                recorder.finish("cut")
            series.settle()

    def read_periodic(self, frame, step):
        """Return what the source names beside the steps of a loop, after this step."""
        models = types.SimpleNamespace(**{**vars(NO_TORCH), "nn": types.SimpleNamespace(Module=self.models)})
        upcoming = UpcomingWork(models, self.recorder.plain_loop_stack())
        return upcoming.periodic(upcoming.bodies(frame)[0], None, step)

    def counts(self, series):
        """Return whether this may be what the script is for."""
        return not series.setup and (series.rank < BESIDE_TRAINING or not self.awaits_training())

    def awaits_training(self):
        """Return whether what a framework does will be what counts: a bar or a loop is then only what comes before it."""
        recorder = self.recorder  # once torch has been set to work its steps are what counts
        return bool(recorder.optimizers_made or recorder.backwards) or self.read_sources().await_training()

    def names_training(self):
        """Return whether the script may make use of an optimizer; it may only have loaded a checkpoint into it."""
        own = self.read_sources()
        named = own.names - own.defined
        return bool(named & USES_OPTIMIZERS) or any(name.endswith("_training") for name in named)

    def read_sources(self):
        if self.prospects is None:
            self.prospects = Prospects(self.frameworks)
        return self.prospects

    def leading(self):
        """Return the series that says the most of what the script does; None without one that has stepped and may count."""
        stepped = [one for one in self.ranked() if one.steps and self.counts(one)]
        return stepped[0] if stepped else None

    def fit_length(self) -> TrainerLength | None:
        """Return what a fit of another framework that runs on torch says of its length."""
        for one in self.series:
            if "epochs" in one.facts and one.open:
                return {
                    "trainer": "{} fit".format(one.source.capitalize()),
                    "total": one.total,
                    "per_epoch": one.facts.get("per_epoch"),
                    "may_stop": ["EarlyStopping"] if one.facts.get("may_stop") else [],
                    "how": "epochs={}".format(one.facts.get("epochs")),
                    "saves": one.facts.get("saves"),
                    "validation": one.facts.get("validation"),
                }
        return None

    def enough(self, now):
        recorder = self.recorder
        first, steps = recorder.first_step, recorder.config.get("steps")
        if first is None or (recorder.phase is not None and recorder.phase.anchors > 1):
            return False
        leader = self.leading()
        if leader is None or self.may_only_evaluate(leader):
            return False
        if steps:
            return leader.steps > steps
        limit = recorder.config["measure_for"] + leader.facts.get("evaluating", 0.0)
        if leader.framework.compiles:
            first = leader.opened  # after what else is compiled
        return now - first >= limit and (
            leader.steps >= ENOUGH_STEPS or (leader.steps >= LEAST_STEPS and now - first >= 1.5 * limit)
        )

    def may_only_evaluate(self, series):
        """Return whether it is a jitted function that updates nothing, in a script that takes gradients somewhere."""
        return "applied" in series.facts and bool(self.read_sources().names & TAKES_GRADIENTS)

    def record(self):
        with self.lock:
            found = [one for one in self.ranked() if one.steps or one.open]
            applied = {one.source for one in found if "applied" in one.facts}
            if any(one.source in applied and "applied" not in one.facts for one in found):
                found = [one for one in found if "applied" not in one.facts]  # they evaluate what is trained
            for one in found:
                if self.may_only_evaluate(one):
                    one.note(applied="trains")
            return [one.record() for one in found][:MOST_SERIES]

    def ranked(self):
        found = sorted(self.series, key=lambda one: (bool(one.setup), one.rank, [-part for part in one.weight]))
        training = [one for one in found if not one.facts.get("inference") and one.rank < BESIDE_TRAINING]
        trained = sum(one.all_seconds for one in training)
        latest = max((one.last or one.opened for one in training), default=0.0)
        if not any(one.open and one.unit != "round" and not one.facts.get("inference") for one in found):
            # what took most of the time once nothing trains any more: predictions with what was trained quickly
            used = [one for one in found if one.facts.get("inference") and one.all_seconds > trained]
            used = [one for one in used if one.opened >= latest]  # else they belong to what trains again and again
            found = used + [one for one in found if one not in used]
        return found
