"""The report of an estimate: everything that its answer rests on, for a terminal and for a page."""

from __future__ import annotations

import math
from datetime import datetime
from functools import partial

from costgpu.estimator.multi_gpu.words import scaling_sentences
from costgpu.estimator.scope import WHOLE_JOB
from costgpu.estimator.spot import interruption_sentences
from costgpu.estimator.throughput import fixed_usd
from costgpu.models.estimate import Estimate
from costgpu.models.prediction import Ownership, Prediction, Service, Verdict
from costgpu.models.provider_costs import HOURS_PER_MONTH
from costgpu.models.workload import Phase, WorkloadProfile
from costgpu.pricing.speedups import speedups
from costgpu.render.estimate.advice import advice_section
from costgpu.render.estimate.memory import memory_section
from costgpu.render.estimate.multi_gpu import efficiency_tiles, scaling_table
from costgpu.render.estimate.own_gpu import COLAB, cents, energy_section, own_name, own_section
from costgpu.render.estimate.speedups import speedup_section
from costgpu.render.estimate.tables import (
    candidates_table,
    month_cell,
    phases_table,
    places_of,
    service_plans,
    service_table,
    shown_places,
    sources_table,
    throughput_tables,
)
from costgpu.render.html.charts import STACK_HEIGHT, Point, Stack, cost_and_time, shares
from costgpu.render.phrases import (
    DRAWN_TERMS,
    TERM_PHRASES,
    THIS_MACHINE,
    day,
    extra_phrase,
    interval,
    model_phrase,
    notes_of,
    offer_name,
    percent,
    steps_phrase,
    visible,
    with_article,
    with_interval,
)
from costgpu.render.report import Figure, ItemList, Part, Report, ReportSection, Tile
from costgpu.render.text.offers import day_span, price_age_days
from costgpu.units import (
    format_duration,
    format_free,
    format_frequency,
    format_percent,
    format_ratio,
    format_usd,
    plural_unit,
)
from costgpu.version import __version__

LONGEST_COMMAND = 300
LEAST_SHARE = 0.005  # of a step, to be in the legend
LEAST_USD = 1e-9  # a cost on a logarithmic axis
LEAST_STEPS = 5  # for tenths of them to mean anything
BELOW = "The table below has the numbers."
FINE_PRINT = (
    "An 80 % interval is one in which the truth lies in eight cases of ten. Costs are what the provider's list price"
    " comes to, without taxes, discounts, free tiers or traffic."
)
LEGEND = (
    ("gpu round", "GPU"),
    ("cpu", "CPU"),
    ("ring", "recommended"),
    ("stroke", "80 % interval: slower costs more"),
    ("front", "no other is cheaper and faster"),
    ("dots", THIS_MACHINE),
)


def estimate_report(found: Estimate) -> Report:
    """Return the report."""
    verdict, profile, service = found.verdict, found.profile, found.service
    own = found.own if found.own is not None and not found.own.prediction.infeasible else None
    turns = [doubt.turns for doubt in verdict.doubts if doubt.turns]
    spot = interruption_sentences(verdict.interruptible) if service is None else []
    made, phases = throughput_tables(verdict, profile), phases_table(verdict, profile)
    by_gpus, several = scaling_table(found.by_gpus, verdict.recommended), scaling_sentences(verdict.recommended)
    doubts = "; ".join(doubt.words for doubt in verdict.doubts if doubt.words)
    notes = [*([f"Doubts: {doubts}."] if doubts else []), *notes_of(verdict, profile)]
    sections = [
        ReportSection(
            title=service_title(service) if service is not None else "",
            introduction="All of them run all month; ★ is the recommendation.",
            parts=_some(service_table(service, found.today) if service is not None else None),
        ),
        _cost_and_time(found, own),
        ReportSection(title="By the number of GPUs", parts=[*_some(" ".join(several)), *_some(by_gpus)]),
        memory_section(found),
        ReportSection(
            title="Phase by phase",
            introduction="Each with its own total; the whole job is their sum, with boot and set-up.",
            parts=_some(phases),
        ),
        ReportSection(
            title="Once it runs, boot and set-up apart",
            introduction="Below each figure is its 80 % interval.",
            parts=[*made, *_some(fixed_words(verdict))] if made else [],
        ),
        ReportSection(title="Interruptions", parts=_some(" ".join(spot))),
        advice_section(found.advice, verdict.unit) if service is None else ReportSection(title=""),
        ReportSection(title="Free of charge", parts=_some(COLAB * found.fits_colab)),
        own_section(found.own, verdict.unit),
        energy_section(found.energy or (), own),
        *_lengths(profile),
        ReportSection(
            title="How each number came about",
            introduction="Each bar is one step of its machine, cut by cause; its length at the right.",
            parts=[*_some(_steps(verdict, own)), sources_table(verdict, found.today, own), ItemList(_basis(found))],
        ),
        *(speedup_section(kind, [row for row in speedups() if row.kind == kind]) for kind in found.looked_up),
        ReportSection(title="What to know", parts=[ItemList(notes)] if notes else []),
    ]
    machine, framework = profile.machine, profile.framework
    command = visible(" ".join([profile.script, *profile.arguments]), LONGEST_COMMAND)
    return Report(
        title=f"Where to run {profile.script}",
        subtitle=f"{command}. Measured {_day(profile.created)} on {machine.cores} cores of {machine.cpu_model}.",
        answer=" ".join([verdict.sentence, *turns]),
        tiles=_tiles(verdict) if service is None else _service_tiles(service),
        sections=sections,
        footer=[
            f"Made {day(found.today)} by costgpu {__version__}. Measured with {framework.name} {framework.version}.",
            FINE_PRINT,
        ],
    )


