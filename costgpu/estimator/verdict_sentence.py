"""The sentence of a verdict: where to run it, what that costs, and what the other side would be. Pure."""

from __future__ import annotations

import math

from costgpu.estimator.cost import hourly_usd
from costgpu.estimator.scope import WHOLE_JOB
from costgpu.estimator.throughput import inference_phase, is_token, price_quantity, quantity_words, throughputs
from costgpu.models.prediction import Choice, PaysFrom, Prediction, Provenance, Range, Verdict
from costgpu.units import (
    format_bare_usd,
    format_duration,
    format_free,
    format_frequency,
    format_number,
    format_ratio,
    format_usd,
    plural_unit,
)

WIDE = 1.25  # a ratio is told by the ends of its interval if they are so many times apart, or more
MANY = 10_000  # from here on a number of steps is told in thousands
FASTER = 0.9  # another offer is worth a word if it takes less than this of this machine's time


def verdict_sentence(
    verdict: Verdict, *, limits: str, why_no_gpu: str, rented: Prediction | None, best_cpu: str, best_gpu: str
) -> str:
    """Return the sentence of a verdict.

    Args:
        verdict: Complete but for its sentence.
        limits: The user's limits in words; empty without any.
        why_no_gpu: Why no GPU will do, if there is one reason for all; else empty.
        rented: The better one of the best CPU and the best GPU; None if no offer is possible.
        best_cpu: What the best CPU is, such as ``the cheapest CPU``.
        best_gpu: What the best GPU is.
    """
    chosen, cpu, gpu = verdict.recommended, verdict.best_cpu, verdict.best_gpu
    if chosen is None:
        here = format_duration(verdict.here.wall_seconds.value)
        instead = f"This machine {verdict.here.infeasible}" if verdict.here.infeasible else f"Here it would take {here}"
        return f"No offer meets {limits or 'what the script needs'}. {instead}."
    if verdict.unit != WHOLE_JOB and inference_phase(verdict.here) is None:
        return _of_unknown_length(verdict, why_no_gpu, best_cpu, best_gpu)
    clocks = [one.time_limit for one in (verdict.here, cpu, gpu) if one is not None]
    if any(clock is not None and clock.reached for clock in clocks):
        return _by_the_clock(verdict)
    if verdict.choice is Choice.HERE:
        return _here(verdict, rented)
    per = "" if verdict.unit == WHOLE_JOB else f" for {verdict.unit}"
    where = f"{describe(chosen)}: {format_duration(chosen.wall_seconds.value)}, {money(chosen)}{per}."
    if rates := rate_words(chosen, priced=verdict.unit == WHOLE_JOB):
        where = f"{where[:-1]}: {rates}."
    if pays := _pays_words(verdict):
        where += f" {pays}"
    speedup = verdict.speedup_range
    if cpu is None or gpu is None or speedup is None or verdict.premium is None or verdict.break_even is None:
        side, missing = ("GPU", "CPU") if cpu is None else ("CPU", "GPU")
        reason = f"No GPU will do: {why_no_gpu}" if why_no_gpu else f"No {missing} offer is possible within the limits"
        return f"Run it on a {side}: {where} {reason}."
    even = verdict.break_even
    pays = "no speed-up would make it pay" if math.isinf(even) else f"it would pay from {format_ratio(even)}"
    faster = _compared(speedup, f"{best_cpu} ({cpu.candidate.offer.instance_type if cpu.candidate.offer else ''})")
    premium = format_ratio(verdict.premium)
    if verdict.choice is Choice.GPU:
        local = verdict.here.work_seconds.over(gpu.work_seconds)
        better_known = verdict.here.provenance is Provenance.MEASURED and _width(local) < _width(speedup)
        known = f", and {_compared(local, 'here')}" if better_known and _is_wide(speedup) else ""
        return f"Run it on a GPU: {where} {faster} for {premium} the price{known}; {pays}."
    if verdict.choice is Choice.CPU:
        return (
            f"Run it on a CPU: {where} {best_gpu[:1].upper()}{best_gpu[1:]} ({describe(gpu)}) is only {_times(speedup)}"
            f" as fast for {premium} the price and would cost {money(gpu)}; {pays}."
        )
    advice = f" {verdict.settle[:1].upper()}{verdict.settle[1:]}." if verdict.settle else ""
    return (
        f"Too close to call on cost: GPU {describe(gpu)} {money(gpu)} in {format_duration(gpu.wall_seconds.value)},"
        f" CPU {describe(cpu)} {money(cpu)} in {format_duration(cpu.wall_seconds.value)}{per};"
        f" the GPU is cheaper with a probability of {verdict.probability_gpu_cheaper:.0%}, and {faster}.{advice}"
    )


