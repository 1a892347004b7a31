"""The IAM policy that is enough, and the command that ends an instance by hand. Asks nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costgpu.models.instance import InstanceRef


def policy() -> str:
    """Return the IAM policy that is enough, exactly as shipped."""
    return Path(__file__).with_name("policy.json").read_text(encoding="utf-8")


def end_by_hand(ref: InstanceRef, account: str = "") -> str:  # noqa: ARG001 - the command names no account
    """Return the command that terminates an instance without costgpu."""
    return f"aws ec2 terminate-instances --region {ref.region} --instance-ids {ref.instance_id}"
