"""What a job puts on the disk of its machine. Imports nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MARGIN = 1.1  # assumed: file systems keep some for themselves, and a save is whole before it replaces an older one
SPARE_BYTES = 10e9  # assumed: what a disk of the default size has left beside image and packages
STEP_GIB = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNeed:
    """Weights that a rented machine downloads, and checkpoints that its job saves."""

    download_bytes: int = 0  # bytes of pretrained weights
    download_seconds: float = 0.0  # seconds until they are there
    checkpoint_bytes: int = 0  # bytes of the largest checkpoint; 0 if none is saved
    saves: int = 0  # checkpoints that are saved in all
    kept: int = 0  # number of these that the disk has room for

    @property
    def is_large(self) -> bool:
        """Return whether something is downloaded, or a disk of the default size has no room for it all."""
        return self.download_bytes > 0 or self.disk_gib(0) > 0

    def times(self, trials: int) -> StorageNeed:
        """Return what so many jobs on one machine put there, which share a download."""
        return replace(self, saves=self.saves * trials, kept=self.kept * trials)

    def disk_gib(self, default: int, checkpoints: int | None = None) -> int:
        """Return the size of a root disk with room for it all, GiB.

        Args:
            default: Size without any of it, GiB.
            checkpoints: Number of checkpoints to hold; None for those that are kept.
        """
        held = self.download_bytes + self.checkpoint_bytes * (self.kept if checkpoints is None else checkpoints)
        more = (MARGIN * held - SPARE_BYTES) / 2**30
        return default + STEP_GIB * max(0, math.ceil(more / STEP_GIB))


NO_STORAGE = StorageNeed()
"""Of a job that downloads and saves nothing, or of which nothing is known."""
