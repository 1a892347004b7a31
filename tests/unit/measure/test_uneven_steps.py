"""Steps whose last one of an epoch holds fewer micro-batches."""

from itertools import pairwise
from typing import Any

import pytest

from costgpu.measure.profile.uneven_steps import evened, micro_batches_of
from tests.unit.measure.records import loop, phase, record, shot

GATE = {"every": 32, "text": "ACC", "fixed": True, "goes_on": False}


def epochs(trips: int, *, every: int = 32, traced: int = 8, opened: float = 0.0) -> Any:
    """Fifty epochs whose steps come every so many micro-batches of 10 ms, and at the end."""
    count = -(-trips // every)
    ends = [min(trips, every * (n + 1)) - 1 for n in range(count)]
    steps = [(epoch, end) for epoch in range(4) for end in ends]

    def at(n: int) -> Any:
        epoch, end = steps[n - 1]
        inner = loop(11, trips, index=end, target="i", ragged=True, gate=GATE | {"every": every})
        return shot(n, loop(10, 50, index=epoch, target="epoch"), inner, batches=epoch * trips + end + 1)

    sizes = [ends[0] + 1, *(b - a for a, b in pairwise(ends))]
    seconds = [0.01 * sizes[n % count] + (opened if n % count == 0 else 0.0) for n in range(1, len(steps))]
    special = {n - 1: {"opened": 1} for n in range(1, len(steps)) if n % count == 0}
    op = record("op", count=traced, phase="forward")
    ops = [op, record("op", count=1, phase="optimizer")]
    shots = [at(n) for n in (1, 2, 3, len(steps))]
    return phase(*shots, seconds=seconds, special=special, ops=ops, micro_batches=traced, loader={"length": trips})


def test_steps_are_brought_to_their_mean() -> None:
    found = evened(epochs(40, opened=0.5))
    assert micro_batches_of(epochs(40)) == [32, 8]
    assert found["seconds"] == pytest.approx([0.2, 0.7, 0.2, 0.7, 0.2, 0.7, 0.2])
    assert found["trace_steps"] == 2, "the trace is that of an epoch"
    assert [op["count"] for op in found["ops"]] == [40, 2]
    assert found["micro_batches"] == 40


@pytest.mark.parametrize(("trips", "every"), [(64, 32), (7, 8), (101, 1)])
def test_steps_that_are_alike_are_left_as_they_are(trips: int, every: int) -> None:
    alike = epochs(trips, every=every, traced=min(trips, every))
    assert evened(alike) is alike


def test_what_is_not_known_is_left_as_it_is() -> None:
    unknown = epochs(40)
    for one in unknown["snapshots"]:
        one["loops"][-1]["gate"]["fixed"] = False
    assert evened(unknown) is unknown
