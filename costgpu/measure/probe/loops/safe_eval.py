"""How often a loop over an expression runs, without running the user's code."""

import ast
import inspect
import math

from ..patching import attribute
from .call_binding import arguments, imagine, is_own
from .folder_files import READERS, count_files
from .generators import generator_trips
from .iterators import items_of_object, live_length
from .live_values import FOREVER, Unknown, Values, index_of, package_of
from .partitions import PARTITIONS, is_array
from .splitters import folds_of_call
from .syntax import dotted, is_none

__all__ = ("FOREVER", "Evaluator", "Unknown")

PASSED_ON = frozenset("enumerate iter list reversed sorted tuple".split())
PROGRESS_BARS = frozenset(
    "tqdm trange tqdm_notebook notebook_tqdm track rich_track progress_bar master_bar alive_it".split()
)
BAR_PACKAGES = ("progressbar", "alive_progress", "rich", "click", "fastprogress", "enlighten")
SAME_ITEMS = frozenset("tolist copy clone detach numpy cpu cuda to long int float half type astype contiguous".split())


def wraps(call):
    """Return whether a call gives the items of its first argument, one by one."""
    name = dotted(call.func)
    return name in PASSED_ON or name.rsplit(".", 1)[-1].lower() in PROGRESS_BARS


def is_bar(call, evaluator):
    """Return whether a call shows a progress bar over its first argument: by its name, or by its package."""
    package = str(attribute(evaluator.known(call.func), "__module__")).split(".")[0]
    return dotted(call.func).rsplit(".", 1)[-1].lower() in PROGRESS_BARS or package in BAR_PACKAGES


