"""What Google Cloud charges besides the machine: list prices of disk and address, and the watts of a vCPU."""

from __future__ import annotations

from costgpu.models.provider_costs import ProviderCosts

# Source: Google Cloud, "Disk and image pricing" (pd-balanced) and "VPC pricing", us-central1 (read 2026-11).
# Watts: Cloud Carbon Footprint, published coefficients, average over the provider's processors (read 2026-11-21).
COSTS = ProviderCosts(disk_usd_per_gb_month=0.10, address_usd_per_hour=0.005, vcpu_watts=(0.71, 4.26))
