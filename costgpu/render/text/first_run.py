"""What was seen of the machines of `costgpu doctor --live`, as text for 80 columns. Result -> str; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from costgpu.models.first_run import TrialMachine
from costgpu.render.phrases import counted
from costgpu.render.text.layout import wrap
from costgpu.units import format_usd

SO_FAR = "Nothing was created so far, nothing was changed, nothing costs money."
WIDTH = 20


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
    return "\n".join([title, *(wrap(text, f"  {name:<{WIDTH}} ") for name, text in rows)])


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
