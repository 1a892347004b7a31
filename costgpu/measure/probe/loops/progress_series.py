"""Progress of everything that is not a torch optimizer: what beats, how often, and how often it will have beaten.

A series is one thing that repeats: the steps of a framework's fit, boosting rounds, the fits of a search, a progress bar.
Frameworks rank before bars, and bars before the script's bare loops: a bar over files that are read is not the training.
"""

import os
import sys
import threading
import traceback
from array import array

from ..op_tracer import clock
from .loop_stack import HERE

RANKS = {
    "keras": 0,
    "tensorflow": 1,
    "jax": 2,
    "xgboost": 3,
    "lightgbm": 3,
    "catboost": 3,
    "sklearn": 4,
    "tqdm": 8,
    "loops": 9,
}
TRAINS = 5  # ranks below it are training; the others only may be
# Whoever imports one of these will probably train with it: then a bar or a loop before it is not what counts.
TRAINERS = ("torch", "keras", "tensorflow", "jax", "xgboost", "lightgbm", "sklearn", "catboost")
MOST_TIMES = 20000
FIT = 0  # among the loaders that were opened: a fit says itself that an epoch begins
ENOUGH_BEATS, LEAST_BEATS = 5, 3
SNAPSHOT_AT = {1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 4097, 16385, 65537}


class Series:
    """One thing that repeats.

    Times are seconds of the probe's clock; `facts` travel to the result as they are.
    """

    def __init__(self, source, unit, total, facts):
        self.source, self.unit, self.total, self.facts = source, unit, total, facts
        self.rank = RANKS[source]
        self.opened, self.last = clock(), None
        self.seconds, self.special, self.events = array("d"), {}, {}
        self.beats = 0
        self.busy = 0.0  # all intervals together, also those that are not kept
        self.open = True
        self.lead = 0.0  # from the opening to the first beat
        self.label = own_place()
        self.openings = 1
        self.snapshots, self.around = [], []

    def beat(self, now, steps=1):
        if self.last is None:
            self.lead += now - self.opened if not self.beats else 0.0
        else:
            self.busy += now - self.last
            for _ in range(steps if len(self.seconds) < MOST_TIMES else 0):
                self.seconds.append((now - self.last) / steps)
            if self.events:
                self.special[len(self.seconds) - 1] = self.events
        self.events = {}
        self.beats += steps

    def record(self):
        return {
            "source": self.source,
            "unit": self.unit,
            "total": self.total,
            "beats": self.beats,
            "open": self.open,
            "seconds": [round(value, 7) for value in self.seconds],
            "lead": self.lead,
            "total_seconds": self.busy,
            "label": self.label,
            "facts": self.facts,
            "special": {str(k): v for k, v in list(self.special.items())[:5000]},
            "snapshots": self.snapshots,
            "openings": self.openings,
            "around": self.around,
        }


class Beats:
    """All series of a script."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.series = []
        self.keyed = {}
        self.lock = threading.RLock()

    def open(self, source, unit, total=None, key=None, **facts):
        """A series, or the one of this key again: the second fit of the same kind at the same place goes on with it."""
        with self.lock:
            known = self.keyed.get(key) if key is not None else None
            if known is not None:
                known.open, known.last = True, None
                known.openings += 1
                return known
            made = Series(source, unit, total, facts)
            made.around = self.around()
            self.series.append(made)
            if key is not None:
                self.keyed[key] = made
            return made

    def close(self, series):
        series.open = False

    def event(self, series, kind, seconds):
        """Work inside the current interval that is not the step's own (validation, the start of an epoch)."""
        with self.lock:
            series.events[kind] = series.events.get(kind, 0.0) + seconds

    def muted(self, series, seconds):
        """Time of our own that is not the series'."""
        if series.last is not None:
            series.last += seconds

    def around(self):
        """The script's own loops around this place, outermost first."""
        try:
            loops = self.recorder.plain_nest().snapshot(sys._getframe(2), own=True)
        except Exception:  # noqa: BLE001 - only a help for the total
            return []
        for loop in loops:
            if loop["trips"] is None:
                loop["trips"] = loop["position"][0]
        return loops + repeats()

    def look(self, series, frame):
        """The loops around a step that no framework counts."""
        try:
            loops = self.recorder.plain_nest().snapshot(frame)
        except Exception:  # noqa: BLE001 - the total is then unknown
            return
        series.snapshots.append(
            {
                "anchor": series.beats,
                "batches": 0,
                "all_batches": 0,
                "backwards": 0,
                "loops": loops,
                "steps": series.beats,
            }
        )

    def beat(self, series, steps=1, frame=None):
        recorder, now = self.recorder, clock()
        if recorder.status != "running":
            return
        with self.lock:
            series.beat(now, steps)
            if frame is not None and (series.beats in SNAPSHOT_AT or series.beats % 100000 == 0):
                self.look(series, frame)
            if recorder.first_step is None and self.counts(series):
                recorder.begun(now)
            if self.enough(now):
                if frame is not None:
                    self.look(series, frame)
                recorder.finish("cut")
            series.last = clock()

    def counts(self, series):
        """Whether this may be what the script is for."""
        return series.rank < TRAINS or not any(name in sys.modules for name in TRAINERS)

    def leading(self):
        """The series that says the most of what the script does; None without one that has beaten."""
        beaten = [one for one in self.series if one.beats]
        if not beaten:
            return None
        rank = min(one.rank for one in beaten)
        return max((one for one in beaten if one.rank == rank), key=weight)

    def told(self):
        """Of a Keras fit that runs on torch: its length."""
        for one in self.series:
            if one.source == "keras" and one.open:
                return {
                    "trainer": "Keras fit",
                    "total": one.total,
                    "per_epoch": one.facts.get("per_epoch"),
                    "may_stop": ["EarlyStopping"] if one.facts.get("may_stop") else [],
                    "how": "epochs={}".format(one.facts.get("epochs")),
                }
        return None

    def enough(self, now):
        recorder = self.recorder
        first, steps = recorder.first_step, recorder.config.get("steps")
        if first is None or (recorder.phase is not None and recorder.phase.anchors > 1):
            return False
        leader = self.leading()
        if leader is None or not self.counts(leader):
            return False
        if steps:
            return leader.beats > steps
        limit = recorder.config["measure_for"]
        return now - first >= limit and (
            leader.beats >= ENOUGH_BEATS or (leader.beats >= LEAST_BEATS and now - first >= 1.5 * limit)
        )

    def record(self):
        with self.lock:
            return [one.record() for one in self.ranked() if one.beats or one.open][:20]

    def ranked(self):
        return sorted(self.series, key=lambda one: (one.rank, [-part for part in weight(one)]))


