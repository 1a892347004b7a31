"""Into how many parts a call takes its data: chunks, batches, and rows of another shape."""

from __future__ import annotations

import ast
import math

from .live_values import MISSING, Unknown
from .syntax import dotted

ARRAYS = ("np", "numpy", "torch", "jnp", "jax")


def is_array(node, evaluator):
    """Return whether an expression is an array or a tensor: one that is at hand, or what a call of torch or NumPy makes."""
    live = evaluator.known(node)
    if live is not MISSING:
        return hasattr(type(live), "shape")
    if isinstance(node, ast.Subscript):
        return is_array(node.value, evaluator)
    if not isinstance(node, ast.Call):
        return False
    made = dotted(node.func).split(".")[0] in ARRAYS
    return made or (isinstance(node.func, ast.Attribute) and is_array(node.func.value, evaluator))


def receiver(node, name, options, evaluator):
    """Return what is taken apart, and the other arguments: `x.chunk(4)` and `torch.chunk(x, 4)` are one."""
    given = list(node.args)
    if name.split(".")[0] in ARRAYS or "." not in name:
        whole = given.pop(0) if given else options["input"]
        return whole, given
    if not is_array(node.func.value, evaluator):
        raise Unknown("no array")
    return node.func.value, given


def size(whole, given, options, evaluator, place=1):
    """Return the items along the dimension that is asked for, the first one by default."""
    along = given[place] if len(given) > place else options.get("dim", options.get("axis"))
    dimension = 0 if along is None else evaluator.number(along)
    return evaluator.trips(whole) if dimension == 0 else int(evaluator.value(whole).shape[int(dimension)])


def chunk(node, name, options, evaluator):
    """`chunk(n)` makes n parts of the same size, or as many as there are items for."""
    whole, given = receiver(node, name, options, evaluator)
    items = size(whole, given, options, evaluator)
    wanted = evaluator.number(given[0] if given else options["chunks"])
    return math.ceil(items / math.ceil(items / wanted)) if items else wanted


def split(node, name, options, evaluator):
    """`split(n)` of torch makes parts of n items, that of NumPy n parts; a list says the parts themselves."""
    text = evaluator.known(node.func.value) if isinstance(node.func, ast.Attribute) else MISSING
    if type(text) is str and not options:
        return len(text.split(*[evaluator.value(one) for one in node.args]))
    whole, given = receiver(node, name, options, evaluator)
    sizes = given[0] if given else options.get("split_size_or_sections", options.get("split_size"))
    if sizes is None:
        raise Unknown("split")
    numpy = name.split(".")[0] in ("np", "numpy", "jnp")
    number = evaluator.known(sizes)
    if isinstance(number, str):
        raise Unknown("text")
    if number is MISSING or not isinstance(number, (int, float)):
        return evaluator.trips(sizes) + (1 if numpy else 0)
    return number if numpy else math.ceil(size(whole, given, options, evaluator) / number)


def sections(node, name, options, evaluator):
    """`np.array_split(x, n)` and `tensor_split(n)` make n parts, a list of places one more than there are places."""
    _, given = receiver(node, name, options, evaluator)
    wanted = given[0] if given else options.get("indices_or_sections", options.get("sections"))
    number = evaluator.known(wanted)
    return number if isinstance(number, (int, float)) else evaluator.trips(wanted) + 1


def unbind(node, name, options, evaluator):
    whole, given = receiver(node, name, options, evaluator)
    return size(whole, given, options, evaluator, place=0)


def batched(node, name, options, evaluator):
    """Return the batches of n items: itertools' and more_itertools'."""
    wanted = node.args[1] if len(node.args) > 1 else options.get("n")
    return math.ceil(evaluator.trips(node.args[0]) / evaluator.number(wanted))


def reshape(node, name, options, evaluator):
    """Return the first dimension of another shape of one-dimensional data, or of a tensor that is at hand."""
    whole, given = receiver(node, name, options, evaluator)
    shape = [evaluator.value(one) for one in given]
    shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    if shape[0] != -1:
        return shape[0]
    live = evaluator.known(whole)
    items = math.prod(live.shape) if hasattr(type(live), "shape") else evaluator.trips(whole)
    return items / math.prod(shape[1:])


PARTITIONS = {
    "chunk": chunk,
    "split": split,
    "array_split": sections,
    "tensor_split": sections,
    "unbind": unbind,
    "batched": batched,
    "chunked": batched,
    "reshape": reshape,
    "view": reshape,
}
