"""The loops around the current step, with trip counts and bounds, read from the live stack."""

from __future__ import annotations

import ast
import functools
import math
import os
import sys

from ..patching import known
from ..record import Loop, new_loop
from .exit_paths import function_exits
from .loop_exits import add_foreign_exit, find_exits
from .loop_position import position
from .safe_eval import FOREVER, Evaluator, Unknown, is_bar, wraps
from .script_frames import (
    PROBE_ROOT,
    STARTERS,
    called_by_libraries,
    outwards,
    package_of_file,
    variables_of,
)
from .source import (
    Source,
    depends_on_outer,
    encloses,
    encloses_any,
    literal_values,
    loops_around,
    made_before,
    names_in,
    own_statements,
)
from .step_gates import read_gates
from .syntax import dotted

OUTERMOST = ("run_script", "run_child")  # our functions that call the script; a loop that starts ranks is no repetition
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<genexpr>", "<dictcomp>")


class Place:
    """A live frame with its parsed source, and an evaluator in its variables."""

    def __init__(self, live, holder, source, scope, depth, torch, deadlines=None):
        self.live, self.source, self.scope, self.depth = live, source, scope, depth
        self.deadlines = {} if deadlines is None else deadlines
        # The evaluator knows the frame and not the place: a ring of them would keep the frame's tensors for a while.
        self.origins = functools.partial(origins, source, scope, live)
        self.evaluator = Evaluator(variables_of(holder), holder.f_globals, torch, origins=self.origins)
        self.put([], repeated=False)

    def put(self, below, *, repeated):
        """Put it above the places between it and the step; `repeated` by loops further out."""
        self.below, self.repeated = below, repeated

    def until(self, loop, seconds):
        """Return the seconds that a deadline left when its loop was seen for the first time."""
        return self.deadlines.setdefault((self.live.f_code, loop.lineno), seconds)

    @property
    def line(self):
        return self.live.f_lineno

    def loops(self):
        return self.source.loops(self.scope, self.line)


def origins(source, scope, live, text):
    """Return the expressions that a name was assigned before the loops around a frame's line."""
    around = source.loops(scope, live.f_lineno)
    first = around[-1].lineno if around else live.f_lineno
    return made_before(scope, text, first, source)


