"""The checks can fail: every one of them is shown a provider that breaks its sentence."""

import pytest

from tests.contract.breaches import BREACHES
from tests.contract.checks import CHECKS, Check
from tests.contract.harness import FakeHarness
from tests.fake_cloud import FakeProvider

NAMES = {check.__name__: check for check in CHECKS}
PAIRS = [(NAMES[name], variant) for name, variants in BREACHES.items() for variant in variants]


def test_every_check_has_a_provider_that_breaks_it() -> None:
    assert set(BREACHES) == set(NAMES)
    assert len(NAMES) == len(CHECKS)


@pytest.mark.parametrize(("check", "variant"), PAIRS, ids=lambda value: value.__name__)
def test_the_breach_is_seen(check: Check, variant: type[FakeProvider]) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        check(FakeHarness(variant))
    assert not isinstance(caught.value, (pytest.skip.Exception, AttributeError, TypeError, NameError)), caught.value
