import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_socket

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


@pytest.fixture
def port() -> int:
    """One of the loopback's that nobody uses."""
    pytest_socket.enable_socket()
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
