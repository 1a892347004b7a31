"""Words for what several GPUs need and how a training is spread over them. Pure."""

from __future__ import annotations

from dataclasses import replace

from costgpu.estimator.feasibility import MARGIN
from costgpu.estimator.multi_gpu.constants import CHECKPOINTING_TIME
from costgpu.estimator.multi_gpu.layouts import Layout
from costgpu.estimator.multi_gpu.memory import HALF_GATHERED_BYTES, least_gpus
from costgpu.estimator.training_memory import TrainingBytes
from costgpu.models.parallelism import Parallelism, Scheme

NEEDS = "needs "  # begins the reason where memory is too small


def lacks_memory(reason: str) -> bool:
    """Return whether a reason why it cannot run somewhere is memory."""
    return reason.startswith(NEEDS)


def need_words(need: float, memory: float, parallelism: Parallelism, gpus: int) -> str:
    """``needs 45.0 GiB on each of 4 GPUs under DDP, each has 24 GiB``; amounts in GiB, the margin included."""
    where = f"on each of {gpus} GPUs under {parallelism.scheme.phrase}, each has" if gpus > 1 else "on one GPU, has"
    return f"{NEEDS}{need:.1f} GiB of accelerator memory {where} {memory:g} GiB"


def sharded(parallelism: Parallelism, *, half: bool) -> Parallelism:
    """Return the same training under FSDP, which gathers units in half precision if the training uses it."""
    each = HALF_GATHERED_BYTES if half else 4.0
    return replace(parallelism, scheme=Scheme.FSDP, gathered_bytes=each, reduced_bytes=each)


def how_it_fits(held: TrainingBytes, parallelism: Parallelism, memory: float, gpus: int, *, half: bool) -> str:
    """``; it would fit under FSDP on 4 of them``: a way that fits such GPUs, or that there is none.

    Args:
        held: Bytes of one process that holds everything.
        parallelism: How the model is spread now.
        memory: GiB of each GPU.
        gpus: Number of GPUs that it does not fit.
        half: Whether it trains in half precision.
    """
    now = least_gpus(held, parallelism, memory, MARGIN) if gpus > 1 and parallelism.scheme.shards_parameters else None
    if now is not None and now > gpus:
        return f"; it would fit on {now} of them"
    if not parallelism.scheme.shards_parameters:
        number = least_gpus(held, sharded(parallelism, half=half), memory, MARGIN)
        if number is not None:
            return f"; it would fit under FSDP on {number} of them"
    return "; it would not fit on 64 of them, either" if gpus > 1 else ""


def layout_words(layout: Layout, gpus: int) -> str:
    """``taken to train under FSDP, 4 sequences at a time on each GPU, with activation checkpointing (1.33 times ...)``."""
    how = f"under {layout.scheme.phrase}, " if gpus > 1 else ""
    count = "one sequence" if layout.sequences == 1 else f"{layout.sequences} sequences"
    words = f"taken to train {how}{count} at a time on each GPU"
    if layout.checkpointed:
        words += f", with activation checkpointing ({CHECKPOINTING_TIME:g} times the arithmetic)"
    return words
