"""How many items a generator function of the user's gives, read from its source in the variables that it sees."""

import ast

from .call_binding import bind_call
from .executions import Executions
from .live_values import MOST_DEEP, Unknown
from .source import LOOPS, Source, own_statements

YIELDS = (ast.Yield, ast.YieldFrom)
BLOCKS = ("body", "orelse", "finalbody")


class YieldCount(Executions):
    """Counts what the statements of a generator function give."""

    endless = True

    def of(self, node, there, depth=0):
        if isinstance(node, ast.ExceptHandler) and any(isinstance(one, YIELDS) for one in ast.walk(node)):
            raise Unknown("a generator that goes on after errors")
        return super().of(node, there, depth)

    def event(self, node, there, depth):
        if isinstance(node, ast.YieldFrom):
            return there.trips(node.value)
        return 1 if isinstance(node, ast.Yield) else 0

    def of_loop(self, loop, there, depth):
        items = super().of_loop(loop, there, depth)
        if items and leaves(loop.body, ast.Break if isinstance(loop, ast.While) else (ast.Break, ast.Continue)):
            raise Unknown("a generator that may end early, or leave some out")
        return items


def generator_trips(call, evaluator):
    """Return how many items a call of a generator function gives; raises Unknown."""
    _, scope, inside = bind_call(call, evaluator)
    return items_of_scope(scope, inside)


def items_of(code, inside):
    """Return how many items the generator function of this code gives in these variables; raises Unknown."""
    scope = Source.of_code(code)[1]
    if scope is None:
        raise Unknown("no source")
    return items_of_scope(scope, inside)


def items_of_scope(scope, inside):
    kinds = set(map(type, own_statements(scope.body)))
    if inside.depth >= MOST_DEEP or not kinds & {ast.Yield, ast.YieldFrom}:
        raise Unknown("no generator")
    if ast.Return in kinds:
        raise Unknown("a generator that may end early")
    return YieldCount().of_all(scope.body, inside.within(inside.local, inside.globals, deeper=1), 0)


def leaves(body, kind):
    """Return whether a `break` or `continue` of this loop itself, not of one inside it, is in its body."""
    for node in body:
        if isinstance(node, kind):
            return True
        inside = ("orelse",) if isinstance(node, (*LOOPS, ast.FunctionDef, ast.ClassDef)) else BLOCKS
        parts = [getattr(node, part, None) or () for part in inside]
        parts += [handler.body for handler in getattr(node, "handlers", ())]
        if any(leaves(part, kind) for part in parts):
            return True
    return False
