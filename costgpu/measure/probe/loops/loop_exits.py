"""What may end a loop: comparisons with their counters, and tests that follow none."""

from __future__ import annotations

import ast
import math

from ..patching import known
from .clocks import clock_seconds, follows_clock
from .constants import Constants
from .counters import counter
from .exit_paths import ExitTaken, LoopExit, function_exits, product, walked
from .loop_position import NEGATED
from .source import encloses, encloses_any, own_statements
from .syntax import dotted

COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
CLOCK_NAMES = ("time.time", "time.perf_counter", "time.monotonic", "perf_counter", "timer")
NUMBER_CHECKS = ("isnan", "isfinite", "isinf")


def find_exits(record, loop, place):
    """Add the bounds and early exits of a loop to its record."""
    try:
        walker = walked(loop.body, loop, place.line)
    except RecursionError:
        record["early_exit"].append({"line": loop.lineno, "test": "…", "clock": False})
        return
    ways, constants = walker.ways, Constants([(place.loops() or [loop])[0], loop], place.source, place.evaluator)
    if isinstance(loop, ast.While) and record["trips"] is None:
        ways.insert(0, LoopExit("while", loop, [(loop.test, False)], loop, False))
    for way in ways:
        if record["trips"] in (None, "inf") and read_to_the_end(record, way, loop, place):
            continue
        try:
            alternatives = product(way.tests, walker.assigned, 0)
        except ValueError:
            record["early_exit"].append(early_exit(way, way.tests, place))
            continue
        opened = [constants.open_tests(tests, counts=way.how == "while") for tests in alternatives]
        alternatives = [tests for tests in opened if tests is not None]
        if way.how == "while" and not alternatives:
            record["trips"] = "inf"
        for tests in alternatives:
            add_exit(record, way, tests, loop, place, constants)
    exits = function_exits(place.source) if not record["library"] else {}
    for node in own_statements(loop.body) if exits else ():  # in functions of this file that the loop calls by name
        way = exits.get(dotted(node.func).rsplit(".", 1)[-1]) if isinstance(node, ast.Call) else None
        if way is not None:
            add_foreign_exit(record, way, place)


def add_foreign_exit(record, way, place):
    """Add an exit of another function than the loop's: an early one, since its counters live elsewhere."""
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
    trips = known(place.evaluator.trips, made[0])
    record["trips"] = record["trips"] if trips is None else trips
    return trips is not None


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
    seconds = known(clock_seconds, *rare[0], loop, place) if len(rare) == 1 else None
    if seconds is not None:
        if seconds < record.get("seconds", math.inf):
            record["seconds"] = seconds
            record["clock"] = {"line": way.node.lineno, "test": words_of(rare[0][0], place), "clock": True}
        return
    found = bound_of(way, rare[0], loop, place, constants) if len(rare) == 1 and not early["clock"] else None
    if found is not None:
        found["loose"] = len(rare) < len(tests)
        record["bounds"].append(found)
    else:
        record["early_exit"].append(early)


def periodic(test, truth):
    """Return whether this is `n % every == 0`."""
    remainder = test.left if isinstance(test, ast.Compare) else test
    wanted = isinstance(test.ops[0], ast.Eq) if isinstance(test, ast.Compare) else False
    return isinstance(remainder, ast.BinOp) and isinstance(remainder.op, ast.Mod) and truth is wanted


def early_exit(way, tests, place):
    text = words_of_all(tests, place) or place.source.segment(way.node)
    return {"line": way.node.lineno, "test": text, "clock": any(name in text for name in CLOCK_NAMES)}


def words_of_all(tests, place):
    words = [(words_of(test, place), truth) for test, truth in tests]
    return " and ".join(one if truth else "not ({})".format(one) for one, truth in words)


def words_of(test, place):
    return "…" if isinstance(test, ExitTaken) else place.source.segment(test)


def bound_of(way, test, loop, place, constants):
    """Return a comparison that ends the loop, if it is one of two numbers that can be read; else None."""
    test, truth = test
    if isinstance(test, (ast.Name, ast.Attribute)):  # `while left:` counts down to nothing
        sides, operator = (test, ast.copy_location(ast.Constant(value=0), test)), "!="
        if isinstance(known(place.evaluator.number, test), bool):
            return None
    elif isinstance(test, ast.Compare) and type(test.ops[0]) in COMPARE:
        sides, operator = (test.left, test.comparators[0]), COMPARE[type(test.ops[0])]
    else:
        return None
    walrus = next((side for side in sides if isinstance(side, ast.NamedExpr)), None)
    sides = tuple(side.target if side is walrus else side for side in sides)
    sides, (left, right) = without_offsets(sides, [known(place.evaluator.number, side) for side in sides], constants)
    if left is None or right is None:
        return None
    if truth is (way.how == "while"):
        operator = NEGATED[operator]  # of a `while` it is the test to go on
    if any(follows_clock(side, loop, place) for side in sides):
        return None
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
            offset = known(constants.evaluator.number, side.right) if constants.fixed(side.right) else None
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
