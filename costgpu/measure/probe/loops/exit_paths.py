"""The ways out of a loop: for each `break`, `return`, exit or stop, the tests that lead to it.

A test is an expression and the truth that it must have; `expand` takes `and`, `or`, `not`, chained comparisons and
flags that the loop itself sets apart, into alternatives of plain tests.
"""

from __future__ import annotations

import ast
import functools

from .source import LOOPS, assigned_pairs, encloses_any
from .syntax import dotted

INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
EXITS = ("sys.exit", "exit", "quit", "os._exit")
STOPPING = ("stop", "exit", "done", "finish", "complete", "terminate", "interrupt")  # in names of exceptions
ENDS_OF_ITERATORS = ("StopIteration", "StopAsyncIteration", "Empty")
MOST_ALTERNATIVES, MOST_SUBSTITUTIONS = 24, 3


class LoopExit:
    """One way out. `home` is the innermost loop that holds it; `with_step` if it is taken right after a step."""

    def __init__(self, how, node, tests, home, with_step):
        self.how, self.node, self.tests, self.home, self.with_step = how, node, tests, home, with_step


class ExitTaken:
    """Stands for a test: one of these ways has been taken."""

    def __init__(self, ways):
        self.ways = ways


class Walker:
    """Follows the statements of a loop's body with the tests that lead to each."""

    def __init__(self, loop, line):
        self.loop, self.line = loop, line  # `line` is where it is now: at the step
        # beside ways out: (target, value, tests) of assignments, without a value if it is not plain; (node, tests) of
        # what does not hold the step: tests of `if`, statements, whole loops
        self.ways, self.assigned, self.beside = [], [], []
        # (test, its truth, block of the `if`) of what decides whether `line` is reached; without a block where an
        # `if ...: continue` stands before it
        self.led = []

    def walk(self, body, tests, home, gated=False):
        """`gated` if tests that also lead to the step, and so hold whenever there is one, have been left out."""
        for statement in body:
            if isinstance(statement, ast.If):
                self.beside += parts_of(statement.test, tests)
                for branch, truth in ((statement.body, True), (statement.orelse, False)):
                    if encloses_any(branch, self.line):
                        self.led.append((statement.test, truth, branch))
                        self.walk(branch, tests, home, True)
                    else:
                        self.walk(branch, [*tests, (statement.test, truth)], home, gated)
                if isinstance(statement.body[-1], ast.Continue):
                    before = encloses_any(body[body.index(statement) + 1 :], self.line)
                    if before:
                        self.led.append((statement.test, False, None))
                    if not statement.orelse:
                        gated = gated or before
                        tests = tests if before else [*tests, (statement.test, False)]
            elif isinstance(statement, LOOPS):
                tests = self.walk_loop(statement, tests, home, gated)
            elif isinstance(statement, (ast.With, ast.AsyncWith)):
                self.walk(statement.body, tests, home, gated)
            elif statement.__class__.__name__ in ("Try", "TryStar"):
                self.walk([*statement.body, *statement.orelse, *statement.finalbody], tests, home, gated)
                for handler in statement.handlers:
                    if dotted(handler.type).rsplit(".", 1)[-1] in ENDS_OF_ITERATORS:
                        self.walk(handler.body, [*tests, (handler.type, True)], home, gated)
            elif statement.__class__.__name__ == "Match":
                for case in statement.cases:
                    self.walk(case.body, [*tests, (statement.subject, True)], home, gated)
            else:
                if not encloses_any([statement], self.line):
                    self.beside.append((statement, tests))
                how = way_of(statement)
                if how is not None:
                    self.ways.append(LoopExit(how, statement, tests, home, gated))
                elif isinstance(statement, ast.Assign):
                    self.assigned += [(target, value, tests) for target, value in assigned_pairs(statement)]
                elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
                    self.assigned.append(
                        (statement.target, getattr(statement, "annotation", None) and statement.value, tests)
                    )
            if isinstance(statement, (ast.Break, ast.Continue, ast.Return)):
                return

    def walk_loop(self, loop, tests, home, gated):
        """Return a loop inside; the tests that lead to what follows it."""
        if not encloses_any([loop], self.line):
            self.beside.append((loop, tests))
        inner = Walker(loop, self.line)
        inner.walk(loop.body, [], loop, gated)
        breaks = [way for way in inner.ways if way.how == "break"]
        for way in inner.ways:
            if way.how != "break":
                self.ways.append(LoopExit(way.how, way.node, [*tests, *way.tests], way.home, way.with_step))
        self.assigned += [(target, value, [*tests, *led]) for target, value, led in inner.assigned]
        if loop.orelse and isinstance(loop.orelse[-1], ast.Continue):  # what follows is only reached by a `break`
            return [*tests, (ExitTaken(breaks), True)]
        self.walk(loop.orelse, tests, home, gated)
        return tests


