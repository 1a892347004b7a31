"""Which offers match what a user asks for. Pure, apart from reading the prices in use.

May import `query`, `price_store`, `snapshot`, `hardware`, `providers`, `models`, `units` and `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from costgpu.errors import PriceNotFound, UsageError
from costgpu.models.offer import Offer
from costgpu.pricing import hardware, not_supported, price_store
from costgpu.pricing.hardware import accelerator_key, nearest, unknown
from costgpu.pricing.query import OfferQuery, SortKey, in_words, loosened, matches, predicates
from costgpu.providers import registry
from costgpu.units import AcceleratorRequest, format_dollars

__all__ = ["Catalog", "OfferQuery", "SortKey", "matches"]


class Catalog:
    """Offers that can be queried; they are sorted by price once.

    Args:
        apart: Offers of machines that boot no public image: no query finds them, and one that finds nothing else says so.
    """

    def __init__(self, offers: Iterable[Offer], apart: Iterable[Offer] = ()) -> None:
        self._offers = sorted(offers, key=_by_price)
        self._apart = tuple(apart)
        self._accelerators = {offer.accelerator.name for offer in self._offers if offer.accelerator}
        self._regions: dict[str, set[str]] = {}
        for offer in self._offers:
            self._regions.setdefault(offer.provider, set()).add(offer.region)

    @classmethod
    def current(
        cls, warn: price_store.Warn | None = None, *, has_image: Callable[[str], bool] = lambda _: False
    ) -> Catalog:
        """Return the prices in use: those that came with this version, and over them what was refreshed.

        Args:
            warn: Called with a line of words for refreshed prices that cannot be used.
            has_image: Whether the user names an image of their own for a provider's machines. Asked where an offer's
                machine boots no public image; without the user's own it is set apart.
        """
        usable: list[Offer] = []
        apart: list[Offer] = []
        named: dict[str, bool] = {}
        for offer in price_store.offers(warn=warn):
            if not registry.needs_own_image(offer):
                usable.append(offer)
                continue
            if offer.provider not in named:
                named[offer.provider] = has_image(offer.provider)
            (usable if named[offer.provider] else apart).append(offer)
        return cls(usable, apart)

    @property
    def offers(self) -> Sequence[Offer]:
        """Return every offer, cheapest first."""
        return self._offers

    def query(self, query: OfferQuery) -> list[Offer]:
        """Return the offers that match, in the order that the query wants.

        Raises:
            UsageError: An accelerator, provider or region in the query does not exist.
            PriceNotFound: Nothing matches.
        """
        query = replace(query, accelerator=self._known_accelerator(query.accelerator))
        for place in query.infra:
            self._check_place(place)
        found = self._filter(query)
        if not found:
            self._check_apart(query)
        wanted = [] if query.accelerator is None else [each.name for each in query.accelerator.alternatives]
        if not found and wanted and not {None, *self._accelerators} & set(wanted):
            raise PriceNotFound(
                f"No offer in these prices has the accelerator {' or '.join(map(str, wanted))}.",
                hint=f"Those with offers: {', '.join(sorted(self._accelerators))}.",
            )
        if not found and query.instance_type is not None:
            types = {offer.instance_type.lower(): offer.instance_type for offer in self._offers}
            if query.instance_type.lower() not in types:
                raise PriceNotFound(
                    f"No offer in these prices is of the type {query.instance_type!r}.",
                    hint=f"Did you mean {', '.join(nearest(query.instance_type, types.values()))}?",
                )
        if not found:
            raise PriceNotFound(f"No offer matches {in_words(query)}.", hint=self._what_to_loosen(query))
        if query.sort is not SortKey.PRICE:
            found.sort(key=_SORT_KEYS[query.sort])
        return found[: query.limit]

    def _filter(self, query: OfferQuery) -> list[Offer]:
        """Return the matches in order of price."""
        asked = tuple(predicates(query))
        return [offer for offer in self._offers if all(predicate(offer) for predicate in asked)]

    def _check_apart(self, query: OfferQuery) -> None:
        """Raise `PriceNotFound` if what matches are machines that boot no public image."""
        found = [offer for offer in self._apart if matches(offer, query)]
        if not found:
            return
        types = sorted({offer.instance_type for offer in found})
        some = f"{', '.join(types[:3])}{', ...' * (len(types) > 3)}"
        settings = sorted({registry.image_setting(offer.provider) for offer in found})
        raise PriceNotFound(
            f"Only machines that boot no public image match {in_words(query)}: {some}.",
            hint=f"Choose another one, or name an image of your own that has the driver: {' or '.join(settings)}.",
        )

    def _known_accelerator(self, request: AcceleratorRequest | None) -> AcceleratorRequest | None:
        """Return the request with the canonical name, so that the hardware table's aliases apply."""
        if request is None:
            return None
        if request.others:
            request = replace(request, others=tuple(filter(None, map(self._known_accelerator, request.others))))
        if request.name is None:
            return request
        key = accelerator_key(request.name)
        for name in self._accelerators:
            if accelerator_key(name) == key:
                return replace(request, name=name)
        if (error := not_supported.accelerator_error(request.name)) is not None:
            raise error
        try:
            return replace(request, name=hardware.accelerator(request.name).name)
        except UsageError:
            raise unknown("accelerator", request.name, sorted(self._accelerators), accelerator_key) from None

    def _check_place(self, place: str) -> None:
        every_region = set().union(*self._regions.values())
        if place.lower() not in every_region and (error := not_supported.place_error(place, self._regions)) is not None:
            raise error
        provider, slash, region = place.lower().partition("/")
        if not slash:
            if provider not in self._regions and provider not in every_region:
                raise unknown("provider or region", place, [*self._regions, *every_region])
        elif provider not in self._regions:
            raise unknown("provider", provider, self._regions)
        elif region not in self._regions[provider]:
            raise unknown(f"{provider} region", region, self._regions[provider])

    def _what_to_loosen(self, query: OfferQuery) -> str:
        """Return which single filter, dropped, gives offers, and from what price on."""
        gains = []
        for words, looser in loosened(query):
            found = self._filter(looser)
            if found:
                number = f"{len(found)} offer{'s' * (len(found) > 1)}"
                gains.append(f"Without {words}: {number} from {format_dollars(found[0].price_usd_per_hour)}/h.")
        return " ".join(gains) or "No single filter is to blame: loosen two or more."


def _by_price(offer: Offer) -> tuple[Decimal, str, str, str, str, str]:
    return (offer.price_usd_per_hour, *_by_name(offer))


def _by_name(offer: Offer) -> tuple[str, str, str, str, str]:
    return (offer.instance_type, offer.provider, offer.region, offer.zone or "", offer.purchase_option)


def _by_accelerator_price(offer: Offer) -> float:
    return float(offer.price_usd_per_hour) / offer.accelerator.count if offer.accelerator else float("inf")


_SORT_KEYS: dict[SortKey, Callable[[Offer], float] | Callable[[Offer], tuple[str, ...]]] = {
    SortKey.GPU_PRICE: _by_accelerator_price,
    SortKey.MEMORY: lambda offer: -offer.memory_gib,
    SortKey.NAME: _by_name,
}
