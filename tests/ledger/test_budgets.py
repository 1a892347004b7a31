"""Budgets and what is spent, in PostgreSQL: the tests of the SQLite file, on a server."""

from collections.abc import Iterator

import pytest

from costgpu.ledger import Ledger
from tests.ledger.postgres import Server
from tests.unit.ledger.test_budget_store import TestAlerts, TestAtOnce, TestNewest, TestSet
from tests.unit.runner.test_spending import TestRuns, TestStrangers, TestWhatCannotBeAsked

pytestmark = pytest.mark.slow
__all__ = ["TestAlerts", "TestAtOnce", "TestNewest", "TestRuns", "TestSet", "TestStrangers", "TestWhatCannotBeAsked"]


@pytest.fixture
def url(server: Server, migrated: str) -> str:
    return server.database(like=migrated)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as found:
        yield found
