"""What came of asking a provider for prices: offers with new prices, and every one that has none, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from costgpu.models.offer import MOST_USD_PER_HOUR, Offer, PurchaseOption

Key = tuple[str, str, str, PurchaseOption]
"""Provider, region, instance type, purchase option: what has one price."""

DIGITS = Decimal("0.000001")
"""Prices are kept to a millionth of a dollar an hour, as in the shipped snapshot."""


def read_price(text: object) -> Decimal | None:
    """Return the USD an hour that a text is; None if no machine can cost that."""
    try:
        usd = Decimal(str(text))
    except InvalidOperation:
        return None
    return usd if usd.is_finite() and DIGITS <= usd <= MOST_USD_PER_HOUR else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPrice:
    """An offer whose price could not be made. It keeps the price, and the age, that it had."""

    key: Key  # of the offer
    reason: str  # what is missing or contradicts itself, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceUpdate:
    """What one provider's price lists say."""

    provider: str  # whose they are
    regions: tuple[str, ...]  # that were asked about
    offers: tuple[Offer, ...]  # with the new prices; not held against the earlier ones yet
    failures: tuple[MissingPrice, ...]  # known offers without a new price
    unknown: tuple[str, ...]  # instance types whose hardware costgpu does not know, sorted; nothing is offered of them
    documents: int  # price list entries that were read


def key_of(offer: Offer) -> Key:
    """Return what an offer's price is the price of."""
    return (offer.provider, offer.region, offer.instance_type, offer.purchase_option)


def by_key(offers: Iterable[Offer]) -> Mapping[Key, Offer]:
    """Return the offers by what their prices are the prices of."""
    return {key_of(offer): offer for offer in offers}
