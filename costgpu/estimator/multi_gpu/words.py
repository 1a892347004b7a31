"""Words for what several GPUs need and how a training is spread over them, and which other numbers to show. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.estimator.memory import MemoryNeed
from costgpu.estimator.multi_gpu.layouts import Layout, keeps_global_batch, least_gpus, sharded
from costgpu.estimator.multi_gpu.network import Group
from costgpu.estimator.multi_gpu.step_time import CHECKPOINTING_TIME
from costgpu.models.parallelism import Parallelism, Scaling
from costgpu.models.prediction import Candidate, Prediction
from costgpu.models.workload import Phase, WorkloadProfile

NEEDS = "needs "  # begins the reason where memory is too small
WHOLE_UNITS = "how large the units of its model are is not known: all of it is taken to be gathered at once"
MOST_ROWS = 8
LEAST_SHARE = 0.005  # of a step, to be told
RECIPE = (
    "To change: torch.distributed.init_process_group() and torch.cuda.set_device() to LOCAL_RANK at the start; the model"
    " in DistributedDataParallel(); DataLoader(sampler=DistributedSampler(data)), with sampler.set_epoch() before every"
    " epoch; checkpoints and logs by rank 0 alone."
)


def where_words(parallelism: Parallelism, gpus: int) -> str:
    """Return where memory is needed, for `misfit`: `` on each of 4 GPUs under DDP``; empty for one GPU."""
    return f" on each of {gpus} GPUs under {parallelism.scheme.phrase}" if gpus > 1 else ""


def how_it_fits(held: MemoryNeed, parallelism: Parallelism, memory: float, gpus: int, *, half: bool) -> str:
    """``; it would fit under FSDP on 4 of them``: a way that fits such GPUs, or that there is none.

    Args:
        held: Bytes of one process that holds everything.
        parallelism: How the model is spread now.
        memory: GiB of each GPU that programs get.
        gpus: Number of GPUs that it does not fit.
        half: Whether it trains in half precision.
    """
    if not parallelism.scheme.shards_parameters:
        number = least_gpus(held, sharded(parallelism, half=half), memory)
        if number is not None:
            return f"; it would fit under FSDP on {number} of them"
    elif gpus > 1:
        number = least_gpus(held, parallelism, memory)
        if number is not None and number > gpus:
            return f"; it would fit on {number} of them"
    return "; it would not fit on 64 of them, either" if gpus > 1 else ""


def place_notes(parallelism: Parallelism, layout: Layout | None, group: Group, candidate: Candidate) -> list[str]:
    """Return remarks on what of a place is used, and how."""
    notes, count, links = [], int(candidate.accelerator_count), candidate.interconnect
    if 1 <= group.each < count:
        notes.append(f"it uses {group.each} of the {count} GPUs of a machine")
    if group.gpus > 1 and parallelism.scheme.shards_parameters and not parallelism.largest_unit_parameters:
        notes.append(WHOLE_UNITS)
    if group.nodes > 1 and links is not None and links.all_interfaces_gbit and links.network_gbit:
        notes.append(
            f"costgpu run gives each machine one network interface, {links.network_gbit:g} of {links.all_interfaces_gbit:g}"
            " Gbit/s: predicted with that one"
        )
    if layout is not None:
        how = f"under {layout.scheme.phrase}, " if group.gpus > 1 else ""
        size = "one sequence" if layout.sequences == 1 else f"{layout.sequences} sequences"
        words = f"taken to train {how}{size} at a time on each GPU"
        if layout.checkpointed:
            words += f", with activation checkpointing ({CHECKPOINTING_TIME:g} times the arithmetic)"
        notes.append(words)
    return notes


def step_notes(phase: Phase, parallelism: Parallelism, group: Group, candidate: Candidate, micro: float) -> list[str]:
    """Return remarks where processes start more workers than there are vCPUs, or do not divide the batch evenly.

    Args:
        phase: As measured.
        parallelism: As written; a layout that the prediction chose divides its batch.
        micro: Micro-batches of a step of one process over those measured.
    """
    notes, wanted = [], group.each * phase.data.workers
    if candidate.offer is not None and wanted > candidate.offer.vcpus:
        notes.append(f"its {group.each} processes start {wanted} workers for data, on {candidate.offer.vcpus} vCPUs")
    if not parallelism.chosen and keeps_global_batch(parallelism) and phase.unit.trains:
        ranks, gpus = max(1, parallelism.measured_ranks), group.gpus
        batch = parallelism.rank_batch or phase.data.batch_size
        whole, what = (batch, "samples") if micro == 1 else (phase.micro_batches, "micro-batches")
        if whole is not None and ranks * whole % gpus:
            each = f"{ranks * whole:g} {what}"
            notes.append(f"{gpus} GPUs do not divide the {each} of a step evenly: some scripts refuse that")
    return notes


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


def ddp_words(after: Prediction, batch_size: int | None) -> tuple[str, tuple[str, ...]]:
    """Return the advice to train under DDP as predicted, and what that asks of the script; empty with one GPU.

    Args:
        batch_size: Samples of a batch of the script as it is; None if not known.
    """
    scaling = after.scaling
    if scaling is None:
        return "", ()
    gpus = scaling.gpus
    batch = (
        f"Each GPU takes 1/{gpus} of the batch, in as many steps."
        if scaling.strong
        else f"The batch{f' of {batch_size}' if batch_size else ''} stays on each GPU, so an epoch has 1/{gpus} of the"
        " steps: it changes the training, and the learning rate must follow."
    )
    action = f"DistributedDataParallel on {gpus} GPUs, started by torchrun --nproc-per-node {gpus}"
    return action, (f"{100 * scaling.efficiency:.0f} % of {gpus} single GPUs.", batch, RECIPE)


# --------------------------------------------------------------------------------------------- other numbers of GPUs


def needs_nodes(profile: WorkloadProfile, offers: Sequence[Prediction], deadline_seconds: float | None) -> bool:
    """Return True if several machines are worth a look: the job can use them, and one is too small or too slow."""
    if profile.ranks.alone or not profile.ranks.scheme.predicted:
        return False
    gpus = [one for one in offers if one.candidate.is_gpu]
    possible = [one for one in gpus if not one.infeasible]
    if not possible:
        return any(one.infeasible.startswith(NEEDS) for one in gpus)
    return deadline_seconds is not None and all(one.wall_seconds.value > deadline_seconds for one in possible)


def rows_by_gpus(offers: Sequence[Prediction], recommended: Prediction | None) -> tuple[Prediction, ...]:
    """For each number of GPUs of the recommended kind the cheapest place, fewest first; empty for one process.

    Args:
        offers: Predictions for all places.
        recommended: The verdict's recommendation.
    """
    kind = _kind(recommended)
    if recommended is None or kind is None:
        return ()
    found: dict[float, Prediction] = {max(1, recommended.gpus): recommended}
    for one in offers:
        if one.infeasible or _kind(one) != kind:
            continue
        gpus = max(1, one.gpus)
        known = found.get(gpus)
        if known is None or (known is not recommended and one.cost_usd.value < known.cost_usd.value):
            found[gpus] = one
    if all(one.scaling is None for one in found.values()):
        return ()
    return tuple(found[gpus] for gpus in sorted(found))[:MOST_ROWS]


def _kind(place: Prediction | None) -> tuple[str, str, str] | None:
    offer = place.offer if place is not None else None
    if offer is None or offer.accelerator is None:
        return None
    return offer.provider, offer.accelerator.name, offer.purchase_option.value
