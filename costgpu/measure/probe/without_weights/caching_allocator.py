"""What PyTorch's caching allocator would reserve on a GPU for the same allocations, by its published rules.

Source: c10/cuda/CUDACachingAllocator.cpp (torch 2.13). Blocks are multiples of 512 bytes. Those of at most 1 MiB are cut
from segments of 2 MiB; larger ones below 10 MiB from segments of 20 MiB; others have segments of their own, a multiple of
2 MiB. The best fitting free block is taken, and free neighbours of a segment are one block.
"""

from __future__ import annotations

import bisect

BLOCK, SMALL, SEGMENT = 512, 1 << 20, 2 << 20
MEDIUM, MEDIUM_SEGMENT = 10 << 20, 20 << 20
MOST_KEPT_LARGE = 1 << 20  # what is left of a large block is kept whole up to this


class CachingAllocator:
    """Follows blocks of memory by their sizes; `reserved` are bytes."""

    def __init__(self):
        self.free = {True: [], False: []}  # of small and of large blocks: (bytes, address), in order
        self.ends, self.starts = {}, {}  # address where a free block ends or starts -> (small, address, bytes)
        self.bounds = set()  # addresses where segments begin: blocks do not merge across them
        self.top = 0  # where the next segment begins
        self.reserved = 0

    def take(self, size):
        """Return a block for so many bytes, to be given back."""
        size = max(BLOCK, -(-size // BLOCK) * BLOCK)
        small = size <= SMALL
        free = self.free[small]
        at = bisect.bisect_left(free, (size, 0))
        if at < len(free):
            have, start = free.pop(at)
            del self.starts[start], self.ends[start + have]
        else:
            have, start = self.reserve(size, small)
        left = have - size
        if left >= BLOCK if small else left > MOST_KEPT_LARGE:
            self.put(small, start + size, left)
            have = size
        return small, start, have

    def reserve(self, size, small):
        """Add a segment that holds so many bytes."""
        have = SEGMENT if small else MEDIUM_SEGMENT if size < MEDIUM else -(-size // SEGMENT) * SEGMENT
        start, self.top = self.top, self.top + have
        self.bounds.update((start, self.top))
        self.reserved += have
        return have, start

    def release(self):
        """Give segments back in which nothing is, as the allocator does before it runs out of memory, or is told to."""
        for blocks in self.free.values():
            for size, start in list(blocks):
                if start in self.bounds and start + size in self.bounds:
                    blocks.remove((size, start))
                    del self.starts[start], self.ends[start + size]
                    self.reserved -= size

    def put(self, small, start, size):
        bisect.insort(self.free[small], (size, start))
        self.starts[start] = self.ends[start + size] = (small, start, size)

    def give(self, block):
        """Take a block back, and unite it with its free neighbours."""
        small, start, size = block
        for found, address in ((self.ends, start), (self.starts, start + size)):
            if address not in self.bounds and address in found:
                _, other, length = found[address]
                del self.starts[other], self.ends[other + length]
                free = self.free[small]
                free.pop(bisect.bisect_left(free, (length, other)))
                start, size = min(start, other), size + length
        self.put(small, start, size)