def _some(part: Part | None) -> list[Part]:
    """Return a part, if there is one."""
    return [part] if part else []


def job_title(verdict: Verdict) -> str:
    """``For the whole job, boot included``."""
    return f"For {verdict.unit}{', boot included' if verdict.unit == WHOLE_JOB else ''}"


def service_title(service: Service) -> str:
    """``For 30 images/s, boot and set-up apart``."""
    return f"For {format_frequency(service.rate_per_second, service.item)}, boot and set-up apart"


def _day(created: str) -> str:
    try:
        return day(datetime.fromisoformat(created).date())
    except ValueError:
        return created


def _tiles(verdict: Verdict) -> list[Tile]:
    tiles: list[Tile] = []
    if (chosen := verdict.recommended) is not None:
        offer, wall, cost, nodes = chosen.candidate.offer, chosen.wall_seconds, chosen.cost_usd, chosen.candidate.nodes
        time = (
            "Time",
            format_duration(wall.value),
            f"80 %: {interval(format_duration(wall.low), format_duration(wall.high))}",
        )
        if offer is None:
            tiles += [("Recommended", THIS_MACHINE, "no rent"), time, ("Cost", format_free(), f"of {verdict.unit}")]
        else:
            chips = offer.accelerator
            gpus = f", {nodes * chips.count:g}× {visible(chips.name)}" if chips else ""
            machine = f"{nodes}× {offer.instance_type}" if nodes > 1 else offer.instance_type
            span = f"80 %: {interval(format_usd(cost.low), format_usd(cost.high))}"
            tiles.append(("Recommended", machine, f"{visible(offer.provider)}, {visible(offer.region)}{gpus}"))
            tiles += [time, ("Cost", format_usd(cost.value), span)]
        tiles += efficiency_tiles(chosen)
    speedup = verdict.speedup_range
    if speedup is not None and verdict.premium is not None and verdict.break_even is not None:
        even = "never" if math.isinf(verdict.break_even) else f"from {format_ratio(verdict.break_even)}"
        span = f"80 %: {interval(format_ratio(speedup.low), format_ratio(speedup.high))}"
        note = f"{span}; for {format_ratio(verdict.premium)} the price; pays {even}"
        tiles.append(("GPU speed-up", format_ratio(speedup.value), note))
    if (chance := verdict.probability_gpu_cheaper) is not None:
        words = (
            percent(chance) if 0.01 <= chance <= 0.99 else f">{percent(0.99)}" if chance > 0.5 else f"<{percent(0.01)}"
        )
        tiles.append(("GPU is cheaper", words, "probability, by the intervals"))
    return tiles


def _service_tiles(service: Service) -> list[Tile]:
    if (one := service.recommended) is None:
        return []
    cost, offer, place = month_cell(one), one.prediction.candidate.offer, offer_name(one.prediction)
    span = f"80 %: {cost.span}" if cost.span else f"{HOURS_PER_MONTH} hours, disk and address included"
    answer = f"on average, {format_duration(one.wait_seconds)} of it waiting"
    return [
        ("Recommended", offer.instance_type if offer is not None else place, place),
        ("Machines", str(one.machines), f"{format_percent(one.utilisation)} of their time in use"),
        ("Cost a month", cost.text, span),
        ("Answer", format_duration(one.answer_seconds), answer),
    ]


