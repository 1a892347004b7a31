"""What is known of Google Cloud without asking it: disk and address, images, what is sold, permissions, the end by hand.

The price list has on-demand SKUs also of machines that nobody can start on demand. Which those are is data:
``consumption_options.json``, with its sources. A type that is not in it is sold in every way. Imports next to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.models.provider_costs import ProviderCosts

if TYPE_CHECKING:
    from costgpu.models.instance import InstanceRef
    from costgpu.models.offer import Offer

# Source: Google Cloud, "Disk and image pricing" (pd-balanced) and "VPC pricing", us-central1 (read 2026-11).
# Watts: Cloud Carbon Footprint, published coefficients, average over the provider's processors (read 2026-11-21).
COSTS = ProviderCosts(disk_usd_per_gb_month=0.10, address_usd_per_hour=0.005, vcpu_watts=(0.71, 4.26))
ROLE_FILE = Path(__file__).with_name("role.yaml")
"""The custom role that is enough."""
OPTIONS_FILE = Path(__file__).with_name("consumption_options.json")


def needs_own_image(offer: Offer) -> bool:
    """Return whether no public image has a driver for the machine's accelerator.

    None is for Arm, and none has the licensed driver of a part of a GPU.
    """
    return offer.accelerator is not None and (offer.architecture != "x86_64" or offer.accelerator.count < 1)


def is_sold(offer: Offer) -> bool:
    """Return whether Google sells machines of the offer's type with its purchase option."""
    sold = consumption_options().get(offer.instance_type.partition("+")[0])
    return sold is None or offer.purchase_option.value in sold


@cache
def consumption_options() -> Mapping[str, frozenset[str]]:
    """Return the ways in which machine types are sold, by type; those that are sold in every way are left out."""
    machines = json.loads(OPTIONS_FILE.read_text(encoding="utf-8"))["machines"]
    return {name: frozenset(row["sold"]) for row in machines for name in row["types"]}


def end_by_hand(ref: InstanceRef, project: str = "") -> str:
    """Return the command that deletes an instance without costgpu; without a project, in the one that gcloud is set to."""
    zone, _, name = ref.instance_id.rpartition("/")
    chosen = f" --project {project}" if project else ""
    return f"gcloud compute instances delete {name} --zone {zone or ref.region}{chosen} --quiet"
