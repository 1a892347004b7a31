"""What may end a loop: comparisons with their counters, and tests that follow none."""

from __future__ import annotations

import ast
import math

from ..record import Counter
from .safe_eval import dotted, is_none
from .source import assigns, encloses_any, increment, is_bool, own_statements, unconditional

COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
CLOCK_NAMES = ("time.time", "time.perf_counter", "time.monotonic", "perf_counter", "timer")
NUMBER_CHECKS = ("isnan", "isfinite", "isinf")
SETTINGS_NAMES = ("arg", "opt", "cfg", "conf", "hparam", "param", "flag", "setting", "hp")


def find_exits(record, loop, place):
    """Adds the bounds and early exits of a loop to its record."""
    if isinstance(loop, ast.While) and record["trips"] is None:
        for clause in loop.test.values if is_bool(loop.test, ast.And) else [loop.test]:
            add_exit(record, clause, loop, loop, place, "while")
    for statement in own_statements(loop.body):
        if isinstance(statement, ast.If):
            find_conditional_exit(record, statement, loop, place)


def find_conditional_exit(record, statement, loop, place):
    """`if TEST: break` (of this loop) or `return`."""
    leaves = None
    for inner in unconditional(statement.body):
        if isinstance(inner, ast.Return) and place.live.f_code.co_name != "<module>":
            leaves = "return"
        elif isinstance(inner, ast.Break) and breaks(inner, loop):
            leaves = "break"
    if leaves is None or encloses_any(statement.body, place.line):
        return
    for clause in statement.test.values if is_bool(statement.test, ast.Or) else [statement.test]:
        if is_bool(clause, ast.And):  # `limit is not None and step >= limit`: the switches that are on drop out
            switches = [(part, constant_truth(part, loop, place)) for part in clause.values]
            if any(truth is False for _, truth in switches):
                continue
            open_ = [part for part, truth in switches if truth is not True]
            clause = open_[0] if len(open_) == 1 else clause
        add_exit(record, clause, statement, loop, place, leaves)


def breaks(statement, loop):
    """Whether a `break` leaves `loop` and not a loop inside it."""
    inner = [node for node in own_statements(loop.body) if isinstance(node, (ast.For, ast.While, ast.AsyncFor))]
    return not any(child is statement for node in inner for child in own_statements(node.body))


def add_exit(record, clause, statement, loop, place, how):
    """One test that ends the loop: a bound if it compares two numbers, else an early exit."""
    text = place.source.segment(clause)
    if any(name in text for name in NUMBER_CHECKS):
        return
    early = {"line": statement.lineno, "test": text, "clock": any(name in text for name in CLOCK_NAMES)}
    plain = isinstance(clause, ast.Compare) and len(clause.ops) == 1 and type(clause.ops[0]) in COMPARE
    if early["clock"] or not plain:
        if early["clock"] or how == "while" or constant_truth(clause, loop, place) is not False:
            record["early_exit"].append(early)
        return
    sides = (clause.left, clause.comparators[0])
    try:
        left, right = [place.evaluator.number(side) for side in sides]
    except Exception:  # noqa: BLE001 - not numbers, or not safe to evaluate
        record["early_exit"].append(early)
        return
    record["bounds"].append(
        {
            "how": how,
            "line": statement.lineno,
            "test": text,
            "operator": COMPARE[type(clause.ops[0])],
            "left": left if math.isfinite(left) else "inf",
            "right": right if math.isfinite(right) else "inf",
            "counters": [counter(side, loop, place) for side in sides],
            "step_line": place.line,
        }
    )


def constant_truth(clause, loop, place):
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
    evaluator = place.evaluator
    if isinstance(subject, ast.Attribute) and not about_none and not is_settings(subject.value, evaluator):
        return None  # an object's flag may be raised by its methods
    try:
        truth = evaluator.value(subject) is None if about_none else evaluator.truth(subject)
        return truth != negate
    except Exception:  # noqa: BLE001 - not a plain switch
        return None


def is_settings(node, evaluator):
    """Whether an expression names a bag of settings (args, cfg, self.config), which nobody changes while training."""
    if dotted(node).rsplit(".", 1)[-1].lower().startswith(SETTINGS_NAMES):
        return True
    try:
        return type(evaluator.value(node)).__name__ in ("Namespace", "SimpleNamespace", "module")
    except Exception:  # noqa: BLE001 - unknown is no
        return False


def counter(side, loop, place) -> Counter:
    """How one side of a comparison changes: where, by how much, and which loop starts it anew."""
    source = place.source
    text = source.segment(side)
    found = Counter(text=text, increment=None, increment_line=None, loop_line=None, reset_line=None, targets=[])
    names = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)}
    enclosing, around = source.loops(place.scope, loop.body[0].lineno), place.loops()
    for candidate in [*enclosing, *around]:
        if isinstance(candidate, ast.For):
            if names & {n.id for n in ast.walk(candidate.target) if isinstance(n, ast.Name)}:
                found["targets"].append(candidate.lineno)
    for candidate in around or enclosing:
        for statement in candidate.body:
            step = increment(statement, text, source)
            if step is not None:
                found["increment"], found["increment_line"] = step, statement.lineno
                found["loop_line"] = candidate.lineno
            elif assigns(statement, text, source):
                found["reset_line"] = candidate.lineno
    return found
