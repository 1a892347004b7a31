"""Live bytes of storages over time: their peaks by phase, what makes these up, and what an allocator makes of them."""

from __future__ import annotations

import contextlib

from .caching_allocator import CachingAllocator

LOAD, FORWARD, BACKWARD, OPTIMIZER, EVALUATION = "load", "forward", "backward", "optimizer", "evaluation"
PREPARATION = "preparation"  # a model runs before the training
LOGITS, DATA = "logits", "data"  # births that tell more than the phase


class Peak:
    """The most bytes that were alive in a phase."""

    def __init__(self, bytes_, births, number):
        self.bytes, self.births = bytes_, births  # births: bytes by the phase of birth, or `LOGITS` or `DATA`
        self.number = number  # of the storages that had been added by then
        self.kept = None  # bytes of its own births that outlived the phase; None while it goes on

    def phase_ends(self, kept):
        self.kept = kept


class MemoryLedger:
    """Counts storages as they come and go. Keys are any; sizes are bytes."""

    def __init__(self, phase_now):
        self.phase_now = phase_now  # -> the phase that goes on
        self.phase = LOAD
        self.live = 0
        self.births = {}  # birth -> live bytes
        self.known = {}  # key -> (bytes, birth, number, block of the allocator or None)
        self.number = 0
        self.peaks = {}  # phase -> `Peak`
        self.allocator = CachingAllocator()
        self.unseen = 0  # above 0 while what is allocated is no part of the training
        self.steady = 0  # live bytes after the last step
        self.reserved = 0  # most bytes that the allocator reserved, loading apart

    @property
    def peak(self):
        """Return the most bytes that were alive."""
        return max([peak.bytes for peak in self.peaks.values()], default=self.live)

    def enter_phase(self, phase):
        """Begin a phase: of what was born in the one that ends, the rest outlives it."""
        peak = self.peaks.get(self.phase)
        if peak is not None and peak.kept is None:
            born = [(size, number) for size, birth, number, _ in list(self.known.values()) if birth == self.phase]
            peak.phase_ends(sum(size for size, number in born if number <= peak.number))
        if self.phase == LOAD:
            self.allocator.release()
            self.note_peak(LOAD)
            self.peaks[LOAD].phase_ends(self.births.get(LOAD, 0))
        self.phase = phase

    def look_at_phase(self):
        """Enter the phase that goes on, if it is another."""
        phase = self.phase_now()
        if phase != self.phase:
            self.enter_phase(phase)

    def add(self, key, size, birth=None):
        """Count a new storage; `birth` tells more of it than the phase."""
        self.look_at_phase()
        birth = birth or self.phase
        self.number += 1
        self.known[key] = size, birth, self.number, None if self.unseen else self.allocator.take(size)
        self.live += size
        self.births[birth] = self.births.get(birth, 0) + size
        if not self.unseen:
            self.look()

    def look(self):
        """Note a new peak of the phase; what is loaded comes by way of the host, and counts when that is over."""
        if self.phase == LOAD:
            return
        self.reserved = max(self.reserved, self.allocator.reserved)
        peak = self.peaks.get(self.phase)
        if peak is None or self.live > peak.bytes:
            self.note_peak(self.phase)

    def note_peak(self, phase):
        self.reserved = max(self.reserved, self.allocator.reserved)
        self.peaks[phase] = Peak(self.live, dict(self.births), self.number)

    def drop(self, key):
        """Forget a storage that is no more."""
        self.look_at_phase()
        size, birth, _, block = self.known.pop(key, (0, "", 0, None))
        if size:
            self.live -= size
            self.births[birth] -= size
        if block is not None:
            self.allocator.give(block)

    @contextlib.contextmanager
    def unnoticed(self):
        """Leave no peak of what comes and goes inside: weights that are really loaded piece by piece."""
        self.unseen += 1
        try:
            yield
        finally:
            self.unseen -= 1
            if not self.unseen:
                for key, (size, birth, number, block) in self.known.items():
                    if block is None:
                        self.known[key] = size, birth, number, self.allocator.take(size)
                self.look()

    def step_made(self):
        """Note what is alive after a step."""
        self.steady = self.live

    def record(self):
        """Return it as JSON-ready values."""
        self.enter_phase(self.phase)
        return {
            "reserved": self.reserved,
            "steady": self.steady or self.live,
            "peaks": [
                {"phase": phase, "bytes": peak.bytes, "births": peak.births, "kept": peak.kept or 0}
                for phase, peak in list(self.peaks.items())
            ],
        }
