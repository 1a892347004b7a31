"""The results of ops, from the shapes of their arguments on the meta device; remembered, for layers repeat."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .memory_ledger import LOGITS
from .ops import FILLED, FILLS, PICKS
from .untouched import SMALL

LISTS = (list, tuple)
WHOLE = (torch.int64, torch.int32)
MOST_WHOLE = 1 << 26  # bytes of integers that are real: indices, labels and routing tables decide shapes
VOCABULARY = 1000  # entries from which on an index is a token
ANY_TOKEN = 11  # no model's end of text
LEAST_LOGITS = 1 << 20  # bytes


class UnknownShapes(Exception):
    """There is no kernel that tells the shapes of an op's results."""


class OpResults:
    """Makes the results of ops on untouched tensors."""

    def __init__(self, untouched):
        self.untouched = untouched
        self.known = {}  # op and shapes of its arguments -> shapes of its results
        self.computed = {}  # ops whose shapes nobody tells -> why
        self.vocabularies = set()  # numbers of entries of large embedding tables
        self.random = torch.Generator().manual_seed(0)  # our own: the script's draws stay as they are

    def of(self, func, name, args, kwargs, tensors):
        """Return the results of an op.

        Raises:
            UnknownShapes: Their shapes cannot be told.
        """
        self.untouched.used(tensors)
        if name == "embedding" and args[0].dim() == 2 and args[0].shape[0] >= VOCABULARY:
            self.vocabularies.add(args[0].shape[0])
        specs, tree = self.shapes(func, args, kwargs, tensors)
        if tree is None:
            return self.make(specs, func, name, args, kwargs)
        return tree_unflatten([self.make(one, func, name, args, kwargs) for one in specs], tree)

    def shapes(self, func, args, kwargs, tensors):
        """Return the shapes of an op's results and their nesting, which is None for a single tensor.

        Raises:
            UnknownShapes: They cannot be told.
        """
        try:
            key = (func, describe(args), describe(tuple(kwargs.items())) if kwargs else None)
            if not tensors:  # its type is the one that new tensors have now
                key += (torch.get_default_dtype(),)
            found = self.known.get(key)
        except TypeError:
            key = found = None
        if found is None:
            found = self.infer(func, args, kwargs, tensors)
            if key is not None:
                self.known[key] = found
        return found

    def infer(self, func, args, kwargs, tensors):
        given = {name: as_meta(value) for name, value in kwargs.items() if name != "pin_memory"}
        if not tensors or "device" in given:
            given["device"] = "meta"
        plain = [as_meta(value) for value in args]
        try:
            out = func(*plain, **given)
        except Exception as error:
            try:  # kernels that know half precision only, as those of grouped products
                out = func(*[as_meta(value, half=True) for value in args], **given)
            except Exception:  # noqa: BLE001 - no kernel for shapes, or one that needs values
                why = "{}: {}".format(type(error).__name__, str(error)[:200])
                self.computed.setdefault(str(func), why)
                raise UnknownShapes(why) from error
            if isinstance(out, torch.Tensor) and out.dtype is torch.bfloat16:
                out = out.to(torch.float32)
        if isinstance(out, torch.Tensor):
            return spec_of(out), None
        flat, tree = tree_flatten(out)
        return [spec_of(one) for one in flat], tree

    def make(self, spec, func, name, args, kwargs):
        """Return one result: large floats untouched, what is small or whole numbers real and plausible."""
        if type(spec) is list:
            return spec[0]
        shape, strides, dtype = spec
        number = number_of(shape)
        size = number * dtype.itemsize
        if dtype in WHOLE and size <= MOST_WHOLE:
            return whole_numbers(name, shape, dtype, args, kwargs)
        value = FILLS.get(name, 1)
        if dtype is torch.bool and name not in FILLS:
            value = self.truth(func, name, args, kwargs)
        elif name in FILLED:
            value = next((one for one in reversed(args) if isinstance(one, (int, float))), kwargs.get("fill_value", 1))
        if size <= SMALL:
            if value == 1 and number > 1 and dtype.is_floating_point and dtype.itemsize > 1:  # routers compare them
                made = torch.empty(shape, dtype=dtype).uniform_(0.5, 1.5, generator=self.random)
            else:
                made = torch.full(shape, value, dtype=dtype)
            self.untouched.count(made)
            return self.untouched.make_up(made) if dtype is torch.bool and number > 1 else made
        logits = size >= LEAST_LOGITS and shape[-1] in self.vocabularies and number // shape[-1] != 0
        return self.untouched.make(shape, strides, dtype, value, LOGITS if logits and self.runs_forward() else None)

    def runs_forward(self):
        """Return whether a new tensor is born in a forward pass."""
        return self.untouched.ledger.phase_now() == "forward"

    def truth(self, func, name, args, kwargs):
        """Return what a comparison says of the values that stand for its arguments."""
        untouched = self.untouched

        def one(value):
            if not isinstance(value, torch.Tensor):
                return value
            standing = untouched.value_of(value) if untouched.has(value) else first_value(value)
            return torch.tensor(standing, dtype=value.dtype)

        if name in ("any", "all") and args and untouched.has(args[0]):
            return bool(untouched.value_of(args[0]))
        try:
            return bool(func(*map(one, args), **{key: one(value) for key, value in kwargs.items()}))
        except Exception:  # noqa: BLE001 - not elementwise
            return True


