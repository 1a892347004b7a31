"""How many items a generator function of the user's gives, read from its source in the variables that it sees."""

import ast
import math

from .call_binding import bind_call
from .live_values import MOST_DEEP, Unknown
from .source import LOOPS, Source, own_statements

YIELDS = (ast.Yield, ast.YieldFrom)
BLOCKS = ("body", "orelse", "finalbody")


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
    if inside.depth >= MOST_DEEP or not found_in(scope.body, YIELDS):
        raise Unknown("no generator")
    if found_in(scope.body, ast.Return):
        raise Unknown("a generator that may end early")
    inside.depth += 1
    return sum(items_of_statement(one, inside) for one in scope.body)


def items_of_statement(node, inside):
    """Return the items of a statement that runs once; the parts of a body must not leave it early."""
    given = found_in([node], YIELDS)
    if not given:
        return 0
    if isinstance(node, LOOPS):
        if leaves(node.body, ast.Break):
            raise Unknown("a generator that may end early")
        if isinstance(node, ast.While):
            if not isinstance(node.test, ast.Constant) or not node.test.value:
                raise Unknown("a generator with a while")
            return math.inf
        if leaves(node.body, ast.Continue):
            raise Unknown("a generator that leaves some out")
        return inside.trips(node.iter) * sum(items_of_statement(one, inside) for one in node.body)
    if isinstance(node, ast.If):
        try:
            taken = [node.body if inside.truth(node.test) else node.orelse]
        except Unknown:
            taken = [node.body, node.orelse]
        found = {sum(items_of_statement(one, inside) for one in body) for body in taken}
        if len(found) > 1:
            raise Unknown("a generator that leaves some out")
        return found.pop()
    if hasattr(node, "body"):  # with, try
        if any(found_in(handler.body, YIELDS) for handler in getattr(node, "handlers", ())):
            raise Unknown("a generator that goes on after errors")
        parts = [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]
        return sum(items_of_statement(one, inside) for one in parts)
    return sum(1 if isinstance(one, ast.Yield) else inside.trips(one.value) for one in given)


def found_in(body, kinds):
    return [node for node in own_statements(body) if isinstance(node, kinds)]


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
