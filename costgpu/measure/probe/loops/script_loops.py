"""Where a script that trains with no framework is in its own loops, looked at from beside it, some times a second."""

from __future__ import annotations

import ast
import math
import sys
import time
import types

from ..record import Again, LoopProgress
from ..schedstat import clock
from .loop_stack import LoopStack
from .script_frames import PROBE_ROOT, library_loops, outwards, package_of_file, variables_of
from .source import loops_around, names_in

NO_TORCH = types.SimpleNamespace(
    __file__="/nonexistent/torch/__init__.py",
    utils=types.SimpleNamespace(data=types.SimpleNamespace(DataLoader=())),
    optim=types.SimpleNamespace(Optimizer=()),
)
MOST_LOOKS = 4000
CLOSE_SECONDS = (0.005, 0.002, 0.0005)  # between looks at loops that begin anew within one of the watchdog's turns
LEAST_MOVED, LEAST_PAIRS = 5, 10
GATES = ("gate", "guard", "skips", "opens")  # of a loop: what is inside of it is not made in each of its iterations
LIBRARY_LOOKS = (1, 2, 3, 5, 10, 20, 50)
TENSORS = ("torch", "jax", "jaxlib", "tensorflow", "cupy")  # libraries that compute on a GPU, too


def plain_loop_stack(libraries):
    """Read loops where torch is not what trains."""
    return LoopStack(NO_TORCH, libraries, {}, positions=True)


