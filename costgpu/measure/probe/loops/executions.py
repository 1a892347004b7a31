"""How often something happens in statements, by the lengths of the loops around it: nothing of them is run."""

import ast
import math

from .live_values import Unknown
from .source import COMPREHENSIONS, LOOPS, literal_values

REPEATS = (*LOOPS, *COMPREHENSIONS)
ELSEWHERE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)  # what is only defined here
MOST_DEEP = 4  # functions that are followed into functions


class Executions:
    """Counts one kind of event in statements; what these see is an `Evaluator` or a `Reach`, called `there`.

    Exceptions are not the rule: their handlers are left out.
    """

    endless = False  # whether an event may happen without end

    def event(self, node, there, depth):
        """Return how often it happens at this node itself, beside its parts; raise Unknown where that cannot be told."""
        raise NotImplementedError

    def of(self, node, there, depth=0):
        """Return how often it happens in a statement or an expression; raise Unknown where that cannot be told."""
        if isinstance(node, ELSEWHERE) or isinstance(node, ast.ExceptHandler):
            return 0
        if isinstance(node, REPEATS):
            return self.of_loop(node, there, depth)
        if isinstance(node, (ast.If, ast.IfExp)):
            return self.of_choice(node.test, node.body, node.orelse, there, depth)
        if isinstance(node, ast.BoolOp):
            first, rest = node.values[0], node.values[1:]
            rest = ast.BoolOp(op=node.op, values=rest) if len(rest) > 1 else rest[0]
            ways = (rest, []) if isinstance(node.op, ast.And) else ([], rest)
            return self.of_choice(first, *ways, there, depth)
        if node.__class__.__name__ == "Match":
            return self.of(node.subject, there, depth) + self.alike([case.body for case in node.cases], there, depth)
        return self.of_all(ast.iter_child_nodes(node), there, depth) + self.event(node, there, depth)

    def of_all(self, nodes, there, depth):
        return sum(self.of(node, there, depth) for node in nodes)

    def of_function(self, scope, inside, depth):
        """Return how often it happens in a function that is called in functions that deep."""
        if depth >= MOST_DEEP:
            raise Unknown("too deep")
        return self.of_all(scope.body, inside, depth + 1)

    def of_loop(self, loop, there, depth):
        values = literal_values(loop) if isinstance(loop, ast.For) else None
        if values is not None:  # for phase in ["train", "val"]: each value takes its own way through the body
            return sum(self.of_all(loop.body, there.given(loop.target.id, value), depth) for value in values)
        if isinstance(loop, COMPREHENSIONS):
            heads = [one.iter for one in loop.generators]
            body = [loop.key, loop.value] if isinstance(loop, ast.DictComp) else [loop.elt]
        else:
            heads, body = [loop.test if isinstance(loop, ast.While) else loop.iter], loop.body
        before, each = self.of_all(heads, there, depth), self.of_all(body, there, depth)
        if not each:
            return before
        if any(one.ifs for one in getattr(loop, "generators", ())):
            raise Unknown("a comprehension that leaves some out")
        if isinstance(loop, ast.While):
            trips = math.inf if isinstance(loop.test, ast.Constant) and loop.test.value else None
        else:
            trips = math.prod(there.trips(one) for one in heads)
        if trips is None or (math.isinf(trips) and not self.endless):
            raise Unknown("a loop without a length")
        return before + trips * each

    def of_choice(self, test, body, orelse, there, depth):
        before = self.of(test, there, depth)
        ways = [way if isinstance(way, list) else [way] for way in (orelse, body)]
        try:
            ways = [ways[there.truth(test)]]
        except Exception:  # noqa: BLE001, S110 - the user's objects may raise anything: then it may go either way
            pass
        return before + self.alike(ways, there, depth)

    def alike(self, ways, there, depth):
        """Return how often it happens in each of several blocks, one of which is taken."""
        found = {self.of_all(way, there, depth) for way in ways}
        if len(found) > 1:
            raise Unknown("a test")
        return found.pop()
