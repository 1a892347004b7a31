"""Tests of a clock that end a loop, and the seconds after which they do."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import time
import types

from .call_binding import plain_function
from .live_values import MISSING, MOST_DEEP, Unknown, one_return
from .source import assigned_pairs, encloses, own_statements
from .syntax import dotted

CLOCKS = {time.time: 1.0, time.monotonic: 1.0, time.perf_counter: 1.0}
CLOCKS.update({time.time_ns: 1e-9, time.monotonic_ns: 1e-9, time.perf_counter_ns: 1e-9})
PASSED_ON = ("int", "float", "round", "abs", "math.floor", "math.ceil")
UNITS = ("total_seconds", "timestamp")


class Now:
    """A clock that is read each time: what it says at present, and the seconds of its unit."""

    def __init__(self, value, unit):
        self.value, self.unit = value, unit


class ClockReader:
    """Reads expressions as sums of a clock, of the moments it is compared with, and of seconds."""

    def __init__(self, loop, place):
        self.place, self.assigned, self.raised = place, {}, set()
        for statement in own_statements(loop.body):
            for target, given in assigned_pairs(statement):
                self.assigned.setdefault(dotted(target), []).append(given)
            if isinstance(statement, ast.AugAssign):
                self.raised.add(dotted(statement.target))

    def terms(self, node, evaluator, scale=1.0, deep=0):
        """Return a list of (factor, value, name) whose sum an expression is; the value of a clock is a `Now`.

        Raises Unknown.
        """
        if deep > 2 * MOST_DEEP:
            raise Unknown("too deep")

        def inner(part, by=1.0, there=evaluator):
            return self.terms(part, there, scale * by, deep + 1)

        name = dotted(node)
        if isinstance(node, ast.NamedExpr):
            return inner(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return inner(node.left) + inner(node.right, -1.0 if isinstance(node.op, ast.Sub) else 1.0)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            left, right = evaluator.known(node.left), evaluator.known(node.right)
            if isinstance(right, (int, float)) and right:
                return inner(node.left, right if isinstance(node.op, ast.Mult) else 1 / right)
            if isinstance(left, (int, float)) and isinstance(node.op, ast.Mult):
                return inner(node.right, left)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return inner(node.operand, -1.0)
        if isinstance(node, ast.Call):
            return self.terms_of_call(node, evaluator, scale, inner)
        if evaluator is self.place.evaluator and isinstance(node, (ast.Name, ast.Attribute)):
            if name in self.raised:
                raise Unknown("a sum")
            made = self.assigned.get(name, ())
            if made:
                if len({ast.dump(one) for one in made}) > 1:
                    raise Unknown("assigned in several ways")
                return inner(made[0])
        if isinstance(node, ast.Attribute):
            owner = evaluator.known(node.value)
            if owner is not MISSING and isinstance(inspect.getattr_static(owner, node.attr, None), property):
                returned, there = unfolded(node, evaluator)
                return inner(returned, there=there)
            if node.attr == "seconds" and isinstance(node.value, (ast.BinOp, ast.Call)):
                return inner(node.value)
        return [(scale, seconds_of(evaluator.value(node)), name)]

    def terms_of_call(self, node, evaluator, scale, inner):
        called = evaluator.known(node.func)
        now = read_clock(called)
        if now is not None:
            return [(scale, now, "")]
        if dotted(node.func) in PASSED_ON and node.args:
            return inner(node.args[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr in UNITS and not node.args:
            return inner(node.func.value)
        if called is dt.timedelta:
            given = [evaluator.value(one) for one in node.args]
            named = {one.arg: evaluator.value(one.value) for one in node.keywords}
            return [(scale, dt.timedelta(*given, **named).total_seconds(), "")]
        returned, there = unfolded(node, evaluator)
        return inner(returned, there=there)


def unfolded(node, evaluator):
    """Return what a property, or a function of one `return`, returns, and what it sees; raises Unknown."""
    if isinstance(node, ast.Call):
        function, bound = plain_function(evaluator.value(node.func))
        given = [] if bound is None else [bound]
        given += [evaluator.value(one) for one in node.args]
    else:
        owner = evaluator.value(node.value)
        found = inspect.getattr_static(owner, node.attr, None)
        if not isinstance(found, property):
            raise Unknown("no property")
        function, given = found.fget, [owner]
    names, returned = one_return(function)
    return returned, evaluator.within(dict(zip(names, given)), function.__globals__)


def read_clock(function):
    """Return what a clock says now; None for any other function."""
    if not isinstance(function, types.BuiltinFunctionType):
        return None
    if function in CLOCKS:
        return Now(function(), CLOCKS[function])
    dated = function.__self__ is dt.datetime and function.__name__ in ("now", "utcnow", "today")
    return Now(function().timestamp(), 1.0) if dated else None


def seconds_of(value):
    if isinstance(value, dt.datetime):
        return value.timestamp()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise Unknown("no time")


def clock_seconds(test, ends, loop, place):
    """Return the seconds from the start of a clock to when a test of it ends the loop; None or any error if it is none.

    Args:
        ends: The truth of the test that ends the loop.
    """
    evaluator, clock = place.evaluator, ClockReader(loop, place)
    if isinstance(test, (ast.Call, ast.Attribute)):
        test, evaluator = unfolded(test, evaluator)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, ends = test.operand, not ends
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    above = isinstance(test.ops[0], (ast.Gt, ast.GtE))
    if not above and not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return None
    side = 1.0 if above is ends else -1.0  # it ends when left - right grows above 0, or when right - left does
    terms = clock.terms(test.left, evaluator, side) + clock.terms(test.comparators[0], evaluator, -side)
    rate = sum(factor for factor, value, _ in terms if isinstance(value, Now))
    if rate <= 1e-12:
        return None
    now = next(value for _, value, _ in terms if isinstance(value, Now))
    fixed = [one for one in terms if not isinstance(one[1], Now)]
    moments = [one for one in fixed if abs(one[0] + rate) < 1e-9 * rate]
    if not moments:
        return None
    start = min(moments, key=lambda one: abs(one[1] - now.value))
    length = -sum(factor * value for factor, value, _ in fixed if (factor, value) != start[:2]) / rate
    end = start[1] + length
    if end <= now.value or not starts_anew(start[2], loop, place):
        return None
    if start[1] > now.value:  # a moment that is still to come
        made = [clock.terms(one, place.evaluator) for one in place.origins(start[2])]
        ahead = [value for _, value, _ in made[0] if not isinstance(value, Now)] if len(made) == 1 else []
        if not ahead or len(ahead) == len(made[0]) or any(factor != 1.0 for factor, _, _ in made[0]):
            return place.until(loop, (end - now.value) * now.unit)
        length += sum(ahead)
    return length * now.unit


def follows_clock(side, loop, place):
    """Return whether a number that a loop compares is made of what a clock says in it: `spent += time.time() - begin`."""
    names, grown = {dotted(side)}, True
    given = [pair for one in own_statements(loop.body) for pair in assigned_pairs(one)]
    given += [(one.target, one.value) for one in own_statements(loop.body) if isinstance(one, ast.AugAssign)]
    while grown:
        grown = False
        for target, value in given:
            if dotted(target) in names:
                parts = list(ast.walk(value))
                calls = [one.func for one in parts if isinstance(one, ast.Call)]
                if any(read_clock(place.evaluator.known(one)) is not None for one in calls):
                    return True
                more = {dotted(one) for one in parts if isinstance(one, (ast.Name, ast.Attribute))} - names
                grown |= bool(more)
                names |= more
    return False


def starts_anew(name, loop, place):
    """Return whether the clock of a loop starts with each execution of it, or there is only one."""
    outer = [one for one in place.loops() if one.lineno < loop.lineno and encloses(one, loop.lineno)]
    if not outer and not place.repeated:
        return True
    body = outer[-1].body if outer else getattr(place.scope, "body", [])
    return any(
        dotted(target) == name and statement.lineno < loop.lineno
        for statement in own_statements(body)
        for target, _ in assigned_pairs(statement)
    )
