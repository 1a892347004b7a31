"""Steps whose last one of an epoch holds fewer micro-batches."""

from itertools import pairwise
from typing import Any

import pytest

from costgpu.measure.profile.uneven_steps import acting_in_steps, evened, micro_batches_of
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


@pytest.mark.parametrize(
    ("seconds", "at", "a_part"),
    [
        ([0.03] * 20, range(20), True),
        ([0.03] * 20, range(0, 20, 2), True),  # a random action needs no model
        ([0.03, 0.01] * 10, range(0, 20, 2), False),
        ([0.03] * 20, [7], False),
        ([0.03] * 2, range(2), False),
    ],
)
def test_what_comes_with_every_step_is_a_part_of_it(seconds: list[float], at: Any, a_part: bool) -> None:
    special: Any = {i: {"validation": 0.02, "opened": 1} if i == 2 else {"validation": 0.02} for i in at}
    ops = [record("op", phase="validation"), record("op", phase="backward")]
    found = acting_in_steps(phase(seconds=seconds, special=special, ops=ops))
    assert found["special"] == (
        ({"2": {"opened": 1}} if 2 in at else {}) if a_part else {str(i): special[i] for i in at}
    )
    assert found["ops"][0]["phase"] == ("forward" if a_part else "validation")
    assert found["ops"][1] == ops[1]
