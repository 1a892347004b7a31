"""Phrases that the terminal and the HTML pages share: counts, offers by name, what an estimate says of a workload."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

from costgpu.models.footprint import FileUse
from costgpu.models.inputs import StayingInput
from costgpu.models.offer import Accelerator, Offer, PurchaseOption
from costgpu.models.prediction import Prediction, Range, Verdict
from costgpu.models.workload import Extra, Phase, Rhythm, TotalKind, WorkloadProfile
from costgpu.units import format_count, format_duration, format_size, format_usd, plural_unit

LONGEST_NAME = 80
THIS_MACHINE = "this machine"
TERM_PHRASES = {
    "compute": "arithmetic (matrix units or cores)",
    "on-chip": "on-chip traffic (shared memory, registers)",
    "memory": "memory bandwidth",
    "depthwise": "depthwise convolutions (cores, not matrix units)",
    "launch": "starts and ends of kernels",
    "calls": "calls of the framework (one core of the host)",
    "host": "the script's own Python",
    "copy": "batches to the GPU",
    "loading": "waiting for data",
    "communication": "communication between GPUs (not hidden)",
    "stragglers": "waiting for the slowest GPU; latency",
    "waiting": "waiting (sleep, network, disk): the same anywhere",
    "measured": "a step, as measured",
    "run": "a step, as the run that was measured",
    "table": "a step, by the benchmark table",
    "nominal": "a step of the reference workload, by this CPU's rates",
}
DRAWN_TERMS = (
    "compute",
    "on-chip",
    "memory",
    "depthwise",
    "launch",
    "calls",
    "host",
    "copy",
    "loading",
    "communication",
    "stragglers",
)  # with a colour each in the style sheet
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
KNOWN_TOTALS = {TotalKind.EXACT: "", TotalKind.APPROXIMATE: "about ", TotalKind.UPPER_BOUND: "at most "}
WITHOUT_EPOCHS = ("round", "tree", "stage", "fit", "search fit")  # what repeats these is a fold, or another fit
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def day_name(at: date) -> str:
    """``3 Nov``."""
    return f"{at.day} {MONTHS[at.month - 1]}"


def day(at: date) -> str:
    """``3 Nov 2026``."""
    return f"{day_name(at)} {at.year}"


def minute(at: datetime) -> str:
    """``3 Nov 2026, 14:05``, in UTC."""
    utc = at.astimezone(UTC)
    return f"{day(utc.date())}, {utc:%H:%M}"


def percent(part: Decimal | float, whole: Decimal | int = 1) -> str:
    """``12 %``, on one line; a dash of nothing."""
    return f"{100 * float(part) / float(whole):.0f}\N{NO-BREAK SPACE}%" if whole else "–"


def counted(number: int, noun: str) -> str:
    """``1 run``, ``1,234 runs``."""
    return f"{number:,} {noun if number == 1 else plural_unit(noun)}"


def used_file(path: str, use: FileUse | StayingInput) -> str:
    """``data/set.pt 1.2 GB``, ``../lib 3 files, 12.0 kB``.

    Args:
        path: What it is called.
    """
    files = f"{counted(use.files, 'file')}, " if use.files > 1 else ""
    return f"{path} {files}{format_size(use.size)}"


def with_article(noun: str) -> str:
    """Put an article before the noun: ``a job``, ``an epoch``, ``1,000 steps``."""
    if noun[:1].isdigit():
        return noun
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


def visible(text: str, longest: int = LONGEST_NAME) -> str:
    """Return the text without invisible characters and such that change its direction, cut to `longest`."""
    shown = "".join(" " if unicodedata.category(char) in _INVISIBLE else char for char in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def interval(low: str, high: str) -> str:
    """Return ``3.1 h – 4.2 h``, which breaks only behind its dash."""
    first, last = (words.replace(" ", "\N{NO-BREAK SPACE}") for words in (low, high))
    return f"{first}\N{NO-BREAK SPACE}– {last}"


def with_interval(of: Range, name: Callable[[float], str]) -> str:
    """``3.2 h [3.1 h-4.2 h]``: a figure with its 80 % interval."""
    return f"{name(of.value)} [{name(of.low)}-{name(of.high)}]"


def price_mark(offer: Offer | None) -> str:
    """Return ``own price of 2026-11-20, until 2027-03-31; list $98.32 of 2026-10-01``; empty for a list price."""
    own = offer.own_price if offer is not None else None
    if offer is None or own is None:
        return ""
    note = f" ({visible(own.note)})" if own.note else ""
    listed = f"list {format_usd(own.list_usd_per_hour)} of {own.list_as_of}"
    return f"own price of {own.set_on}{note}, until {own.until}; {listed}"


def own_price_notes(offers: Iterable[Offer]) -> list[str]:
    """Return a remark for each of these offers with an own price, each once."""
    return list(
        dict.fromkeys(
            f"{visible(offer.instance_type)} in {visible(offer.region)} at {format_usd(offer.price_usd_per_hour)}/h: {mark}."
            for offer in offers
            if (mark := price_mark(offer))
        )
    )


def accelerator_name(accelerator: Accelerator, times: str = "x") -> str:
    """``A100``, ``8x A100``."""
    count = "" if accelerator.count == 1 else f"{accelerator.count:g}{times} "
    return f"{count}{visible(accelerator.name)}"


def machines_name(offer: Offer, nodes: int = 1, times: str = "x") -> str:
    """``g6.xlarge (L4)``, ``2x p4d.24xlarge (16x A100)``."""
    chips = offer.accelerator
    gpu = f" ({accelerator_name(replace(chips, count=nodes * chips.count), times)})" if chips else ""
    return f"{f'{nodes}{times} ' if nodes > 1 else ''}{visible(offer.instance_type)}{gpu}"


def offer_name(prediction: Prediction) -> str:
    """``aws g6.xlarge (L4), us-east-1, spot``, ``aws 2x p4d.24xlarge (16x A100), us-east-1``."""
    offer = prediction.candidate.offer
    if offer is None:
        return THIS_MACHINE
    spot = ", spot" if offer.purchase_option is PurchaseOption.SPOT else ""
    machines = machines_name(offer, prediction.candidate.nodes)
    return f"{visible(offer.provider)} {machines}, {visible(offer.region)}{spot}"


def short_offer_name(prediction: Prediction, place: str = "") -> str:
    """``aws g6.xlarge 1xL4 spot``, ``aws 2x p4d.24xlarge 16xA100``, for a column; `place` follows the provider."""
    offer, nodes = prediction.candidate.offer, prediction.candidate.nodes
    if offer is None:
        return THIS_MACHINE
    gpu = f" {nodes * offer.accelerator.count:g}x{offer.accelerator.name}" if offer.accelerator else ""
    spot = " spot" if offer.purchase_option is PurchaseOption.SPOT else ""
    return f"{offer.provider}{place} {f'{nodes}x ' if nodes > 1 else ''}{offer.instance_type}{gpu}{spot}"


def steps_phrase(phase: Phase) -> str:
    """``at most 20,000 steps in 40 epochs``, ``300 batches of 64 images``."""
    total, unit = phase.total, phase.unit.name or "step"
    if total.kind is TotalKind.UNBOUNDED:
        return "runs until it is stopped"
    if total.kind is TotalKind.TIMED and total.seconds:
        return f"as many {plural_unit(unit)} as {format_duration(total.seconds)} allow"
    if total.kind not in KNOWN_TOTALS:
        return f"an unknown number of {plural_unit(unit)}"
    if not total.steps:
        return "no steps"
    count = f"{KNOWN_TOTALS[total.kind]}{total.steps:,.0f} {unit if total.steps == 1 else plural_unit(unit)}"
    items, item, generation = phase.unit.items, phase.unit.item, phase.unit.generation
    if items and not (items == 1 and item == unit):
        count += f" of {_number(items)} {item if items == 1 else plural_unit(item)}"
    if items and generation is not None:
        count += f", {_number(generation.new_tokens)} new tokens each"
    if total.steps_per_epoch and total.steps > total.steps_per_epoch and unit not in WITHOUT_EPOCHS:
        count += f" in {_number(total.steps / total.steps_per_epoch)} epochs"
    return count + (f", or {format_duration(total.seconds)}" if total.seconds else "")


def extra_phrase(extra: Extra, unit: str = "step") -> str:
    """Say what takes time and when: ``validation 3.1 s every epoch``."""
    word = "epoch" if extra.rhythm is Rhythm.EPOCH else unit
    every = f"every {word}" if extra.every == 1 else f"every {_number(extra.every)} {plural_unit(word)}"
    every = "once" if extra.rhythm is Rhythm.RUN else every
    if extra.seen_once:
        every = f"seen once in {_number(extra.every)} {plural_unit(word)}, counted as {every}"
    kind = extra.kind.value.replace("_", " ")
    return f"{kind} {format_duration(extra.seconds_each)} {every}{'' if extra.measured else ' (inferred)'}"


def model_phrase(phase: Phase) -> str:
    """``25.6M parameters (SGD)``; empty without parameters."""
    parameters = sum(optimizer.parameters for optimizer in phase.optimizers)
    names = "+".join(dict.fromkeys(optimizer.name for optimizer in phase.optimizers))
    return f"{format_count(parameters)} parameters ({names})" if parameters else ""


def notes_of(verdict: Verdict, profile: WorkloadProfile) -> list[str]:
    """Return what to know about the workload, the answer, and the figures of the best offers; each thing once."""
    notes = [*profile.notes, *verdict.notes]
    for kind, prediction in (("CPU", verdict.best_cpu), ("GPU", verdict.best_gpu)):
        notes += [f"The {kind} figure: {note}." for note in (prediction.notes if prediction else ())]
    shown = [*verdict.table, *verdict.asked, verdict.best_cpu, verdict.best_gpu, verdict.recommended]
    notes += own_price_notes(
        one.candidate.offer for one in shown if one is not None and one.candidate.offer is not None
    )
    return list(dict.fromkeys(notes))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
