"""The door of the room: has a script that imports torch go on without weights, and tells what it would hold on a GPU."""

from __future__ import annotations

import contextlib

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..sandbox import fake_cuda_api
from ..schedstat import cpu_clock
from .memory_ledger import LOAD, MemoryLedger
from .mode import ShapesMode
from .repeats import Repeats
from .torch_stand_ins import TorchStandIns


class WithoutWeights:
    """Untouched tensors in the place of all large ones, and the ledger of their memory.

    Args:
        phase_now: Returns the phase of memory that goes on.
        unwritten: Called with the bytes that a save leaves out.
    """

    def __init__(self, phase_now, unwritten):
        self.ledger = MemoryLedger(phase_now)
        self.mode = ShapesMode(self.ledger)
        self.unwritten = unwritten
        self.pretrained = 0  # bytes of weights that it would have loaded
        self.repeats = None  # answers equal micro-batches of a step, unless all of them are to be computed

    @property
    def untouched(self):
        return self.mode.untouched

    def attach(self, recorder=None):
        """Prepare torch; a GPU that is faked must be attached later, and answers for its memory from here.

        Args:
            recorder: Knows the parts of a step; without it, none is skipped.
        """
        TorchStandIns(self.untouched, self.unwritten).attach()
        if recorder is not None and not recorder.config["every_part"]:
            self.repeats = Repeats(recorder, self.untouched)
            self.repeats.attach()
        fake_cuda_api.FIGURES.are_of(self.ledger)

    def enter(self):
        """Begin, in this thread."""
        self.mode.__enter__()

    def leave(self):
        """End it in a child of the script's, which reads data."""
        self.mode.__exit__(None, None, None)

    def script_clock(self):
        """Return the CPU seconds of this thread, without those of what comes in the midst of the script's own code."""
        return cpu_clock() - self.untouched.forgetting

    @contextlib.contextmanager
    def again(self):
        """Enter it where an op is answered in which it is off."""
        with contextlib.nullcontext() if self.mode in _get_current_dispatch_mode_stack() else self.mode:
            yield

    def foreign_modes(self, stack):
        """Return the modes of a stack that are not ours."""
        return [one for one in stack if one is not self.mode]

    def optimizer_made(self, optimizer):
        """Count all parameters that are trained, be they ever so small."""
        for group in optimizer.param_groups:
            for value in group["params"]:
                self.untouched.count(value, LOAD)

    def part_ends(self, tracing):
        """Note the end of a backward pass."""
        if self.repeats is not None:
            self.repeats.part_ends(tracing)

    def step_made(self):
        """Note the end of a step."""
        self.ledger.step_made()
        if self.repeats is not None:
            self.repeats.forget()

    def loads(self, size):
        """Count weights that are not loaded, in bytes of their files."""
        self.pretrained += size

    def loading(self):
        """Return a context in which what is allocated are weights that a real run loads piece by piece."""
        return self.ledger.unnoticed()

    def record(self):
        """Return what was seen, as JSON-ready values."""
        return {
            **self.ledger.record(),
            "pretrained": self.pretrained,
            "skipped": self.repeats.skipped if self.repeats is not None else 0,
            "steered": sorted(self.mode.answers.steered),
            "computed": sorted(self.mode.results.computed)[:8],
        }
