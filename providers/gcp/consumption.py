"""How Google sells a machine type: on demand, spot, or only in ways that costgpu does not use.

The price list has on-demand SKUs also of machines that nobody can start on demand. Which those are is data:
``consumption_options.json``, with its sources. A type that is not in it is sold in every way.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from costgpu.models.offer import Offer

TABLE = Path(__file__).with_name("consumption_options.json")


def is_sold(offer: Offer) -> bool:
    """Return whether Google sells machines of the offer's type that way."""
    sold = read_options().get(offer.instance_type.partition("+")[0])
    return sold is None or offer.purchase_option.value in sold


@cache
def read_options() -> Mapping[str, frozenset[str]]:
    """Return the ways in which machine types are sold, by type; those that are sold in every way are left out."""
    machines = json.loads(TABLE.read_text(encoding="utf-8"))["machines"]
    return {name: frozenset(row["sold"]) for row in machines for name in row["types"]}
