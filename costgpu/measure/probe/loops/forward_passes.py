"""How often statements run a model, from the lengths of their loops: an evaluation that reads no DataLoader."""

import ast
import math

from ..patching import known
from .call_binding import bind_call, evaluated
from .safe_eval import Unknown
from .source import COMPREHENSIONS, LOOPS

REPEATS = (*LOOPS, *COMPREHENSIONS)
ELSEWHERE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)  # what is only defined here
MOST_CALLS_DEEP = 4


class Trains(Exception):
    """These statements train."""


class ForwardPasses:
    """Counts the calls of models in statements and in the script's own functions that they call."""

    def __init__(self, torch, is_library):
        self.module, self.is_library = torch.nn.Module, is_library
        # whether a model is put into eval mode in what was counted; what has no modes is followed only where it evaluates
        self.evaluates = not hasattr(torch.nn.Module, "eval")
        self.going, self.recursive = [], set()  # functions that are being counted, and those that call themselves

    def of(self, node, evaluator, depth=0):
        """Call of models; raise Unknown where that cannot be told, and Trains."""
        if isinstance(node, ELSEWHERE):
            return 0
        if isinstance(node, REPEATS):
            return self.of_loop(node, evaluator, depth)
        if isinstance(node, ast.If):
            return self.of(node.test, evaluator, depth) + self.of_branches(node, evaluator, depth)
        inside = sum(self.of(child, evaluator, depth) for child in ast.iter_child_nodes(node))
        return inside + (self.of_call(node, evaluator, depth) if isinstance(node, ast.Call) else 0)

    def of_all(self, nodes, evaluator, depth):
        return sum(self.of(node, evaluator, depth) for node in nodes)

    def of_loop(self, loop, evaluator, depth):
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            lengths, body = [loop.iter], loop.body
        elif isinstance(loop, ast.While):
            lengths, body = [], loop.body
        else:
            lengths = [one.iter for one in loop.generators]
            body = [loop.key, loop.value] if isinstance(loop, ast.DictComp) else [loop.elt]
        each, before = self.of_all(body, evaluator, depth), self.of_all(lengths, evaluator, depth)
        if not each:
            return before
        trips = math.prod(evaluator.trips(one) for one in lengths) if lengths else math.inf
        if math.isinf(trips):
            raise Unknown("a loop without a length")
        return before + trips * each

    def of_branches(self, node, evaluator, depth):
        try:
            truth = evaluator.truth(node.test)
        except Exception:  # noqa: BLE001 - the user's objects may raise anything
            ways = {self.of_all(branch, evaluator, depth) for branch in (node.body, node.orelse)}
            if len(ways) > 1:
                raise Unknown("a test") from None
            return ways.pop()
        return self.of_all(node.body if truth else node.orelse, evaluator, depth)

    def of_call(self, call, evaluator, depth):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method == "backward":
            raise Trains
        self.evaluates = self.evaluates or (method == "eval" and not call.args)
        if isinstance(evaluated(evaluator, call.func), self.module):
            return 1
        _, scope, inside = known(bind_call, call, evaluator, default=(None, None, None))
        if scope is None or self.is_library(str(inside.globals.get("__file__", "<"))):
            if isinstance(call.func, ast.Attribute) and not hasattr(self.module, method):
                if isinstance(evaluated(evaluator, call.func.value), self.module):
                    raise Unknown("a library's method")  # what its model does in one of its own: `model.generate(...)`
            return 0
        if scope in self.going:
            self.recursive.add(scope)
            return 0
        if depth >= MOST_CALLS_DEEP:
            raise Unknown("too deep")
        self.going.append(scope)
        count = self.of_all(scope.body, inside, depth + 1)
        self.going.pop()
        if count and scope in self.recursive:
            raise Unknown("it calls itself")
        return count
