"""A verdict as one or two sentences for a person to act on. Pure."""

from __future__ import annotations

import math

from costgpu.estimate.scope import WHOLE_JOB
from costgpu.models.prediction import Choice, Prediction, Verdict
from costgpu.units import format_duration, format_ratio, format_usd


def verdict_sentence(verdict: Verdict, *, limits: str, why_no_gpu: str) -> str:
    """The sentence of a verdict.

    Args:
        verdict: Complete but for its sentence.
        limits: The user's limits in words; empty without any.
        why_no_gpu: Why no GPU will do, if there is one reason for all; else empty.
    """
    chosen, cpu, gpu = verdict.recommended, verdict.best_cpu, verdict.best_gpu
    if chosen is None:
        here = format_duration(verdict.here.wall_seconds.value)
        return f"No offer meets {limits or 'what the script needs'}. Here it would take {here}."
    if verdict.choice is Choice.HERE:
        return _here(verdict)
    per = "" if verdict.unit == WHOLE_JOB else f" for {verdict.unit}"
    where = f"{describe(chosen)}: {format_duration(chosen.wall_seconds.value)}, {money(chosen)}{per}."
    if cpu is None or gpu is None or verdict.speedup is None or verdict.premium is None or verdict.break_even is None:
        side, missing = ("GPU", "CPU") if cpu is None else ("CPU", "GPU")
        reason = f"No GPU will do: {why_no_gpu}" if why_no_gpu else f"No {missing} offer is possible within the limits"
        return f"Run it on a {side}: {where} {reason}."
    even = verdict.break_even
    pays = "no speed-up would make it pay" if math.isinf(even) else f"it would pay from {format_ratio(even)}"
    faster = _compared(verdict.speedup, cpu)
    premium = format_ratio(verdict.premium)
    if verdict.choice is Choice.GPU:
        return f"Run it on a GPU: {where} {faster} for {premium} the price; {pays}."
    if verdict.choice is Choice.CPU:
        return (
            f"Run it on a CPU: {where} The best GPU ({describe(gpu)}) is only {format_ratio(verdict.speedup)} as fast"
            f" for {premium} the price and would cost {money(gpu)}; {pays}."
        )
    advice = f" {verdict.settle[:1].upper()}{verdict.settle[1:]}." if verdict.settle else ""
    return (
        f"Too close to call on cost: GPU {describe(gpu)} {money(gpu)} in {format_duration(gpu.wall_seconds.value)},"
        f" CPU {describe(cpu)} {money(cpu)} in {format_duration(cpu.wall_seconds.value)}{per};"
        f" the GPU is cheaper with {verdict.probability_gpu_cheaper:.0%} and {faster}.{advice}"
    )


def describe(prediction: Prediction) -> str:
    """``gcp g2-standard-4 (L4), us-central1, on-demand``."""
    offer = prediction.candidate.offer
    if offer is None:
        return "this machine"
    gpu = ""
    if offer.accelerator is not None:
        count = offer.accelerator.count
        times = "" if count == 1 else f"{count:g}x "
        gpu = f" ({times}{offer.accelerator.name})"
    option = offer.purchase_option.value.replace("_", "-")
    return f"{offer.provider} {offer.instance_type}{gpu}, {offer.region}, {option}"


def money(prediction: Prediction) -> str:
    """``$0.92 [0.74-1.15]``."""
    cost = prediction.cost_usd
    return f"{format_usd(cost.value)} [{format_usd(cost.low)[1:]}-{format_usd(cost.high)[1:]}]"


def _here(verdict: Verdict) -> str:
    rented = [p for p in (verdict.best_cpu, verdict.best_gpu) if p is not None]
    quickest = min(rented, key=lambda p: p.wall_seconds.value, default=None)
    other = ""
    if quickest is not None:
        time = format_duration(quickest.wall_seconds.value)
        other = f" Renting would take {time} on {describe(quickest)}, boot included."
    return f"Just run it here: {format_duration(verdict.here.wall_seconds.value)}, $0.{other}"


def _compared(speedup: float, cpu: Prediction) -> str:
    name = cpu.candidate.offer.instance_type if cpu.candidate.offer else "this machine"
    if speedup >= 1:
        return f"{format_ratio(speedup)} faster than the best CPU ({name})"
    return f"{format_ratio(1 / speedup)} slower than the best CPU ({name})"
