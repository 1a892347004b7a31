"""What `costgpu doctor` found, as text and as a JSON document, and what was seen of the machines of `--live`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from costgpu.models.diagnostics import Check, Status
from costgpu.models.first_run import TrialMachine
from costgpu.models.offer import Offer
from costgpu.render.document import document
from costgpu.render.phrases import counted
from costgpu.render.text.layout import wrap
from costgpu.units import format_usd

MARKS = {Status.OK: "ok", Status.WARNING: "warn", Status.FAILED: "FAIL", Status.UNKNOWN: "?"}
NAME_WIDTH = 12
FREE = "Nothing was created, nothing was changed, nothing costs money."
SO_FAR = "Nothing was created so far, nothing was changed, nothing costs money."
SEEN_WIDTH = 20


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


def trial_text(trial: TrialMachine) -> str:
    """Return a paragraph for one machine."""
    key = _seconds(trial.our_key_seconds)
    other = ", with another key before" if trial.foreign_key else ""
    rows = [
        ("first SSH answer", _seconds(trial.first_answer_seconds)),
        ("key of the run", f"{key}{other}"),
        ("boot on the console", _seconds(trial.console_boot_seconds)),
        ("power-off", _seconds(trial.power_off_seconds)),
        ("... on the console", _seconds(trial.console_end_seconds)),
    ]
    rows += [(f"at {each.seconds:.0f} s", f"{each.state}. {each.words}".strip()) for each in trial.sightings]
    if trial.maintenance is not None:
        limit = "kept" if trial.maintenance.time_limit_after else "gone"
        events = ", ".join(trial.maintenance.events) or "nothing was told"
        rows.append(("maintenance", trial.maintenance.refusal or f"{events}; the time limit is {limit}"))
    rows += [("refused", text) for text in trial.refused]
    if trial.said:
        rows.append(("the job said", trial.said.replace("\n", "; ")))
    cost = format_usd(trial.cost_usd) if trial.cost_usd is not None else "?"
    rows.append(("end", f"{trial.reason or '?'}, by {trial.ended_by or '?'}; run {trial.run_id}, {cost}"))
    title = f"{trial.offer.provider}: {trial.offer.instance_type} in {trial.offer.region}, from the create call on"
    return "\n".join([title, *(wrap(text, f"  {name:<{SEEN_WIDTH}} ") for name, text in rows)])


def _seconds(value: float | None) -> str:
    return f"{value:.1f} s" if value is not None else "not seen"


def total_text(trials: Sequence[TrialMachine], report: str) -> str:
    """Return what it has cost, and where the report is."""
    where = f"The report is in {report}: read it, and send it to the authors of costgpu."
    if not trials:
        return where
    spent = sum((trial.cost_usd or Decimal(0) for trial in trials), Decimal(0))
    worst = sum((trial.worst_cost_usd for trial in trials), Decimal(0))
    return f"{counted(len(trials), 'machine')}, {format_usd(spent)} of at most {format_usd(worst)}.\n{where}"