def _of_unknown_length(verdict: Verdict, why_no_gpu: str, best_cpu: str, best_gpu: str) -> str:
    """Say from where on renting pays, of a training whose number of steps is not known."""
    cpu, gpu, speedup = verdict.best_cpu, verdict.best_gpu, verdict.speedup_range
    words = ["How long the job is, is not known: --epochs or --total-steps would say."]
    cheaper = None
    for one in verdict.pays_from:
        if one.against.candidate.offer is not None:
            cheaper = one
            continue
        place = f"{describe(one.place)} ({format_usd(hourly_usd(one.place.candidate))}/h)"
        if math.isinf(one.items):
            words.append(f"Run it here: {place} would be no faster, however long it is.")
        else:
            words.append(f"Up to {_so_many(one)} run it here; for more, {place} is done sooner, boot included.")
    if cpu is None or gpu is None or speedup is None or verdict.premium is None:
        side = "CPU" if cpu is None else "GPU"
        return " ".join([*words, f"No {side} will do{f': {why_no_gpu}' if why_no_gpu and gpu is None else ''}."])
    faster = _compared(speedup, f"{best_cpu} ({cpu.candidate.offer.instance_type if cpu.candidate.offer else ''})")
    premium = format_ratio(verdict.premium)
    side = f"{best_gpu[:1].upper()}{best_gpu[1:]} ({describe(gpu)}) is {faster} for {premium} the price"
    if cheaper is not None and math.isinf(cheaper.items):
        side += " and never costs less"
    elif cheaper is not None and cheaper.items >= 1:
        side += f"; from {_so_many(cheaper)} on it costs less, boot and set-up included"
    elif cheaper is not None:
        side += ", and costs less"
    settle = [f"{verdict.settle[:1].upper()}{verdict.settle[1:]}."] if verdict.settle else []
    return " ".join([*words, f"{side}.", *settle])


def _so_many(one: PaysFrom) -> str:
    """``3,200 epochs (2.1 h here)``."""
    where = "here" if one.against.candidate.offer is None else "on the CPU"
    items = math.ceil(one.items)
    count = f"{items:,}" if items < MANY else format_number(items)
    return f"{count} {one.item if items == 1 else plural_unit(one.item)} ({format_duration(one.seconds)} {where})"


def _by_the_clock(verdict: Verdict) -> str:
    """Say where a job that its own clock ends makes the most of its time: it takes as long on every machine."""
    cpu, gpu, here, chosen = verdict.best_cpu, verdict.best_gpu, verdict.here, verdict.recommended
    limit = next(one.time_limit for one in (here, cpu, gpu) if one is not None and one.time_limit is not None)
    words = [f"Its own clock ends it after {format_duration(limit.seconds)} on any machine."]
    if verdict.choice is Choice.TOO_CLOSE:
        words.append("Where it makes the most of that for the money is too close to call.")
        chosen = None
    elif chosen is here:
        words.append(f"Just run it here: {_made(here)} for {format_free()}.")
    elif chosen is not None:
        words.append(
            f"Run it on a {'GPU' if chosen is gpu else 'CPU'}: {describe(chosen)}: {_made(chosen)} for {money(chosen)}."
        )
    for name, one in (("The GPU", gpu), ("The CPU", cpu)):
        if one is not None and one is not chosen:
            words.append(f"{name} ({describe(one)}) makes {_made(one)} for {money(one)}.")
    if chosen is not here:
        words.append(f"This machine makes {_made(here)}.")
    if cpu is not None and gpu is not None and verdict.speedup_range is not None and verdict.premium is not None:
        times, premium = _times(verdict.speedup_range), format_ratio(verdict.premium)
        words.append(f"The GPU makes {times} the steps of the CPU for {premium} the price.")
    return " ".join(words)


def _made(prediction: Prediction) -> str:
    """``4.5M steps``: what the job makes before its clock ends it, or before it is done."""
    return (
        f"{format_number(prediction.time_limit.steps.value)} steps"
        if prediction.time_limit is not None
        else "all steps"
    )


