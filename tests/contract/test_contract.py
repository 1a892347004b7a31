"""Every provider is held to the contract."""

import pytest

from tests.contract.checks import CHECKS, Check
from tests.contract.harness import Harness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Check, harness: Harness) -> None:
    check(harness)
