"""What a machine of a provider costs and draws besides the price of its type. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass

HOURS_PER_MONTH = 730  # as the providers count
DEFAULT_VCPU_WATTS = (0.74, 3.50)
"""Watts of one vCPU, idle and at full load. Source: Cloud Carbon Footprint, published coefficients (read 2026-11-21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCosts:
    """List prices of the boot disk and the public address, and the power of the processors."""

    disk_usd_per_gb_month: float  # general-purpose SSD
    address_usd_per_hour: float  # one public IPv4 address in use
    vcpu_watts: tuple[float, float] = DEFAULT_VCPU_WATTS  # watts of one vCPU, idle and at full load

    def extras_usd_per_hour(self, disk_gb: float) -> float:
        """Disk of that size and address, USD per hour."""
        return disk_gb * self.disk_usd_per_gb_month / HOURS_PER_MONTH + self.address_usd_per_hour


NO_EXTRAS = ProviderCosts(disk_usd_per_gb_month=0.0, address_usd_per_hour=0.0)
"""Of a machine that nobody bills: this computer, a GPU of one's own, a free notebook."""