def _cost_and_time(found: Estimate, own: Ownership | None) -> ReportSection:
    """Return the candidates as a picture and a table."""
    verdict, rows = found.verdict, found.verdict.table
    table = candidates_table(verdict, (verdict.here, *rows), found.today, own)
    title = f"Cost against time, f{job_title(verdict)[1:]}"
    points = [_point(one, str(number), offer_name(one), verdict) for number, one in enumerate(rows, 1)]
    if own is not None and own.prediction.cost_usd.value > 0:
        points.append(_point(own.prediction, "own", own_name(own.prediction), verdict))
    if not points:
        return ReportSection(title=title, parts=["No offer is possible within the limits.", table])
    description = BELOW
    if rows:
        cheapest = _cost_in_time(min(rows, key=lambda one: one.cost_usd.value))
        fastest = _cost_in_time(min(rows, key=lambda one: one.wall_seconds.value))
        description = f"The cheapest is {cheapest}; the fastest is {fastest}. {BELOW}"
    here = verdict.here.wall_seconds.value
    title_here = f"{THIS_MACHINE}: {format_duration(here)}, {format_free()}"
    draw = partial(cost_and_time, points=points, here_seconds=here, here_title=title_here)
    mine = [("own diamond", "your GPU, electricity only")] if own is not None else []
    label = "Cost against time of each candidate"
    return ReportSection(
        title=title,
        introduction="Down and left is better. Both scales are logarithmic. The numbers are those of the table, where ★ is"
        " the recommendation, and below each figure is its 80 % interval. Cost: price × time, disk and address included.",
        parts=[
            Figure(
                draw=draw,
                label=label,
                description=description,
                legend=[*LEGEND, *mine],
                wide=400,
                narrow=340,
            ),
            table,
        ],
    )


def _cost_in_time(prediction: Prediction) -> str:
    cost, time = format_usd(prediction.cost_usd.value), format_duration(prediction.wall_seconds.value)
    return f"{offer_name(prediction)} at {cost} in {time}"


def _point(one: Prediction, label: str, where: str, verdict: Verdict) -> Point:
    wall, cost, mine = one.wall_seconds, one.cost_usd, label == "own"
    return Point(
        label=label,
        style="own" if mine else "gpu" if one.candidate.is_gpu else "cpu",
        title=f"{label}. {where}: {format_duration(wall.value)}, {cents(cost.value)}",
        seconds=(wall.value, wall.low, wall.high),
        usd=(max(cost.value, LEAST_USD), max(cost.low, LEAST_USD), max(cost.high, LEAST_USD)),
        chosen=one is verdict.recommended,
        front=not mine,
    )


def _steps(verdict: Verdict, own: Ownership | None) -> Figure | None:
    """Return what a step's time goes into, of this machine and the best candidates; None if nothing is known."""
    stacks, used = [], set()
    for title, prediction in shown_places(verdict, own):
        terms = (
            {key: seconds for key, seconds in prediction.terms.items() if seconds > 0} if prediction is not None else {}
        )
        if prediction is None or not terms:
            continue
        used |= {key for key, seconds in terms.items() if seconds >= LEAST_SHARE * sum(terms.values())}
        parts = [(_style(key), TERM_PHRASES.get(key, visible(key)), seconds) for key, seconds in terms.items()]
        stacks.append(Stack(name=title, total=f"{format_duration(prediction.step_seconds)} a step", parts=parts))
    if not stacks:
        return None
    totals = "; ".join(f"{stack.name}: {stack.total}" for stack in stacks)
    known = [key for key in [*TERM_PHRASES, *sorted(used - TERM_PHRASES.keys())] if key in used]
    legend = [(_style(key), TERM_PHRASES.get(key, visible(key))) for key in known]
    height = len(stacks) * STACK_HEIGHT - 4
    return Figure(
        draw=partial(shares, stacks=stacks),
        label="What a step's time goes into",
        description=f"{totals}. {BELOW}",
        legend=legend,
        wide=height,
        narrow=height,
    )


def _style(key: str) -> str:
    return key if key in DRAWN_TERMS else "other"


def fixed_words(verdict: Verdict) -> str:
    """Return what comes once, on the best offers."""
    words = [
        f"{format_duration(place.fixed_seconds)} and {format_usd(fixed_usd(place))} on {place.offer.instance_type}"
        for _, place in places_of(verdict)
        if place.offer is not None
    ]
    return f"Boot and set-up come once: {', '.join(words)}." if words else ""


