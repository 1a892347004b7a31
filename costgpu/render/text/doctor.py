"""What `costgpu doctor` found, as text for 80 columns and as a JSON document. Result -> str; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from costgpu.models.diagnostics import Check, Status
from costgpu.models.offer import Offer
from costgpu.render.document import document
from costgpu.render.phrases import counted
from costgpu.render.text.layout import wrap

MARKS = {Status.OK: "ok", Status.WARNING: "warn", Status.FAILED: "FAIL", Status.UNKNOWN: "?"}
NAME_WIDTH = 12
FREE = "Nothing was created, nothing was changed, nothing costs money."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReport:
    """What was found of one place."""

    name: str  # ``aws``, ``gcp/us-central1``, ``this computer``
    checks: Sequence[Check]  # the checks in their order
    offer: Offer | None = None  # the machine that was asked about; None if none was


def doctor_text(places: Sequence[PlaceReport], closing: str = FREE) -> str:
    """Return a paragraph for each place, the sum, and a last line."""
    blocks = []
    for place in places:
        title, offer = place.name, place.offer
        if offer is not None:
            purchase = offer.purchase_option.value.replace("_", "-")
            title = f"{title}: {offer.instance_type} in {offer.region}, {purchase}"
        lines = [title]
        for check in place.checks:
            lead = f"  {MARKS[check.status]:<5}{check.name:<{NAME_WIDTH}} "
            lines += [wrap(check.detail, lead), *([wrap(check.fix, " " * len(lead))] if check.fix else [])]
        blocks.append("\n".join(lines))
    found = [check.status for place in places for check in place.checks]
    counts = [(Status.FAILED, "failed"), (Status.WARNING, "to be looked at"), (Status.UNKNOWN, "not known")]
    words = ", ".join(f"{found.count(status)} {text}" for status, text in counts if status in found)
    total = counted(len(found), "check")
    return "\n\n".join([*blocks, f"{total}{f': {words}' if words else ', all well'}.\n{closing}"])


def doctor_json(places: Sequence[PlaceReport], now: datetime, exit_code: int) -> str:
    """Return the same as a versioned document."""
    rows = [
        {
            "place": place.name,
            "instance_type": place.offer.instance_type if place.offer else None,
            "region": place.offer.region if place.offer else None,
            "checks": list(place.checks),
        }
        for place in places
    ]
    return document("costgpu.doctor", at=now, places=rows, exit_code=exit_code)
