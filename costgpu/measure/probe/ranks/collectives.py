"""Counts collective calls and the time that answering them takes, which no rank of a real training would spend so."""

from __future__ import annotations

import contextlib

from ..record import CollectiveRow
from ..schedstat import clock


class Collectives:
    """What was communicated in training, by kind; validation is left out. The recorder hands itself over."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.counts = {}  # (op, dtype, ranks of the group, inside a backward pass) -> [calls, elements, bytes]
        self.seconds = 0.0  # in which calls were answered
        self.depth = 0
        self.at_begin = {}  # a copy of the counts: where the first step began, as far as that is known
        self.at_step = []  # copies of the counts: at the first counted step of the first phase, and at the last

    def add(self, op, tensors, ranks):
        """One call. `tensors` are the whole ones: gathered, or to be reduced."""
        elements = {}
        for value in tensors:
            kind = (value.dtype, value.element_size())
            elements[kind] = elements.get(kind, 0) + value.numel()
        for (dtype, size), number in elements.items():
            self.count(op, dtype, number, size, ranks)
        if not elements:
            self.count(op, "", 0, 0, ranks)

    def count(self, op, dtype, elements, size, ranks):
        """One call with so many elements, each of `size` bytes."""
        if self.recorder.evaluation.began is None:
            key = (op, str(dtype).replace("torch.", ""), ranks, self.recorder.backwards_going > 0)
            row = self.counts.setdefault(key, [0, 0, 0])
            row[0] += 1
            row[1] += elements
            row[2] += elements * size

    @contextlib.contextmanager
    def answering(self):
        """Keep the work of an answer out of the trace and out of the script's time."""
        tracing, begin = self.recorder.tracing, clock()
        running = tracing is not None and tracing.script_since is not None
        if tracing is not None:
            tracing.pause()
            tracing.mute()
        self.depth += 1
        try:
            with self.recorder.torch.no_grad(), self.recorder.shapes_only():
                yield
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.seconds += clock() - begin
            if tracing is not None:
                tracing.unmute()
                if running:
                    tracing.resume()

    def step_begins(self):
        """Note the counts at a place where the first step may begin."""
        self.at_begin = {key: list(row) for key, row in self.counts.items()}

    def step_made(self):
        """Note the counts at the end of a counted step of the first phase."""
        copied = {key: list(row) for key, row in self.counts.items()}
        self.at_step = [*self.at_step[:1], copied]

    def per_step(self, steps):
        """Return the rows of an average step, of so many that were counted."""
        first = self.at_step[0] if steps > 1 else self.at_begin
        last = self.at_step[-1] if self.at_step else self.counts
        found = []
        for (op, dtype, ranks, backward), row in last.items():
            before = first.get((op, dtype, ranks, backward), (0, 0, 0))
            calls, elements, size = [(now - then) / max(1, steps - 1) for now, then in zip(row, before)]
            if calls > 0:
                one = CollectiveRow(
                    op=op, dtype=dtype, ranks=ranks, backward=backward, calls=calls, elements=elements, bytes=size
                )
                found.append(one)
        return found
