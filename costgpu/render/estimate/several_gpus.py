"""What several GPUs make of a training, in words."""

from __future__ import annotations

from costgpu.models.parallelism import Scaling
from costgpu.models.prediction import Prediction

LEAST_SHARE = 0.005  # of a step, to be told


def scaling_sentences(prediction: Prediction | None) -> list[str]:
    """Return how well the GPUs of a place work together, what the rest is lost to, and the memory; none with one GPU."""
    scaling = prediction.scaling if prediction is not None else None
    if prediction is None or scaling is None:
        return []
    ends = f"{100 * scaling.efficiency_low:.0f}-{100 * scaling.efficiency_high:.0f} %"
    where = f"{scaling.gpus} GPUs" + (f" in {scaling.nodes} machines" if scaling.nodes > 1 else "")
    efficient = (
        f"{where} under {scaling.scheme.phrase}: {100 * scaling.efficiency:.0f} % [{ends}] of the throughput of"
        f" {scaling.gpus} single GPUs."
    )
    found = [efficient]
    if lost := _losses(scaling, prediction.step_seconds):
        found.append(f"Of a step, {lost}.")
    if scaling.strong:
        found.append("The global batch stays: each GPU takes its share of it.")
    facts = []
    if scaling.memory_gib is not None and prediction.offer is not None and prediction.offer.accelerator is not None:
        facts.append(f"{scaling.memory_gib:.1f} of {prediction.offer.accelerator.memory_gib:g} GiB on each GPU")
    if scaling.mfu is not None:
        facts.append(f"{100 * scaling.mfu:.0f} % of the peak of its arithmetic (MFU)")
    if facts:
        found.append(f"{'; '.join(facts)}.")
    return found


def _losses(scaling: Scaling, step: float) -> str:
    """``10 % is communication and 2 % is waiting for data``; empty if next to nothing is lost."""
    parts = {
        "communication": scaling.communication_seconds,
        "stragglers and latency": scaling.straggler_seconds,
        "waiting for data": scaling.input_seconds,
    }
    shown = [
        f"{100 * seconds / step:.0f} % is {name}" for name, seconds in parts.items() if seconds > LEAST_SHARE * step
    ]
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1] if shown else ""
