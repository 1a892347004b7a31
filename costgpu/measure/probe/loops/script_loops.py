"""Where a script that trains with no framework is in its own loops, looked at from beside it, some times a second."""

from __future__ import annotations

import ast
import math
import sys
import types

from ..record import LoopProgress
from ..schedstat import clock
from .loop_stack import LoopStack
from .script_frames import PROBE_ROOT, outwards, package_of_file
from .source import Source, names_in

NO_TORCH = types.SimpleNamespace(
    __file__="/nonexistent/torch/__init__.py",
    utils=types.SimpleNamespace(data=types.SimpleNamespace(DataLoader=())),
    optim=types.SimpleNamespace(Optimizer=()),
)
MOST_LOOKS = 4000
LIBRARY_LOOKS = (1, 2, 3, 5, 10, 20, 50)
TENSORS = ("torch", "jax", "jaxlib", "tensorflow", "cupy")  # libraries that compute on a GPU, too


def plain_loop_stack(libraries):
    """Reads loops where torch is not what trains."""
    return LoopStack(NO_TORCH, libraries, {}, positions=True)


class ScriptLoops:
    """The script's loops as they were seen, again and again."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.looks = []  # (time, loops, outermost first)
        self.stride, self.due = 1, 0
        self.libraries = set()  # whose tensors its loops make

    def look(self):
        """Notes the live loops; called by the watchdog."""
        self.due -= 1
        if self.due > 0:
            return
        self.due = self.stride
        now, frame = clock(), sys._current_frames().get(self.recorder.thread)
        if frame is None:
            return
        try:
            loops = self.recorder.plain_loop_stack().snapshot(frame, own=True)
        except Exception:  # noqa: BLE001 - the script runs on while we look
            return
        finally:
            del frame
        self.looks.append((now, [brief(loop) for loop in loops]))
        if len(self.looks) in LIBRARY_LOOKS:
            self.libraries.update(tensor_libraries(sys._current_frames().get(self.recorder.thread)))
        if len(self.looks) > MOST_LOOKS:
            self.looks = self.looks[::2]
            self.stride *= 2

    def moved(self):
        """Whether a loop of known length has been seen to advance."""
        return self.progress() is not None

    def progress(self) -> LoopProgress | None:
        """The loops of known length, outermost first, and how far they came: None if none advanced."""
        if len(self.looks) < 3:
            return None
        newest = self.looks[-1][1]
        best: LoopProgress | None = None
        for depth in range(1, len(newest) + 1):
            if newest[depth - 1]["trips"] is None or newest[depth - 1]["index"] is None:
                break
            keys = [loop["key"] for loop in newest[:depth]]
            seen = [(at, loops[:depth]) for at, loops in self.looks if [x["key"] for x in loops[:depth]] == keys]
            (begin, first), (end, last) = seen[0], seen[-1]
            if iterations(last) > iterations(first):
                some = seen[:: max(1, len(seen) // 500)]
                best = {
                    "loops": last,
                    "first": iterations(first),
                    "last": iterations(last),
                    "seconds": end - begin,
                    "lead": begin - self.recorder.started,
                    "libraries": sorted(self.libraries),
                    "times": [(round(at - begin, 4), iterations(loops)) for at, loops in some],
                }
        return best


def tensor_libraries(frame):
    """Libraries of the tensors that the script's loops around this place make."""
    found = set()
    for live in outwards(frame):
        path = live.f_code.co_filename
        if path.startswith((PROBE_ROOT, "<")) or package_of_file(path):
            continue
        source = Source.of(path)
        scope = source.scope(live.f_code) if source is not None else None
        local = live.f_locals
        for loop in source.loops(scope, live.f_lineno) if scope is not None else ():
            for name in names_in(loop, ast.Store):
                value = local.get(name)
                if hasattr(type(value), "shape"):
                    found.add(type(value).__module__.split(".")[0])
    return found & set(TENSORS)


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


def iterations(loops):
    """Iterations of the innermost of these loops so far."""
    passed = 0.0
    for loop in loops:
        passed = passed * loop["trips"] + min(loop["index"], loop["trips"])
    return passed
