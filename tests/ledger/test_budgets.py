"""Budgets and what is spent, in PostgreSQL: the tests of the SQLite file, on a server."""

from collections.abc import Callable, Iterator

import pytest

from costgpu.ledger import Ledger
from costgpu.ledger.records.budget_store import set_budget
from tests.ledger.postgres import Server
from tests.unit.job.test_spending import TestRuns, TestStrangers, TestWhatCannotBeAsked
from tests.unit.ledger.test_budget_store import TestAlerts, TestAtOnce, TestNewest, TestSet
from tests.unit.providers.planted import HOUR, NOW
from tests.unit.workflows.test_budgets_enforced import BUDGET
from tests.unit.workflows.test_budgets_enforced import TestAtOnce as OfTwoClients

pytestmark = pytest.mark.slow
__all__ = ["TestAlerts", "TestAtOnce", "TestNewest", "TestRuns", "TestSet", "TestStrangers", "TestWhatCannotBeAsked"]


@pytest.fixture
def url(server: Server, migrated: str) -> str:
    return server.database(like=migrated)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as found:
        yield found


class TestEnforced(OfTwoClients):
    """Two clients that begin a run at once."""

    @pytest.fixture
    def another(self, url: str) -> Callable[[], Ledger]:
        return lambda: Ledger.open(url)

    @pytest.fixture
    def ledger(self, another: Callable[[], Ledger]) -> Iterator[Ledger]:
        with another() as found:
            set_budget(found, BUDGET, NOW - 900 * HOUR)
            yield found
