"""What costgpu knows of AWS and asks nobody: list prices besides the machine, the IAM policy, how to end one by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from costgpu.models.provider_costs import ProviderCosts

if TYPE_CHECKING:
    from costgpu.models.instance import InstanceRef

# Source: Amazon EBS pricing (gp3) and Amazon VPC pricing (public IPv4 address), us-east-1 (read 2026-11).
# Watts: Cloud Carbon Footprint, published coefficients, average over the provider's processors (read 2026-11-21).
COSTS = ProviderCosts(disk_usd_per_gb_month=0.08, address_usd_per_hour=0.005, vcpu_watts=(0.74, 3.50))


def policy() -> str:
    """The IAM policy that is enough, exactly as shipped."""
    return Path(__file__).with_name("policy.json").read_text(encoding="utf-8")


def end_by_hand(ref: InstanceRef, account: str = "") -> str:  # noqa: ARG001 - the command names no account
    """The command that terminates an instance without costgpu."""
    return f"aws ec2 terminate-instances --region {ref.region} --instance-ids {ref.instance_id}"
