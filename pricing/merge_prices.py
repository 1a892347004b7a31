"""Merges new prices into those that are known: which are taken, which changed a lot, which are kept apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.price_update import MissingPrice, PriceUpdate, by_key, key_of
from costgpu.pricing import snapshot

LARGE_CHANGE = Decimal("0.30")
"""A price that changes by more than this share of the known one is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """A price that changed by more than 30 %; `taken` tells whether the new one is used."""

    old: Offer
    new: Offer
    taken: bool

    @property
    def change(self) -> Decimal:
        """Relative change: -0.5 is half the old price."""
        return self.new.price_usd_per_hour / self.old.price_usd_per_hour - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshResult:
    """Result of one refresh of one provider."""

    provider: str  # whose they are
    regions: tuple[str, ...]  # regions that were refreshed
    offers: tuple[Offer, ...]  # all of the provider's offers from now on: refreshed ones, and the others as they were
    taken: int  # number of offers with a price from this refresh
    added: int  # number of those that were not known before
    moves: tuple[PriceChange, ...]  # prices that changed by more than 30 %, largest change first
    failures: tuple[MissingPrice, ...]  # offers whose price could not be made
    unknown: tuple[str, ...]  # instance types whose hardware is not known; nothing is offered of them
    documents: int  # number of price list entries that were read


def merge_prices(known: Iterable[Offer], updates: Sequence[PriceUpdate], *, accept: bool = False) -> RefreshResult:
    """Return the offers of a provider after a refresh.

    A spot price that changed a lot is taken, and reported: markets move. An on-demand price hardly ever changes a lot: one
    that seems to is more often read wrongly. The old price, with its age, stays in use until somebody accepts the new one.
    A spot price above the on-demand price in use is impossible, and is never taken; nor is a price older than the known one.

    Args:
        accept: Also take on-demand prices that changed a lot.
    """
    provider = updates[0].provider
    before = by_key(offer for offer in known if offer.provider == provider)
    after = dict(before)
    unsold = by_key(snapshot.read_offers(snapshot.DATA / snapshot.NOT_SOLD_FILE))
    new = by_key(offer for update in updates for offer in update.offers)
    failures = [failure for update in updates for failure in update.failures]
    moves: list[PriceChange] = []
    taken = added = 0
    for key, offer in sorted(new.items()):  # on demand comes before spot
        listed = (*key[:3], PurchaseOption.ON_DEMAND)
        ceiling = after.get(listed) or unsold.get(listed) if key[3] is PurchaseOption.SPOT else None
        if ceiling is not None and offer.price_usd_per_hour > ceiling.price_usd_per_hour:
            failures.append(MissingPrice(key=key, reason=_above(offer, ceiling)))
            continue
        old = before.get(key)
        if old is not None and offer.price_as_of < old.price_as_of:
            reason = f"the new price is of {offer.price_as_of}, and the one in use is newer ({old.price_as_of})"
            failures.append(MissingPrice(key=key, reason=reason))
            continue
        if old is not None:
            move = PriceChange(old=old, new=offer, taken=accept or offer.purchase_option is PurchaseOption.SPOT)
            if abs(move.change) > LARGE_CHANGE:
                moves.append(move)
                if not move.taken:
                    continue
        after[key] = offer
        taken += 1
        added += old is None
    return RefreshResult(
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
