"""The fake cloud among the providers, in the processes of tests: it has prices, and nobody has credentials for it."""

from typing import NoReturn

from costgpu.models.provider_costs import NO_EXTRAS
from costgpu.providers import registry
from costgpu.providers.spec import ProviderConfig, ProviderSpec


def _adapter(_config: ProviderConfig) -> NoReturn:
    raise AssertionError("tests hand their own FakeProvider to what they test")


SPEC = ProviderSpec(
    name="fake",
    display_name="the fake cloud",
    publisher="fake",
    service="fake",
    adapter=_adapter,
    has_credentials=lambda: False,
    costs=NO_EXTRAS,
)
registry.register(SPEC)
