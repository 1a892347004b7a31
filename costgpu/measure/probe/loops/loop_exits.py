"""What may end a loop: comparisons with their counters, and tests that follow none."""

from __future__ import annotations

import ast
import math

from ..record import Counter
from .exit_paths import STOPPING, AnyOf, Way, function_exits, product, ways_out
from .loop_position import NEGATED
from .source import assigns, encloses, encloses_any, increment, own_statements
from .syntax import dotted, is_none

COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
CLOCK_NAMES = ("time.time", "time.perf_counter", "time.monotonic", "perf_counter", "timer")
NUMBER_CHECKS = ("isnan", "isfinite", "isinf")
SETTINGS_NAMES = ("arg", "opt", "cfg", "conf", "hparam", "param", "flag", "setting", "hp")
FIXED_CALLS = ("int", "float", "bool", "min", "max", "abs", "round", "getattr")


def find_exits(record, loop, place):
    """Adds the bounds and early exits of a loop to its record."""
    try:
        ways, assigned = ways_out(loop, place.line)
    except RecursionError:
        record["early_exit"].append({"line": loop.lineno, "test": "…", "clock": False})
        return
    constants = Constants(loop, place)
    if isinstance(loop, ast.While) and record["trips"] is None:
        ways.insert(0, Way("while", loop, [(loop.test, False)], loop, False))
    for way in ways:
        if record["trips"] in (None, "inf") and read_to_the_end(record, way, loop, place):
            continue
        try:
            alternatives = product(way.tests, assigned, 0)
        except ValueError:
            record["early_exit"].append(early_exit(way, way.tests, place))
            continue
        alternatives = [tests for tests in map(constants.open_tests, alternatives) if tests is not None]
        if way.how == "while" and not alternatives:
            record["trips"] = "inf"
        for tests in alternatives:
            add_exit(record, way, tests, loop, place, constants)
    if not record["library"]:
        add_exits_of_functions(record, loop, place)


def add_exits_of_functions(record, loop, place):
    """Adds the exits of the program in functions of this file that the loop calls by name."""
    exits = function_exits(place.source)
    for node in own_statements(loop.body) if exits else ():
        way = exits.get(dotted(node.func).rsplit(".", 1)[-1]) if isinstance(node, ast.Call) else None
        if way is not None:
            add_foreign_exit(record, way, place)


def add_foreign_exit(record, way, place):
    """Adds an exit of another function than the loop's: an early one, since its counters live elsewhere."""
    found = early_exit(way, way.tests, place)
    if found not in record["early_exit"] and not any(name in found["test"] for name in NUMBER_CHECKS):
        record["early_exit"].append(found)


def read_to_the_end(record, way, loop, place):
    """`while True: try: x = next(it) / except StopIteration: break`: as often as `it = iter(data)` has items."""
    if way.home is not loop or [dotted(test) for test, _ in way.tests if isinstance(test, ast.AST)] != [
        "StopIteration"
    ]:
        return False
    calls = [node for statement in own_statements(loop.body) for node in [statement] if isinstance(node, ast.Call)]
    read = {dotted(call.args[0]) for call in calls if dotted(call.func) == "next" and len(call.args) == 1}
    made = [
        node.value.args[0]
        for node in own_statements(place.scope.body)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and dotted(node.value.func) == "iter"
        and len(node.value.args) == 1
        and read == {dotted(target) for target in node.targets}
    ]
    if len(made) != 1 or encloses_any(loop.body, made[0].lineno):
        return False
    try:
        record["trips"] = place.evaluator.trips(made[0])
    except Exception:  # noqa: BLE001 - what it is over does not say how long it is
        return False
    return True


def add_exit(record, way, tests, loop, place, constants):
    """One way out: a bound if it is one comparison of numbers, else an early exit."""
    early = early_exit(way, tests, place)
    if any(name in early["test"] for name in NUMBER_CHECKS):
        return
    if way.with_step and not tests and encloses(way.node, place.line):
        return  # it is on its way out here: `if found: return train()`
    if not tests and not way.with_step and way.how in ("break", "return") and way.home is loop:
        if not any(isinstance(node, ast.Continue) for node in own_statements(loop.body)):
            record["trips"] = min(1, record["trips"]) if isinstance(record["trips"], (int, float)) else 1
            return
    rare = [test for test in tests if not periodic(*test)]  # tested every so often only
    found = bound_of(way, rare[0], loop, place, constants) if len(rare) == 1 and not early["clock"] else None
    if found is not None:
        found["loose"] = len(rare) < len(tests)
        record["bounds"].append(found)
    else:
        record["early_exit"].append(early)


def periodic(test, truth):
    """Whether this is `n % every == 0`."""
    remainder = test.left if isinstance(test, ast.Compare) else test
    wanted = isinstance(test.ops[0], ast.Eq) if isinstance(test, ast.Compare) else False
    return isinstance(remainder, ast.BinOp) and isinstance(remainder.op, ast.Mod) and truth is wanted


