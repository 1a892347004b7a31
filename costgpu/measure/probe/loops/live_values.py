"""Values of the user's expressions in live variables, without running the user's code."""

import ast
import builtins
import inspect
import math
import types

from .source import Source
from .syntax import dotted, is_docstring, is_none

PLAIN = (int, float, str, bool, type(None))
SETTINGS_PACKAGES = ("omegaconf", "ml_collections", "easydict", "addict", "box", "munch", "yacs")
MOST_DEEP = 4  # properties that read properties
READ_FREELY = ("torch", "numpy", "pathlib", *SETTINGS_PACKAGES)  # their attributes run none of the user's code
INSTALLED = ("site-packages", "dist-packages")  # in the path of a library
MISSING = object()
FOREVER = 10**9  # a trip count of this size means "until stopped"


class Unknown(Exception):
    """An expression that cannot be evaluated without running the user's code again."""


class Values:
    """Evaluates expressions in a live frame's variables; of the user's code it calls `__len__` alone."""

    BINARY = {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.Div: lambda a, b: a / b,
        ast.FloorDiv: lambda a, b: a // b,
        ast.Mod: lambda a, b: a % b,
        ast.Pow: lambda a, b: a**b if abs(a) < 1e6 and abs(b) < 64 else math.inf,
    }
    COMPARE = {
        ast.Eq: lambda a, b: a == b,
        ast.NotEq: lambda a, b: a != b,
        ast.Lt: lambda a, b: a < b,
        ast.LtE: lambda a, b: a <= b,
        ast.Gt: lambda a, b: a > b,
        ast.GtE: lambda a, b: a >= b,
        ast.Is: lambda a, b: a is b,
        ast.IsNot: lambda a, b: a is not b,
    }
    PURE = frozenset("range len int float min max abs round sum bool math.ceil math.floor".split())

    def __init__(self, local, globals_, torch=None, depth=0, shorter=None):
        self.local, self.globals, self.torch, self.depth = local, globals_, torch, depth
        # what may have fewer items than was taken for granted, in words
        self.shorter = [] if shorter is None else shorter

    def within(self, local, globals_, deeper=0):
        """Return an evaluator of the same kind in other variables, which notes what may be shorter in the same list."""
        return type(self)(local, globals_, self.torch, self.depth + deeper, self.shorter)

    def given(self, name, value):
        """Return an evaluator of the same variables, but for one."""
        return self.within({**self.local, name: value}, self.globals)

    def trips(self, node):
        raise Unknown("a length")

    def known(self, node):
        """Return the value of an expression, MISSING where it has none that can be read."""
        try:
            return self.value(node)
        except Exception:  # noqa: BLE001 - the user's objects may raise anything
            return MISSING

    def name(self, name):
        for space in (self.local, self.globals, vars(builtins)):
            if name in space:
                return space[name]
        raise Unknown(name)

    def value(self, node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            index = index_of(node)
            base = self.value(node.value)
            if isinstance(index, ast.Slice):
                parts = [None if n is None else self.value(n) for n in (index.lower, index.upper, index.step)]
                return range(*slice(*parts).indices(len(base)))
            if package_of(base) in SETTINGS_PACKAGES or (
                isinstance(node.value, ast.Attribute) and hasattr(type(base), "shape")
            ):
                return base[self.value(index)]
            return item(base, self.value(index))
        if isinstance(node, ast.BinOp) and type(node.op) in self.BINARY:
            return self.BINARY[type(node.op)](self.number(node.left), self.number(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.number(node.operand)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(n) for n in node.elts]
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.truth(node.test) else node.orelse)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.NamedExpr):
            return self.value(node.target)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand)
        if isinstance(node, ast.BoolOp):
            wanted = isinstance(node.op, ast.Or)
            return wanted if any(self.truth(part) is wanted for part in node.values) else not wanted
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], (ast.Is, ast.IsNot))
            and is_none(node.comparators[0])
        ):
            return (self.value(node.left) is None) is isinstance(node.ops[0], ast.Is)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in self.COMPARE:
            left, right = self.value(node.left), self.value(node.comparators[0])
            if isinstance(left, PLAIN) and isinstance(right, PLAIN):
                return self.COMPARE[type(node.ops[0])](left, right)
        raise Unknown(type(node).__name__)

    def attribute(self, base, name):
        """Return a plain attribute, or what a property would say: neither it nor `__getattr__` of the user's is called."""
        if package_of(base) in READ_FREELY:
            return getattr(base, name)
        found = inspect.getattr_static(base, name, MISSING)
        if found is MISSING:
            return self.missing(base, name)
        if isinstance(found, property):
            return self.read_property(found.fget, base)
        if type(found).__name__ == "cached_property":
            return self.read_property(found.func, base)
        if not hasattr(type(found), "__get__") or (not isinstance(base, type) and found is own_value(base, name)):
            return found
        if type(found).__module__ in ("builtins", "enum", "types"):  # slots, functions, members
            owner = base if isinstance(base, type) else type(base)
            return type(found).__get__(found, None if owner is base else base, owner)
        raise Unknown("a descriptor")

    def missing(self, base, name):
        """Return what `__getattr__` would give: a library's class is asked, a user's is read.

        A dictionary's keys are looked up.
        """
        getter = inspect.getattr_static(type(base), "__getattr__", None)
        if isinstance(base, dict) and getter is not None:
            return item(base, name)
        if not isinstance(getter, types.FunctionType):
            raise Unknown("no attribute " + name)
        if getter.__module__.startswith("torch.") or any(part in getter.__code__.co_filename for part in INSTALLED):
            return getter(base, name)
        return self.read_property(getter, base, name)

    def read_property(self, getter, *given):
        """Return a property of one `return`: what it would say, from its source."""
        names, returned = one_return(getter)
        if self.depth >= MOST_DEEP:
            raise Unknown("property")
        return self.within(dict(zip(names, given)), getter.__globals__, deeper=1).value(returned)

    def number(self, node):
        value = self.value(node)
        if hasattr(type(value), "numel") and value.numel() == 1 and getattr(value, "device", None) is not None:
            value = value.item()
        if isinstance(value, (int, float)):
            return value
        raise Unknown("not a number")

    def truth(self, node):
        value = self.value(node)
        if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict)):
            return bool(value)
        raise Unknown("truth of an object")

    def call(self, node):
        name = dotted(node.func)
        if isinstance(node.func, ast.Name) and self.name(name) is not getattr(builtins, name, None):
            raise Unknown("call of " + name)
        if name not in self.PURE or node.keywords:
            if name.endswith(".get") and 1 <= len(node.args) <= 2 and not node.keywords:
                return self.get(node)
            if name.endswith(".size") and not node.keywords and hasattr(type(self.value(node.func.value)), "stride"):
                return self.value(node.func.value).size(*[self.value(a) for a in node.args])
            raise Unknown("call of " + name)
        if name == "len":
            return self.trips(node.args[0])
        function = getattr(math, name[5:]) if name.startswith("math.") else getattr(builtins, name)
        values = [self.value(a) for a in node.args]
        if any(isinstance(v, float) and math.isinf(v) for v in values) and name in ("int", "round"):
            return FOREVER
        return function(*values)

    def get(self, node):
        """`settings.get("steps", 100)` of a dictionary or a known kind of settings."""
        base = self.value(node.func.value)
        plain = isinstance(base, dict) and type(base).get is dict.get
        if not plain and package_of(base) not in SETTINGS_PACKAGES:
            raise Unknown("call of a method")
        return base.get(*[self.value(one) for one in node.args])


def index_of(node):
    """Return what stands in the brackets of a subscript."""
    return node.slice.value if node.slice.__class__.__name__ == "Index" else node.slice  # 3.8


def one_return(function):
    """Return the parameters and the expression of a function of one `return`, from its source; raises Unknown."""
    scope = Source.of_code(function.__code__)[1] if hasattr(function, "__code__") else None
    body = [node for node in scope.body if not is_docstring(node)] if scope is not None else []
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        raise Unknown("more than one return")
    return [one.arg for one in scope.args.args], body[0].value


def item(base, key):
    """Return what a dictionary or a sequence holds, asked past the methods of a class of the user's."""
    if isinstance(base, dict):
        found = dict.get(base, key, MISSING)
        if found is MISSING:
            raise Unknown("no such key")
        return found
    for plain in (list, tuple):
        if isinstance(base, plain):
            return plain.__getitem__(base, key)
    raise Unknown("subscript")


def own_value(base, name):
    """Return what an object itself, not its class, holds under a name; MISSING for nothing."""
    try:
        return object.__getattribute__(base, "__dict__").get(name, MISSING)
    except AttributeError:
        return MISSING


def package_of(value):
    return type(value).__module__.split(".")[0]