class ScriptLoops:
    """The script's loops as they were seen, again and again."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.looks = []  # (time, loops, outermost first)
        self.stride, self.due = 1, 0
        self.begins_anew, self.around = False, None  # the loops themselves, and what is known around them
        self.close = {gap: [] for gap in CLOSE_SECONDS}  # seconds and iterations between two looks close to each other
        self.libraries = set()  # whose tensors its loops make

    def look(self):
        """Note the live loops; called by the watchdog."""
        self.due -= 1
        if self.due > 0:
            return
        self.due = self.stride
        now, frame = clock(), sys._current_frames().get(self.recorder.thread)
        if frame is None:
            return
        try:
            loops = self.recorder.plain_loop_stack().snapshot(frame, own=True)
            if self.around is None and any(loop.get("caller") for loop in loops):
                self.around = library_loops(frame)
        except Exception:  # noqa: BLE001 - the script runs on while we look
            return
        finally:
            del frame
        self.looks.append((now, [brief(loop) for loop in loops]))
        if self.begins_anew:
            self.look_closely()
        if len(self.looks) in LIBRARY_LOOKS:
            self.libraries.update(tensor_libraries(sys._current_frames().get(self.recorder.thread)))
        if len(self.looks) > MOST_LOOKS:
            self.looks = self.looks[::2]
            self.stride *= 2

    def look_closely(self):
        """Note how quickly loops move that begin anew between two looks: from looks close to each other."""
        last, loops = self.looks[-1]
        keys = [loop["key"] for loop in loops]
        for gap in CLOSE_SECONDS:
            time.sleep(gap)
            now, frame = clock(), sys._current_frames().get(self.recorder.thread)
            try:
                seen = [brief(loop) for loop in self.recorder.plain_loop_stack().snapshot(frame, own=True)]
            except Exception:  # noqa: BLE001 - the script runs on while we look
                return
            finally:
                del frame
            if [loop["key"] for loop in seen] == keys and known(seen) and known(loops):
                self.close[gap].append((now - last, iterations(seen) - iterations(loops)))
            last, loops = now, seen

    def moved(self):
        """Return whether a loop of known length has been seen to advance; one that is not always made is waited through."""
        found, recorder = self.progress(), self.recorder
        if found is None or len(found["loops"]) < 2 or not found["loops"][-2]["gated"]:
            return found is not None
        return clock() - recorder.started > recorder.config["start_limit"]

    def progress(self) -> LoopProgress | None:
        """Return the loops of known length, outermost first, and how far they came: None if none advanced."""
        if len(self.looks) < 3:
            return None
        newest = self.looks[-1][1]
        best: LoopProgress | None = None
        if self.begins_anew and not newest:  # it is between two calls
            newest = next(loops for _, loops in reversed(self.looks) if loops)
        for depth in range(1, len(newest) + 1):
            if newest[depth - 1]["trips"] is None or newest[depth - 1]["index"] is None:
                best = best or self.timed(newest[:depth])
                break
            if depth > 1 and newest[depth - 2]["gated"] and best is not None:
                break  # an evaluation every so many rounds
            keys = [loop["key"] for loop in newest[:depth]]
            seen = [(at, loops[:depth]) for at, loops in self.looks if [x["key"] for x in loops[:depth]] == keys]
            seen = [(at, loops) for at, loops in seen if known(loops)]
            (begin, first), (end, last) = seen[0], seen[-1]
            back = any(iterations(b) < iterations(a) for (_, a), (_, b) in zip(seen, seen[1:]))
            if back or newest[depth - 1]["driven"]:  # of what a library calls, one call or many may have passed
                self.begins_anew = best is None
                return best or self.repeated([(at, loops[depth - 1 :]) for at, loops in seen])
            if depth > 1 and last[-2]["gated"]:
                last = [*last[:-1], {**last[-1], "early": True}]
            if iterations(last) > iterations(first):
                some = seen[:: max(1, len(seen) // 500)]
                times = [(round(at - begin, 4), iterations(loops)) for at, loops in some]
                best = self.made(last, begin, end, iterations(last), first=iterations(first), times=times)
        return best

    def timed(self, loops) -> LoopProgress | None:
        """Loops of which a clock ends the last one, in seconds instead of iterations; None without a clock."""
        keys, clock_at = [loop["key"] for loop in loops], loops[-1]["clock"]
        seen = [at for at, some in self.looks if [one["key"] for one in some[: len(keys)]] == keys]
        if clock_at is None or len(seen) < 3 or any(loop["trips"] != 1 for loop in loops[:-1]):
            return None
        passed = seen[-1] - seen[0]
        only = dict(loops[-1], trips=clock_at["seconds"], index=passed)
        return self.made([only], seen[0], seen[-1], passed, clock=clock_at["test"])

    def made(self, loops, begin, end, last, first=0.0, **more):
        """Return how far loops came from one look to another: evenly, if nothing else is known."""
        return {
            "loops": loops,
            "first": first,
            "last": last,
            "seconds": end - begin,
            "lead": begin - self.recorder.started,
            "libraries": sorted(self.libraries),
            "times": [(0.0, 0.0), (end - begin, last)],
            **more,
        }

    def repeated(self, seen) -> LoopProgress | None:
        """Return the loops that begin anew again and again: how fast they go; None as long as that cannot be told."""
        (begin, _), (end, last) = seen[0], seen[-1]
        whole, inside = math.prod(loop["trips"] for loop in last), len(seen) / len(self.looks)
        pairs = [(later - earlier, iterations(b) - iterations(a)) for (earlier, a), (later, b) in zip(seen, seen[1:])]
        for steps in (*(self.close[gap] for gap in sorted(self.close)), pairs):
            forward = [(seconds, moved) for seconds, moved in steps if moved >= 0]
            seconds, moved = sum(one for one, _ in forward), sum(one for _, one in forward)
            # else it may have come round between two looks, and once more
            if (
                moved >= LEAST_MOVED
                and LEAST_PAIRS <= len(steps) < 2 * len(forward)
                and moved / len(forward) < whole / 3
            ):
                done = moved / seconds * inside * (end - begin)
                again: Again = {"by": last[-1]["caller"], "times": done / whole, "around": self.around or []}
                return self.made(last, begin, end, done, again=again)
        return None


def known(loops):
    return bool(loops) and all(loop["trips"] is not None and loop["index"] is not None for loop in loops)


def tensor_libraries(frame):
    """Return the libraries of the tensors that the script's loops around this place make."""
    found = set()
    for live in outwards(frame):
        path = live.f_code.co_filename
        if path.startswith((PROBE_ROOT, "<")) or package_of_file(path):
            continue
        local = variables_of(live)
        for loop in loops_around(live):
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
        "clock": {"seconds": loop["seconds"], "test": loop["clock"]["test"]} if "seconds" in loop else None,
        "gated": any(name in loop for name in GATES),
        "caller": loop.get("caller", ""),
        "driven": loop.get("driven", False),
    }


def iterations(loops):
    """Return iterations of the innermost of these loops so far."""
    passed = 0.0
    for loop in loops:
        passed = passed * loop["trips"] + min(loop["index"], loop["trips"])
    return passed
