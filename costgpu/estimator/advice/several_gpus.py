"""What a script of one process would take as several, one on each GPU: DDP where it fits one GPU, else FSDP. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from costgpu.estimator.advice.context import MIN_PROBABILITY, AdviceContext, error_between
from costgpu.estimator.gpu import precision_of
from costgpu.estimator.interval import probability_less
from costgpu.estimator.multi_gpu.layouts import sharded
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload
from costgpu.estimator.verdict import Preferences, allowed, best, effective_cost
from costgpu.models.parallelism import BatchScaling, Parallelism, Scaling, Scheme
from costgpu.models.prediction import Advice, AdviceKind, Prediction

LEAST_SECONDS = 3600.0  # a shorter job is not worth the change
MOST_OF_THE_TIME = 0.6  # what takes more than this of the time is not worth it, either
BASIS = "the model of several GPUs"
RECIPE = (
    "To change: torch.distributed.init_process_group() and torch.cuda.set_device() to LOCAL_RANK at the start; the model"
    " in DistributedDataParallel(); DataLoader(sampler=DistributedSampler(data)), with sampler.set_epoch() before every"
    " epoch; checkpoints and logs by rank 0 alone."
)


def as_several(workload: Workload, scheme: Scheme = Scheme.DDP) -> Workload | None:
    """Return the workload as one process on each GPU; None if that is not a change of a PyTorch training script.

    The batch of a GPU stays; where the number of steps is fixed, it is divided.
    """
    profile = workload.profile
    phases = profile.phases
    trains = profile.framework.name == "torch" and all(phase.unit.trains for phase in phases)
    parameters = max((sum(one.parameters for one in phase.optimizers) for phase in phases), default=0)
    if not trains or not profile.ranks.alone or not parameters:
        return None
    counted = any(fixed and steps for fixed, steps in zip(workload.scope.fixed, workload.scope.steps, strict=False))
    spread = Parallelism(
        scheme=Scheme.DDP,
        how="as several processes",
        parameters=parameters,
        trained_parameters=parameters,
        batch=BatchScaling.GLOBAL if counted else BatchScaling.PER_RANK,
        sampler_distributed=True,
        rank_batch=phases[-1].data.batch_size,
    )
    if scheme is Scheme.FSDP:
        spread = sharded(spread, half=precision_of(profile.framework).half is not None)
    return replace(workload, profile=replace(profile, parallelism=spread))


def several_gpus(context: AdviceContext) -> Advice | None:
    """Return the cheapest place with several GPUs that takes far less time under DDP.

    None for a short job, or without one.
    """
    before, changed = context.before, as_several(context.workload)
    if before is None or changed is None or not before.candidate.is_gpu or not context.workload.scope.whole:
        return None
    if before.wall_seconds.value < LEAST_SECONDS:
        return None
    limit = MOST_OF_THE_TIME * before.wall_seconds.value
    found = [
        after
        for after in _on_several(changed, context.offers)
        if allowed(after, context.preferences) and after.wall_seconds.value <= limit
    ]
    after = min(found, key=lambda one: effective_cost(one, context.preferences), default=None)
    scaling = after.scaling if after is not None else None
    if after is None or scaling is None:
        return None
    sigma = error_between(before, after)
    probability = probability_less(after.wall_seconds.value, before.wall_seconds.value, sigma)
    if probability < MIN_PROBABILITY:
        return None
    gpus = scaling.gpus
    return Advice(
        kind=AdviceKind.DDP,
        action=f"DistributedDataParallel on {gpus} GPUs, started by torchrun --nproc-per-node {gpus}",
        saving_usd=max(0.0, before.cost_usd.value - after.cost_usd.value),
        saving_seconds=before.wall_seconds.value - after.wall_seconds.value,
        before=before,
        after=after,
        probability=probability,
        basis=BASIS,
        notes=(f"{100 * scaling.efficiency:.0f} % of {gpus} single GPUs.", _batch_words(scaling, changed), RECIPE),
    )


def _batch_words(scaling: Scaling, changed: Workload) -> str:
    """Return what becomes of the batch and of the steps."""
    size = changed.profile.phases[-1].data.batch_size
    if scaling.strong:
        return f"Each GPU takes 1/{scaling.gpus} of the batch, in as many steps."
    batch = f"The batch of {size}" if size else "The batch"
    return (
        f"{batch} stays on each GPU, so an epoch has 1/{scaling.gpus} of the steps: it changes the training, and the"
        " learning rate must follow."
    )


def _on_several(changed: Workload, places: Iterable[Prediction]) -> list[Prediction]:
    return [
        predict(changed, place.candidate)
        for place in places
        if place.candidate.accelerator_count >= 2 and place.candidate.nodes == 1
    ]


def sharded_place(workload: Workload, places: Sequence[Prediction], preferences: Preferences) -> Prediction | None:
    """Return the best place whose GPUs hold the training together under FSDP; None if it is not known that any do."""
    if workload.profile.ranks.alone:
        changed = as_several(workload, Scheme.FSDP)
    else:
        spread = sharded(workload.profile.ranks, half=precision_of(workload.profile.framework).half is not None)
        changed = replace(workload, profile=replace(workload.profile, parallelism=spread))
    return best(_on_several(changed, places), preferences) if changed is not None else None