class Evaluator(Values):
    """Evaluates expressions in a live frame's variables, and how many items they have."""

    ENDLESS = frozenset("count itertools.count cycle itertools.cycle iter_forever infinite".split())

    def __init__(self, local, globals_, torch=None, depth=0, shorter=None, origins=lambda text: []):
        super().__init__(local, globals_, torch, depth, shorter)
        self.origins = origins  # returns the expressions that a name was assigned before the loop
        self.looked_up = set()

    def trips(self, node):
        """Return how often a loop over `node` runs: a number, or math.inf."""
        if isinstance(node, ast.Call):
            return self.trips_of_call(node)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return len(node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            one = node.generators[0]
            if len(node.generators) > 1 or one.ifs:
                raise Unknown("a comprehension that leaves some out")
            return self.trips(one.iter)
        if isinstance(node, ast.Subscript):
            index = index_of(node)
            if isinstance(index, ast.Slice):
                parts = [None if one is None else self.value(one) for one in (index.lower, index.upper, index.step)]
                return len(range(*slice(*parts).indices(int(self.trips(node.value)))))
            if is_array(index, self):
                return self.trips(index)  # the rows of these places
        try:
            return self.length(self.value(node))
        except Unknown:
            return self.length_as_made(dotted(node))

    def length_as_made(self, text):
        """Return the length of an object that hides it, from what the name was assigned before."""
        made = self.origins(text) if text not in self.looked_up else ()
        self.looked_up.add(text)
        try:
            found = {self.trips(one) for one in made}
        finally:
            self.looked_up.discard(text)
        if len(found) != 1:
            raise Unknown("no length")
        return found.pop()

    def trips_of_call(self, node):
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        options = {k.arg: k.value for k in node.keywords if k.arg}
        called = self.known(node.func)
        own = is_own(called) or is_own(inspect.getattr_static(called, "__init__", None))
        if own or (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)):
            try:
                return (
                    items_of_object(imagine(node, self), self)
                    if own and isinstance(called, type)
                    else generator_trips(node, self)
                )
            except Exception:  # noqa: BLE001, S110 - the name may say it
                pass
        if name == "range" or last in ("trange", "tnrange"):
            return len(range(*[int(self.number(a)) for a in node.args]))
        if wraps(node) or is_bar(node, self):
            return self.trips_of_wrapper(node, options)
        if last == "zip" or name == "map":
            return self.shortest(node.args if last == "zip" else node.args[1:])
        if last in ("zip_longest", "starmap") and node.args:
            return max(self.trips(a) for a in (node.args if last == "zip_longest" else node.args[1:]))
        if last == "islice":
            wanted = slice(*[None if is_none(a) else int(self.number(a)) for a in node.args[1:]])
            have = self.trips(node.args[0]) if wanted.stop is None else self.shortest([node.args[0]], wanted.stop)
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
        if last == "split" and isinstance(node.func, ast.Attribute):
            found = folds_of_call(node, self)
            if found is not None:
                return found
        if last in PARTITIONS and not own:
            return PARTITIONS[last](node, name, options, self)
        if last in ("arange", "linspace", "randperm", "permutation"):
            owner = self.known(node.func.value) if isinstance(node.func, ast.Attribute) else None
            if name.split(".")[0] in ("np", "numpy", "torch") or package_of(owner) == "numpy":
                return self.length_of_numbers(node, last, options)
        if last in SAME_ITEMS and isinstance(node.func, ast.Attribute) and is_array(node.func.value, self):
            return self.trips(node.func.value)
        if last in READERS:
            found = count_files(node, name, self)
            if found is not None:
                return found
        if last in self.DATASET:
            return self.chained(node)
        found = self.length_of_loader(node)
        return self.length(self.value(node)) if found is None else found

    def trips_of_wrapper(self, node, options):
        if node.args:
            try:
                return self.trips(node.args[0])
            except Unknown:
                pass
        if "total" in options:
            return self.number(options["total"])
        for name in ("iterable", "sequence", "it"):
            if name in options:
                return self.trips(options[name])
        raise Unknown(dotted(node.func))

    def shortest(self, parts, limit=math.inf, length=None):
        """Return the least of the lengths of expressions, or by `length` of values.

        What has none that can be read is taken for no shorter, and noted.
        """
        unread, lengths = [], [limit]
        for one in parts:
            try:
                lengths.append((length or self.trips)(one))
            except Exception:  # noqa: BLE001 - the user's objects may raise anything
                if length is None:
                    unread.append(dotted(one.func if isinstance(one, ast.Call) else one))
                else:
                    unread.append("a " + type(one).__name__)
        if unread and math.isinf(min(lengths)):
            raise Unknown("no length")
        self.shorter += unread
        return min(lengths)

    def length_of_numbers(self, node, last, options):
        if last == "permutation":
            given = self.known(node.args[0])
            return int(given) if isinstance(given, (int, float)) else self.trips(node.args[0])
        numbers = [self.number(a) for a in node.args]
        if last == "linspace":
            return int(numbers[2]) if len(numbers) > 2 else int(self.number(options["steps"]))
        if last == "arange":
            low, high, step = (numbers + [0, 1])[:3] if len(numbers) > 1 else (0, numbers[0], 1)
            return max(0, math.ceil((high - low) / (step if len(numbers) > 2 else 1)))
        return int(numbers[0])

    def length_of_loader(self, node):
        """Return the length of a loader, sampler or data set of torch that is made in place; None for anything else."""
        kind = self.known(node.func)
        if not isinstance(kind, type) or not kind.__module__.startswith("torch.utils.data"):
            return None
        given = arguments(kind, node)
        named = {name: one for name, one in given.items() if not is_none(one)}
        if kind.__name__ in ("DataLoader", "BatchSampler"):
            if "batch_sampler" in named:
                return self.trips(named["batch_sampler"])
            items = self.trips(named.get("sampler", named.get("dataset")))
            whole = items / self.number(given["batch_size"])
            return math.floor(whole) if self.truth(given["drop_last"]) else math.ceil(whole)
        if kind.__name__ in ("RandomSampler", "WeightedRandomSampler") and "num_samples" in named:
            return self.number(named["num_samples"])
        for name in ("indices", "data_source"):
            if name in named:
                return self.trips(named[name])
        return self.trips(node.args[0]) if kind.__name__ == "TensorDataset" else None

    SAME_LENGTH = {"shuffle", "prefetch", "cache", "map", "with_options", "as_numpy_iterator", "enumerate"}
    DATASET = {"take", "skip", "batch", "repeat", *SAME_LENGTH}

    def chained(self, node):
        """Return the length of `ds.shuffle(9).take(5)`: what the methods of TensorFlow's datasets make of it."""
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
        return live_length(value, self)
