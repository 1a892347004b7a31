"""Where the fake cloud has no machine free."""

from collections.abc import Iterable
from dataclasses import dataclass

from costgpu.errors import NoCapacity
from costgpu.models.instance import CreateRequest
from costgpu.models.offer import PurchaseOption


@dataclass(kw_only=True)
class CapacityRule:
    """No such machine there; None means any.

    Attributes:
        region: Where.
        zone: Where exactly.
        instance_type: Of which type.
        spot: How it would be paid for.
        times: How many requests are refused; None for all.
    """

    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    spot: bool | None = None
    times: int | None = None

    def refuses(self, request: CreateRequest, zone: str) -> bool:
        """Whether this request is refused in this zone."""
        spot = request.offer.purchase_option is PurchaseOption.SPOT
        return (
            self.times != 0
            and self.region in (None, request.offer.region)
            and self.zone in (None, zone)
            and self.instance_type in (None, request.offer.instance_type)
            and self.spot in (None, spot)
        )


def first_with_capacity(rules: Iterable[CapacityRule], request: CreateRequest, zones: Iterable[str]) -> str:
    """The first of the zones that has such a machine.

    Raises:
        NoCapacity: None has.
    """
    refused = "no zone"
    for zone in zones:
        rule = next((rule for rule in rules if rule.refuses(request, zone)), None)
        if rule is None:
            return zone
        if rule.times is not None:
            rule.times -= 1
        refused = zone
    raise NoCapacity(f"The fake cloud has no {request.offer.instance_type} in {refused} now.")
