"""A verdict as text for a terminal of 80 columns, and as a JSON document. Result -> str; no I/O."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from enum import Enum
from typing import Any

from costgpu.models.offer import Offer
from costgpu.models.prediction import Prediction, Provenance, Verdict
from costgpu.models.workload import Extra, Phase, Rhythm, TotalKind, WorkloadProfile
from costgpu.units import format_count, format_duration, format_ratio, format_usd

WIDTH = 80
FORMAT, VERSION = "costgpu.verdict", 1
TERM_WORDS = {
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


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_on_hyphens=False,
        break_long_words=False,
    )


def verdict_text(
    verdict: Verdict,
    profile: WorkloadProfile,
    today: date,
    *,
    explain: bool = False,
    log: str | None = None,
    besides: Sequence[str] = (),
) -> str:
    """The answer, what it rests on, and the offers worth a look.

    Args:
        verdict: The answer.
        profile: The workload.
        today: From which the age of prices is counted.
        explain: Show every term and where each number comes from.
        log: Where the script's output went; None if nothing was run.
        besides: Blocks of text that follow the table: a chart, advice, a GPU of one's own.
    """
    blocks = [_wrap(verdict.sentence), _measured(profile), _table(verdict, today)]
    blocks += besides
    notes = list(dict.fromkeys([*profile.notes, *verdict.notes, *_offer_notes(verdict)]))
    if notes:
        blocks.append("\n".join(_wrap(note, "- ") for note in notes))
    if explain:
        blocks.append(_explanation(verdict, profile, today))
    if log:
        blocks.append(f"The script's output: {log}")
    return "\n\n".join(blocks)


def _offer_notes(verdict: Verdict) -> list[str]:
    found = []
    for word, prediction in (("CPU", verdict.best_cpu), ("GPU", verdict.best_gpu)):
        if prediction is not None:
            found += [f"The {word} figure: {note}." for note in prediction.notes]
    return found


def _measured(profile: WorkloadProfile) -> str:
    lines = []
    for phase in profile.phases:
        total = phase.total
        if total.kind in (TotalKind.EXACT, TotalKind.APPROXIMATE, TotalKind.UPPER_BOUND):
            most = {TotalKind.UPPER_BOUND: "at most ", TotalKind.APPROXIMATE: "about "}.get(total.kind, "")
            count = f"{most}{total.steps:,.0f} {units(phase, total.steps)}" if total.steps else "no steps"
            if total.steps and total.steps_per_epoch and total.steps > total.steps_per_epoch:
                epochs = total.steps / total.steps_per_epoch
                count += f" in {_number(epochs)} epochs"
        elif total.kind is TotalKind.UNBOUNDED:
            count = "runs until it is stopped"
        else:
            count = f"an unknown number of {units(phase)}"
        place = "" if phase.label == profile.script else f" ({phase.label})"
        lines.append(_wrap(f"{profile.script}{place}: {count}: {total.how}."))
    last = profile.phases[-1]
    step = last.step
    if not step.count:
        where = f"{profile.machine.cores} cores of {profile.machine.cpu_model}"
        lines.append(
            _wrap(
                f"Not measured: {_size(last)}; on {where} a {last.unit} would take about"
                f" {format_duration(step.mean_seconds)}."
            )
        )
        return "\n".join(lines)
    facts = [f"{format_duration(step.median_seconds)} {_a(last.unit)} (median of {step.count})"]
    if step.count == 1 and profile.ended:
        facts = [f"{format_duration(step.median_seconds)} for the {last.unit}"]
    if last.data.batches_per_step:
        wait = last.data.wait_seconds_per_step / step.mean_seconds if step.mean_seconds else 0.0
        facts.append(f"{wait:.0%} of it waiting for data ({last.data.workers} workers)")
    if profile.setup_seconds > 0:
        facts.append(f"set-up {format_duration(profile.setup_seconds)}")
    if any(o.parameters for o in last.optimizers):
        facts.append(_size(last))
    lines.append(
        _wrap(f"Measured on {profile.machine.cores} cores of {profile.machine.cpu_model}: {', '.join(facts)}.")
    )
    if last.extras:
        lines.append(_wrap(f"Beside the {units(last)}: " + "; ".join(_extra(e, last) for e in last.extras) + "."))
    return "\n".join(lines)


def _size(phase: Phase) -> str:
    parameters = sum(o.parameters for o in phase.optimizers)
    names = "+".join(dict.fromkeys(o.name for o in phase.optimizers))
    return f"{format_count(parameters)} parameters ({names})"


def units(phase: Phase, count: float = 2) -> str:
    """``steps``, ``trees``, ``iterations``: the word for so many."""
    sibilant = phase.unit.endswith(("ch", "sh", "s", "x")) and phase.unit != "epoch"
    return phase.unit if count == 1 else f"{phase.unit}{'es' if sibilant else 's'}"


def _a(word: str) -> str:
    return f"an {word}" if word[:1] in "aeiou" else f"a {word}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _extra(extra: Extra, phase: Phase) -> str:
    each = "epoch" if extra.rhythm is Rhythm.EPOCH else phase.unit
    several = "epochs" if extra.rhythm is Rhythm.EPOCH else units(phase)
    every = f"every {each}" if extra.every == 1 else f"every {_number(extra.every)} {several}"
    every = "once" if extra.rhythm is Rhythm.RUN else every
    word = extra.kind.value.replace("_", " ")
    return f"{word} {format_duration(extra.seconds_each)} {every}" + ("" if extra.measured else " (inferred)")


def _where(prediction: Prediction) -> str:
    offer = prediction.candidate.offer
    if offer is None:
        return "this machine"
    gpu = ""
    if offer.accelerator is not None:
        gpu = f" {offer.accelerator.count:g}x{offer.accelerator.name}"
    spot = " spot" if offer.purchase_option.value == "spot" else ""
    measured = " (measured)" if prediction.provenance is Provenance.MEASURED else ""
    return f"{offer.provider}/{offer.region} {offer.instance_type}{gpu}{spot}{measured}"


def _age(offer: Offer, today: date) -> str:
    return f"{max(0, (today - offer.price_as_of).days)} d"


def _table(verdict: Verdict, today: date) -> str:
    head = f"{'':2}{'':43} {'time':>9} {'cost':>8} {'80 %':>15}"
    lines = [
        f"For {verdict.unit}, boot included:" if verdict.unit == "the whole job" else f"For {verdict.unit}:",
        head,
    ]
    rows = [verdict.here, *verdict.table]
    for prediction in rows:
        mark = "*" if prediction is verdict.recommended else " "
        cost = prediction.cost_usd
        if prediction.candidate.offer is None:
            amounts = f"{'$0':>8} {'':>15}"
        else:
            span = f"{format_usd(cost.low)}-{format_usd(cost.high)[1:]}"
            amounts = f"{format_usd(cost.value):>8} {span:>15}"
        name = _where(prediction)
        time = format_duration(prediction.wall_seconds.value)
        if len(name) > 43:
            lines.append(f"{mark} {name}")
            name, mark = "", " "
        lines.append(f"{mark} {name:43} {time:>9} {amounts}".rstrip())
    offers = [p.candidate.offer for p in rows if p.candidate.offer is not None]
    if offers:
        newest, oldest = max(o.price_as_of for o in offers), min(o.price_as_of for o in offers)
        age = f"{(today - newest).days}" if newest == oldest else f"{(today - newest).days}-{(today - oldest).days}"
        when = f"{oldest}" if newest == oldest else f"{oldest} to {newest}"
        lines.append(f"  Prices of {when}: {age} days old. * is the recommendation.")
    return "\n".join(lines)


def _explanation(verdict: Verdict, profile: WorkloadProfile, today: date) -> str:
    lines = ["How each number came about"]
    for title, prediction in (
        ("This machine", verdict.here),
        ("Best CPU", verdict.best_cpu),
        ("Best GPU", verdict.best_gpu),
    ):
        if prediction is None:
            lines.append(f"  {title}: no offer is possible")
            continue
        offer = prediction.candidate.offer
        lines.append(f"  {title}: {_where(prediction)}")
        lines.append(f"    one step: {format_duration(prediction.step_seconds)} ({prediction.provenance.value})")
        whole = sum(prediction.terms.values()) or 1.0
        for name, seconds in prediction.terms.items():
            if seconds > 0:
                lines.append(
                    f"      {seconds / whole:5.0%} {format_duration(seconds):>8}  {TERM_WORDS.get(name, name)}"
                )
        lines.append("    the run: " + format_duration(prediction.run_seconds.value))
        run = sum(prediction.parts.values()) or 1.0
        for name, seconds in prediction.parts.items():
            if seconds > 0:
                lines.append(f"      {seconds / run:5.0%} {format_duration(seconds):>8}  {name}")
        if offer is not None:
            lines.append(
                f"    boot and installation: {format_duration(prediction.overhead_seconds)} (published figures)"
            )
            price = f"    price: {format_usd(offer.price_usd_per_hour)}/h, {offer.price_source}, {offer.price_as_of}"
            lines.append(f"{price} ({_age(offer, today)})")
    if verdict.speedup is not None and verdict.premium is not None and verdict.break_even is not None:
        even = "none" if math.isinf(verdict.break_even) else format_ratio(verdict.break_even)
        lines.append(
            f"  speed-up {format_ratio(verdict.speedup)}, premium {format_ratio(verdict.premium)}, break-even {even},"
            f" P(GPU cheaper) {verdict.probability_gpu_cheaper:.0%}"
        )
    lines += ["  loops around the step, outermost first:"]
    lines += [textwrap.shorten(f"    {loop}", WIDTH, placeholder=" …") for loop in profile.phases[-1].total.loops] or [
        "    none"
    ]
    lines.append("  GPU steps: four-term model fitted on public measurements (benchmarks/accuracy.py)")
    lines.append("  CPU steps: scaled from the measurement here by published CPU figures")
    machine = profile.machine
    lines.append(
        f"  this machine: {machine.gemm_gflops:.0f} GFLOP/s fp32 (low {machine.gemm_gflops_low:.0f}),"
        f" {machine.copy_gbps:.0f} GB/s, {machine.op_seconds * 1e6:.1f} µs a call"
    )
    return "\n".join(lines)


def verdict_json(
    verdict: Verdict, profile: WorkloadProfile, today: date, *, besides: Mapping[str, Any] | None = None
) -> str:
    """The versioned document; amounts in seconds and US dollars, the trace left out; `besides` is put beside it."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "verdict": {
            "choice": verdict.choice.value,
            "sentence": verdict.sentence,
            "unit": verdict.unit,
            "speedup": verdict.speedup,
            "premium": verdict.premium,
            "break_even_speedup": _finite(verdict.break_even),
            "probability_gpu_cheaper": verdict.probability_gpu_cheaper,
            "settle": verdict.settle or None,
            "notes": [*profile.notes, *verdict.notes],
        },
        "here": prediction_document(verdict.here, today),
        "best_cpu": prediction_document(verdict.best_cpu, today),
        "best_gpu": prediction_document(verdict.best_gpu, today),
        "recommended": prediction_document(verdict.recommended, today),
        "table": [prediction_document(p, today) for p in verdict.table],
        "workload": _workload(profile),
        **(besides or {}),
    }
    return json.dumps(document, indent=2)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _workload(profile: WorkloadProfile) -> dict[str, Any]:
    whole = asdict(profile)
    for phase in whole["phases"]:
        phase.pop("ops")
    return dict(_plain(whole))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def prediction_document(prediction: Prediction | None, today: date) -> dict[str, Any] | None:
    """One prediction as JSON-ready values."""
    if prediction is None:
        return None
    offer = prediction.candidate.offer
    document: dict[str, Any] = {
        "where": "offer" if offer else "here",
        "step_seconds": prediction.step_seconds,
        "run_seconds": asdict(prediction.run_seconds),
        "overhead_seconds": prediction.overhead_seconds,
        "wall_seconds": asdict(prediction.wall_seconds),
        "cost_usd": asdict(prediction.cost_usd),
        "terms_seconds": prediction.terms,
        "parts_seconds": prediction.parts,
        "provenance": prediction.provenance.value,
        "notes": list(prediction.notes),
    }
    if offer is not None:
        document["offer"] = {
            "provider": offer.provider,
            "region": offer.region,
            "zone": offer.zone,
            "instance_type": offer.instance_type,
            "purchase_option": offer.purchase_option.value,
            "price_usd_per_hour": str(offer.price_usd_per_hour),
            "price_source": offer.price_source,
            "price_as_of": offer.price_as_of.isoformat(),
            "price_age_days": (today - offer.price_as_of).days,
            "vcpus": offer.vcpus,
            "memory_gib": offer.memory_gib,
            "accelerator": asdict(offer.accelerator) if offer.accelerator else None,
        }
    return document
