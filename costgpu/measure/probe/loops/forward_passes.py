"""How often statements run a model, from the lengths of their loops: an evaluation that reads no DataLoader."""

import ast

from ..patching import known
from .call_binding import bind_call, evaluated
from .executions import Executions
from .safe_eval import Unknown


class Trains(Exception):
    """These statements train."""


class ForwardPasses(Executions):
    """Counts the calls of models in statements and in the script's own functions that they call."""

    def __init__(self, torch, is_library):
        self.module, self.is_library = torch.nn.Module, is_library
        # whether a model is put into eval mode in what was counted; what has no modes is followed only where it evaluates
        self.evaluates = not hasattr(torch.nn.Module, "eval")
        self.going, self.recursive = [], set()  # functions that are being counted, and those that call themselves

    def event(self, node, there, depth):
        """Return the calls of models that a call makes; raise Trains for a backward pass."""
        if not isinstance(node, ast.Call):
            return 0
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method == "backward":
            raise Trains
        self.evaluates = self.evaluates or (method == "eval" and not node.args)
        if isinstance(evaluated(there, node.func), self.module):
            return 1
        _, scope, inside = known(bind_call, node, there, default=(None, None, None))
        if scope is None or self.is_library(str(inside.globals.get("__file__", "<"))):
            if isinstance(node.func, ast.Attribute) and not hasattr(self.module, method):
                if isinstance(evaluated(there, node.func.value), self.module):
                    raise Unknown("a library's method")  # what its model does in one of its own: `model.generate(...)`
            return 0
        if scope in self.going:
            self.recursive.add(scope)
            return 0
        self.going.append(scope)
        count = self.of_function(scope, inside, depth)
        self.going.pop()
        if count and scope in self.recursive:
            raise Unknown("it calls itself")
        return count
