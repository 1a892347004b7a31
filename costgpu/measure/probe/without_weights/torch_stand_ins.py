"""What reaches memory without passing torch's dispatcher, and what differs between a CPU's kernels and a GPU's."""

from __future__ import annotations

import os
import sys

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..patching import replace
from .ops import bytes_of
from .untouched import SMALL

HALF_OF_CUDA = torch.float16  # of an autocast region that names no type


class TorchStandIns:
    """Puts them into torch; `unwritten` is called with the bytes that a save leaves out."""

    def __init__(self, untouched, unwritten):
        self.untouched, self.unwritten = untouched, unwritten

    def attach(self):
        storage, functional = torch.UntypedStorage, torch.nn.functional
        replace(storage, "resize_", self.resize)
        replace(storage, "clone", self.clone)
        replace(torch.Tensor, "__reduce_ex__", self.reduce)
        replace(torch, "load", self.load)
        replace(functional, "dropout", dropout)
        replace(functional, "scaled_dot_product_attention", attention)
        for module in (sys.modules.get("torch.utils._foreach_utils"), sys.modules.get("torch.optim.optimizer")):
            replace(module, "_get_foreach_kernels_supported_devices", lambda inner: lambda: [*inner(), "cpu"])
        if not torch.cuda.is_available():
            replace(torch.amp.autocast_mode.autocast, "__init__", cast_here)
        if hasattr(torch.compiler, "set_stance"):
            torch.compiler.set_stance("force_eager")

    # -- storages that change behind the dispatcher

    def resize(self, inner):
        def resize_(storage, size):
            result = inner(storage, size)
            self.untouched.resized(storage)
            return result

        return resize_

    def clone(self, inner):
        """Copy for `copy.deepcopy` of anything but a parameter."""

        def copy(storage, *args):
            if storage._cdata not in self.untouched.values:
                return inner(storage, *args)
            made = torch.UntypedStorage(storage.nbytes())
            self.untouched.follow(torch.empty(0, dtype=torch.uint8).set_(made), 1)
            return made

        return copy

    # -- files

    def reduce(self, inner):
        """Pickle an untouched tensor as one element, as often as its shape says."""

        def __reduce_ex__(tensor, protocol):
            plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
            if not plain or not self.untouched.has(tensor) or bytes_of(tensor) <= SMALL:
                return inner(tensor, protocol)
            with _disable_current_modes():
                thin = torch.zeros([1] * tensor.dim(), dtype=tensor.dtype).expand(tensor.shape)
            self.unwritten(bytes_of(tensor))
            return inner(thin.requires_grad_(tensor.requires_grad), protocol)

        return __reduce_ex__

    def load(self, inner):
        """Map a checkpoint of gigabytes, whose weights are never read."""

        def load_(f, *args, **kwargs):
            if isinstance(f, (str, bytes, os.PathLike)):
                kwargs.setdefault("mmap", True)
            with _disable_current_modes():
                try:
                    found = inner(f, *args, **kwargs)
                except (RuntimeError, ValueError):  # torch's format of before 1.6 cannot be mapped
                    kwargs.pop("mmap", None)
                    found = inner(f, *args, **kwargs)
                return self.untouched.hollow(found)

        return load_


def dropout(inner):
    """As CUDA's, which keeps a mask of one byte for an element, and not one of the tensor's own type."""

    def drop(input, p=0.5, training=True, inplace=False):  # noqa: A002 - its name in torch
        if training and 0 < p < 1 and input.is_floating_point():
            return torch.native_dropout(input, p, True)[0]
        return inner(input, p, training, inplace)

    return drop


def attention(inner):
    """Without dropout, which a CPU's fused kernel refuses; what stands in for it then keeps all scores."""

    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
        return inner(query, key, value, attn_mask, 0.0, *args, **kwargs)

    return scaled_dot_product_attention


def cast_here(inner):
    """Cast here as in a region for CUDA: nothing is computed, and the types decide what is kept."""

    def __init__(cast, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or HALF_OF_CUDA
        inner(cast, device_type, dtype, enabled, cache_enabled)

    return __init__
