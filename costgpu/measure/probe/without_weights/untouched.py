"""Tensors with addresses whose pages nobody touches: the system gives memory only to what is written."""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref

import torch

from ..schedstat import cpu_clock
from .memory_ledger import DATA, LOAD
from .ops import bytes_of

SMALL = 1 << 16  # bytes up to which a result is real: losses, norms, routing weights of a batch
LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
NO_RESERVE, FIXED_PRIVATE, PRIVATE, READ_WRITE = 0x4000, 0x32, 0x22, 3  # of mmap on Linux, both anonymous
THP_DISABLE, MMAP_THRESHOLD = 41, -3  # of prctl and of glibc's mallopt
LEAST_MAPPED = 1 << 20  # bytes
LEAST_COUNTED = 1 << 10  # bytes of a real tensor
PAGE = 4096


class UntouchedTensors:
    """Makes them, and knows which storages are untouched and what value stands for all of one's elements."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.values = {}  # storage -> value
        self.refs = {}  # storage -> weak reference, that tells its end
        self.forgetting = 0.0  # CPU seconds of `forget`, which comes in the midst of the script's own code
        self.made_up = {}  # the same of small real masks that say what untouched tensors would
        spare_memory()

    def follow(self, tensor, value=None, *, counted=True, birth=None):
        """Count a tensor's storage from now on; with a value, as untouched."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if value is not None:
            self.values[key] = value
        if key not in self.refs:
            self.refs[key] = weakref.ref(storage, lambda _: self.forget(key))
        if counted and key not in self.ledger.known:
            self.ledger.add(key, storage.nbytes(), birth)
        return tensor

    def count(self, tensor, birth=None):
        """Count a real tensor that is no data: a small parameter, gradient or state."""
        if tensor.layout is torch.strided and tensor.is_floating_point() and bytes_of(tensor) >= LEAST_COUNTED:
            if tensor.untyped_storage()._cdata not in self.ledger.known:
                self.follow(tensor, birth=birth)

    def used(self, tensors):
        """Count real masks, tables and inputs that a step uses: they are on the GPU, too."""
        if self.ledger.phase_now() == LOAD:
            return
        for tensor in tensors:
            if tensor.layout is torch.strided and bytes_of(tensor) > SMALL:
                storage = tensor.untyped_storage()
                if storage._cdata not in self.ledger.known:
                    self.follow(tensor, birth=None if storage._cdata in self.values else DATA)

    def forget(self, key):
        begin = cpu_clock()
        self.values.pop(key, None)
        self.refs.pop(key, None)
        self.ledger.drop(key)
        self.forgetting += cpu_clock() - begin

    def resized(self, storage):
        """Note that a storage has another size (FSDP frees what it gathered that way)."""
        key, size = storage._cdata, storage.nbytes()
        if key in self.refs:
            self.ledger.drop(key)
            if size:
                self.ledger.add(key, size)
        elif size > SMALL:
            self.values[key] = 1
            self.refs[key] = weakref.ref(storage, lambda _: self.forget(key))
            self.ledger.add(key, size)

    def make_up(self, mask):
        """Remember a small mask whose values nobody computed."""
        storage = mask.untyped_storage()
        key = storage._cdata
        self.made_up[key] = weakref.ref(storage, lambda _: self.made_up.pop(key, None))
        return mask

    def decides(self, mask):
        """Return whether values that are not there decide what a mask says."""
        return self.has(mask) or mask.untyped_storage()._cdata in self.made_up

    def has(self, tensor):
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self.values

    def value_of(self, tensor):
        return self.values.get(tensor.untyped_storage()._cdata, 1)

    def fill(self, tensor, value):
        """Note that all elements of a whole storage are this value now."""
        storage = tensor.untyped_storage()
        if bytes_of(tensor) == storage.nbytes():
            self.values[storage._cdata] = value

    def make(self, shape, strides, dtype, value=1, birth=None):
        """Return a new one."""
        try:
            tensor = torch.empty_strided(shape, strides, dtype=dtype)
            unreserve(tensor)
        except RuntimeError:  # more at once than this machine has
            size = (1 + sum((side - 1) * stride for side, stride in zip(shape, strides))) * dtype.itemsize
            mapped = mmap.mmap(-1, size, flags=PRIVATE | NO_RESERVE)
            tensor = torch.frombuffer(mapped, dtype=dtype).as_strided(shape, strides)
        return self.follow(tensor, value, birth=birth)

    def hollow(self, found):
        """Take the large floats of what was loaded for untouched; they are on the host until a step uses them."""
        waiting = [found]
        while waiting:
            value = waiting.pop()
            if isinstance(value, torch.Tensor):
                self.hollow_tensor(value)
            elif isinstance(value, dict):
                waiting.extend(value.values())
            elif isinstance(value, (list, tuple)):
                waiting.extend(value)
            elif isinstance(value, torch.nn.Module):
                waiting.extend([*value.parameters(), *value.buffers()])
        return found

    def hollow_tensor(self, tensor):
        large = bytes_of(tensor) > SMALL and tensor.layout is torch.strided
        if not large or not (tensor.is_floating_point() or tensor.dtype is torch.uint8):
            return
        if tensor.untyped_storage().nbytes() < bytes_of(tensor) and type(tensor) is torch.Tensor:  # saved thinly
            tensor.set_(torch.empty(tensor.shape, dtype=tensor.dtype))
        self.follow(tensor, 1, counted=False)


def unreserve(tensor):
    """Have the system not count the pages of a new tensor: else it refuses to fork once they are more than it has."""
    size = tensor.untyped_storage().nbytes()
    if LIBC is not None and size >= LEAST_MAPPED:
        start = -(-tensor.data_ptr() // PAGE) * PAGE
        length = (tensor.data_ptr() + size) // PAGE * PAGE - start
        flags = FIXED_PRIVATE | NO_RESERVE
        LIBC.mmap(ctypes.c_void_p(start), ctypes.c_size_t(length), READ_WRITE, flags, -1, ctypes.c_long(0))


def spare_memory():
    """Have an allocation touch no more than its header: in a page of 4 KiB, not of 2 MiB, given back when it is freed."""
    if LIBC is not None:
        LIBC.prctl(THP_DISABLE, 1, 0, 0, 0)
        if hasattr(LIBC, "mallopt"):
            LIBC.mallopt(MMAP_THRESHOLD, SMALL)
