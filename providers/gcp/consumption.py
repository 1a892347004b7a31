"""How Google sells a machine type: on demand, spot, or only in ways that costgpu does not use.

The price list has on-demand SKUs also of machines that nobody can start on demand. Which those are is data:
``consumption_options.json``, with its sources. A type that is not in it is sold in every way.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from costgpu.models.offer import Offer

TABLE = Path(__file__).with_name("consumption_options.json")
SCHEMA, VERSION = "costgpu.gcp-consumption-options", 1


def is_sold(offer: Offer) -> bool:
    """Return whether Google sells machines of the offer's type that way."""
    sold = read_options().get(offer.instance_type.partition("+")[0])
    return sold is None or offer.purchase_option.value in sold


@cache
def read_options(path: Path = TABLE) -> Mapping[str, frozenset[str]]:
    """Return the ways in which machine types are sold, by type; those that are sold in every way are left out.

    Raises:
        ConfigError: The data file cannot be read, or contradicts itself.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document["schema"], document["version"]) != (SCHEMA, VERSION):
            raise ConfigError(f"{path} is not version {VERSION} of {SCHEMA}.")
        found: dict[str, frozenset[str]] = {}
        for row in document["machines"]:
            sold = frozenset(row["sold"])
            for name in row["types"]:
                if name in found or not sold <= set(document["options"]):
                    raise ConfigError(f"{path}: {name} is listed twice, or sold in a way that is not known.")
                found[name] = sold
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} cannot be used: {type(error).__name__}: {error}.", hint="Reinstall costgpu."
        ) from error
    return found
