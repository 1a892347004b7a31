"""What the measured window may never reach: other training phases, validation, periodic work.

One file of more than 400 lines: each rule reads the same frames.
"""

import ast
import math
import os
import types

from ..patching import attribute, known
from .call_binding import bind_call, evaluated, plain_function
from .executions import REPEATS, Executions
from .exit_paths import INNER, ExitTaken, product, walked
from .forward_passes import ForwardPasses, Trains
from .gates import Body, Outside
from .loop_exits import words_of_all
from .openings import NEVER, OpeningRhythm, rhythm_of
from .reach import Reach
from .safe_eval import Unknown
from .source import Source, encloses, loops_around, own_statements
from .syntax import dotted, is_docstring, is_none
from .trainings import Trainings

SMALL_CALLS = (  # what is gated by `if n % every` to report, and takes no time to speak of
    "print format item info write len log add_scalar append time set_postfix set_description display join"
    " round zero_grad step unscale_ update clip_grad_norm_ str float int perf_counter avg mean sum debug flush"
    " range exp max min get_last_lr items keys values zip enumerate parameters backward eval train"
).split()
MOST_CALLS_DEEP = 2
MOST_PERIODIC = 40
SAVING_CALLS = ("save", "save_checkpoint", "save_model", "save_state", "save_pretrained", "save_weights")


class BackwardPasses(Executions):
    """Counts the backward passes that statements will make, each of which sees a `Reach`."""

    def __init__(self, trainings):
        self.trainings = trainings

    def of(self, node, there, depth=0):
        if isinstance(node, ast.stmt) and not self.trainings.trains(there, node):
            return 0
        return super().of(node, there, depth)

    def event(self, node, there, depth):
        if not isinstance(node, ast.Call):
            return 0
        if dotted(node.func).endswith(".backward"):
            return 1
        if not self.trainings.call_trains(node, there):
            return 0
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            there.refuse_changing(given, filled_only=True)
        source, scope, inside = bind_call(node, there.evaluator)
        passes = self.of_function(scope, Reach.of_call(source, scope, inside, there.changing), depth)
        if not passes:
            raise Unknown("it trains out of sight")
        return passes


