"""Journeys run side by side, each by a person of its own."""

from collections.abc import Callable, Iterator

import pytest

from tests.emulated.journeys.accounts import Cloud
from tests.emulators.guests import guest_control

Begin = Callable[[Cloud], Iterator[None]]


@pytest.fixture(autouse=True)
def nothing_of_the_users() -> None:
    """Every client here is a process with an environment of its own; threads of this one go on between tests."""


@pytest.fixture(scope="module")
def begin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """Begins the module's `journeys` on a cloud, as the body of a fixture."""

    def on(cloud: Cloud) -> Iterator[None]:
        guest_control.set_traits(None)
        yield from request.module.journeys.begin(request, cloud, tmp_path_factory.mktemp("journeys"))

    return on