def weight(series):
    """The series that most of the time went to: of two, the one still open."""
    busy = series.facts.get("busy")
    return (series.open, busy if busy is not None else series.busy + series.lead)


def own_place():
    """``train.py:31``, where the user's own code is on the stack; empty if it is not."""
    frame, libraries = sys._getframe(1), (os.path.dirname(os.__file__), "site-packages", "dist-packages")
    while frame is not None:
        path = frame.f_code.co_filename
        foreign = path.startswith((HERE, "<")) or any(part in path for part in libraries) or "_costgpu_probe" in path
        if not foreign:
            return "{}:{}".format(os.path.basename(path), frame.f_lineno)
        frame = frame.f_back
    return ""


def frame_called(name, file_ending, limit=40):
    """The nearest frame on the stack of a function of this name in such a file; None if there is none."""
    frame = sys._getframe(1)
    for _ in range(limit):
        if frame is None:
            return None
        if frame.f_code.co_name == name and frame.f_code.co_filename.replace("\\", "/").endswith(file_ending):
            return frame
        frame = frame.f_back
    return None


def repeats():
    """Loops of scikit-learn's own around this place, outermost first, as far as they say how long they are."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        counts = REPEATERS.get(frame.f_code.co_name)
        if counts is not None and "model_selection" in frame.f_code.co_filename:
            try:
                trips = int(counts(frame.f_locals))
            except Exception:  # noqa: BLE001 - another version keeps it elsewhere
                trips = None
            found.append({"trips": trips, "file": frame.f_code.co_name, "line": 0})
        frame = frame.f_back
    return found[::-1]


def splits(local):
    return local["cv"].get_n_splits(local["X"], local["y"], local.get("groups"))


REPEATERS = {
    "cross_validate": splits,
    "cross_val_predict": splits,
    "evaluate_candidates": lambda local: local["n_candidates"] * local["n_splits"],
}


FAILURES: "list[str]" = []  # of hooks, for the result
MOST_FAILURES = 5


def harmless(hook):
    """For what we do on behalf of the measurement: if it fails on something unheard of, the script goes on uncounted."""

    def call(*args, **kwargs):
        try:
            return hook(*args, **kwargs)
        except Exception:  # noqa: BLE001 - objects of any library's next version, and of the user's own
            if len(FAILURES) < MOST_FAILURES:
                FAILURES.append(traceback.format_exc()[-1500:])
            return None

    return call


def patched(owner, name, make):
    """Replaces a function or method by `make(inner)`, once; whether there was one."""
    inner = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if inner is None or getattr(inner, "_costgpu", False):
        return False
    outer = make(inner)
    try:
        outer._costgpu = True
        outer.__wrapped__ = inner
        outer.autograph_info__ = {}  # TensorFlow's autograph is to call it as it is
        for detail in ("__name__", "__qualname__", "__module__", "__doc__"):  # so it is pickled by its name
            setattr(outer, detail, getattr(inner, detail, None))
    except (AttributeError, TypeError):
        pass
    setattr(owner, name, outer)
    return True
