"""The checks of the contract can fail: every one of them is shown a provider that breaks its sentence."""

from typing import Any

import pytest

import tests.contract.group_breaches  # noqa: F401 - adds its own to the others
from tests.contract import test_contract, test_groups
from tests.contract.breaches import BREACHES
from tests.contract.harness import FakeHarness
from tests.fake_cloud import FakeProvider

CHECKS = {
    name.removeprefix("test_"): check
    for module in (test_contract, test_groups)
    for name, check in vars(module).items()
    if name.startswith("test_")
}
PAIRS = [(CHECKS[name], variant) for name, variants in BREACHES.items() for variant in variants]


def test_every_check_has_a_provider_that_breaks_it() -> None:
    assert set(BREACHES) == set(CHECKS)


@pytest.mark.parametrize(("check", "variant"), PAIRS, ids=lambda value: value.__name__)
def test_the_breach_is_seen(check: Any, variant: type[FakeProvider]) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        check(FakeHarness(variant))
    assert not isinstance(caught.value, (pytest.skip.Exception, AttributeError, TypeError, NameError)), caught.value
