"""A verdict's page, the part about how long the script runs: its loops, and how the total was found. Result -> str."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from costgpu.models.workload import Extra, Phase, Rhythm, TotalKind, WorkloadProfile
from costgpu.render.html import elements
from costgpu.units import format_count, format_duration

LEAST_STEPS = 5  # for tenths of them to mean anything
LONGEST_SAID = 1200  # of a sentence


def said(words: str) -> str:
    """A sentence from outside, as HTML."""
    return escape(elements.plain(words, LONGEST_SAID))


def span(low: float, high: float) -> str:
    """``12 min – 1.3 h``."""
    return f"{format_duration(low)} – {format_duration(high)}"


def length_html(profile: WorkloadProfile) -> str:
    """The section about the number of steps, and the loops around them."""
    parts = [_phase(phase, single=len(profile.phases) == 1) for phase in profile.phases]
    for later in profile.later_phases:
        steps = f"{later.steps:,.0f} steps" if later.steps is not None else "an unknown number of steps"
        parts.append(f"<p>Later, not measured: {elements.text(later.label)}, {steps}.</p>")
    return elements.section("How long the script runs, and how that was found", "", "".join(parts))


def _phase(phase: Phase, *, single: bool) -> str:
    total, unit = phase.total, phase.unit or "step"
    plural = f"{unit}s"
    if total.steps is not None and total.kind not in (TotalKind.UNBOUNDED, TotalKind.UNKNOWN):
        most = {TotalKind.UPPER_BOUND: "at most ", TotalKind.APPROXIMATE: "about "}.get(total.kind, "")
        count = f"{most}{total.steps:,.0f} {plural}"
        if total.steps_per_epoch and total.steps > total.steps_per_epoch:
            count += f" in {total.steps / total.steps_per_epoch:,.3g} epochs"
    else:
        unbounded = total.kind is TotalKind.UNBOUNDED
        count = "runs until it is stopped" if unbounded else f"an unknown number of {plural}"
    step = phase.step
    took = f"{format_duration(step.median_seconds)} a {unit} here (median of {step.count:,})"
    between = f", eight of ten between {format_duration(step.low_seconds)} and {format_duration(step.high_seconds)}"
    facts = [took + (between if step.count >= LEAST_STEPS else "")]
    if phase.data.batches_per_step and step.mean_seconds > 0:
        wait = elements.share(min(1.0, phase.data.wait_seconds_per_step / step.mean_seconds))
        facts.append(f"{wait} of it waiting for data ({phase.data.workers} workers)")
    parameters = sum(o.parameters for o in phase.optimizers)
    if parameters:
        names = "+".join(dict.fromkeys(o.name for o in phase.optimizers))
        facts.append(f"{format_count(parameters)} parameters ({names})")
    title = "" if single else f"<h3>{elements.text(phase.label)}</h3>"
    extras = "; ".join(extra_words(extra, plural) for extra in phase.extras)
    beside = f"<p>Beside the {said(plural)}: {said(extras)}.</p>" if extras else ""
    reason = f"<p>On a GPU: {said(phase.gpu_reason)}</p>" if phase.gpu_reason else ""
    return (
        f"{title}<p>{said(f'{phase.label}: {count}: {total.how}')}.</p>{_loops(total.loops)}"
        f"<p>{said('; '.join(facts))}.</p>{beside}{reason}"
    )


def extra_words(extra: Extra, units: str = "steps") -> str:
    """``validation 3.1 s every epoch``."""
    word = "epochs" if extra.rhythm is Rhythm.EPOCH else units
    every = f"every {word.removesuffix('s')}" if extra.every == 1 else f"every {extra.every:,.3g} {word}"
    every = "once" if extra.rhythm is Rhythm.RUN else every
    word = extra.kind.value.replace("_", " ")
    return f"{word} {format_duration(extra.seconds_each)} {every}{'' if extra.measured else ' (inferred)'}"


def _loops(loops: Sequence[str]) -> str:
    """The loops around the step, each inside the one before it."""
    if not loops:
        return "<p class='soft'>No loop around the step was seen.</p>"
    inner = "<ol><li>the step</li></ol>"
    for loop in reversed(loops):
        inner = f"<ol><li><code>{elements.text(loop, 200)}</code>{inner}</li></ol>"
    return inner.replace("<ol>", "<ol class='loops'>", 1)
