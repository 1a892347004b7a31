"""The loops around the current step, with trip counts and bounds, read from the live stack."""

import ast
import math
import os
import sys

from .call_binding import generator_trips
from .loop_position import position
from .safe_eval import FOREVER, Evaluator, Unknown, dotted, is_none
from .source import (
    Source,
    assigns,
    depends_on_outer,
    encloses_any,
    increment,
    is_bool,
    literal_values,
    own_statements,
    unconditional,
)

COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
CLOCK_NAMES = ("time.time", "time.perf_counter", "time.monotonic", "perf_counter", "timer")
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class LoopStack:
    """The loops around the current step, with their trip counts and bounds, read from the live stack."""

    def __init__(self, torch, library_roots, loaders_by_line, positions=False):
        self.torch, self.library_roots, self.positions = torch, library_roots, positions
        self.loaders_by_line = loaders_by_line
        self.torch_root = os.path.dirname(torch.__file__) + os.sep

    def frames(self, frame):
        """The frames from the script's top to the step, without torch's and the probe's own."""
        found = []
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(HERE) and frame.f_code.co_name == "run_script":
                break
            if not path.startswith((self.torch_root, HERE)) and "runpy" not in path:
                found.append(frame)
            frame = frame.f_back
        return found[::-1]

    def is_library(self, path):
        return path.startswith(self.library_roots) or path.startswith("<")

    def snapshot(self, frame, own=False):
        """The loops, outermost first.

        Args:
            frame: The innermost.
            own: Without those of libraries, whose sources then need not be parsed.
        """
        loops, frames = [], self.frames(frame)
        if own:
            frames = [live for live in frames if not self.is_library(live.f_code.co_filename)]
        for depth, live in enumerate(frames):
            code = live.f_code
            source = Source.of(code.co_filename)
            if source is None:
                continue
            name = code.co_name
            comprehension = name in ("<listcomp>", "<setcomp>", "<genexpr>", "<dictcomp>")
            holder = frames[depth - 1] if comprehension and depth else live
            scope = source.scope(holder.f_code)
            if scope is None:
                continue
            evaluator = Evaluator(holder.f_locals, holder.f_globals, self.torch)
            if not comprehension:
                for node in source.loops(scope, live.f_lineno):
                    loops.append(self.loop(node, source, scope, live, evaluator, depth))
            if comprehension or sys.version_info >= (3, 12):
                for generator in source.comprehension(scope, live.f_lineno):
                    loops.append(self.comprehension_loop(generator, source, live, evaluator, depth))
        forget_shadowed(loops)
        return loops

    def base(self, node, source, live, depth, kind):
        path = live.f_code.co_filename
        return {
            "file": os.path.basename(path),
            "path": path,
            "line": node.lineno,
            "kind": kind,
            "function": live.f_code.co_name,
            "depth": depth,
            "library": self.is_library(path),
            "trips": None,
            "why": "",
            "index": None,
            "start": 0,
            "stride": 1,
            "bounds": [],
            "early_exit": [],
            "optimizers": False,
            "ragged": False,
            "varies": False,
        }

    def comprehension_loop(self, generator, source, live, evaluator, depth):
        node = generator.iter
        record = self.base(node, source, live, depth, "for")
        record["source"] = source.segment(node)
        self.count(record, node, evaluator, live, node.lineno)
        if self.positions:
            record["position"] = (record["trips"], None, False)
        return record

    def loop(self, node, source, scope, live, evaluator, depth):
        kind = "while" if isinstance(node, ast.While) else "for"
        record = self.base(node, source, live, depth, kind)
        if kind == "for":
            record["source"] = source.segment(node.iter)
            self.count(record, node.iter, evaluator, live, node.lineno)
            self.index(record, node, evaluator)
            self.only_some(record, node, live)
            record["varies"] = not record.pop("loader", False) and depends_on_outer(
                node, source.loops(scope, live.f_lineno)
            )
        else:
            record["source"] = source.segment(node.test)
            record["trips"], record["why"] = None, "while"
            if isinstance(node.test, ast.Constant) and node.test.value:
                record["trips"], record["why"] = "inf", "while True"
            else:
                clauses = node.test.values if is_bool(node.test, ast.And) else [node.test]
                for clause in clauses:
                    self.bound(record, clause, node, node, source, scope, live, evaluator, "while")
        for statement in own_statements(node.body):
            if isinstance(statement, ast.If):
                if encloses_any(statement.body, live.f_lineno) and is_bool(statement.test, ast.Or):
                    record["ragged"] = True  # `(i + 1) % n == 0 or last`: a partial group steps too
                self.exits(record, statement, node, source, scope, live, evaluator)
        if self.positions:
            record["position"] = position(record, node, scope, source, evaluator)
        return record

    def count(self, record, node, evaluator, live, line):
        try:
            trips = evaluator.trips(node)
            record["trips"] = "inf" if math.isinf(trips) or trips >= FOREVER else trips
        except Unknown as reason:
            record["why"] = str(reason)
            self.count_generator(record, node, evaluator)
        except Exception as error:  # noqa: BLE001 - user objects may raise anything
            record["why"] = type(error).__name__
        if record["trips"] is None:
            loader = self.loaders_by_line.get((live.f_code, line))
            if loader is not None:
                try:
                    record["trips"], record["why"] = len(loader), "length of the DataLoader that it reads"
                except TypeError:
                    record["why"] = "a DataLoader without a length"
        try:
            while isinstance(node, ast.Call) and node.args and dotted(node.func) in Evaluator.WRAPPERS:
                node = node.args[0]
            value = evaluator.value(node)
            record["loader"] = isinstance(value, self.torch.utils.data.DataLoader)
            optimizers = getattr(self.torch.optim, "Optimizer", ())
            record["optimizers"] = isinstance(value, (list, tuple)) and any(isinstance(v, optimizers) for v in value)
        except Exception:  # noqa: BLE001 - only a hint
            pass

    def count_generator(self, record, node, evaluator):
        while (
            isinstance(node, ast.Call) and dotted(node.func).rsplit(".", 1)[-1] in ("enumerate", "tqdm") and node.args
        ):
            node = node.args[0]
        if isinstance(node, ast.Call):
            try:
                trips = generator_trips(node, evaluator)
                record["trips"] = "inf" if math.isinf(trips) or trips >= FOREVER else trips
            except Exception:  # noqa: BLE001, S110 - stays unknown
                pass

    def only_some(self, record, node, live):
        """A loop over literal values of which only some reach the step: `if phase == "train"`."""
        values = literal_values(node)
        if values is None:
            return
        for statement in own_statements(node.body):
            if isinstance(statement, ast.If) and encloses_any(statement.body, live.f_lineno):
                names = {n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)}
                if names == {node.target.id}:
                    reached = 0
                    for value in values:
                        try:
                            reached += bool(Evaluator({node.target.id: value}, {}).value(statement.test))
                        except Exception:  # noqa: BLE001 - not a plain comparison: all of them count
                            return
                    record["trips"] = reached

    def index(self, record, node, evaluator):
        """The loop variable's value, where it counts iterations (range, enumerate)."""
        target, call = node.target, node.iter
        if isinstance(call, ast.Call) and call.args and dotted(call.func).rsplit(".", 1)[-1] in ("tqdm", "track"):
            call = call.args[0]
        name = dotted(call.func) if isinstance(call, ast.Call) else ""
        try:
            if name == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
                record["index"] = evaluator.number(target.elts[0])
                start = call.args[1] if len(call.args) > 1 else [k.value for k in call.keywords if k.arg == "start"]
                start = start[0] if isinstance(start, list) and start else start
                record["start"] = evaluator.number(start) if isinstance(start, ast.AST) else 0
                record["target"] = target.elts[0].id
            elif name.rsplit(".", 1)[-1] in ("range", "trange") and isinstance(target, ast.Name):
                numbers = [evaluator.number(a) for a in call.args]
                record["index"] = evaluator.number(target)
                record["start"] = numbers[0] if len(numbers) > 1 else 0
                record["stride"] = numbers[2] if len(numbers) > 2 else 1
                record["target"] = target.id
        except Exception:  # noqa: BLE001 - only a hint
            record["index"] = None

    def exits(self, record, statement, loop, source, scope, live, evaluator):
        """Bounds and early exits: `if TEST: break` (of this loop) or `return`."""
        leaves = None
        for inner in unconditional(statement.body):
            if isinstance(inner, ast.Return) and live.f_code.co_name != "<module>":
                leaves = "return"
            elif isinstance(inner, ast.Break) and self.breaks(statement, inner, loop):
                leaves = "break"
        if leaves is None or statement.body[-1].end_lineno < statement.lineno:
            return
        if encloses_any(statement.body, live.f_lineno):
            return
        clauses = statement.test.values if is_bool(statement.test, ast.Or) else [statement.test]
        for clause in clauses:
            if is_bool(clause, ast.And):  # `limit is not None and step >= limit`: the switches that are on drop out
                open_ = [part for part in clause.values if self.constant(part, loop, evaluator) is not True]
                if any(self.constant(part, loop, evaluator) is False for part in open_):
                    continue
                clause = open_[0] if len(open_) == 1 else clause
            self.bound(record, clause, statement, loop, source, scope, live, evaluator, leaves)

    @staticmethod
    def breaks(statement, inner, loop):
        """Whether `inner`, a break under `statement`, leaves `loop` and not a loop inside it."""
        for node in own_statements(loop.body):
            if isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
                if any(child is inner for child in own_statements(node.body)):
                    return False
        return True

    def bound(self, record, clause, statement, loop, source, scope, live, evaluator, how):
        text = source.segment(clause)
        if any(name in text for name in ("isnan", "isfinite", "isinf")):
            return
        if any(name in text for name in CLOCK_NAMES):
            record["early_exit"].append({"line": statement.lineno, "test": text, "clock": True})
            return
        plain = isinstance(clause, ast.Compare) and len(clause.ops) == 1 and type(clause.ops[0]) in COMPARE
        if not plain:
            if how != "while" and self.constant(clause, loop, evaluator) is False:
                return
            record["early_exit"].append({"line": statement.lineno, "test": text, "clock": False})
            return
        left, right = clause.left, clause.comparators[0]
        operator = COMPARE[type(clause.ops[0])]
        try:
            values = [evaluator.number(left), evaluator.number(right)]
        except Exception:  # noqa: BLE001 - not numbers, or not safe to evaluate
            record["early_exit"].append({"line": statement.lineno, "test": text, "clock": False})
            return
        record["bounds"].append(
            {
                "how": how,
                "line": statement.lineno,
                "test": text,
                "operator": operator,
                "left": values[0] if math.isfinite(values[0]) else "inf",
                "right": values[1] if math.isfinite(values[1]) else "inf",
                "counters": [self.counter(side, loop, source, scope, live) for side in (left, right)],
                "step_line": live.f_lineno,
            }
        )

    def constant(self, clause, loop, evaluator):
        """The truth of a switch that the loop never assigns (args.dry_run, `limit is None`); else None."""
        stored = {
            dotted(n)
            for s in own_statements(loop.body)
            for n in ast.walk(s)
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)
        }
        subject, negate, about_none = clause, False, False
        if isinstance(subject, ast.UnaryOp) and isinstance(subject.op, ast.Not):
            subject, negate = subject.operand, True
        elif isinstance(subject, ast.Compare) and isinstance(subject.ops[0], (ast.Is, ast.IsNot)):
            if not is_none(subject.comparators[0]):
                return None
            negate, about_none, subject = isinstance(subject.ops[0], ast.IsNot), True, subject.left
        if not isinstance(subject, (ast.Name, ast.Attribute)) or dotted(subject) in stored:
            return None
        if isinstance(subject, ast.Attribute) and not about_none and not is_settings(subject.value, evaluator):
            return None  # an object's flag may be raised by its methods
        try:
            truth = evaluator.value(subject) is None if about_none else evaluator.truth(subject)
            return truth != negate
        except Exception:  # noqa: BLE001 - not a plain switch
            return None

    def counter(self, side, loop, source, scope, live):
        """How one side of a comparison changes: where, by how much, and which loop starts it anew."""
        text = source.segment(side)
        names = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)}
        info = {
            "text": text,
            "increment": None,
            "increment_line": None,
            "loop_line": None,
            "reset_line": None,
            "targets": [],
        }
        enclosing = source.loops(scope, loop.body[0].lineno)
        for candidate in [*enclosing, *source.loops(scope, live.f_lineno)]:
            if isinstance(candidate, ast.For) and names & {
                n.id for n in ast.walk(candidate.target) if isinstance(n, ast.Name)
            }:
                info["targets"].append(candidate.lineno)
        for candidate in source.loops(scope, live.f_lineno) or enclosing:
            for statement in candidate.body:
                step = increment(statement, text, source)
                if step is not None:
                    info.update(increment=step, increment_line=statement.lineno, loop_line=candidate.lineno)
            for statement in candidate.body:
                if assigns(statement, text, source) and increment(statement, text, source) is None:
                    info["reset_line"] = candidate.lineno
        return info


def forget_shadowed(loops):
    """Of loops with one variable (`for _ in ...` in `for _ in ...`) only the innermost one's value is in it."""
    seen = set()
    for loop in reversed(loops):
        key = (loop["depth"], loop.get("target"))
        if key[1] is not None and key in seen:
            loop["index"] = None
            del loop["target"]
            if "position" in loop:
                loop["position"] = (loop["position"][0], None, loop["position"][2])
        seen.add(key)


SETTINGS_NAMES = ("arg", "opt", "cfg", "conf", "hparam", "param", "flag", "setting", "hp")


def is_settings(node, evaluator):
    """Whether an expression names a bag of settings (args, cfg, self.config), which nobody changes while training."""
    if dotted(node).rsplit(".", 1)[-1].lower().startswith(SETTINGS_NAMES):
        return True
    try:
        return type(evaluator.value(node)).__name__ in ("Namespace", "SimpleNamespace", "module")
    except Exception:  # noqa: BLE001 - unknown is no
        return False
