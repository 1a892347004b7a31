"""The simulated allocator never hands out the same bytes twice, and reserves what PyTorch's would."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from costgpu.measure.probe.without_weights.caching_allocator import BLOCK, CachingAllocator

MIB = 2**20


def test_segments_are_those_of_pytorch() -> None:
    allocator = CachingAllocator()
    small = allocator.take(1)
    assert (small[2], allocator.reserved) == (BLOCK, 2 * MIB)
    allocator.take(5 * MIB)
    assert allocator.reserved == 22 * MIB
    allocator.take(15 * MIB)  # what is left of the 20
    assert allocator.reserved == 22 * MIB
    large = allocator.take(101 * MIB)
    assert allocator.reserved == (22 + 102) * MIB
    allocator.give(large)
    assert allocator.reserved == 124 * MIB, "it caches"
    allocator.release()
    assert allocator.reserved == 22 * MIB


def test_what_is_left_of_a_large_block_is_only_cut_off_above_a_mebibyte() -> None:
    allocator = CachingAllocator()
    allocator.give(allocator.take(11 * MIB))  # in a segment of 12
    assert allocator.take(11 * MIB)[2] == 12 * MIB
    assert allocator.reserved == 12 * MIB


@given(st.lists(st.tuples(st.integers(1, 60 * MIB), st.integers(0, 9)), max_size=80))
def test_blocks_never_overlap_and_all_come_back(steps: list[tuple[int, int]]) -> None:
    allocator, live = CachingAllocator(), []
    for size, drop in steps:
        block = allocator.take(size)
        assert block[2] >= size
        live.append(block)
        if drop < len(live):
            allocator.give(live.pop(drop))
        places = sorted((start, start + length) for _, start, length in live)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
        assert sum(length for _, _, length in live) <= allocator.reserved
    for block in live:
        allocator.give(block)
    allocator.release()
    assert allocator.reserved == 0, "whole segments are whole again"
