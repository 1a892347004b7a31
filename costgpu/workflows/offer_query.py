"""The query that the options of `costgpu offers` mean."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.errors import UsageError
from costgpu.models.offer import PurchaseOption
from costgpu.pricing.query import OfferQuery, SortKey
from costgpu.units import parse_accelerator, parse_range, parse_usd

PURCHASE_OPTIONS = {None: (), True: (PurchaseOption.SPOT,), False: (PurchaseOption.ON_DEMAND,)}


def offer_query(
    *,
    gpus: str | None = None,
    cpus: str | None = None,
    memory: str | None = None,
    infra: Sequence[str] = (),
    spot: bool | None = None,
    max_price: str | None = None,
    sort: str = SortKey.PRICE,
) -> OfferQuery:
    """The query.

    Raises:
        UsageError: An option cannot be read.
    """
    if sort.lower() not in list(SortKey):
        raise UsageError(f"--sort {sort!r} is not an order.", hint=f"Use one of {', '.join(SortKey)}.")
    return OfferQuery(
        accelerator=None if gpus is None else parse_accelerator(gpus),
        cpus=None if cpus is None else parse_range(cpus, what="--cpus"),
        memory=None if memory is None else parse_range(_without_unit(memory), what="--memory"),
        infra=tuple(infra),
        purchase_options=PURCHASE_OPTIONS[spot],
        max_price_usd_per_hour=None if max_price is None else parse_usd(max_price),
        sort=SortKey(sort.lower()),
    )


def _without_unit(memory: str) -> str:
    """``64GB+`` as ``64+``: the unit is GiB in any case."""
    return memory.lower().replace("gib", "").replace("gb", "")
