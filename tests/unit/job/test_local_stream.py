"""A stream of this machine that one thread leaves while another reads from it."""

import os

from costgpu.job.machine.transport.local import _Pieces


def test_whoever_leaves_does_not_give_the_number_away() -> None:
    reader, writer = os.pipe()
    pieces = _Pieces(reader)
    os.write(writer, b"one")
    assert next(pieces) == b"one"
    os.write(writer, b"two")
    pieces.leave()
    other, into = os.pipe()
    assert other != reader
    os.write(into, b"somebody else's")
    assert list(pieces) == []
    assert os.read(other, 100) == b"somebody else's"
    del pieces
    again = os.open(os.devnull, os.O_RDONLY)
    assert again == reader  # it is given back when nobody can read any more
    for descriptor in (writer, other, into, again):
        os.close(descriptor)