def as_meta(value, *, half=False):
    """Return a tensor as one of its shape alone, also in lists; with `half`, fp32 ones as bf16."""
    if isinstance(value, torch.Tensor):
        dtype = torch.bfloat16 if half and value.dtype is torch.float32 else value.dtype
        return torch.empty_strided(value.size(), value.stride(), dtype=dtype, device="meta")
    if isinstance(value, LISTS):
        return [as_meta(one, half=half) for one in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


def spec_of(value):
    """Return shape, strides and type of a tensor; anything else in a list of its own."""
    return (tuple(value.size()), value.stride(), value.dtype) if isinstance(value, torch.Tensor) else [value]


def describe(value):
    """Return what stands for an argument in a key: shapes for tensors, types beside numbers (1, 1.0 and True are equal)."""
    if isinstance(value, torch.Tensor):
        return value.size(), value.stride(), value.dtype
    if isinstance(value, LISTS):
        return tuple(map(describe, value))
    if isinstance(value, (bool, float)):
        return type(value), value
    return value


def number_of(shape):
    """Return the number of elements of a shape."""
    number = 1
    for side in shape:
        number *= side
    return number


def first_value(tensor):
    return tensor.flatten()[0].item() if tensor.numel() else 0


def whole_numbers(name, shape, dtype, args, kwargs):
    """Return real ones. Indices differ along their dimension and from row to row, so that experts get equal loads."""
    if name not in PICKS or not args or not isinstance(args[0], torch.Tensor) or not args[0].dim():
        return torch.full(shape, FILLS.get(name, 1), dtype=dtype)
    given, at = args[0], PICKS[name]
    dim = args[at] if at is not None and len(args) > at else kwargs.get("dim", -1)
    dim = dim if isinstance(dim, int) and not isinstance(dim, bool) else -1
    entries = given.shape[dim]
    if name not in ("topk", "sort", "argsort") and entries > VOCABULARY:
        return torch.full(shape, ANY_TOKEN, dtype=dtype)
    if not shape:
        return torch.zeros(shape, dtype=dtype)
    if len(shape) < given.dim():  # the dimension is gone: one index for each row
        return (torch.arange(max(1, number_of(shape))) % max(1, entries)).to(dtype).reshape(shape)
    picked = shape[dim]
    rows = number_of(shape) // max(1, picked)
    found = (torch.arange(rows)[:, None] * picked + torch.arange(picked)) % max(1, entries)
    moved = [side for place, side in enumerate(shape) if place != dim % len(shape)] + [picked]
    return found.to(dtype).reshape(moved).movedim(-1, dim).contiguous()
