"""A ledger in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from costgpu.ledger import Ledger
from costgpu.ledger.store import FILE_NAME


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(folder=tmp_path / "place") as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "place" / FILE_NAME
