"""A computer to type commands at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.here import Here


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here.make(tmp_path)
    try:
        yield place
    finally:
        place.close()
