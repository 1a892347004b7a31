"""What the measured window may never reach: other training phases, validation, periodic work."""

import ast
import math
import os

from .call_binding import bind_call, evaluated
from .safe_eval import Evaluator, Unknown
from .source import Source, encloses, encloses_step, following, literal_values, training_functions
from .syntax import dotted

SMALL_CALLS = (  # what is gated by `if n % every` to report, and takes no time to speak of
    "print format item info write len log add_scalar append time set_postfix set_description display join"
    " round zero_grad step unscale_ update clip_grad_norm_ str float int perf_counter avg mean sum debug flush"
    " range exp max min get_last_lr"
).split()
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MOST_CALLS_DEEP = 2
FILLING = ("append", "extend", "add", "update", "insert", "appendleft", "put", "setdefault", "pop", "remove", "clear")
SAVING_CALLS = ("save", "save_checkpoint", "save_model", "save_state", "save_pretrained", "save_weights")


class UpcomingWork:
    """Reads the source around the live stack for work that is still to come."""

    def __init__(self, torch, loop_stack):
        self.torch, self.loop_stack = torch, loop_stack

    def read(self, frame, training_loader):
        """Later training phases, periodic work of the loops around the step, and later loops that only run a model."""
        later, periodic, applied = [], [], []
        for live in self.loop_stack.frames(frame):
            path = live.f_code.co_filename
            source = Source.of(path) if not self.loop_stack.is_library(path) else None
            scope = source.scope(live.f_code) if source is not None else None
            if scope is None:
                continue
            loops = source.loops(scope, live.f_lineno)
            evaluator = Evaluator(live.f_locals, live.f_globals, self.torch)
            training = training_functions(source.tree)
            end = loops[0].end_lineno if loops else live.f_lineno
            changing = changed_by(loops[:1])
            for statement in following(scope.body, end):
                if self.trains(statement, training, evaluator):
                    evaluator.changing = changing
                    later.append(self.later_phase(statement, source, path, evaluator, training))
                    evaluator.changing = frozenset()
                elif self.applies(statement, evaluator):
                    applied.append(self.place(statement, source, path))
                changing = changing | changed_by([statement])
            for loop, inner in zip(loops, [*loops[1:], None]):
                for statement in loop.body:
                    around = encloses(statement, live.f_lineno) and not isinstance(statement, ast.If)
                    if statement is inner or around:
                        continue
                    for found in self.periodic_work(statement, source, evaluator, training_loader):
                        found["loop_line"], found["path"] = loop.lineno, path
                        periodic.append(found)
        return later, periodic, applied

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

    def periodic_work(self, statement, source, evaluator, training_loader):
        """DataLoaders that a statement of a loop body reads, and `if n % every` gates around calls."""
        gate = statement if isinstance(statement, ast.If) else None
        every = modulus(gate.test, evaluator) if gate is not None else None
        work = {"line": statement.lineno, "batches": None, "batch_size": None, "every": every}
        loaders = self.loaders_read(statement, evaluator, training_loader)
        for loader in loaders:
            try:
                batches = len(loader)
            except Exception:  # noqa: BLE001, S112 - an iterable without a length
                continue
            size, text = getattr(loader, "batch_size", None), source.segment(statement, 40)
            yield dict(work, kind="validation", batches=batches, batch_size=size, source=text)
        if loaders:
            return
        if every is None:
            if isinstance(statement, ast.Expr) and saves_always(statement):
                yield dict(work, kind="checkpoint", every=1.0, source=source.segment(statement, 40))
            return
        calls = [dotted(n.func) for n in ast.walk(gate) if isinstance(n, ast.Call)]
        calls = [call for call in calls if call.rsplit(".", 1)[-1] not in SMALL_CALLS]
        if calls and not encloses_step(gate, calls):
            saves = any(call.rsplit(".", 1)[-1] in SAVING_CALLS for call in calls)
            yield dict(work, kind="checkpoint" if saves else "gated", source=calls[0])

    def loaders_read(self, statement, evaluator, training_loader):
        """DataLoaders, other than the training's, that a statement names."""
        found = {}
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(getattr(node, "ctx", None), ast.Load):
                try:
                    value = evaluator.value(node)
                    if isinstance(value, self.torch.utils.data.DataLoader) and value is not training_loader:
                        found[id(value)] = value
                except Exception:  # noqa: BLE001, S112 - not a loader
                    continue
        return list(found.values())


def saves_always(statement):
    """Whether a statement saves a model; a method `save` of anything may as well save a picture."""
    calls = [dotted(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(call == "torch.save" or call.rsplit(".", 1)[-1] in SAVING_CALLS[1:] for call in calls)


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


def modulus(test, evaluator):
    """The number after ``%`` in a test; None without one that is known."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            try:
                return float(evaluator.number(node.right))
            except Exception:  # noqa: BLE001 - not known
                return None
    return None
