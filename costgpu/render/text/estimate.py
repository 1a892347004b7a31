"""A verdict as text and as a JSON document.

One file of more than 400 lines: the parts of one screen.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from costgpu.estimator.spot import interruption_sentences, interruption_words
from costgpu.models.prediction import Prediction, Provenance, Service, Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.providers import registry
from costgpu.render.document import document, json_object, json_value, picked
from costgpu.render.phrases import (
    TERM_PHRASES,
    THIS_MACHINE,
    extra_phrase,
    model_phrase,
    notes_of,
    own_price_notes,
    price_mark,
    short_offer_name,
    steps_phrase,
    waiting_phrase,
    with_article,
)
from costgpu.render.text.blocks import Block, clipped, everything, one_screen, paragraph
from costgpu.render.text.inference import (
    inference_rows,
    inference_text,
    inference_values,
    pays_from_value,
    phase_values,
)
from costgpu.render.text.layout import WIDTH, columns, cut, fold, fold_before, wrap
from costgpu.render.text.offers import day_span, image_notes, offer_value, price_age_days
from costgpu.render.text.service import service_plans, service_text
from costgpu.render.text.several_gpus import scaling_sentences, scaling_value
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
TURNS = 2  # doubts in the headline
UNFIT_TYPES = 3  # that were asked for, told below a table
OWN_PRICES = 2  # of the user's own, told below a table
SHORT_NAME = 32  # columns of a script's name in a short answer
MORE = "Everything, and where each number comes from: --explain"
MEASURED_AGAIN = f"{MORE} (--save measures once)"
LEAST_SECONDS = 0.5e-6  # of a part that is shown: less would be 0 µs


def verdict_text(
    verdict: Verdict,
    profile: WorkloadProfile,
    today: date,
    *,
    explain: bool = False,
    log: str | None = None,
    besides: Sequence[Block] = (),
    service: Service | None = None,
) -> str:
    """Return the answer, what it rests on, and the offers worth a look.

    Args:
        today: The day from which the age of prices is counted.
        explain: Whether to show everything, with where each number comes from, and not what fits one screen.
        log: Where the script's output went; None if nothing was run.
        besides: What follows the table: a chart, advice, a GPU of one's own.
        service: The script as a service, where that was asked for; then its machines are the table.
    """
    blocks = [
        _headline(verdict),
        Block(full=_measured(profile), short=lambda rows: _measured_rows(profile, rows), most=7, least=3),
        _table_block(verdict, today) if service is None else _service_block(service, today),
        _sentences(scaling_sentences(verdict.recommended)),
        Block(full=inference_text(verdict, profile)),
    ]
    if service is None:
        rates = Block(short=lambda rows: inference_rows(verdict, profile, rows), most=9)
        spot = verdict.interruptible
        blocks += [rates, _sentences(interruption_sentences(spot), interruption_words(spot))]
    blocks += [*besides, _doubts(verdict, profile, log), Block(full=_explanation(verdict, profile, today))]
    blocks += [Block(full=f"The script's output: {log}")] if log else []
    return everything(blocks) if explain else one_screen(blocks)


def _headline(verdict: Verdict) -> Block:
    """Return the answer, and what would turn it; where both need more rows than there are, words of the answer give way."""
    every = [doubt.turns for doubt in verdict.doubts if doubt.turns]
    turns = " ".join(every[:TURNS])
    chosen = verdict.recommended.candidate.offer if verdict.recommended is not None else None
    if mark := price_mark(chosen):
        longer = ", and the job may last longer" * (
            verdict.recommended is not None and verdict.recommended.outlasts_own_price
        )
        turns = f"It counts your {mark}{longer}. {turns}".strip()

    def short(rows: int) -> list[str]:
        answer = verdict.headline or verdict.sentence
        return fold_before(answer, f" {turns}", rows) if turns else fold(answer, rows)

    return Block(full=wrap(" ".join([verdict.sentence, *every])), short=short, most=9, least=7)


def _sentences(full: Sequence[str], short: str = "") -> Block:
    """Return a paragraph whose first sentence is its short form, unless that is given."""
    if not full:
        return Block()
    return replace(paragraph(short or full[0], 3, 2), full=wrap(" ".join(full)))


def _doubts(verdict: Verdict, profile: WorkloadProfile, log: str | None) -> Block:
    """Return the doubts that would not turn the answer in one row, the most important first, and where to read more.

    All notes.
    """
    notes = notes_of(verdict, profile)
    turning = [doubt for doubt in verdict.doubts if doubt.turns][:TURNS]
    doubts = [doubt.words for doubt in verdict.doubts if doubt.words and doubt not in turning]
    said = [doubt.said for doubt in verdict.doubts if doubt.said]
    others = sum(not any(words in note.lower() for words in said) for note in notes)

    def line(count: int) -> str:
        rest = len(doubts) - count + others
        more = [f"and {rest} more: --explain"] if rest else []
        return f"Doubts: {'; '.join([*doubts[:count], *more])}"

    def short(rows: int) -> list[str]:
        fitting = [line(count) for count in range(1, len(doubts) + 1) if columns(line(count)) <= WIDTH]
        first = fitting[-1:] or [row for doubt in doubts[:1] for row in fold(f"Doubts: {doubt}", 1)]
        first = first or ([f"Notes on these figures: {others}, with --explain"] if others else [])
        said = f"Its output: {log}"
        folder, _, name = said.rpartition("/")
        where = [said] if columns(said) <= WIDTH else [*fold(f"{folder}/", 2), *fold(name, 1)]
        return ([*first, MEASURED_AGAIN, *where] if log else [*first, MORE])[: max(0, rows)]

    lines = [wrap(f"Doubts: {'; '.join(doubts)}.")] if doubts else []
    return Block(full="\n".join([*lines, *(wrap(note, "- ") for note in notes)]), short=short, most=5, least=5)


def _measured_rows(profile: WorkloadProfile, most: int) -> list[str]:
    """Return the same in so many rows: of several phases the last one, and what was measured of it."""
    last, count = profile.phases[-1], len(profile.phases)
    name = cut(profile.script, SHORT_NAME)
    phases = f" ({count} phases, the last at {cut(last.label, SHORT_NAME)})" if count > 1 else ""
    total = fold(f"{name}{phases}: {steps_phrase(last)}: {last.total.how}.", max(0, min(2, most - 2)))
    step, *beside = _step_lines(profile)
    rows = [*total, *fold(step, min(3, most - len(total)))]
    return [*rows, *(fold(beside[0], min(2, most - len(rows))) if beside else [])]


def _measured(profile: WorkloadProfile) -> str:
    """Return how long the script runs, by its loops, and what a step was measured to take."""
    lines = []
    for phase in profile.phases:
        place = "" if phase.label == profile.script else f" ({phase.label})"
        lines.append(wrap(f"{profile.script}{place}: {steps_phrase(phase)}: {phase.total.how}."))
    return "\n".join([*lines, *map(wrap, _step_lines(profile))])


def _step_lines(profile: WorkloadProfile) -> list[str]:
    """Return what a step of the last phase takes here, and what comes beside the steps."""
    last = profile.phases[-1]
    step = last.step
    where = f"{profile.machine.cores} cores of {profile.machine.cpu_model}"
    size = model_phrase(last)
    if not step.count:
        mean = format_duration(step.seconds)
        return [f"Not measured: {size}; on {where} {with_article(last.unit.name)} would take about {mean}."]
    how = "median" if step.by_median else "mean"
    facts = [f"{format_duration(step.seconds)} {with_article(last.unit.name)} ({how} of {step.count})"]
    if step.count == 1 and profile.ended:
        facts = [f"{format_duration(step.seconds)} for the {last.unit.name}"]
    if waiting := waiting_phrase(last):
        facts.append(waiting)
    if profile.setup_seconds > 0:
        facts.append(f"set-up {format_duration(profile.setup_seconds)}")
    if size:
        facts.append(size)
    lines = [f"Measured on {where}: {', '.join(facts)}."]
    if last.extras:
        extras = "; ".join(extra_phrase(extra, last.unit.name) for extra in last.extras)
        lines.append(f"Beside the {plural_unit(last.unit.name)}: {extras}.")
    return lines


def _name(prediction: Prediction) -> str:
    """``aws/us-east-1 g6.xlarge 1xL4 spot (measured)``; ``=`` after an own price, ``^`` where no public image boots."""
    offer = prediction.candidate.offer
    if offer is None:
        return THIS_MACHINE
    measured = " (measured)" if prediction.provenance is Provenance.MEASURED else ""
    own_image = "^" * registry.needs_own_image(offer)
    own_price = "=" * (offer.own_price is not None)
    return f"{short_offer_name(prediction, f'/{offer.region}')}{own_price}{own_image}{measured}"


def _table_block(verdict: Verdict, today: date) -> Block:
    rows = [verdict.here, *verdict.table]
    unfit = [
        cut(f"  > {one.candidate.offer.instance_type} will not do: {one.infeasible}.", WIDTH)
        for one in verdict.asked
        if one.infeasible and one.candidate.offer is not None
    ][:UNFIT_TYPES]

    def short(most: int) -> list[str]:
        for keep in range(len(rows), 0, -1):
            lines = _table(verdict, _telling(verdict, keep), today) + unfit
            if keep < len(rows):
                lines.append(f"  {len(rows) - keep} more: --explain")
            if len(lines) <= most:
                return lines
        return []

    return Block(full="\n".join(_table(verdict, rows, today)), short=short, most=15, least=8)


def _telling(verdict: Verdict, keep: int) -> list[Prediction]:
    """As many rows of the table: the recommendation, this machine, the best offers, what was asked for, then the others."""
    first = [verdict.recommended, verdict.here, verdict.best_gpu, verdict.best_cpu, *verdict.asked]
    rows = [verdict.here, *verdict.table]
    ranks = {id(one): rank for rank, one in reversed(list(enumerate(first)))}
    kept = sorted(rows, key=lambda one: ranks.get(id(one), len(first)))[:keep]
    return [one for one in rows if any(one is other for other in kept)]


def _service_block(service: Service, today: date) -> Block:
    served = [one.prediction for one in service_plans(service)]
    lines = _with_legend(service_text(service).splitlines(), served, today)
    return Block(full="\n".join(lines), short=lambda rows: clipped("\n".join(lines), rows), most=15, least=8)


def _table(verdict: Verdict, rows: Sequence[Prediction], today: date) -> list[str]:
    """Return the lines of the table with these rows of it."""
    boot = ", boot included" if verdict.unit == "the whole job" else ""
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
    return _with_legend(lines, rows, today)


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
    listed = [offer for offer in offers if offer.own_price is None]
    ages = sorted({price_age_days(offer, today) for offer in listed})
    age = f"{ages[0]}-{ages[-1]}" if len(ages) > 1 else f"{ages[0]}" if ages else ""
    days = day_span([offer.price_as_of for offer in listed]) if listed else ""
    prices = f"Prices of {days}: {age} days old. " if listed else ""
    notes = own_price_notes(offers)
    own = [row for note in notes[:OWN_PRICES] for row in fold(f"= {note}", 2, "  ")]
    own += [f"  = and {len(notes) - OWN_PRICES} more: costgpu prices list"] * (len(notes) > OWN_PRICES)
    asked = ["  > was asked for with -t."] if any(line.startswith(">") for line in lines) else []
    images = [f"  {note}" for note in image_notes(offers)]
    return [*lines, f"  {prices}* is the recommendation.", *own, *asked, *images]


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
    """Return how the time and price of one candidate came about."""
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
    """Return the versioned document, with the parts in `besides`; amounts in seconds and US dollars, the trace left out."""
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
            "doubts": [picked(doubt, "words", "turns") for doubt in verdict.doubts],
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
        names = ("rate", "checkpoints", "restart_seconds", "interval_seconds", "best_interval_seconds", "expected")
        more = ("undisturbed_seconds", "best_seconds", "bare_seconds")
        value["interruptions"] = picked(prediction.interruptions, *names, *more)
    if offer is not None:
        value["offer"] = offer_value(offer, today)
    return json_object(value)
