"""What costgpu knows of Google Cloud and asks nobody: list prices besides the machine, the role, how to end one by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.models.provider_costs import ProviderCosts

if TYPE_CHECKING:
    from costgpu.models.instance import InstanceRef

# Source: Google Cloud, "Disk and image pricing" (pd-balanced) and "VPC pricing", us-central1 (read 2026-11).
# Watts: Cloud Carbon Footprint, published coefficients, average over the provider's processors (read 2026-11-21).
COSTS = ProviderCosts(disk_usd_per_gb_month=0.10, address_usd_per_hour=0.005, vcpu_watts=(0.71, 4.26))


def role() -> str:
    """The custom role that is enough, exactly as shipped."""
    return Path(__file__).with_name("role.yaml").read_text(encoding="utf-8")


def end_by_hand(ref: InstanceRef, project: str = "") -> str:
    """The command that deletes an instance without costgpu; without a project, in the one that gcloud is set to."""
    zone, _, name = ref.instance_id.rpartition("/")
    chosen = f" --project {project}" if project else ""
    return f"gcloud compute instances delete {name} --zone {zone or ref.region}{chosen} --quiet"
