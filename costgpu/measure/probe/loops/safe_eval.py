"""Evaluates expressions of the user's source in live variables, without running the user's code."""

import ast
import builtins
import inspect
import math
import types

from .folder_files import count_files, reads_folder
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


class Evaluator:
    """Evaluates an expression in a live frame's variables; of the user's code it calls `__len__` alone."""

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

    def __init__(self, local, globals_, torch=None):
        self.local, self.globals, self.torch, self.depth = local, globals_, torch, 0
        self.changing = frozenset()  # names whose values will not be these when the expression's turn comes

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
            index = node.slice.value if node.slice.__class__.__name__ == "Index" else node.slice  # 3.8
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
        """A plain attribute, or what a property would say: neither it nor `__getattr__` of the user's is called."""
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
            return type(found).__get__(found, None if isinstance(base, type) else base, type(base))
        raise Unknown("a descriptor")

    def missing(self, base, name):
        """What `__getattr__` would give: a library's class is asked, a user's is read; a dictionary's keys are looked up."""
        getter = inspect.getattr_static(type(base), "__getattr__", None)
        if isinstance(base, dict) and getter is not None:
            return item(base, name)
        if not isinstance(getter, types.FunctionType):
            raise Unknown("no attribute " + name)
        if getter.__module__.startswith("torch.") or any(part in getter.__code__.co_filename for part in INSTALLED):
            return getter(base, name)
        return self.read_property(getter, base, name)

    def read_property(self, getter, *given):
        """A property of one `return`: what it would say, from its source."""
        source = Source.of(getattr(getattr(getter, "__code__", None), "co_filename", ""))
        scope = source.scope(getter.__code__) if source is not None else None
        body = [node for node in scope.body if not is_docstring(node)] if scope is not None else []
        if len(body) != 1 or not isinstance(body[0], ast.Return) or self.depth >= MOST_DEEP:
            raise Unknown("property")
        names = [one.arg for one in scope.args.args]
        inside = Evaluator(dict(zip(names, given)), getter.__globals__, self.torch)
        inside.depth = self.depth + 1
        return inside.value(body[0].value)

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

    WRAPPERS = frozenset(
        (
            "enumerate tqdm tqdm.tqdm tqdm_notebook tqdm.notebook.tqdm notebook_tqdm track iter list reversed"
            " sorted tuple progress_bar master_bar alive_it auto.tqdm tqdm.auto.tqdm rich_track"
        ).split()
    )
    ENDLESS = {"count", "itertools.count", "cycle", "itertools.cycle", "iter_forever", "infinite"}

    def trips(self, node):
        """How often a loop over `node` runs: a number, or math.inf."""
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rsplit(".", 1)[-1]
            options = {k.arg: k.value for k in node.keywords if k.arg}
            if name == "range" or last in ("trange", "tnrange"):
                return len(range(*[int(self.number(a)) for a in node.args]))
            if name in self.WRAPPERS or last in ("tqdm", "track"):
                if node.args:
                    try:
                        return self.trips(node.args[0])
                    except Unknown:
                        pass
                if "total" in options:
                    return self.number(options["total"])
                if "iterable" in options:
                    return self.trips(options["iterable"])
                raise Unknown(name)
            if last == "zip" or name == "map":
                return min(self.trips(a) for a in (node.args if last == "zip" else node.args[1:]))
            if last == "islice":
                wanted = slice(*[None if is_none(a) else int(self.number(a)) for a in node.args[1:]])
                try:
                    have = self.trips(node.args[0])
                except Unknown:
                    have = math.inf
                if wanted.stop is None and math.isinf(have):
                    return math.inf
                stop = have if wanted.stop is None else min(wanted.stop, have)
                return len(range(wanted.start or 0, int(stop), wanted.step or 1))
            if name in ("repeat", "itertools.repeat"):
                times = node.args[1] if len(node.args) > 1 else options.get("times")
                return math.inf if times is None else self.number(times)
            if name in self.ENDLESS:
                return math.inf
            if name in ("chain", "itertools.chain"):
                return sum(self.trips(a) for a in node.args)
            if last in ("product", "arange") and node.keywords:
                raise Unknown(name)
            if last == "product":
                return math.prod(self.trips(a) for a in node.args)
            if last in ("items", "keys", "values") and isinstance(node.func, ast.Attribute) and not node.args:
                return self.length(self.value(node.func.value))
            if last == "split" and isinstance(node.func, ast.Attribute) and node.args:  # folds of scikit-learn
                owner = self.value(node.func.value)
                if package_of(owner) == "sklearn" and type(getattr(owner, "n_splits", None)) is int:
                    return owner.n_splits
            made = last in ("arange", "linspace", "randperm", "permutation")
            if made and name.split(".")[0] in ("np", "numpy", "torch"):
                numbers = [self.number(a) for a in node.args]
                if last == "linspace":
                    return int(numbers[2]) if len(numbers) > 2 else int(self.number(options["steps"]))
                if last == "arange":
                    low, high, step = (numbers + [0, 1])[:3] if len(numbers) > 1 else (0, numbers[0], 1)
                    return max(0, math.ceil((high - low) / (step if len(numbers) > 2 else 1)))
                return int(numbers[0])
            if last in ("tolist", "copy", "numpy", "cpu") and isinstance(node.func, ast.Attribute) and not node.args:
                return self.trips(node.func.value)
            if last == "split" and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
                return math.ceil(self.length(self.value(node.func.value)) / self.number(node.args[0]))
            if reads_folder(name):
                found = count_files(node, name, self)
                if found is not None:
                    return found
            if last in self.DATASET:
                return self.chained(node)
            return self.length(self.value(node))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return len(node.elts)
        if isinstance(node, ast.ListComp):
            one = node.generators[0]
            if len(node.generators) > 1 or one.ifs:
                raise Unknown("a comprehension that leaves some out")
            return self.trips(one.iter)
        return self.length(self.value(node))

    SAME_LENGTH = {"shuffle", "prefetch", "cache", "map", "with_options", "as_numpy_iterator", "enumerate"}
    DATASET = {"take", "skip", "batch", "repeat", *SAME_LENGTH}

    def chained(self, node):
        """The length of `ds.shuffle(9).take(5)`: what the methods of TensorFlow's datasets make of it."""
        if not isinstance(node, ast.Call):
            value = self.value(node)
            if package_of(value) != "tensorflow":
                raise Unknown("call of a method")
            return self.length(value)
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in self.DATASET:
            raise Unknown("call of " + dotted(node.func))
        length, how = self.chained(node.func.value), node.func.attr
        if how in self.SAME_LENGTH:
            return length
        options = {k.arg: k.value for k in node.keywords if k.arg}
        wanted = node.args[0] if node.args else options.get("count", options.get("batch_size"))
        number = -1 if wanted is None or is_none(wanted) else self.number(wanted)
        if how == "repeat":
            return math.inf if number < 0 else length * number
        if how == "batch":
            whole = math.inf if math.isinf(length) else length // number
            kept = "drop_remainder" in options and self.truth(options["drop_remainder"])
            return whole if kept or math.isinf(length) else math.ceil(length / number)
        if how == "take":
            return length if number < 0 else min(length, number)
        return 0 if number < 0 else max(0, length - number)

    def length(self, value):
        module = package_of(value)
        if module == "tensorflow" and hasattr(value, "cardinality"):
            length = int(value.cardinality())
            if length == -2:
                raise Unknown("no length")
            return math.inf if length == -1 else length
        if module == "itertools":
            if type(value).__name__ in ("count", "cycle"):
                return math.inf
            raise Unknown(type(value).__name__)
        if module == "tqdm":
            total = getattr(value, "total", None)
            return total if total is not None else self.length(getattr(value, "iterable", None))
        if isinstance(value, types.GeneratorType):
            raise Unknown("a generator")
        try:
            return len(value)
        except Exception:
            raise Unknown("no length") from None


def item(base, key):
    """What a dictionary or a sequence holds, asked past the methods of a class of the user's."""
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
    """What an object itself, not its class, holds under a name; MISSING for nothing."""
    try:
        return object.__getattribute__(base, "__dict__").get(name, MISSING)
    except AttributeError:
        return MISSING


def package_of(value):
    return type(value).__module__.split(".")[0]
