"""What may end a loop (comparisons with their counters, tests that follow none), and how far it has come.

How far: by its counter, or by the item that it is at, for a loop that no framework counts.
"""

from __future__ import annotations

import ast
import math

from ..record import Counter
from .safe_eval import Evaluator, dotted, is_none
from .source import assigns, encloses_any, increment, is_bool, own_statements, unconditional

COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
CLOCK_NAMES = ("time.time", "time.perf_counter", "time.monotonic", "perf_counter", "timer")
NUMBER_CHECKS = ("isnan", "isfinite", "isinf")
SETTINGS_NAMES = ("arg", "opt", "cfg", "conf", "hparam", "param", "flag", "setting", "hp")
MOST_ITEMS = 100000
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


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


def position(record, node, place):
    """Iterations of the loop in all, and so far (None for what cannot be read); whether it may end earlier."""
    counted = [of_counter(bound, record, node, place) for bound in record["bounds"]]
    early = bool(record["early_exit"]) or None in counted
    if record["kind"] == "while":
        trips, at = min((one for one in counted if one is not None), default=(None, None))
        return trips, at, early
    trips = record["trips"]
    if record["index"] is not None and record["stride"]:
        return trips, (record["index"] - record["start"]) / record["stride"], early
    try:
        return trips, of_item(node, place.evaluator), early
    except Exception:  # noqa: BLE001 - objects of the user's may raise anything when they are looked at
        return trips, None, early


def of_counter(bound, record, node, place):
    """Of `while t < n` with `t += 1`, and of `if t == n: break`: in all and so far; None if it does not count."""
    sides = [
        side
        for side in (0, 1)
        if isinstance(bound["counters"][side]["increment"], (int, float))
        and bound["counters"][side]["loop_line"] == record["line"]
    ]
    values = (bound["left"], bound["right"])
    if len(sides) != 1 or "inf" in values:
        return None
    counter = bound["counters"][sides[0]]
    if counter["reset_line"] == record["line"]:
        return None  # set back inside the loop
    step, now, limit = counter["increment"], values[sides[0]], values[1 - sides[0]]
    operator = bound["operator"] if bound["how"] == "while" else NEGATED[bound["operator"]]
    if sides[0] == 1:
        operator = MIRRORED[operator]
    start = assigned_before(place.scope, counter["text"], node.lineno, place.source)
    if start is None:
        if step < 0:
            return None
        start = 1 if operator == "<=" and now >= 1 else 0
    if not step or operator not in (("<", "<=", "!=") if step > 0 else (">", ">=", "!=")):
        return None
    span = (limit - start) / step
    trips = math.floor(span + 1e-9) + 1 if operator in ("<=", ">=") else math.ceil(span - 1e-9)
    return (trips, (now - start) / step) if trips > 0 else None


def assigned_before(scope, text, line, source):
    """The number that the last `text = 0` before a line assigns; None if there is none, or it is no constant."""
    last, value = 0, None
    for statement in own_statements(scope.body):
        if not isinstance(statement, ast.Assign) or not last <= statement.lineno < line:
            continue
        for target in statement.targets:
            pairs = [(target, statement.value)]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(target.elts, statement.value.elts))
            for name, given in pairs:
                if source.segment(name) == text:
                    last = statement.lineno
                    number = given.value if isinstance(given, ast.Constant) else None
                    value = number if type(number) in (int, float) else None
    return value


def of_item(node, evaluator):
    """Where in a list (tuple, dict, array) the item is that the loop is at; None unless it is there once."""
    over, target = node.iter, node.target
    while isinstance(over, ast.Call) and over.args and dotted(over.func) in Evaluator.WRAPPERS - {"reversed", "sorted"}:
        over = over.args[0]
    if not isinstance(target, ast.Name):
        return None
    values, item = evaluator.value(over), evaluator.name(target.id)
    if isinstance(values, (list, tuple, dict)) and len(values) <= MOST_ITEMS:
        places = [place for place, one in enumerate(values) if one is item]
    elif getattr(values, "ndim", None) == 1 and hasattr(item, "item") and len(values) <= MOST_ITEMS:
        wanted = item.item()
        places = [place for place, one in enumerate(values.tolist()) if one == wanted]
    else:
        return None
    return places[0] if len(places) == 1 else None
