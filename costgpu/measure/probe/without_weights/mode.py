"""The dispatch mode under which a script goes on without weights: its ops on large tensors are answered by shapes.

What touches no untouched tensor is computed as always: data, masks, positions, schedules. See `untouched`, `ops`, `shapes`.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..patching import put
from .answers import Answers
from .memory_ledger import LOAD, PREPARATION
from .ops import COLLECTIVES, JOINING, MAKES, NEW, REFERS, VIEW, WRITES, bytes_of, kind_of, tensors_of
from .shapes import LISTS, MOST_WHOLE, OpResults, UnknownShapes, number_of
from .untouched import SMALL, UntouchedTensors

FAKE, mode_of = torch._C._TorchDispatchModeKey.FAKE, torch._C._get_dispatch_mode
PLAIN = torch.Tensor.__torch_dispatch__


class ShapesMode(TorchDispatchMode):
    """Holds the parts, and decides for each op which of them answers."""

    def __init__(self, ledger):
        super().__init__()
        self.untouched = UntouchedTensors(ledger)
        self.results = OpResults(self.untouched)
        self.answers = Answers(self.untouched, self.results)
        self.kinds = {}  # op -> what it does, and its name
        put(torch.utils.deterministic, fill_uninitialized_memory=False)  # it would touch what `empty` gives

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not hasattr(func, "_schema") or mode_of(FAKE) is not None:  # DTensor asks for shapes by itself
            return func(*args, **kwargs)
        for one in types:
            if one is not torch.Tensor and one.__torch_dispatch__ is not PLAIN:
                return NotImplemented  # DTensor and its like take themselves apart, and we see their parts
        tensors = tensors_of(torch, args, kwargs)
        kind, name = self.kinds.get(func) or self.learn(func)
        values = self.untouched.values
        for tensor in tensors:
            if tensor.layout is torch.strided and tensor.untyped_storage()._cdata in values:
                return self.answer(func, kind, name, args, kwargs, tensors)
        if not any(tensor.is_meta for tensor in tensors) and self.is_large(func, kind, name, args, kwargs, tensors):
            return self.by_shapes(func, name, args, kwargs, tensors)
        result = func(*args, **kwargs)
        if kind is NEW or kind is MAKES:
            self.count_real(result)
        return result

    def count_real(self, result):
        """Count what a step makes of small real tensors: gradients and states of adapters, say."""
        if self.untouched.ledger.phase_now() in (LOAD, PREPARATION):
            return
        for value in result if isinstance(result, LISTS) else (result,):
            if isinstance(value, torch.Tensor):
                self.untouched.count(value)

    def learn(self, func):
        self.kinds[func] = found = kind_of(func)
        return found

    def answer(self, func, kind, name, args, kwargs, tensors):
        """Answer an op on untouched tensors."""
        if kind in (VIEW, REFERS) or func.namespace in COLLECTIVES:
            result = func(*args, **kwargs)
            if kind is REFERS:
                self.untouched.resized(args[0].untyped_storage())
            return result
        if kind is WRITES:
            return self.written(func, name, args, kwargs, tensors)
        if name in self.answers.by_name:
            return self.answers.by_name[name](func, args, kwargs)
        return self.by_shapes(func, name, args, kwargs, tensors)

    def by_shapes(self, func, name, args, kwargs, tensors):
        try:
            return self.results.of(func, name, args, kwargs, tensors)
        except UnknownShapes:
            return func(*args, **kwargs)  # on pages of zeros

    # -- what real tensors make large ones of

    def is_large(self, func, kind, name, args, kwargs, tensors):
        """Return whether an op on real tensors makes one that is to stay untouched."""
        if kind is MAKES:
            return self.makes_large(name, args, kwargs, tensors)
        return (
            kind is NEW
            and name not in JOINING
            and name not in self.answers.by_name
            and self.grows(func, args, kwargs, tensors)
        )

    def makes_large(self, name, args, kwargs, tensors):
        device = kwargs.get("device")
        if device is not None and torch.device(device).type != "cpu":
            return False
        size = next((one for one in args if isinstance(one, LISTS) and one and isinstance(one[0], int)), None)
        if name == "eye":
            size = [one for one in args if isinstance(one, int)][:2]
            size = size * 2 if len(size) == 1 else size
        elif size is None and tensors:
            size = tensors[0].shape
        number = number_of(size) if size and name != "arange" else 0
        if number <= SMALL // 8:
            return False
        dtype = kwargs.get("dtype") or (tensors[0].dtype if tensors else None)
        if dtype is None:
            dtype = torch.int64 if name in ("randint", "randperm") else torch.get_default_dtype()
        whole = not (dtype.is_floating_point or dtype.is_complex) and dtype is not torch.uint8
        return number * dtype.itemsize > (MOST_WHOLE if whole else SMALL)

    def grows(self, func, args, kwargs, tensors):
        """Return whether it makes large floats of smaller ones: the gradient of a mean, an outer or low-rank product."""
        most = 0
        for tensor in tensors:
            if tensor.is_floating_point() and tensor.layout is torch.strided:
                most = max(most, min(bytes_of(tensor), tensor.untyped_storage().nbytes()))
        if not most:
            return False
        try:
            specs, tree = self.results.shapes(func, args, kwargs, tensors)
        except UnknownShapes:
            return False
        for spec in [specs] if tree is None else specs:
            if type(spec) is tuple and spec[2].is_floating_point:
                size = number_of(spec[0]) * spec[2].itemsize
                if size > SMALL and size > most:
                    return True
        return False

    # -- ops in place

    def written(self, func, name, args, kwargs, tensors):
        """Answer an op in place: nothing happens, but to a small real target, which must not stay uninitialized."""
        schema, untouched = func._schema, self.untouched
        given = dict(zip([one.name for one in schema.arguments], args), **kwargs)
        targets = [
            given.get(one.name) for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write
        ]
        untouched.used(tensors)
        first = targets[0] if targets else None
        if isinstance(first, torch.Tensor):
            if untouched.has(first):
                if name == "zero_" or (name == "fill_" and not isinstance(args[1], torch.Tensor)):
                    untouched.fill(first, 0 if name == "zero_" else args[1])
            elif name == "copy_":
                first.fill_(untouched.value_of(args[1]) if untouched.has(args[1]) else 1)
        if not schema.returns:
            return None
        if all(one.alias_info is not None for one in schema.returns):
            return first if len(schema.returns) == 1 else tuple(targets[: len(schema.returns)])
        return self.by_shapes(func, name, args, kwargs, tensors)  # batch norm: new outputs beside what it updates
