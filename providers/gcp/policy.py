"""The custom role that is enough, and the command that ends an instance by hand. Asks nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costgpu.models.instance import InstanceRef


def role() -> str:
    """Return the custom role that is enough, exactly as shipped."""
    return Path(__file__).with_name("role.yaml").read_text(encoding="utf-8")


def end_by_hand(ref: InstanceRef, project: str = "") -> str:
    """Return the command that deletes an instance without costgpu; without a project, in the one that gcloud is set to."""
    zone, _, name = ref.instance_id.rpartition("/")
    chosen = f" --project {project}" if project else ""
    return f"gcloud compute instances delete {name} --zone {zone or ref.region}{chosen} --quiet"
