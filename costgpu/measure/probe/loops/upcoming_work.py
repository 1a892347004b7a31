"""What the measured window may never reach: other training phases, validation, periodic work."""

import ast
import math
import os

from .call_binding import bind_call
from .safe_eval import Evaluator, Unknown, dotted
from .source import Source, encloses, encloses_step, following, literal_values, training_functions


class Ahead:
    """Reads the source around the live stack for work that is still to come."""

    def __init__(self, torch, nest):
        self.torch, self.nest = torch, nest

    def ahead(self, frame, training_loader):
        later, periodic = [], []
        for live in self.nest.frames(frame):
            path = live.f_code.co_filename
            source = Source.of(path)
            if source is None or self.nest.is_library(path):
                continue
            scope = source.scope(live.f_code)
            if scope is None:
                continue
            loops = source.loops(scope, live.f_lineno)
            evaluator = Evaluator(live.f_locals, live.f_globals, self.torch)
            training = training_functions(source.tree)
            top = loops[0] if loops else None
            end = top.end_lineno if top is not None else live.f_lineno
            for statement in following(scope.body, end):
                if self.trains(statement, training, evaluator):
                    later.append(self.later_phase(statement, source, live, evaluator, training))
            for place, loop in enumerate(loops):
                inner = loops[place + 1] if place + 1 < len(loops) else None
                for statement in loop.body:
                    if statement is inner or encloses(statement, live.f_lineno):
                        if not isinstance(statement, ast.If) and statement is not inner:
                            continue
                        if statement is inner:
                            continue
                    for found in self.periodic_work(statement, source, evaluator, training_loader):
                        found["loop_line"], found["path"] = loop.lineno, path
                        periodic.append(found)
        return later, periodic

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

    def later_phase(self, statement, source, live, evaluator, training):
        found = {
            "file": os.path.basename(live.f_code.co_filename),
            "line": statement.lineno,
            "source": source.segment(statement),
            "trips": None,
            "per_call": None,
        }
        try:
            found["trips"] = self.static_trips([statement], source, evaluator, training, 0)
        except Exception as error:  # noqa: BLE001 - unknown is an honest answer here
            found["why"] = str(error) or type(error).__name__
        return found

    def static_trips(self, body, source, evaluator, training, depth):
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
                        total += self.static_trips(statement.body, source, inner, training, depth)
                    continue
                trips = evaluator.trips(statement.iter)
                if math.isinf(trips):
                    raise Unknown("unbounded")
                total += trips * self.static_trips(statement.body, source, evaluator, training, depth)
            elif isinstance(statement, (ast.With, ast.Try)):
                total += self.static_trips(statement.body, source, evaluator, training, depth)
            elif isinstance(statement, ast.If):
                branch = statement.body if evaluator.truth(statement.test) else statement.orelse
                total += self.static_trips(branch, source, evaluator, training, depth)
            elif isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.AnnAssign)):
                calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
                if any(dotted(c.func).endswith(".backward") for c in calls):
                    total += 1
                    continue
                for call in calls:
                    if dotted(call.func).rsplit(".", 1)[-1] in training:
                        total += self.call_trips(call, source, evaluator, training, depth)
            else:
                raise Unknown(type(statement).__name__)
        return total

    def call_trips(self, call, source, evaluator, training, depth):
        inner, scope, local = bind_call(call, evaluator)
        return self.static_trips(scope.body, inner, local, training, depth + 1)

    def periodic_work(self, statement, source, evaluator, training_loader):
        """DataLoaders that a statement of a loop body reads, and `if n % every` gates around calls."""
        every = None
        gate = statement if isinstance(statement, ast.If) else None
        if gate is not None:
            every = self.modulus(gate.test, evaluator)
        names = {}
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(getattr(node, "ctx", None), ast.Load):
                try:
                    value = evaluator.value(node)
                    if isinstance(value, self.torch.utils.data.DataLoader) and value is not training_loader:
                        names[id(value)] = value
                except Exception:  # noqa: BLE001, S112 - not a loader
                    continue
        for loader in names.values():
            try:
                batches = len(loader)
            except Exception:  # noqa: BLE001, S112 - an iterable without a length
                continue
            yield {
                "kind": "validation",
                "line": statement.lineno,
                "batches": batches,
                "batch_size": getattr(loader, "batch_size", None),
                "every": every,
                "source": source.segment(statement, 40),
            }
        if not names and every is not None:
            calls = [dotted(n.func) for n in ast.walk(gate) if isinstance(n, ast.Call)]
            work = [
                c
                for c in calls
                if c.rsplit(".", 1)[-1]
                not in (
                    "print",
                    "format",
                    "item",
                    "info",
                    "write",
                    "len",
                    "log",
                    "add_scalar",
                    "append",
                    "time",
                    "set_postfix",
                    "set_description",
                    "display",
                    "join",
                    "round",
                    "zero_grad",
                    "step",
                    "unscale_",
                    "update",
                    "clip_grad_norm_",
                    "str",
                    "float",
                    "int",
                    "perf_counter",
                    "avg",
                    "mean",
                    "sum",
                    "debug",
                    "flush",
                    "range",
                    "exp",
                    "max",
                    "min",
                    "get_last_lr",
                )
            ]
            if work and not encloses_step(gate, work):
                saves = any(c.rsplit(".", 1)[-1] in ("save", "save_checkpoint", "save_model") for c in work)
                yield {
                    "kind": "checkpoint" if saves else "gated",
                    "line": gate.lineno,
                    "batches": None,
                    "batch_size": None,
                    "every": every,
                    "source": work[0],
                }

    def modulus(self, test, evaluator):
        for node in ast.walk(test):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                try:
                    return float(evaluator.number(node.right))
                except Exception:  # noqa: BLE001 - unknown rhythm
                    return None
        return None
