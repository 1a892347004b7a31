"""What an estimate says of a workload and of the time that a step takes; shared by the terminal and the HTML page."""

from __future__ import annotations

from costgpu.models.prediction import Verdict
from costgpu.models.workload import Extra, Phase, Rhythm, TotalKind
from costgpu.units import format_count, format_duration

TERM_PHRASES = {
    "compute": "arithmetic (matrix units or cores)",
    "on-chip": "on-chip traffic (shared memory, registers)",
    "memory": "memory bandwidth",
    "launch": "kernel launches (host CPU)",
    "calls": "framework calls (one core)",
    "host": "the script's own Python",
    "copy": "batches to the GPU",
    "loading": "waiting for data",
    "measured": "a step, as measured",
    "run": "a step, as the run that was measured",
    "table": "a step, by the benchmark table",
    "nominal": "a step of the reference workload, by this CPU's rates",
}
KNOWN_TOTALS = {TotalKind.EXACT: "", TotalKind.APPROXIMATE: "about ", TotalKind.UPPER_BOUND: "at most "}


def steps_phrase(phase: Phase) -> str:
    """``at most 20,000 steps in 40 epochs``."""
    total, unit = phase.total, phase.unit or "step"
    if total.kind is TotalKind.UNBOUNDED:
        return "runs until it is stopped"
    if total.kind not in KNOWN_TOTALS:
        return f"an unknown number of {plural_unit(unit)}"
    if not total.steps:
        return "no steps"
    count = f"{KNOWN_TOTALS[total.kind]}{total.steps:,.0f} {unit if total.steps == 1 else plural_unit(unit)}"
    if total.steps_per_epoch and total.steps > total.steps_per_epoch:
        count += f" in {_number(total.steps / total.steps_per_epoch)} epochs"
    return count


def plural_unit(unit: str) -> str:
    """``steps``, ``trees``, ``batches``."""
    sibilant = unit.endswith(("ch", "sh", "s", "x")) and unit != "epoch"
    return f"{unit}{'es' if sibilant else 's'}"


def extra_phrase(extra: Extra, unit: str = "step") -> str:
    """``validation 3.1 s every epoch``."""
    word = "epoch" if extra.rhythm is Rhythm.EPOCH else unit
    every = f"every {word}" if extra.every == 1 else f"every {_number(extra.every)} {plural_unit(word)}"
    every = "once" if extra.rhythm is Rhythm.RUN else every
    kind = extra.kind.value.replace("_", " ")
    return f"{kind} {format_duration(extra.seconds_each)} {every}{'' if extra.measured else ' (inferred)'}"


def waiting_phrase(phase: Phase) -> str:
    """``12% of it waiting for data (4 workers)``; empty for a script without a data loader."""
    if not phase.data.batches_per_step or not phase.step.mean_seconds:
        return ""
    share = min(1.0, phase.data.wait_seconds_per_step / phase.step.mean_seconds)
    return f"{share:.0%} of it waiting for data ({phase.data.workers} workers)"


def model_phrase(phase: Phase) -> str:
    """``25.6M parameters (SGD)``; empty without parameters."""
    parameters = sum(optimizer.parameters for optimizer in phase.optimizers)
    names = "+".join(dict.fromkeys(optimizer.name for optimizer in phase.optimizers))
    return f"{format_count(parameters)} parameters ({names})" if parameters else ""


def prediction_notes(verdict: Verdict) -> list[str]:
    """What to know about the figures of the best offers."""
    found = []
    for kind, prediction in (("CPU", verdict.best_cpu), ("GPU", verdict.best_gpu)):
        found += [f"The {kind} figure: {note}." for note in (prediction.notes if prediction else ())]
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
