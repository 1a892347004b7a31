"""A verdict as text and as a JSON document."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from costgpu.estimator.spot_words import interruption_sentences
from costgpu.models.prediction import Interruptions, Prediction, Provenance, Service, Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.providers import registry
from costgpu.render.document import document, json_object, json_value, picked
from costgpu.render.phrases import (
    TERM_PHRASES,
    THIS_MACHINE,
    extra_phrase,
    model_phrase,
    notes_of,
    short_offer_name,
    steps_phrase,
    waiting_phrase,
    with_article,
)
from costgpu.render.text.inference import inference_text, inference_values, pays_from_value, phase_values
from costgpu.render.text.layout import WIDTH, wrap
from costgpu.render.text.offers import day_span, image_notes, offer_value, price_age_days
from costgpu.render.text.scaling import scaling_sentences, scaling_value
from costgpu.render.text.service import service_plans, service_text
from costgpu.units import (
    format_bare_usd,
    format_duration,
    format_free,
    format_number,
    format_ratio,
    format_usd,
    plural_unit,
)

SCHEMA = "costgpu.verdict"
NAME_WIDTH, SPAN_WIDTH = 43, 15
LEAST_SECONDS = 0.5e-6  # of a part that is shown: less would be 0 µs


def verdict_text(
    verdict: Verdict,
    profile: WorkloadProfile,
    today: date,
    *,
    explain: bool = False,
    log: str | None = None,
    besides: Sequence[str] = (),
    service: Service | None = None,
) -> str:
    """The answer, what it rests on, and the offers worth a look.

    Args:
        today: The day from which the age of prices is counted.
        explain: Whether to show every term and where each number comes from.
        log: Where the script's output went; None if nothing was run.
        besides: Blocks of text that follow the table: a chart, advice, a GPU of one's own.
        service: The script as a service, where that was asked for; then its machines are the table.
    """
    blocks = [wrap(verdict.sentence), _measured(profile)]
    if service is None:
        blocks.append(_table(verdict, today))
    else:
        served = [one.prediction for one in service_plans(service)]
        blocks.append("\n".join(_with_legend(service_text(service).splitlines(), served, today)))
    if scaling := scaling_sentences(verdict.recommended):
        blocks.append(wrap(" ".join(scaling)))
    if rates := inference_text(verdict, profile):
        blocks.append(rates)
    if service is None and (interruptions := interruption_sentences(verdict.interruptible)):
        blocks.append(wrap(" ".join(interruptions)))
    blocks += besides
    if notes := notes_of(verdict, profile):
        blocks.append("\n".join(wrap(note, "- ") for note in notes))
    if explain:
        blocks.append(_explanation(verdict, profile, today))
    if log:
        blocks.append(f"The script's output: {log}")
    return "\n\n".join(blocks)


def _measured(profile: WorkloadProfile) -> str:
    """How long the script runs, by its loops, and what a step was measured to take."""
    lines = []
    for phase in profile.phases:
        place = "" if phase.label == profile.script else f" ({phase.label})"
        lines.append(wrap(f"{profile.script}{place}: {steps_phrase(phase)}: {phase.total.how}."))
    last = profile.phases[-1]
    step = last.step
    where = f"{profile.machine.cores} cores of {profile.machine.cpu_model}"
    if not step.count:
        mean = format_duration(step.seconds)
        size = model_phrase(last)
        lines.append(wrap(f"Not measured: {size}; on {where} {with_article(last.unit)} would take about {mean}."))
        return "\n".join(lines)
    how = "median" if step.by_median else "mean"
    facts = [f"{format_duration(step.seconds)} {with_article(last.unit)} ({how} of {step.count})"]
    if step.count == 1 and profile.ended:
        facts = [f"{format_duration(step.seconds)} for the {last.unit}"]
    if waiting := waiting_phrase(last):
        facts.append(waiting)
    if profile.setup_seconds > 0:
        facts.append(f"set-up {format_duration(profile.setup_seconds)}")
    if size := model_phrase(last):
        facts.append(size)
    lines.append(wrap(f"Measured on {where}: {', '.join(facts)}."))
    if last.extras:
        extras = "; ".join(extra_phrase(extra, last.unit) for extra in last.extras)
        lines.append(wrap(f"Beside the {plural_unit(last.unit)}: {extras}."))
    return "\n".join(lines)


def _name(prediction: Prediction) -> str:
    """``aws/us-east-1 g6.xlarge 1xL4 spot (measured)``; ``^`` after a machine that boots no public image."""
    offer = prediction.candidate.offer
    if offer is None:
        return THIS_MACHINE
    measured = " (measured)" if prediction.provenance is Provenance.MEASURED else ""
    own_image = "^" * registry.needs_own_image(offer)
    return f"{short_offer_name(prediction, f'/{offer.region}')}{own_image}{measured}"


def _table(verdict: Verdict, today: date) -> str:
    boot = ", boot included" if verdict.unit == "the whole job" else ""
    rows = [verdict.here, *verdict.table]
    clocked = any(p.time_limit is not None and p.time_limit.reached for p in rows)
    spans = {id(p): _steps_made(p) if clocked else _cost_span(p) for p in rows}
    width = NAME_WIDTH - max(0, max(map(len, spans.values())) - SPAN_WIDTH)
    last = "steps" if clocked else "80 %"
    lines = [f"For {verdict.unit}{boot}:", _table_line("  ", "", "time", "cost", last, width)]
    for prediction in rows:
        usd = format_usd(prediction.cost_usd.value) if prediction.candidate.offer else format_free()
        asked = any(prediction is one for one in verdict.asked)
        mark = "* " if prediction is verdict.recommended else "> " if asked else "  "
        name = _name(prediction)
        if len(name) > width:
            lines.append(f"{mark}{name}")
            mark = name = ""
        time = format_duration(prediction.wall_seconds.value)
        lines.append(_table_line(mark, name, time, usd, spans[id(prediction)], width))
    return "\n".join(_with_legend(lines, rows, today))


def _cost_span(prediction: Prediction) -> str:
    """``$0.11-0.15``; empty for this machine."""
    usd = prediction.cost_usd
    return f"{format_usd(usd.low)}-{format_bare_usd(usd.high)}" if prediction.candidate.offer else ""


def _steps_made(prediction: Prediction) -> str:
    """``4.5M [3.9M-5.2M]``: the steps of a job that its own clock ends."""
    if prediction.time_limit is None:
        return ""
    made = prediction.time_limit.steps
    return f"{format_number(made.value)} [{format_number(made.low)}-{format_number(made.high)}]"


def _with_legend(lines: list[str], rows: Sequence[Prediction], today: date) -> list[str]:
    """Add to a table how old its prices are, if it has offers, and what its marks mean."""
    offers = [p.candidate.offer for p in rows if p.candidate.offer is not None]
    if not offers:
        return lines
    ages = sorted({price_age_days(offer, today) for offer in offers})
    age = f"{ages[0]}-{ages[-1]}" if len(ages) > 1 else f"{ages[0]}"
    days = day_span([offer.price_as_of for offer in offers])
    asked = ["  > was asked for with -t."] if any(line.startswith(">") for line in lines) else []
    images = [f"  {note}" for note in image_notes(offers)]
    return [*lines, f"  Prices of {days}: {age} days old. * is the recommendation.", *asked, *images]


def _table_line(mark: str, name: str, time: str, cost: str, interval: str, width: int) -> str:
    rest = NAME_WIDTH + SPAN_WIDTH - width
    return f"{mark:2}{name:{width}} {time:>9} {cost:>8} {interval:>{rest}}".rstrip()


def _explanation(verdict: Verdict, profile: WorkloadProfile, today: date) -> str:
    lines = ["How each number came about"]
    shown = (("This machine", verdict.here), ("Best CPU", verdict.best_cpu), ("Best GPU", verdict.best_gpu))
    for title, prediction in shown:
        lines += _terms(title, prediction, today) if prediction else [f"  {title}: no offer is possible"]
    speedup = verdict.speedup_range
    if speedup is not None and verdict.premium is not None and verdict.break_even is not None:
        even = "none" if math.isinf(verdict.break_even) else format_ratio(verdict.break_even)
        lines.append(
            f"  speed-up {format_ratio(speedup.value)} [{format_ratio(speedup.low)}-{format_ratio(speedup.high)}],"
            f" premium {format_ratio(verdict.premium)}, break-even {even},"
            f" P(GPU cheaper) {verdict.probability_gpu_cheaper:.0%}"
        )
    machine = profile.machine
    speed = f"{machine.gemm_gflops:.0f} GFLOP/s fp32 (low {machine.gemm_gflops_low:.0f})"
    if machine.conv_gflops:
        speed += f", {machine.conv_gflops:.0f} in convolutions"
    if machine.single_thread_mbps:
        speed += f", {machine.single_thread_mbps:.0f} MB/s of bzip2 on one thread"
    loops = [f"    {textwrap.shorten(loop, WIDTH - 4, placeholder=' …')}" for loop in profile.phases[-1].total.loops]
    return "\n".join(
        [
            *lines,
            "  loops around the step, outermost first:",
            *(loops or ["    none"]),
            "  GPU steps: models fitted on public measurements (benchmarks/accuracy.py)",
            "  CPU steps: scaled from the measurement here by published CPU figures",
            wrap(
                f"this machine: {speed}, {machine.copy_gbps:.0f} GB/s, {machine.op_seconds * 1e6:.1f} µs a call", "  "
            ),
        ]
    )


def _terms(title: str, prediction: Prediction, today: date) -> list[str]:
    """How the time and price of one candidate came about."""
    offer = prediction.candidate.offer
    step, run = format_duration(prediction.step_seconds), format_duration(prediction.run_seconds.value)
    terms = {TERM_PHRASES.get(name, name): seconds for name, seconds in prediction.terms.items()}
    lines = [
        f"  {title}: {_name(prediction)}",
        f"    one step: {step} ({prediction.provenance.value})",
        *_shares(terms),
        f"    the run: {run}",
        *_shares(prediction.parts),
    ]
    if offer is not None:
        boot, price = format_duration(prediction.overhead_seconds), format_usd(offer.price_usd_per_hour)
        if prediction.overhead_seconds > 0:
            lines.append(f"    boot and installation: {boot} (published figures)")
        age = price_age_days(offer, today)
        lines.append(wrap(f"price: {price}/h, {offer.price_source}, {offer.price_as_of} ({age} d)", "    "))
    return lines


def _shares(parts: Mapping[str, float]) -> list[str]:
    whole = sum(parts.values()) or 1.0
    return [
        f"      {seconds / whole:5.0%} {format_duration(seconds):>8}  {name}"
        for name, seconds in parts.items()
        if seconds >= LEAST_SECONDS
    ]


def verdict_json(
    verdict: Verdict, profile: WorkloadProfile, today: date, *, besides: Mapping[str, Any] | None = None
) -> str:
    """The versioned document, with the parts in `besides`; amounts in seconds and US dollars, the trace left out."""
    workload = json_value(profile)
    for phase in workload["phases"]:
        phase.pop("ops")
    return document(
        SCHEMA,
        format=SCHEMA,  # the name of the key `schema` in version 1
        verdict={
            **picked(verdict, "choice", "sentence", "unit", "speedup", "speedup_range", "premium"),
            "break_even_speedup": verdict.break_even,
            "probability_gpu_cheaper": verdict.probability_gpu_cheaper,
            "settle": verdict.settle or None,
            "notes": [*profile.notes, *verdict.notes],
        },
        here=prediction_value(verdict.here, today),
        best_cpu=prediction_value(verdict.best_cpu, today),
        best_gpu=prediction_value(verdict.best_gpu, today),
        recommended=prediction_value(verdict.recommended, today),
        table=[prediction_value(prediction, today) for prediction in verdict.table],
        asked=[{**(prediction_value(one, today) or {}), "infeasible": one.infeasible or None} for one in verdict.asked],
        inference=inference_values(verdict, profile),
        pays_from=[pays_from_value(one) for one in verdict.pays_from],
        workload=workload,
        **(besides or {}),
    )


def prediction_value(prediction: Prediction | None, today: date) -> dict[str, Any] | None:
    """One prediction as JSON values."""
    if prediction is None:
        return None
    offer = prediction.candidate.offer
    value: dict[str, Any] = {
        "where": "offer" if offer else "here",
        **picked(prediction, "step_seconds", "run_seconds", "overhead_seconds", "wall_seconds", "cost_usd"),
        **scaling_value(prediction),
        "terms_seconds": prediction.terms,
        "parts_seconds": prediction.parts,
        "phases": phase_values(prediction.phases),
        **picked(prediction, "provenance", "notes"),
    }
    if prediction.time_limit is not None:
        value["time_limit"] = prediction.time_limit
    if prediction.interruptions is not None:
        value["interruptions"] = _interruptions_value(prediction.interruptions)
    if offer is not None:
        value["offer"] = offer_value(offer, today)
    return json_object(value)


def _interruptions_value(found: Interruptions) -> dict[str, Any]:
    """Rates are per hour that a machine runs; what was assumed says so in `basis`."""
    return {
        "rate": found.rate,
        "checkpoints": found.checkpoints,
        **picked(found, "restart_seconds", "interval_seconds", "best_interval_seconds", "expected"),
        "undisturbed_seconds": found.undisturbed_seconds,
        **picked(found, "best_seconds", "bare_seconds"),
    }
