"""Ops whose answer is a value, or whose shapes are values: of untouched tensors, the value that stands for them."""

from __future__ import annotations

import torch

from .ops import tensors_of
from .shapes import MOST_WHOLE, number_of

LARGEST_WHOLE = 1 << 53


class Answers:
    """Answers such ops by their names; `steered` are the ops by which values of untouched tensors chose shapes."""

    def __init__(self, untouched, results):
        self.untouched, self.results = untouched, results
        self.steered = set()
        self.by_name = {
            "_local_scalar_dense": self.item,
            "equal": self.equal,
            "allclose": self.equal,
            "nonzero": self.nonzero,
            "masked_select": self.masked_select,
            "index": self.index,
        }

    def item(self, func, args, kwargs):
        tensor = args[0]
        value = self.untouched.value_of(tensor)
        if tensor.dtype is torch.bool:
            return bool(value)
        if tensor.dtype.is_complex:
            return complex(value)
        return float(value) if tensor.dtype.is_floating_point else int(value)

    def equal(self, func, args, kwargs):
        return args[0].shape == args[1].shape

    def nonzero(self, func, args, kwargs):
        """Return the places of an untouched mask: all or none."""
        tensor = args[0]
        self.steered.add("nonzero")
        number = tensor.numel() if self.untouched.value_of(tensor) else 0
        if number and number * max(1, tensor.dim()) * 8 <= MOST_WHOLE:
            return torch.ones(tensor.shape).nonzero()
        return torch.empty_strided((number, tensor.dim()), (1, max(1, number)), dtype=torch.int64)

    def masked_select(self, func, args, kwargs):
        tensor, mask = args
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        if self.untouched.decides(mask):
            self.steered.add("masked_select")
        if self.untouched.has(mask):
            number = number_of(shape) if self.untouched.value_of(mask) else 0
        else:
            number = int(mask.expand(shape).sum()) if mask.dim() else number_of(shape)
        return self.untouched.make((number,), (1,), tensor.dtype)

    def index(self, func, args, kwargs):
        """Index with masks, whose true elements decide the shape."""
        tensor, plain = args[0], []
        for at in args[1]:
            if isinstance(at, torch.Tensor) and at.dtype in (torch.bool, torch.uint8):
                if self.untouched.decides(at):
                    self.steered.add("index by a mask")
                found = self.nonzero(None, (at,), {}) if self.untouched.has(at) else at.nonzero()
                plain += list(found.unbind(1))
            else:
                plain.append(at)
        args = (tensor, plain)
        return self.results.of(func, "index", args, {}, tensors_of(torch, args, None))
