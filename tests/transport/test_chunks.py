"""Input in pieces that are worth a write."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from costgpu.runner.machine.transport.batches import batches


@given(st.binary(max_size=60) | st.lists(st.binary(max_size=25), max_size=12), st.integers(1, 20))
def test_the_same_bytes_in_equal_pieces(data: bytes | list[bytes], size: int) -> None:
    pieces = list(batches(data, size))
    assert b"".join(pieces) == (data if isinstance(data, bytes) else b"".join(data))
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(0 < len(piece) <= size for piece in pieces[-1:])


def test_no_more_is_taken_than_a_piece_needs() -> None:
    taken = 0

    def parts() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"12345"

    next(batches(parts(), 12))
    assert taken == 3
