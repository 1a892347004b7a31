"""A computer to type commands at."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from costgpu.measure import host_info
from tests.cli.here import Here

HOST = cache(host_info.measure_host)


@pytest.fixture(autouse=True)
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of this computer, which takes seconds, is measured for the first test that asks."""
    monkeypatch.setattr(host_info, "measure_host", HOST)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here.make(tmp_path)
    try:
        yield place
    finally:
        place.close()
