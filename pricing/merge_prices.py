"""Holds new prices against those that are known: which are taken, which have moved, which are kept apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import MissingPrice, PriceUpdate, by_key, key_of

MOVED = Decimal("0.30")
"""A price that moves by more than this part of what was known is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A price that is more than 30 % from what was known.

    Attributes:
        old: What was known.
        new: What the provider says now.
        taken: Whether the new price counts from now on.
    """

    old: Offer
    new: Offer
    taken: bool

    @property
    def change(self) -> Decimal:
        """As a part of the old price: -0.5 is half."""
        return self.new.price_usd_per_hour / self.old.price_usd_per_hour - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """What one refresh of one provider has come to.

    Attributes:
        provider: Whose they are.
        regions: That were asked about.
        offers: All of the provider's offers from now on: refreshed ones, and the others as they were.
        taken: How many of them have a price from this refresh.
        added: How many of those were not known before.
        moves: Prices that have moved by more than 30 %, largest first.
        failures: Offers whose price could not be made.
        unknown: Instance types whose hardware is not known; nothing is offered of them.
        documents: Price list entries that were read.
    """

    provider: str
    regions: tuple[str, ...]
    offers: tuple[Offer, ...]
    taken: int
    added: int
    moves: tuple[Move, ...]
    failures: tuple[MissingPrice, ...]
    unknown: tuple[str, ...]
    documents: int


def settle(known: Iterable[Offer], updates: Sequence[PriceUpdate], *, accept: bool = False) -> Refresh:
    """The offers of a provider after a refresh.

    A spot price is a market's: one that has moved far is taken, and reported. An on-demand price is a list's, and hardly
    ever moves far: one that seems to is more often read wrongly than changed. It is kept apart, with the old price and its
    old age in use, until somebody accepts it. A spot price above the on-demand price in use cannot be, and is never taken.

    Args:
        known: The provider's offers as they are.
        updates: One or more, of that provider.
        accept: Take on-demand prices that have moved, too.
    """
    provider = updates[0].provider
    before = by_key(offer for offer in known if offer.provider == provider)
    after = dict(before)
    new = by_key(offer for update in updates for offer in update.offers)
    failures = [failure for update in updates for failure in update.failures]
    moves: list[Move] = []
    taken = added = 0
    for key, offer in sorted(new.items()):  # on demand comes before spot
        ceiling = after.get((*key[:3], PurchaseOption.ON_DEMAND)) if key[3] is PurchaseOption.SPOT else None
        if ceiling is not None and offer.price_usd_per_hour > ceiling.price_usd_per_hour:
            failures.append(MissingPrice(key=key, reason=_above(offer, ceiling)))
            continue
        old = before.get(key)
        if old is not None:
            move = Move(old=old, new=offer, taken=accept or offer.purchase_option is PurchaseOption.SPOT)
            if abs(move.change) > MOVED:
                moves.append(move)
                if not move.taken:
                    continue
        after[key] = offer
        taken += 1
        added += old is None
    return Refresh(
        provider=provider,
        regions=tuple(region for update in updates for region in update.regions),
        offers=tuple(sorted(after.values(), key=key_of)),
        taken=taken,
        added=added,
        moves=tuple(sorted(moves, key=lambda move: (move.taken, -abs(move.change), key_of(move.new)))),
        failures=tuple(sorted(failures, key=lambda failure: failure.key)),
        unknown=tuple(sorted({name for update in updates for name in update.unknown})),
        documents=sum(update.documents for update in updates),
    )


def _above(offer: Offer, ceiling: Offer) -> str:
    return (
        f"a spot price of {offer.price_usd_per_hour:f} USD/h is above the on-demand price, "
        f"{ceiling.price_usd_per_hour:f} USD/h"
    )
