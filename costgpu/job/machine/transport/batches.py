"""Pieces of input in sizes that are worth a write. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PIECE_BYTES = 256 * 1024


def batches(data: bytes | Iterable[bytes], size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield the same bytes in pieces of `size`, the last one shorter; small ones are joined, large ones are cut.

    Takes no more from `data` than the next piece needs.
    """
    held = bytearray()
    for part in (data,) if isinstance(data, bytes) else data:
        held += part
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