class LoopStack:
    """The loops around the current step, with their trip counts and bounds, read from the live stack."""

    def __init__(self, torch, library_roots, loaders_by_line, positions=False):
        self.torch, self.library_roots, self.positions = torch, library_roots, positions
        self.loaders_by_line = loaders_by_line
        self.deadlines = {}  # seconds that a loop had when it was first seen
        self.torch_root = os.path.dirname(torch.__file__) + os.sep

    def frames(self, frame):
        """Return the frames from the script's top to the step, without torch's and the probe's own."""
        found = []
        for live in outwards(frame):
            path = live.f_code.co_filename
            if path.startswith(PROBE_ROOT) and live.f_code.co_name in OUTERMOST:
                break
            if not path.startswith((self.torch_root, PROBE_ROOT)) and "runpy" not in path:
                found.append(live)
        return found[::-1]

    def is_library(self, path):
        return path.startswith(self.library_roots) or path.startswith("<")

    def snapshot(self, frame, own=False):
        """Return the loops, outermost first; with `own`, libraries are left out, whose sources then need not be parsed."""
        loops, places = [], self.places(frame, own)
        callers = {id(live): called for live, *called in called_by_libraries(self.frames(frame))}
        caller, driven = "", False
        for number, place in enumerate(places):
            if id(place.live) in callers:
                caller, between = callers[id(place.live)]
                driven = any(map(loops_around, between))
            outer = len(loops)
            place.put(places[number + 1 :], repeated=not all(loop["library"] for loop in loops))
            if place.live.f_code.co_name not in COMPREHENSIONS:
                if loops and not place.loops() and not self.is_library(place.live.f_code.co_filename):
                    read_gates(loops[-1], None, place.scope.body, place)
                if loops and not loops[-1]["library"] and not self.is_library(place.live.f_code.co_filename):
                    way = function_exits(place.source).get(place.live.f_code.co_name)
                    if way is not None:
                        add_foreign_exit(loops[-1], way, place)
                if package_of_file(place.live.f_code.co_filename) not in STARTERS:
                    loops += [self.loop(node, place) for node in place.loops()]
            if place.live.f_code.co_name in COMPREHENSIONS or sys.version_info >= (3, 12):
                heads = place.source.comprehension(place.scope, place.line)
                loops += [self.generator(node.iter, place) for node in heads]
            for loop in loops[outer:] if caller else ():
                loop["caller"], loop["driven"] = caller, driven
        forget_shadowed(loops)
        return loops

    def places(self, frame, own):
        """Return the frames whose source can be read, outermost first."""
        found, frames = [], self.frames(frame)
        if own:
            frames = [live for live in frames if not self.is_library(live.f_code.co_filename)]
        for depth, live in enumerate(frames):
            holder = frames[depth - 1] if live.f_code.co_name in COMPREHENSIONS and depth else live
            source, scope = Source.of_code(holder.f_code)
            if scope is not None:
                found.append(Place(live, holder, source, scope, depth, self.torch, self.deadlines))
        return found

    def variables(self, frame):
        """Return what the variables of the loops around a step hold, by identity: (path, line) -> ids, outermost first."""
        found = {}
        for live in self.frames(frame):
            held = variables_of(live)
            for node in loops_around(live):
                names = names_in(node.target, ast.Store) if isinstance(node, (ast.For, ast.AsyncFor)) else ()
                found[live.f_code.co_filename, node.lineno] = [id(held.get(name)) for name in sorted(names)]
        return found

    def exit_at(self, frame):
        """Return what may end the loop whose head is drawing an item in this frame, in words; empty for nothing."""
        source, scope = Source.of_code(frame.f_code)
        for node in source.repeats(scope) if scope is not None else ():
            if not isinstance(node, (ast.For, ast.AsyncFor)) or not encloses(node.iter, frame.f_lineno):
                continue
            loop = self.loop(node, Place(frame, frame, source, scope, 0, self.torch))
            clocks = [loop["clock"]] if "clock" in loop else []
            for one in (*loop["early_exit"], *clocks, *loop["bounds"]):
                return "line {}: {}".format(one["line"], one["test"])
        return ""

    def generator(self, over, place):
        """Return a loop of a comprehension."""
        record = self.record(over, place, "for", over)
        self.count(record, over, place, over.lineno)
        if self.positions:
            record["position"] = (record["trips"], None, False)
        return record

    def loop(self, node, place):
        """Return a loop statement."""
        if isinstance(node, (ast.For, ast.AsyncFor)):
            record = self.record(node, place, "for", node.iter)
            self.count(record, node.iter, place, node.lineno)
            counts = known(counter_of, node, place.evaluator)
            if counts is not None and not set_inside(node, counts[0]):
                record["target"], record["index"], record["start"], record["stride"] = counts
            only_some(record, node, place)
            record["varies"] = not record["loader"] and depends_on_outer(node, place.loops())
            record["loader"] |= (place.live.f_code, node.lineno) in self.loaders_by_line
        else:
            record = self.record(node, place, "while", node.test)
            record["why"] = "while"
            if isinstance(node.test, ast.Constant) and node.test.value:
                record["trips"], record["why"] = "inf", "while True"
        find_exits(record, node, place)
        read_gates(record, node, node.body, place)
        if self.positions:
            record["position"] = position(record, node, place)
        return record

    def record(self, node, place, kind, head) -> Loop:
        path = place.live.f_code.co_filename
        return new_loop(
            file=os.path.basename(path),
            path=path,
            line=node.lineno,
            kind=kind,
            function=place.live.f_code.co_name,
            depth=place.depth,
            library=self.is_library(path),
            loader=False,
            source=place.source.segment(head),
        )

    def count(self, record, node, place, line):
        """Count the trips of a loop over `node`, and note what it is over."""
        evaluator = place.evaluator
        try:
            evaluator.shorter.clear()
            trips = evaluator.trips(node)
            record["trips"] = "inf" if math.isinf(trips) or trips >= FOREVER else trips
            if evaluator.shorter:
                test = "{} may end first".format(evaluator.shorter[0].replace("?", "an iterator"))
                record["early_exit"].append({"line": node.lineno, "test": test, "clock": False})
        except Unknown as reason:
            record["why"] = str(reason)
        except Exception as error:  # noqa: BLE001 - user objects may raise anything
            record["why"] = type(error).__name__
        loader = self.loaders_by_line.get((place.live.f_code, line))
        if record["trips"] is None and loader is not None:
            try:
                record["trips"], record["why"] = len(loader), "length of the DataLoader that it reads"
            except TypeError:
                record["why"] = "a DataLoader without a length"
        while isinstance(node, ast.Call) and node.args and wraps(node):  # `enumerate(tqdm(...))`
            node = node.args[0]
        try:
            value = evaluator.value(node)
            record["loader"] = isinstance(value, self.torch.utils.data.DataLoader)
            optimizers = getattr(self.torch.optim, "Optimizer", ())
            record["optimizers"] = isinstance(value, (list, tuple)) and any(isinstance(v, optimizers) for v in value)
        except Exception:  # noqa: BLE001, S110 - only a hint
            pass