def _lengths(profile: WorkloadProfile) -> list[ReportSection]:
    """Return how long each phase runs, by its loops, and what was measured of it."""
    sections, several = [], len(profile.phases) > 1
    for phase in profile.phases:
        place = "" if phase.label == profile.script else f" ({phase.label})"
        parts: list[Part] = [f"{profile.script}{place}: {steps_phrase(phase)}: {phase.total.how}."]
        loops = [*phase.total.loops, "the step"]
        parts += [ItemList(loops, "nested")] if phase.total.loops else ["No loop around the step was seen."]
        parts += step_lines(profile, phase)
        if phase.step.count >= LEAST_STEPS:
            low, high = format_duration(phase.step.low_seconds), format_duration(phase.step.high_seconds)
            parts.append(f"Eight of ten {plural_unit(phase.unit.name or 'step')} took between {low} and {high} here.")
        parts += _some(f"On a GPU: {phase.gpu_reason}" if phase.gpu_reason else "")
        if phase is profile.phases[-1]:
            for later in profile.later_phases:
                steps = "an unknown number of steps" if later.steps is None else f"{later.steps:,.0f} steps"
                parts.append(f"Later, not measured: {later.label}, {steps}.")
        what = phase.label if several else "the script"
        sections.append(ReportSection(title=f"How long {what} runs, and how that was found", parts=parts))
    return sections


def step_lines(profile: WorkloadProfile, phase: Phase) -> list[str]:
    """Return what a step of a phase takes here, and what comes beside the steps."""
    step = phase.step
    where = f"{profile.machine.cores} cores of {profile.machine.cpu_model}"
    size = model_phrase(phase)
    if not step.count:
        mean = format_duration(step.seconds)
        how = "Measured without weights" if profile.without_weights else "Not measured"
        told = f"{how}: {size}; on" if size else f"{how}; on"
        return [f"{told} {where} {with_article(phase.unit.name)} would take about {mean}."]
    how = "median" if step.by_median else "mean"
    facts = [f"{format_duration(step.seconds)} {with_article(phase.unit.name)} ({how} of {step.count})"]
    if step.count == 1 and profile.ended:
        facts = [f"{format_duration(step.seconds)} for the {phase.unit.name}"]
    if phase.data.batches_per_step and step.seconds:
        share = min(1.0, phase.data.wait_seconds_per_step / step.seconds)
        facts.append(f"{share:.0%} of it waiting for data ({phase.data.workers} workers)")
    if profile.setup_seconds > 0 and phase is profile.phases[-1]:
        facts.append(f"set-up {format_duration(profile.setup_seconds)}")
    if size:
        facts.append(size)
    lines = [f"Measured on {where}: {', '.join(facts)}."]
    if phase.extras:
        extras = "; ".join(extra_phrase(extra, phase.unit.name) for extra in phase.extras)
        lines.append(f"Beside the {plural_unit(phase.unit.name)}: {extras}.")
    return lines


def _basis(found: Estimate) -> list[str]:
    """Return what the figures rest on."""
    verdict, machine = found.verdict, found.profile.machine
    speed = f"{machine.gemm_gflops:.0f} GFLOP/s fp32 (low {machine.gemm_gflops_low:.0f})"
    if machine.conv_gflops:
        speed += f", {machine.conv_gflops:.0f} in convolutions"
    if machine.single_thread_mbps:
        speed += f", {machine.single_thread_mbps:.0f} MB/s of bzip2 on one thread"
    lines = []
    speedup = verdict.speedup_range
    if speedup is not None and verdict.premium is not None and verdict.break_even is not None:
        even = "none" if math.isinf(verdict.break_even) else format_ratio(verdict.break_even)
        lines.append(
            f"Speed-up {with_interval(speedup, format_ratio)}, premium {format_ratio(verdict.premium)}, break-even {even},"
            f" P(GPU cheaper) {verdict.probability_gpu_cheaper:.0%}."
        )
    shown = [*verdict.table, verdict.best_cpu, verdict.best_gpu]
    shown += [one.prediction for one in service_plans(found.service)] if found.service is not None else []
    offers = [one.offer for one in shown if one is not None and one.offer is not None and one.offer.own_price is None]
    if offers:
        age = max(price_age_days(offer, found.today) for offer in offers)
        lines.append(f"Prices of {day_span([offer.price_as_of for offer in offers])}: up to {age} days old.")
    return [
        *lines,
        "GPU steps: models fitted on public measurements (benchmarks/accuracy.py).",
        "CPU steps: scaled from the measurement here by published CPU figures.",
        f"This machine: {speed}, {machine.copy_gbps:.0f} GB/s, {machine.op_seconds * 1e6:.1f} µs a call.",
    ]
