"""What the measured window may never reach: other training phases, validation, periodic work."""

import ast
import math
import os
import types

from .call_binding import bind_call, evaluated, plain_function
from .exit_paths import AnyOf, product
from .gates import FILLING, Body, Outside, statements
from .loop_exits import words_of
from .openings import NEVER, Rhythm, rhythm_of
from .safe_eval import Evaluator, Unknown
from .source import Source, following, literal_values, training_functions
from .syntax import dotted

SMALL_CALLS = (  # what is gated by `if n % every` to report, and takes no time to speak of
    "print format item info write len log add_scalar append time set_postfix set_description display join"
    " round zero_grad step unscale_ update clip_grad_norm_ str float int perf_counter avg mean sum debug flush"
    " range exp max min get_last_lr items keys values zip enumerate parameters backward eval train"
).split()
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MOST_CALLS_DEEP = 2
MOST_PERIODIC = 40
SAVING_CALLS = ("save", "save_checkpoint", "save_model", "save_state", "save_pretrained", "save_weights")


class UpcomingWork:
    """Reads the source around the live stack for work that is still to come."""

    def __init__(self, torch, loop_stack):
        self.torch, self.loop_stack = torch, loop_stack
        self.evaluating = set()  # code of functions that were seen to run with a model in eval mode

    def read(self, frame, training_loader, step=1):
        """Later training phases, periodic work of the loops around the step, and later loops that only run a model.

        Args:
            step: Number of the step that has just been made.
        """
        later, periodic, applied = [], [], []
        bodies = self.bodies(frame)
        for body in bodies:
            evaluator = body.place.evaluator
            if not body.repeated:
                training = training_functions(body.source.tree)
                changing = changed_by(body.loops[:1])
                end = body.loops[0].end_lineno if body.loops else body.line
                for statement in following(body.scope.body, end):
                    if self.trains(statement, training, evaluator):
                        evaluator.changing = changing
                        later.append(self.later_phase(statement, body.source, body.path, evaluator, training))
                        evaluator.changing = frozenset()
                    elif self.applies(statement, evaluator):
                        applied.append(self.place(statement, body.source, body.path))
                    changing = changing | changed_by([statement])
            for loop, key in zip(body.loops, body.keys):
                for found in self.periodic_work(loop, key, body, training_loader, step if key == bodies[-1].key else 1):
                    periodic.append(dict(found, loop_line=key[0], path=key[1], step=step))
        return later, periodic[:MOST_PERIODIC], applied

    def bodies(self, frame):
        """The script's own live frames from the outermost on, each with the loops around its step."""
        frames = self.loop_stack.frames(frame)
        found, caller = [], None
        sources = [Source.of(live.f_code.co_filename) for live in frames]
        scopes = [source.scope(live.f_code) if source is not None else None for source, live in zip(sources, frames)]
        own = [not self.loop_stack.is_library(live.f_code.co_filename) for live in frames]
        looping = [
            scope is not None and source.loops(scope, live.f_lineno)
            for source, scope, live in zip(sources, scopes, frames)
        ]
        last = max((at for at, loops in enumerate(looping) if own[at] and loops), default=-1)
        for at, (live, source, scope) in enumerate(zip(frames, sources, scopes)):
            if scope is not None and own[at]:
                caller = Body(live, source, scope, self.torch, caller)
                found.append(caller)
            elif looping[at] and at > last:  # a trainer's; around a loop of the script's it is a command line's
                caller = Outside((looping[at][-1].lineno, live.f_code.co_filename), caller)
        return found

    def applies(self, statement, evaluator, depth=0):
        """Whether a loop in these statements, or in a function of the script's that they call, runs a model."""
        for loop in ast.walk(statement):
            if isinstance(loop, LOOPS):
                called = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
                if any(isinstance(evaluated(evaluator, one), self.torch.nn.Module) for one in called):
                    return True
        for call in ast.walk(statement) if depth < MOST_CALLS_DEEP else ():
            if isinstance(call, ast.Call):
                try:
                    _, scope, inside = bind_call(call, evaluator)
                except Exception:  # noqa: BLE001, S112 - not a plain function
                    continue
                path = str(inside.globals.get("__file__", "<"))
                if not self.loop_stack.is_library(path) and self.applies(scope, inside, depth + 1):
                    return True
        return False

    def place(self, statement, source, path):
        return {"file": os.path.basename(path), "line": statement.lineno, "source": source.segment(statement)}

    def trains(self, statement, training, evaluator):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                last = dotted(node.func).rsplit(".", 1)[-1]
                if last == "backward" and isinstance(node.func, ast.Attribute):
                    return True
                if last in training:
                    if last == "train" and isinstance(node.func, ast.Attribute) and not self.own_train(node, evaluator):
                        continue
                    return True
        return False

    def own_train(self, node, evaluator):
        try:
            owner = evaluator.value(node.func.value)
        except Exception:  # noqa: BLE001 - unknown owner: a model's train() is the likelier reading
            return False
        return getattr(type(owner), "train", None) is not self.torch.nn.Module.train

    def later_phase(self, statement, source, path, evaluator, training):
        found = dict(self.place(statement, source, path), trips=None)
        try:
            found["trips"] = self.static_trips([statement], evaluator, training, 0)
        except Exception as error:  # noqa: BLE001 - unknown is an honest answer here
            found["why"] = str(error) or type(error).__name__
        return found

    def static_trips(self, body, evaluator, training, depth):
        """Backward passes that these statements will make, from loop bounds alone; raises Unknown."""
        if depth > 4:
            raise Unknown("too deep")
        total = 0
        for statement in body:
            if not self.trains(statement, training, evaluator):
                continue
            if isinstance(statement, ast.For):
                values = literal_values(statement)
                if values is not None:  # for phase in ["train", "val"]: each value takes its own way through the body
                    for value in values:
                        local = dict(evaluator.local)
                        local[statement.target.id] = value
                        inner = Evaluator(local, evaluator.globals, self.torch)
                        inner.changing = evaluator.changing
                        total += self.static_trips(statement.body, inner, training, depth)
                    continue
                unless_changing(statement.iter, evaluator)
                trips = evaluator.trips(statement.iter)
                if math.isinf(trips):
                    raise Unknown("unbounded")
                total += trips * self.static_trips(statement.body, evaluator, training, depth)
            elif isinstance(statement, (ast.With, ast.Try)):
                total += self.static_trips(statement.body, evaluator, training, depth)
            elif isinstance(statement, ast.If):
                branch = statement.body if evaluator.truth(statement.test) else statement.orelse
                total += self.static_trips(branch, evaluator, training, depth)
            elif isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.AnnAssign)):
                calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
                if any(dotted(c.func).endswith(".backward") for c in calls):
                    total += 1
                    continue
                for call in calls:
                    if dotted(call.func).rsplit(".", 1)[-1] in training:
                        total += self.call_trips(call, evaluator, training, depth)
            else:
                raise Unknown(type(statement).__name__)
        return total

    def call_trips(self, call, evaluator, training, depth):
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            unless_changing(given, evaluator, filled_only=True)
        _, scope, inside = bind_call(call, evaluator)
        return self.static_trips(scope.body, inside, training, depth + 1)

    def periodic_work(self, loop, key, body, training_loader, passed):
        """What a loop's body does beside the step: DataLoaders that it reads, what it saves, what takes its time."""
        evaluator, source = body.place.evaluator, body.source
        for node, tests in statements(loop, body):
            kinds = list(self.kinds_of(node, evaluator, training_loader, gated=bool(tests)))
            rhythm = self.rhythm(tests, node.lineno, body, key, passed) if kinds else NEVER
            for kind in () if rhythm.never else kinds:
                work = {"source": source.segment(node, 40), "batches": None, "batch_size": None}
                yield dict(
                    work,
                    line=node.lineno,
                    every="inf" if rhythm.every == math.inf else rhythm.every,
                    opens=rhythm.opens,
                    by_steps=rhythm.by_steps,
                    after=node.lineno > body.line,
                    evaluates=self.was_evaluated(node, evaluator),
                    test=" and ".join(words_of(test, body.place) for test, _ in tests),
                    **kind,
                )

    def kinds_of(self, node, evaluator, training_loader, gated):
        """What a statement is: validations, a checkpoint, or other work that may take its time."""
        found = 0
        for loader in self.loaders_read(node, evaluator, training_loader):
            try:
                batches = len(loader)
            except Exception:  # noqa: BLE001, S112 - an iterable without a length
                continue
            found += 1
            yield {"kind": "validation", "batches": batches, "batch_size": getattr(loader, "batch_size", None)}
        if saves(node, gated) or self.calls_one_that_saves(node, evaluator):
            yield {"kind": "checkpoint"}
        elif not found and gated:
            heavy = self.heavy_call(node, evaluator)
            if heavy:
                yield {"kind": "gated", "source": heavy}

    def called(self, node, evaluator):
        """(call, its function's node, evaluator of its variables) of calls in a statement of the script's own functions."""
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                try:
                    _, scope, inside = bind_call(call, evaluator)
                except Exception:  # noqa: BLE001, S112 - not a plain function
                    continue
                if not self.loop_stack.is_library(str(inside.globals.get("__file__", "<"))):
                    yield call, scope, inside

    def calls_one_that_saves(self, node, evaluator):
        """Whether it calls a function of the script's own that saves a model, whatever comes."""
        return any(
            saves(statement, False)
            for _, scope, _ in self.called(node, evaluator)
            for statement in scope.body
            if not isinstance(statement, ast.If)
        )

    def heavy_call(self, node, evaluator, depth=0):
        """The name of what takes time in these statements: it runs a model again and again, or loops; None for nothing."""
        for loop in ast.walk(node):
            if isinstance(loop, LOOPS):
                calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call) and not is_small(one)]
                if calls:
                    return dotted(calls[0].func)
        for call, scope, inside in self.called(node, evaluator) if depth < MOST_CALLS_DEEP else ():
            if not is_small(call) and self.heavy_call(scope, inside, depth + 1):
                return dotted(call.func)
        for call in ast.walk(node):  # `model.generate(...)` of a library
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not is_small(call):
                owner = evaluated(evaluator, call.func.value)
                if isinstance(owner, self.torch.nn.Module) and not hasattr(self.torch.nn.Module, call.func.attr):
                    function = plain_function(evaluated(evaluator, call.func))[0]
                    known = isinstance(function, types.FunctionType)
                    if known and self.loop_stack.is_library(function.__code__.co_filename):
                        return dotted(call.func)
        return None

    def was_evaluated(self, node, evaluator):
        """Whether it calls a function that was seen to run with a model in eval mode; None if it runs the model itself."""
        for call in ast.walk(node):
            function = plain_function(evaluated(evaluator, call.func))[0] if isinstance(call, ast.Call) else None
            if isinstance(function, types.FunctionType) and function.__code__ in self.evaluating:
                return True
        return None if any(isinstance(one, LOOPS) for one in ast.walk(node)) else False

    def note_evaluating(self, frame):
        """A model goes into eval mode in this frame."""
        for live in self.loop_stack.frames(frame):
            if live.f_code.co_name != "<module>" and not self.loop_stack.is_library(live.f_code.co_filename):
                self.evaluating.add(live.f_code)

    def rhythm(self, tests, line, body, key, step):
        """How often tests come out so; a rhythm that is not known where they cannot be read."""
        try:
            closed = [(test if isinstance(test, AnyOf) else body.closed(test), truth) for test, truth in tests]
            return rhythm_of(product(closed, body.assigned, 0), line, body, key, step)
        except Exception:  # noqa: BLE001 - objects of the user's may raise anything
            return Rhythm(None)

    def loaders_read(self, node, evaluator, training_loader):
        """DataLoaders, other than the training's, that a statement names, or a function of the script's own loops over."""
        if any(isinstance(one, ast.Call) and is_backward(one) for one in ast.walk(node)):
            return []  # it trains
        found = self.loaders_named(node, evaluator)
        for _, scope, inside in self.called(node, evaluator):
            for loop in ast.walk(scope):
                if isinstance(loop, (ast.For, ast.comprehension)):
                    found.update(self.loaders_named(loop.iter, inside))
        return [one for one in found.values() if one is not training_loader]

    def loaders_named(self, node, evaluator):
        """The DataLoaders that an expression or a statement names for more than their length and attributes."""
        parts = list(ast.walk(node))
        asked = {id(one.value) for one in parts if isinstance(one, ast.Attribute)}
        asked |= {
            id(arg) for one in parts if isinstance(one, ast.Call) and dotted(one.func) == "len" for arg in one.args
        }
        found = {}
        for one in parts:
            if isinstance(one, (ast.Name, ast.Attribute)) and isinstance(one.ctx, ast.Load) and id(one) not in asked:
                value = evaluated(evaluator, one)
                if isinstance(value, self.torch.utils.data.DataLoader):
                    found[id(value)] = value
        return found


def is_backward(call):
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def is_small(call):
    """Whether a call is one that reports, schedules or changes tensors in place."""
    last = dotted(call.func).rsplit(".", 1)[-1]
    return last in SMALL_CALLS or (last.endswith("_") and not last.startswith("_"))


def saves(statement, gated):
    """Whether a statement saves a model; behind no gate a method `save` of anything may as well save a picture."""
    calls = [dotted(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    names = SAVING_CALLS if gated else SAVING_CALLS[1:]
    return any(call == "torch.save" or call.rsplit(".", 1)[-1] in names for call in calls)


def changed_by(statements):
    """Names that statements bind or fill: what is looked up in them now is not what they hold afterwards."""
    bound, filled = set(), set()
    for node in (one for statement in statements for one in ast.walk(statement)):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            bound.add(dotted(node))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            filled.add(dotted(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILLING:
            filled.add(dotted(node.func.value))
    return frozenset([(name, False) for name in bound] + [(name, True) for name in filled])


def unless_changing(node, evaluator, filled_only=False):
    """Raises Unknown for an expression with a name that a statement before its turn changes."""
    names = {dotted(one) for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
    for name, filled in evaluator.changing:
        if name in names and (filled or not filled_only):
            raise Unknown("{} changes before that".format(name))
