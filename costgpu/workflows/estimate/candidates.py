"""Which offers are weighed."""

from __future__ import annotations

import contextlib

from costgpu.errors import PriceNotFound
from costgpu.models.offer import PurchaseOption
from costgpu.models.prediction import Candidate
from costgpu.pricing.catalog import Catalog
from costgpu.pricing.hardware import accelerators, cpus
from costgpu.pricing.query import OfferQuery
from costgpu.providers import registry
from costgpu.units import AcceleratorRequest, parse_accelerator
from costgpu.workflows.reporter import Reporter


def candidates(gpus: str | None, infra: tuple[str, ...], *, spot: bool, reporter: Reporter) -> list[Candidate]:
    """Offers with the accelerators that were asked for, and the CPUs to compare them with."""
    catalog = Catalog.current(reporter.note)
    options = (PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,)
    wanted = parse_accelerator(gpus) if gpus else None
    found = list(catalog.query(OfferQuery(accelerator=wanted, infra=infra, purchase_options=options)))
    if wanted is not None and not wanted.none:
        without = AcceleratorRequest(none=True)
        with contextlib.suppress(PriceNotFound):  # there may be no machines without accelerators
            found += catalog.query(OfferQuery(accelerator=without, infra=infra, purchase_options=options))
    on_demand = {
        (o.provider, o.region, o.instance_type): o.price_usd_per_hour
        for o in catalog.offers
        if o.purchase_option is PurchaseOption.ON_DEMAND
    }
    gpu_specs, cpu_specs = accelerators(), cpus()
    costs = {name: registry.costs(name) for name in {offer.provider for offer in found}}
    return [
        Candidate(
            offer=offer,
            cpu=cpu_specs[offer.provider, offer.family],
            accelerator=gpu_specs[offer.accelerator.name] if offer.accelerator else None,
            on_demand_usd_per_hour=on_demand.get((offer.provider, offer.region, offer.instance_type)),
            costs=costs[offer.provider],
        )
        for offer in found
    ]
