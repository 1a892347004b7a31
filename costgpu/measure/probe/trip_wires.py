"""Ends a measurement whose weights are too large for this machine, so that it is made again without them."""

from __future__ import annotations

import threading

from .patching import known
from .sandbox.fake_cuda_api import memory_now

MOST_LOADED = 1 / 3  # of the free memory, that weights may take: gradients, states and activations come to them
MOST_HELD = 0.8  # of the free memory, that the process may hold
LEAST_FETCHED = 1 << 30  # bytes of weights that are not on this machine, from which on nobody downloads them for this
STATES_OF_ADAM = 8  # bytes for a parameter in fp32


class TripWires:
    """Watches what the script loads and holds; `free` is this machine's free memory in bytes before it, 0 for no limit."""

    def __init__(self, recorder, free):
        self.recorder, self.free = recorder, free
        self.largest = 0  # bytes of the largest model that was loaded or trained

    def loads(self, size, here):
        """Note that weights of so many bytes are about to be loaded, from files that are `here` or would be fetched."""
        if threading.get_ident() != self.recorder.thread:
            return
        self.largest = max(self.largest, size)
        if not self.free:
            return
        if size > MOST_LOADED * self.free:
            self.trip("weights of {:.0f} bytes".format(size), size)
        elif not here and size >= LEAST_FETCHED:
            self.trip("weights that would be downloaded", size)

    def optimizer_made(self, optimizer):
        """Look whether gradients and states of its parameters would fit beside what there is."""
        weights, more = known(held_by, optimizer, default=(0, 0))
        self.largest = max(self.largest, weights)
        if self.free and memory_now() + more > MOST_HELD * self.free:
            self.trip("an optimizer with states of its own", more)

    def look(self):
        """Look at what the process holds."""
        if self.free and memory_now() > MOST_HELD * self.free:
            self.trip("the memory of the process", memory_now())

    def trip(self, what, size):
        self.recorder.finish("too_large", what=what, bytes_needed=size)


def held_by(optimizer):
    """Return the bytes of an optimizer's parameters, and those that their gradients and states will take."""
    parameters = [value for group in optimizer.param_groups for value in group["params"] if value.requires_grad]
    adam = any(group.get("betas") for group in optimizer.param_groups)
    weights = sum(value.numel() * value.element_size() for value in parameters)
    return weights, weights + (STATES_OF_ADAM * sum(value.numel() for value in parameters) if adam else 0)