def only_some(record, node, place):
    """Note a loop over literal values of which only some reach the step: `if phase == "train"`."""
    values = literal_values(node)
    if values is None:
        return
    for statement in own_statements(node.body):
        if isinstance(statement, ast.If) and encloses_any(statement.body, place.line):
            names = {n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)}
            if names == {node.target.id}:
                try:
                    taken = [Evaluator({node.target.id: value}, {}).value(statement.test) for value in values]
                    record["trips"] = sum(map(bool, taken))
                except Exception:  # noqa: BLE001 - not a plain comparison: all of them count
                    return


def counter_of(loop, evaluator):
    """Return the name that counts the iterations of a `for` (range, enumerate), its value, the first one and its stride.

    None for a loop that counts nothing.
    """
    target, call = loop.target, loop.iter
    if (
        isinstance(call, ast.Call)
        and call.args
        and is_bar(call, evaluator)
        and not dotted(call.func).endswith("trange")
    ):
        call = call.args[0]
    name = dotted(call.func) if isinstance(call, ast.Call) else ""
    if name == "zip" and call.args and isinstance(target, ast.Tuple):  # zip(range(n), data)
        target, call = target.elts[0], call.args[0]
        name = dotted(call.func) if isinstance(call, ast.Call) else ""
    if name == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        starts = call.args[1:2] or [k.value for k in call.keywords if k.arg == "start"]
        target, numbers = target.elts[0], [evaluator.number(starts[0]) if starts else 0, None]
    elif name.rsplit(".", 1)[-1] in ("range", "trange") and isinstance(target, ast.Name):
        numbers = [evaluator.number(a) for a in call.args]
    else:
        return None
    first, stride = numbers[0] if len(numbers) > 1 else 0, numbers[2] if len(numbers) > 2 else 1
    return target.id, evaluator.number(target), first, stride


def forget_shadowed(loops):
    """Keep only the innermost value of a variable that several loops share (`for _ in ...` in `for _ in ...`)."""
    seen = set()
    for loop in reversed(loops):
        key = (loop["depth"], loop.get("target"))
        if key[1] is not None and key in seen:
            loop["index"] = None
            del loop["target"]
            if "position" in loop:
                loop["position"] = (loop["position"][0], None, loop["position"][2])
        seen.add(key)


def set_inside(node, name):
    """Return whether another loop in a loop's body has the same variable, so that it does not count the outer one."""
    inner = (one for part in node.body for one in ast.walk(part) if isinstance(one, (ast.For, ast.AsyncFor)))
    return any(name in names_in(one.target, ast.Store) for one in inner)
