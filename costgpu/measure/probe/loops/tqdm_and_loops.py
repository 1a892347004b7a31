"""Progress of scripts that train with no framework: tqdm's bars, and the loops of the script itself."""

import math
import sys
import types

from ..op_tracer import clock
from .loop_stack import LoopStack
from .progress_series import harmless, own_place, patched

NO_TORCH = types.SimpleNamespace(
    __file__="/nonexistent/torch/__init__.py",
    utils=types.SimpleNamespace(data=types.SimpleNamespace(DataLoader=())),
    optim=types.SimpleNamespace(Optimizer=()),
)


def attach_tqdm(beats):
    """A callback for when ``tqdm.std`` has been imported."""
    open_series = harmless(opened)

    @harmless
    def count(bar, n):
        if not getattr(bar, "_costgpu_iterated", False) and isinstance(n, int) and n > 0:
            beats.beat(opened(beats, bar), min(n, 1000))

    def attach(module):
        def make_iter(inner):
            def __iter__(bar):
                if getattr(bar, "disable", False) and bar.total is None:
                    for item in inner(bar):
                        yield item
                    return
                series = open_series(beats, bar, iterated=True)
                for item in inner(bar):
                    yield item
                    if series is not None:
                        beats.beat(series)
                if series is not None:
                    beats.close(series)

            return __iter__

        def make_update(inner):
            def update(bar, n=1):
                result = inner(bar, n)
                count(bar, n)
                return result

            return update

        patched(module.tqdm, "__iter__", make_iter)
        patched(module.tqdm, "update", make_update)

    return attach


def opened(beats, bar, iterated=False):
    series = getattr(bar, "_costgpu_series", None)
    if series is not None:
        return series
    place = own_place()
    total = getattr(bar, "total", None)
    outer = [one for one in beats.series if one.source == "tqdm" and one.open and one.label != place]
    series = beats.open(
        "tqdm",
        str(getattr(bar, "unit", "it")),
        None,
        key=("tqdm", place),
        may_stop=False,
        description=str(getattr(bar, "desc", "") or "")[:60],
        each=total,
        outer=outer[-1].label if outer else "",
    )
    series.facts["each"] = total
    series.facts["opened"] = series.facts.get("opened", 0) + 1
    bar._costgpu_series = series
    bar._costgpu_iterated = iterated
    return series


class Loops:
    """Where the script is in its own loops, looked at from beside it, some times a second."""

    LOOKS = 4000

    def __init__(self, recorder):
        self.recorder = recorder
        self.nest = None
        self.looks = []  # (seconds, [(key, trips, index, stride, start, source)], outermost first)
        self.stride, self.due = 1, 0
        self.cost = 0.0

    def look(self):
        """Notes the live loops; called by the watchdog."""
        self.due -= 1
        if self.due > 0:
            return
        self.due = self.stride
        recorder, begin = self.recorder, clock()
        frame = sys._current_frames().get(recorder.thread)
        if frame is None:
            return
        if self.nest is None:
            self.nest = recorder.plain_nest()
        try:
            loops = self.nest.snapshot(frame, own=True)
        except Exception:  # noqa: BLE001 - the script runs on while we look
            return
        finally:
            del frame
        self.looks.append((begin, [brief(loop) for loop in loops]))
        if len(self.looks) > self.LOOKS:
            self.looks = self.looks[::2]
            self.stride *= 2
        self.cost += clock() - begin

    def moved(self):
        """Whether a loop of known length has been seen to advance."""
        return self.progress() is not None

    def progress(self):
        """The loops of known length, outermost first, and how far they came: None if none advanced."""
        if len(self.looks) < 3:
            return None
        newest = self.looks[-1][1]
        best = None
        for depth in range(1, len(newest) + 1):
            keys = [loop["key"] for loop in newest[:depth]]
            if any(loop["trips"] is None or loop["index"] is None for loop in newest[:depth]):
                break
            seen = [(at, loops[:depth]) for at, loops in self.looks if [x["key"] for x in loops[:depth]] == keys]
            if len(seen) < 2:
                continue
            first, last = position(seen[0][1]), position(seen[-1][1])
            if last > first:
                some = seen[:: max(1, len(seen) // 500)]
                best = {
                    "loops": [dict(x, trips=x["trips"]) for x in seen[-1][1]],
                    "from": first,
                    "to": last,
                    "seconds": seen[-1][0] - seen[0][0],
                    "at": seen[0][0] - self.recorder.started,
                    "times": [(round(at - seen[0][0], 4), position(loops)) for at, loops in some],
                }
        return best


def brief(loop):
    trips, at, early = loop["position"]
    if isinstance(trips, str) or (trips is not None and not math.isfinite(trips)):
        trips = None
    return {
        "key": (loop["path"], loop["line"], loop["function"]),
        "file": loop["file"],
        "line": loop["line"],
        "source": loop.get("source", ""),
        "trips": trips,
        "index": at,
        "early": early,
    }


def position(loops):
    """Iterations of the innermost of these loops so far."""
    passed = 0.0
    for loop in loops:
        passed = passed * loop["trips"] + min(loop["index"], loop["trips"])
    return passed


def plain_nest(libraries):
    return LoopStack(NO_TORCH, libraries, {}, positions=True)