def early_exit(way, tests, place):
    text = " and ".join(("" if truth else "not ") + words_of(test, place) for test, truth in tests)
    text = text or place.source.segment(way.node)
    return {"line": way.node.lineno, "test": text, "clock": any(name in text for name in CLOCK_NAMES)}


def words_of(test, place):
    return "…" if isinstance(test, AnyOf) else place.source.segment(test)


def bound_of(way, test, loop, place, constants):
    """A comparison that ends the loop, if it is one of two numbers that can be read; else None."""
    test, truth = test
    if isinstance(test, (ast.Name, ast.Attribute)):  # `while left:` counts down to nothing
        sides, operator = (test, ast.copy_location(ast.Constant(value=0), test)), "!="
        if isinstance(read_number(test, place), bool):
            return None
    elif isinstance(test, ast.Compare) and type(test.ops[0]) in COMPARE:
        sides, operator = (test.left, test.comparators[0]), COMPARE[type(test.ops[0])]
    else:
        return None
    walrus = next((side for side in sides if isinstance(side, ast.NamedExpr)), None)
    sides = tuple(side.target if side is walrus else side for side in sides)
    sides, (left, right) = without_offsets(sides, [read_number(side, place) for side in sides], constants)
    if left is None or right is None:
        return None
    if truth is (way.how == "while"):
        operator = NEGATED[operator]  # of a `while` it is the test to go on
    counters = [counter(side, loop, place, constants) for side in sides]
    if walrus is not None:
        raised_in_test(counters[sides.index(walrus.target)], walrus, way, loop)
    latched = not any(encloses(asked, test.lineno) for asked, _ in way.tests if isinstance(asked, ast.AST))
    line = loop.lineno if way.how == "while" else way.node.lineno if latched else test.lineno
    return {
        "how": "return" if way.how == "exit" else way.how,
        "line": line,
        "test": place.source.segment(test),
        "operator": operator,
        "left": left if math.isfinite(left) else "inf",
        "right": right if math.isfinite(right) else "inf",
        "counters": counters,
        "step_line": place.line,
        "home": way.home.lineno,
        "everywhere": way.how == "exit",
        "latched": latched,
        "loose": False,
    }


def without_offsets(sides, values, constants):
    """`n + 1 >= limit` as `n >= limit - 1`: the counter itself on its side."""
    plain, numbers = list(sides), list(values)
    for here, other in ((0, 1), (1, 0)):
        side = plain[here]
        if isinstance(side, ast.BinOp) and isinstance(side.op, (ast.Add, ast.Sub)) and None not in numbers:
            offset = read_number(side.right, constants.place) if constants.fixed(side.right) else None
            if offset is not None and isinstance(side.left, (ast.Name, ast.Attribute)):
                by = offset if isinstance(side.op, ast.Add) else -offset
                plain[here], numbers[here], numbers[other] = side.left, numbers[here] - by, numbers[other] - by
    return tuple(plain), numbers


def raised_in_test(counter, walrus, way, loop):
    """`while (n := n + 1) < limit`: the counter is raised where it is tested."""
    value = walrus.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        if dotted(value.left) == walrus.target.id and isinstance(value.right, ast.Constant):
            by = value.right.value
            counter["increment"] = by if isinstance(value.op, ast.Add) else -by
            counter["increment_line"] = -1 if way.how == "while" else walrus.lineno - 0.5  # before its own test
            counter["loop_line"] = way.home.lineno


def read_number(node, place):
    try:
        return place.evaluator.number(node)
    except Exception:  # noqa: BLE001 - not a number, or not safe to evaluate
        return None


