"""A simulation that finds nothing proves nothing: each planted bug is found by the seed that found it first."""

import pytest

from tests.simulation.explore import find
from tests.simulation.planted import BUGS, Bug

ENOUGH = 5000  # seeds within which each is found
AROUND = 50


def test_there_are_many_and_each_within_five_thousand_seeds() -> None:
    assert len(BUGS) >= 39
    assert all(bug.found_by < ENOUGH for bug in BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found(bug: Bug) -> None:
    again = "python -m benchmarks.simulation --planted tells by which seeds they are found now"
    assert find(bug, [bug.found_by, *range(AROUND)]) is not None, again