def describe(prediction: Prediction) -> str:
    """``gcp g2-standard-4 (L4), us-central1, on-demand``, ``aws 2x p4d.24xlarge (16x A100), us-east-1, on-demand``."""
    offer, nodes = prediction.candidate.offer, prediction.candidate.nodes
    if offer is None:
        return "this machine"
    gpu = ""
    if offer.accelerator is not None:
        count = nodes * offer.accelerator.count
        times = "" if count == 1 else f"{count:g}x "
        gpu = f" ({times}{offer.accelerator.name})"
    option = offer.purchase_option.value.replace("_", "-")
    machine = f"{nodes}x {offer.instance_type}" if nodes > 1 else offer.instance_type
    return f"{offer.provider} {machine}{gpu}, {offer.region}, {option}"


def money(prediction: Prediction) -> str:
    """``$0.92 [0.74-1.15]``."""
    return amount(prediction.cost_usd)


def amount(usd: Range) -> str:
    """Return an amount with its interval, as `money`."""
    return f"{format_usd(usd.value)} [{format_bare_usd(usd.low)}-{format_bare_usd(usd.high)}]"


def rate_words(prediction: Prediction, *, priced: bool = True) -> str:
    """``210 images/s, $0.0070 [0.0060-0.0081] per 1,000 images``; empty for training.

    Args:
        priced: Whether to say the cost of items; that of tokens always is.
    """
    phase = inference_phase(prediction)
    found = throughputs(prediction, phase) if phase is not None else ()
    if not found:
        return ""
    if len(found) > 1:
        found = found[:0:-1]  # tokens say more than the prompts that they belong to; the new ones first
    number = price_quantity(found)
    words = [", ".join(format_frequency(one.per_second.value, one.name) for one in found)]
    if prediction.candidate.offer is not None and (priced or is_token(found[0])):
        words += [f"{amount(one.usd_each.times(number))} per {quantity_words(one.name, number)}" for one in found]
    return ", ".join(words)


def _pays_words(verdict: Verdict) -> str:
    """From how many items on a rented machine is worth its boot, where their number is not known; else empty."""
    words = []
    for one in verdict.pays_from:
        if math.isinf(one.items) or (one.against.candidate.offer is not None and one.items < 1):
            continue
        items = f"{format_number(math.ceil(one.items))} {plural_unit(one.item)}"
        if one.against.candidate.offer is None:
            words.append(f"From {items} on it is done sooner than this machine, boot included.")
        else:
            words.append(f"From {items} on the best GPU costs less than the best CPU, boot and set-up included.")
    return " ".join(words)


def _here(verdict: Verdict, rented: Prediction | None) -> str:
    """Return this machine, compared with the best offer to rent, and with a much faster one if there is."""
    here = verdict.here.wall_seconds.value
    whole = verdict.unit == WHOLE_JOB
    per = "" if whole else f" for {verdict.unit}"
    rates = rate_words(verdict.here)
    sentence = f"Just run it here: {format_duration(here)}, {format_free()}{per}{f': {rates}' if rates else ''}."
    if rented is None:
        return sentence
    boot = ", boot included" if whole else ""
    time = format_duration(rented.wall_seconds.value)
    sentence += f" The best offer to rent ({describe(rented)}) would take {time} and cost {money(rented)}{boot}"
    fastest = min(verdict.table, key=lambda p: p.wall_seconds.value, default=rented)
    if fastest.wall_seconds.value < FASTER * min(here, rented.wall_seconds.value):
        time = format_duration(fastest.wall_seconds.value)
        sentence += f"; the fastest ({describe(fastest)}) {time} and {money(fastest)}"
    return f"{sentence}."


def _compared(speedup: Range, than: str) -> str:
    """``20 to 60 times faster than the cheapest CPU``, ``1.4x slower than here``."""
    if _is_wide(speedup) and speedup.low < 1 < speedup.high:
        return f"{_times(speedup)} as fast as {than}"
    if speedup.value >= 1:
        return f"{_times(speedup)} faster than {than}"
    return f"{_times(Range(value=1.0, low=1.0, high=1.0).over(speedup))} slower than {than}"


def _times(ratio: Range) -> str:
    """``22x``; the ends of a wide interval: ``20 to 60 times``."""
    low, high = (f"{float(f'{end:.2g}'):,.12g}" for end in (ratio.low, ratio.high))
    return f"{low} to {high} times" if _is_wide(ratio) and low != high else format_ratio(ratio.value)


def _is_wide(ratio: Range) -> bool:
    return _width(ratio) >= WIDE


def _width(ratio: Range) -> float:
    return ratio.high / ratio.low
