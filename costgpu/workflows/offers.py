"""Offers: the query that options mean, and the candidates of an estimate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from costgpu.config import users_setting
from costgpu.errors import PriceNotFound, UsageError
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Candidate
from costgpu.pricing import snapshot
from costgpu.pricing.catalog import Catalog
from costgpu.pricing.hardware import accelerator, cpu, interconnects
from costgpu.pricing.interruptions import interruption_rate
from costgpu.pricing.query import OfferQuery, SortKey
from costgpu.providers import registry
from costgpu.units import AcceleratorRequest, parse_accelerator, parse_range, parse_usd
from costgpu.workflows.options import Alternatives, OptionalFlag, PlaceOptions, SizeOptions, Text, Texts, Word
from costgpu.workflows.reporter import Reporter

PURCHASE_OPTIONS = {None: (), True: (PurchaseOption.SPOT,), False: (PurchaseOption.ON_DEMAND,)}


@dataclass(kw_only=True)
class OfferRequest:
    """The options of `costgpu offers`."""

    gpus: Alternatives = vars(PlaceOptions)["gpus"]
    cpus: Text = vars(SizeOptions)["cpus"]
    memory: Text = vars(SizeOptions)["memory"]
    infra: Texts = vars(PlaceOptions)["infra"]
    spot: OptionalFlag = OptionalFlag("Spot or on-demand prices; default: both.", "--spot/--on-demand", "--use-spot")
    max_price: Text = Text("Highest price of the machine in USD per hour.")
    sort: Word = Word("Order: price, gpu-price, memory or name.", default=SortKey.PRICE.value)

    @property
    def query(self) -> OfferQuery:
        """Return what the options mean.

        Raises:
            UsageError: An option cannot be read.
        """
        if self.sort.lower() not in list(SortKey):
            raise UsageError(f"--sort {self.sort!r} is not an order.", hint=f"Use one of {', '.join(SortKey)}.")
        gib = (self.memory or "").lower().replace("gib", "").replace("gb", "")  # the unit is GiB in any case
        return OfferQuery(
            accelerator=None if self.gpus is None else parse_accelerator(self.gpus),
            cpus=None if self.cpus is None else parse_range(self.cpus, what="--cpus"),
            memory=None if self.memory is None else parse_range(gib, what="--memory"),
            infra=self.infra,
            purchase_options=PURCHASE_OPTIONS[self.spot],
            max_price_usd_per_hour=None if self.max_price is None else parse_usd(self.max_price, "--max-price"),
            sort=SortKey(self.sort.lower()),
        )


def has_image(provider: str) -> bool:
    """Return whether the settings name an image of the user's own for machines there.

    Raises:
        ConfigError: The user's settings cannot be read.
    """
    return bool(users_setting(registry.image_setting(provider)))


def on_nodes(places: Iterable[Candidate], counts: Iterable[int]) -> list[Candidate]:
    """Each place with GPUs as so many machines that work together, where its type has a network for that."""
    counts = tuple(counts)
    return [
        replace(place, nodes=count)
        for place in places
        for count in counts
        if place.is_gpu and (count == 1 or (place.interconnect is not None and place.interconnect.network_gbps))
    ]


def candidates(
    gpus: str | None,
    infra: tuple[str, ...],
    *,
    spot: bool,
    reporter: Reporter,
    instance_types: Iterable[str] = (),
) -> list[Candidate]:
    """Return the offers with the accelerators that were asked for, and the CPUs to compare them with.

    Args:
        instance_types: Types that must be among them.

    Raises:
        PriceNotFound: There is no offer, or none of one of `instance_types`.
        UsageError: A name is wrong.
    """
    catalog = Catalog.current(reporter.note, has_image=has_image)
    options = PURCHASE_OPTIONS[spot]
    wanted = None if gpus is None else parse_accelerator(gpus)
    found = list(catalog.query(OfferQuery(accelerator=wanted, infra=infra, purchase_options=options)))
    if wanted is not None and not wanted.none:
        without = AcceleratorRequest(none=True)
        with contextlib.suppress(PriceNotFound):  # there may be no machines without accelerators
            found += catalog.query(OfferQuery(accelerator=without, infra=infra, purchase_options=options))
    types = {offer.instance_type.lower() for offer in found}
    for name in instance_types:
        if name.lower() not in types:  # nothing is found: the catalog says why
            catalog.query(OfferQuery(accelerator=wanted, infra=infra, purchase_options=options, instance_type=name))
    on_demand = {  # what a spot machine costs at most
        (o.provider, o.region, o.instance_type): o.dearest_usd_per_hour
        for o in (*snapshot.read_offers(snapshot.DATA / snapshot.NOT_SOLD_FILE), *catalog.offers)
        if o.purchase_option is PurchaseOption.ON_DEMAND
    }
    costs = {name: registry.costs(name) for name in {offer.provider for offer in found}}
    now = datetime.now(UTC)
    links = interconnects() if any(offer.accelerator is not None for offer in found) else {}
    return [
        Candidate(
            offer=offer,
            cpu=cpu(offer.provider, offer.family),
            accelerator=accelerator(offer.accelerator.name) if offer.accelerator else None,
            on_demand_usd_per_hour=on_demand.get((offer.provider, offer.region, offer.instance_type))
            if offer.purchase_option is PurchaseOption.SPOT
            else offer.price_usd_per_hour,
            costs=costs[offer.provider],
            interconnect=links.get((offer.provider, offer.instance_type)),
            own_price_seconds=(offer.own_price.ends_at - now).total_seconds() if offer.own_price is not None else None,
            interruptions=interruption_rate(offer) if offer.purchase_option is PurchaseOption.SPOT else None,
        )
        for offer in found
    ]