class Constants:
    """Which tests cannot change while the loops of this frame go on, and how they come out."""

    def __init__(self, loop, place):
        self.place = place
        outermost = (place.loops() or [loop])[0]
        nodes = [
            node for node in own_statements([outermost, loop]) if isinstance(getattr(node, "ctx", None), ast.Store)
        ]
        self.stored = {dotted(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))}
        self.stored |= {dotted(node.value) + "[]" for node in nodes if isinstance(node, ast.Subscript)}
        self.changed = place.source.attributes_changed()
        self.shared = place.source.names_shared()

    def open_tests(self, tests):
        """The tests that are not settled; None if one of them never comes out as it must."""
        left = []
        for test, truth in tests:
            settled = self.truth(test)
            if settled is None:
                if not any(same(test, other) and truth is also for other, also in left):
                    left.append((test, truth))
            elif settled is not truth:
                return None
        return left

    def truth(self, test):
        if isinstance(test, AnyOf) or not self.fixed(test):
            return None
        try:
            return self.place.evaluator.truth(test)
        except Exception:  # noqa: BLE001 - not a plain switch
            return None

    def number(self, node, sign=1):
        """The value of an expression that cannot change, times a sign; None if it can."""
        value = read_number(node, self.place) if self.fixed(node) else None
        return None if value is None else sign * value

    def fixed(self, node):
        """Whether an expression is made of constants, of names that no loop here assigns, and of settings."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            return node.id not in self.stored and node.id not in self.shared
        if isinstance(node, ast.Attribute):
            if dotted(node) in self.stored or not self.fixed(node.value):
                return False
            flag = any(word in node.attr.lower() for word in STOPPING)  # which a callback in another file may raise
            return is_settings(node.value, self.place.evaluator) or (
                node.attr not in self.changed and dotted(node.value) in ("self", "cls") and not flag
            )
        if isinstance(node, ast.Subscript):
            plain = self.fixed(node.value) and dotted(node.value) + "[]" not in self.stored
            return plain and is_settings(node.value, self.place.evaluator)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                return is_settings(node.func.value, self.place.evaluator) and self.fixed(node.func.value)
            return dotted(node.func) in FIXED_CALLS and all(map(self.fixed, node.args))
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            inside = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
            return all(map(self.fixed, inside)) or self.about_none(node)
        return False

    def about_none(self, node):
        """`self.limit is None`: an object that is there stays there."""
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return False
        subject = node.left
        return is_none(node.comparators[0]) and dotted(subject) not in self.stored and "?" not in dotted(subject)


def same(one, other):
    return one is other or (
        isinstance(one, ast.AST) and isinstance(other, ast.AST) and ast.dump(one) == ast.dump(other)
    )


def is_settings(node, evaluator):
    """Whether an expression names a bag of settings (args, cfg, self.config), which nobody changes while training."""
    if any(part.startswith(SETTINGS_NAMES) for part in dotted(node).lower().split(".")):
        return True
    try:
        return type(evaluator.value(node)).__name__ in ("Namespace", "SimpleNamespace", "module")
    except Exception:  # noqa: BLE001 - unknown is no
        return False


def counter(side, loop, place, constants) -> Counter:
    """How one side of a comparison changes: where, by how much, and which loop starts it anew."""
    source = place.source
    text = str(side.value) if isinstance(side, ast.Constant) else source.segment(side)
    found = Counter(
        text=text,
        increment=None,
        increment_line=None,
        loop_line=None,
        reset_line=None,
        targets=[],
        with_step=False,
        unsteady=False,
    )
    names = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)}
    enclosing, around = source.loops(place.scope, loop.body[0].lineno), place.loops()
    for candidate in [*enclosing, *around]:
        if isinstance(candidate, ast.For):
            if names & {n.id for n in ast.walk(candidate.target) if isinstance(n, ast.Name)}:
                found["targets"].append(candidate.lineno)
    for candidate in around or enclosing:
        for statement, when in sorted_out(candidate.body, place.line, constants):
            added = increment(statement, text, source)
            step = constants.number(*added) if added is not None else None
            if step is not None and when != "sometimes" and found["increment"] is None:
                found["increment"], found["increment_line"] = step, line_of(statement, candidate, place.line)
                found["loop_line"], found["with_step"] = candidate.lineno, when == "with step"
            elif added is not None:
                found["unsteady"] |= when == "sometimes"
            elif assigns(statement, text, source):
                found["reset_line"] = candidate.lineno
                found["unsteady"] |= when == "sometimes"
    return found


def line_of(statement, loop, line):
    """The line of an increment; half a line off where the step is on it, too: `step(); n += 1`."""
    if statement.lineno != line:
        return statement.lineno
    calls = [node for node in own_statements(loop.body) if isinstance(node, ast.Call) and encloses(node, line)]
    after = any(node.col_offset < statement.col_offset for node in calls)
    return line + 0.5 if after else line - 0.5


def sorted_out(body, line, constants, when="always"):
    """The statements of a loop's body but for those of inner loops, and whether they run always, at times, or per step."""
    for place, statement in enumerate(body):
        if isinstance(statement, ast.If):
            truth = constants.truth(statement.test)
            for branch, wanted in ((statement.body, True), (statement.orelse, False)):
                if truth is None:
                    inside = "with step" if encloses_any(branch, line) and when != "sometimes" else "sometimes"
                    yield from sorted_out(branch, line, constants, inside)
                elif truth is wanted:
                    yield from sorted_out(branch, line, constants, when)
            if truth is None and when != "sometimes" and isinstance(statement.body[-1], ast.Continue):
                when = "with step" if encloses_any(body[place + 1 :], line) else "sometimes"
        elif isinstance(statement, (ast.With, ast.AsyncWith)) or statement.__class__.__name__ in ("Try", "TryStar"):
            yield from sorted_out(statement.body, line, constants, when)
            for part in ("orelse", "finalbody"):
                yield from sorted_out(getattr(statement, part, []), line, constants, when)
            for handler in getattr(statement, "handlers", []):
                yield from sorted_out(handler.body, line, constants, "sometimes")
        else:
            yield statement, when