class UpcomingWork:
    """Reads the source around the live stack for work that is still to come."""

    def __init__(self, torch, loop_stack):
        self.torch, self.loop_stack = torch, loop_stack
        self.trainings = Trainings(torch, loop_stack)
        self.stack = ()  # (code, line) of the frames, the outermost first, where an evaluation began
        self.evaluating = set()  # those of all of them
        self.evaluated = []  # (seconds, stack) of those before the first step

    def read(self, frame, training_loader, step=1, training=True):
        """Later training phases, periodic work of the loops around the step, and later loops that only run a model.

        Args:
            step: Number of the step that has just been made.
            training: Whether it is one of training.
        """
        later, applied = [], []
        (bodies, outside), frames = self.bodies(frame), self.loop_stack.frames(frame)
        if training:
            self.trainings.note(frames)
        for body in bodies:
            if not body.called_again:
                self.trainings.look_from(frames[: frames.index(body.live) + 1])
                loops, end = body.around[:1], body.around[0].end_lineno if body.around else body.line
                simple = [one for one in own_statements(body.scope.body) if isinstance(one, ast.stmt)]
                going = [one for one in simple if encloses(one, body.line) and not hasattr(one, "body")]
                reach = Reach(body.source, body.scope, body.evaluator, loops or going)
                for statement in reach.after(body.scope.body, end):
                    if self.trainings.trains(reach, statement):
                        later.append(self.later_phase(statement, body.path, reach, [] if loops else going))
                    elif self.applies(statement, reach):
                        applied.append(self.place(statement, body.source, body.path))
        periodic = self.periodic(bodies, training_loader, step) + self.periodic(outside, training_loader, step)
        return later, periodic, applied

    def periodic(self, bodies, training_loader, step):
        """Periodic work of the loops in these bodies, as it is read after this step."""
        found = []
        for body in bodies:
            for loop, key in zip(body.around, body.keys):
                for work in self.periodic_work(loop, key, body, training_loader, step if key == bodies[-1].key else 1):
                    found.append(dict(work, loop_line=key[0], path=key[1], step=step))
        return found[:MOST_PERIODIC]

    def bodies(self, frame):
        """Return the script's own live frames, outermost first, each with the loops around its step.

        Then those of its trainer.
        """
        frames = self.loop_stack.frames(frame)
        found, outside, caller = [], [], None
        own = [not self.loop_stack.is_library(live.f_code.co_filename) for live in frames]
        looping = [loops_around(live) for live in frames]
        last = max((at for at, loops in enumerate(looping) if own[at] and loops), default=-1)
        for at, live in enumerate(frames):
            source, scope = Source.of_code(live.f_code)
            if scope is not None and own[at]:
                caller = Body(live, source, scope, self.torch, caller)
                found.append(caller)
            elif looping[at] and at > last:  # a trainer's; around a loop of the script's it is a command line's
                caller = Outside((looping[at][-1].lineno, live.f_code.co_filename), caller)
                outside.append(Body(live, source, scope, self.torch, None))
        return found, outside

    def applies(self, statement, reach, depth=0):
        """Return whether a loop in this statement, or in a function of the script's that it calls, runs a model."""
        nodes = list(reach.nodes(statement))
        for loop in nodes:
            if isinstance(loop, REPEATS):
                called = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
                if any(isinstance(evaluated(reach.evaluator, one), self.torch.nn.Module) for one in called):
                    return True
        if depth >= MOST_CALLS_DEEP:
            return False
        called = (self.bound(call, reach.evaluator) for call in nodes)
        inner = ((Reach.of_call(*one), one[1].body) for one in called if one is not None)
        return any(self.applies(one, reach, depth + 1) for reach, body in inner for one in body)

    def bound(self, node, evaluator):
        """Return what `bind_call` does for a call of one of the script's own functions; None for any other node."""
        found = known(bind_call, node, evaluator) if isinstance(node, ast.Call) else None
        if found is None or self.loop_stack.is_library(str(found[2].globals.get("__file__", "<"))):
            return None
        return found

    def place(self, statement, source, path):
        return {"file": os.path.basename(path), "line": statement.lineno, "source": source.segment(statement)}

    def later_phase(self, statement, path, reach, going):
        found = dict(self.place(statement, reach.source, path), trips=None)
        try:
            found["trips"] = BackwardPasses(self.trainings).of(statement, reach)
        except Exception as error:  # noqa: BLE001 - unknown is an honest answer here
            found["why"] = str(error) or type(error).__name__
        for now in going:
            times = known(self.trainings.times, statement, now, reach)  # None of another training, of whatever length
            found.update({"times": times} if times is not None else {})
        return found

    def periodic_work(self, loop, key, body, training_loader, passed):
        """Yield what a loop's body does beside the step: DataLoaders that it reads, what it saves, what takes its time."""
        evaluator, source = body.evaluator, body.source
        for node, tests in walked(loop.body, loop, body.line).beside:
            if isinstance(node, INNER):
                continue
            kinds = list(self.kinds_of(node, body, training_loader, gated=bool(tests)))
            rhythm = self.rhythm(tests, node.lineno, body, key, passed) if kinds else NEVER
            codes = set(self.codes_called(node, evaluator)) if kinds else ()
            seen = any(code in codes or is_at(code, line, node, body) for code, line in self.evaluating)
            for kind in () if rhythm.never else kinds:
                work = {"source": source.segment(node, 40), "batches": None, "batch_size": None}
                yield dict(
                    work,
                    line=node.lineno,
                    every="inf" if rhythm.every == math.inf else rhythm.every,
                    opens=rhythm.opens,
                    by_steps=rhythm.by_steps,
                    at_most=rhythm.at_most,
                    after=node.lineno > body.line,
                    evaluates=seen,
                    timed=self.timed(node, evaluator, body),
                    test=words_of_all(tests, body),
                    **kind,
                )

    def kinds_of(self, node, body, training_loader, gated):
        """Yield what a statement is: validations, a checkpoint, or other work that may take its time."""
        found, evaluator, outside = 0, body.evaluator, self.loop_stack.is_library(body.path)
        for loader in self.loaders_read(node, evaluator, training_loader):
            data = attribute(training_loader, "dataset")
            if outside and (data is None or attribute(loader, "dataset") is data):
                continue  # a trainer may have wrapped what it trains on
            batches = known(len, loader)
            if batches is None:  # an iterable without a length
                continue
            found += 1
            yield {"kind": "validation", "batches": batches, "batch_size": attribute(loader, "batch_size")}
        if outside:
            if not found and self.timed(node, evaluator, body):
                yield {"kind": "work"}
            return
        checkpoint = self.saves(node, evaluator, gated) or self.calls_one_that_saves(node, evaluator)
        if checkpoint:
            yield {"kind": "checkpoint"}
        run = self.runs_a_model(node, body) if not found else None
        if run is not None:
            yield run
        elif not found and not checkpoint and gated:
            heavy = self.heavy_call(node, evaluator)
            if heavy:
                yield {"kind": "work", "source": heavy}

    def runs_a_model(self, node, body):
        """Return what a statement is that runs a model again and again without a DataLoader; None for another."""
        passes = ForwardPasses(self.torch, self.loop_stack.is_library)
        try:
            count = passes.of(node, body.evaluator)
        except Trains:
            return None
        except Exception:  # noqa: BLE001 - how often is not known
            reach = Reach(body.source, body.scope, body.evaluator, body.around[:1])
            count = None if self.applies(node, reach) else 0
        if count is not None and count < 2:
            return None
        return {"kind": "validation" if passes.evaluates else "work", "batches": count}

    def called(self, node, evaluator):
        """(call, its function's node, evaluator of its variables) of calls in a statement of the script's own functions."""
        for call in ast.walk(node):
            found = self.bound(call, evaluator)
            if found is not None:
                yield (call, *found[1:])

    def saves(self, statement, evaluator, gated):
        """Return whether a statement saves a model.

        Behind no gate a method `save` of anything may as well save a picture.
        """
        names = SAVING_CALLS if gated else SAVING_CALLS[1:]
        calls = [(dotted(node.func), node) for node in ast.walk(statement) if isinstance(node, ast.Call)]
        saving = [node for name, node in calls if name == "torch.save" or name.rsplit(".", 1)[-1] in names]
        idle = [node for node, scope, inside in self.called(statement, evaluator) if returns_at_once(scope, inside)]
        return any(node not in idle for node in saving)

    def calls_one_that_saves(self, node, evaluator, depth=0):
        """Return whether it calls a function of the script's own that saves a model, whatever comes."""
        return depth < MOST_CALLS_DEEP and any(
            self.saves(statement, inside, False) or self.calls_one_that_saves(statement, inside, depth + 1)
            for _, scope, inside in self.called(node, evaluator)
            for statement in scope.body
            if not isinstance(statement, ast.If)
        )

    def heavy_call(self, node, evaluator, depth=0):
        """Return the name of what takes time in these statements: it runs a model again and again, or loops.

        None for nothing.
        """
        for loop in ast.walk(node):
            if isinstance(loop, REPEATS):
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

    def codes_called(self, node, evaluator):
        """Yield the code of each function that a statement calls, once for each call."""
        for call in ast.walk(node):
            function = plain_function(evaluated(evaluator, call.func))[0] if isinstance(call, ast.Call) else None
            if isinstance(function, types.FunctionType):
                yield function.__code__

    def timed(self, node, evaluator, body):
        """Seconds that a statement evaluated before the first step, or that its calls took elsewhere; None without any."""
        here = sum(s for s, stack in self.evaluated if any(is_at(code, line, node, body) for code, line in stack))
        if here:
            return here
        total = 0.0
        for called in self.codes_called(node, evaluator):
            calls = {}  # by the lines that lead there: one call may evaluate several times
            for seconds, stack in self.evaluated:
                codes = [code for code, _ in stack]
                if called in codes:
                    place = stack[: codes.index(called)]
                    calls[place] = calls.get(place, 0.0) + seconds
            total += sum(calls.values()) / max(1, len(calls))
        return total or None

    def note_evaluating(self, frame):
        """Note that a model in eval mode is called, or a batch drawn for it."""
        self.stack = tuple((live.f_code, live.f_lineno) for live in self.loop_stack.frames(frame))
        self.evaluating.update(self.stack)

    def note_evaluated(self, seconds):
        """Note that the evaluation has ended, before the first step."""
        self.evaluated.append((seconds, self.stack))

    def rhythm(self, tests, line, body, key, step):
        """Return how often tests come out so; a rhythm that is not known where they cannot be read."""
        try:
            closed = [(test if isinstance(test, ExitTaken) else body.closed(test), truth) for test, truth in tests]
            return rhythm_of(product(closed, body.assigned, 0), line, body, key, step)
        except Exception:  # noqa: BLE001 - objects of the user's may raise anything
            return OpeningRhythm(None)

    def loaders_read(self, node, evaluator, training_loader):
        """DataLoaders, other than the training's, that a statement names, or a function of the script's own loops over."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return []  # `if loader:`
        if any(isinstance(one, ast.Attribute) and one.attr == "backward" for one in ast.walk(node)):
            return []  # it trains
        found = self.loaders_named(node, evaluator)
        for _, scope, inside in self.called(node, evaluator):
            for loop in ast.walk(scope):
                if isinstance(loop, (ast.For, ast.comprehension)):
                    found.update(self.loaders_named(loop.iter, inside))
        return [one for one in found.values() if one is not training_loader]

    def loaders_named(self, node, evaluator):
        """Return the DataLoaders that a node uses for more than their length, attributes and presence."""
        parts = list(ast.walk(node))
        asked = {id(one.value) for one in parts if isinstance(one, ast.Attribute)}
        asked |= {
            id(arg) for one in parts if isinstance(one, ast.Call) and dotted(one.func) == "len" for arg in one.args
        }
        asked |= {id(one) for part in parts for one in tested(part)}
        found = {}
        for one in parts:
            if isinstance(one, (ast.Name, ast.Attribute)) and isinstance(one.ctx, ast.Load) and id(one) not in asked:
                value = evaluated(evaluator, one)
                if isinstance(value, self.torch.utils.data.DataLoader):
                    found[id(value)] = value
        return found


def tested(node):
    """Return the parts of an expression of which it only matters what they are, or whether they are there."""
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node.left] if isinstance(node, ast.Compare) else [node.operand] if isinstance(node, ast.UnaryOp) else []


def is_at(code, line, node, body):
    """Return whether a frame's line is one of a statement of a body."""
    return code is body.live.f_code and node.lineno <= line <= node.end_lineno


def returns_at_once(scope, variables):
    """Return whether a function begins with `if not path: return`, or the like, and is called without a path."""
    first = next((one for one in scope.body if not is_docstring(one)), None)
    test = first.test if isinstance(first, ast.If) and isinstance(first.body[-1], ast.Return) else None
    asks = isinstance(test, ast.UnaryOp) or (isinstance(test, ast.Compare) and is_none(test.comparators[0]))
    return asks and known(variables.truth, test)


def is_small(call):
    """Return whether a call is one that reports, schedules or changes tensors in place."""
    last = dotted(call.func).rsplit(".", 1)[-1]
    return last in SMALL_CALLS or (last.endswith("_") and not last.startswith("_"))
