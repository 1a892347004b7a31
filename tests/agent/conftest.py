from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.harness import Machine


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes machines with settings; destroys them afterwards."""
    made: list[Machine] = []

    def make(**settings: float | str) -> Machine:
        made.append(Machine(tmp_path / f"m{len(made)}", **settings))
        return made[-1]

    yield make
    for each in made:
        each.destroy()


@pytest.fixture
def machine(new_machine: Callable[..., Machine]) -> Machine:
    return new_machine()