def parts_of(test, tests):
    """(part, tests that lead to it) of a test with `and` or `or`, each part of which is only asked after the others."""
    if not isinstance(test, ast.BoolOp):
        return [(test, tests)]
    truth = isinstance(test.op, ast.And)
    return [(part, [*tests, *((one, truth) for one in test.values[:at])]) for at, part in enumerate(test.values)]


def way_of(statement):
    """Return how a statement leaves loops: ``break``, ``return``, ``exit``; None if it does not."""
    if isinstance(statement, ast.Break):
        return "break"
    if isinstance(statement, ast.Return):
        return "return"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return "exit" if dotted(statement.value.func) in EXITS else None
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        name = dotted(raised).rsplit(".", 1)[-1].lower()
        return "exit" if any(word in name for word in STOPPING) else None
    return None


def walked(body, loop, line):
    """Return the walker that has followed a body, of this loop, to its end; `line` is where the step is."""
    walker = Walker(loop, line)
    walker.walk(body, [], loop)
    return walker


@functools.lru_cache(maxsize=None)
def function_exits(source):
    """Return the first way out of the program in each function of a file, by the function's name; errors are none."""
    exits = {}
    for function in ast.walk(source.tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            try:
                ways = walked(function.body, function, -1).ways
            except RecursionError:
                continue
            found = [way for way in ways if way.how == "exit" and not is_error(way.node)]
            if found:
                exits.setdefault(function.name, found[0])
    return exits


def is_error(statement):
    """Return whether an exit says that something went wrong: `sys.exit("no such file")`, `sys.exit(1)`."""
    call = statement.value if isinstance(statement, ast.Expr) else statement.exc
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if isinstance(statement, ast.Raise):
        return "exit" in dotted(call.func if isinstance(call, ast.Call) else call).lower() and is_failure(given)
    return is_failure(given)


def is_failure(given):
    return isinstance(given, ast.JoinedStr) or (isinstance(given, ast.Constant) and given.value not in (0, None))


def expand(test, truth, assigned, depth=0):
    """Alternatives (lists of plain tests) that make an expression true, or false; ValueError for too many."""
    if isinstance(test, ExitTaken):
        return union(product(way.tests, assigned, depth) for way in test.ways)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return expand(test.operand, not truth, assigned, depth)
    if isinstance(test, ast.BoolOp):
        parts = [(part, truth) for part in test.values]
        if isinstance(test.op, ast.And) == truth:
            return product(parts, assigned, depth)
        return union(expand(part, truth, assigned, depth) for part, truth in parts)
    if isinstance(test, ast.Compare) and len(test.ops) > 1:
        sides = [test.left, *test.comparators]
        parts = []
        for left, operator, right in zip(sides, test.ops, sides[1:]):
            place = {"lineno": left.lineno, "col_offset": left.col_offset}
            place.update(end_lineno=right.end_lineno, end_col_offset=right.end_col_offset)
            parts.append((ast.Compare(left=left, ops=[operator], comparators=[right], **place), truth))
        return product(parts, assigned, depth) if truth else union(expand(*part, assigned, depth) for part in parts)
    if isinstance(test, ast.IfExp):
        ways = ([(test.test, True), (test.body, truth)], [(test.test, False), (test.orelse, truth)])
        return union(product(way, assigned, depth) for way in ways)
    if isinstance(test, ast.Call) and dotted(test.func) == "bool" and len(test.args) == 1:
        return expand(test.args[0], truth, assigned, depth)
    if isinstance(test, (ast.Name, ast.Attribute)) and depth < MOST_SUBSTITUTIONS:
        raised = raised_where(test, truth, assigned, depth)
        if raised is not None:
            return raised
    return [[(test, truth)]]


def raised_where(flag, truth, assigned, depth):
    """Return the alternatives under which the loop sets a flag; None if it does not, or not plainly."""
    name, found = dotted(flag), []
    for target, value, tests in assigned:
        if name not in {dotted(node) for node in ast.walk(target)}:
            continue
        if dotted(target) != name or value is None:
            return None
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            if value.value is truth:
                found.append(product(tests, assigned, depth + 1))
        elif isinstance(value, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            found.append(product([*tests, (value, truth)], assigned, depth + 1))
        else:
            return None
    return union(found) if found else None


def union(alternatives):
    return limited([one for some in alternatives for one in some])


def product(tests, assigned, depth):
    """Return all of these tests together, as alternatives."""
    found = [[]]
    for test, truth in tests:
        more = expand(test, truth, assigned, depth)
        found = limited([[*one, *other] for one in found for other in more])
    return found


def limited(alternatives):
    if len(alternatives) > MOST_ALTERNATIVES:
        raise ValueError("too many ways")
    return alternatives
