"""The changes of a script that may be worth advising for a workload: what each is, and where it applies. Pure."""

from __future__ import annotations

from costgpu.estimator.advice.changes import (
    cast_seconds,
    traced,
    uses_loader,
    with_batch,
    with_fewer_accumulations,
    with_half,
    with_tf32,
    with_workers,
    without_host_python,
    worker_seconds,
)
from costgpu.estimator.advice.context import SHARED_CORES_SIGMA, AdviceContext, Option
from costgpu.estimator.cpu import STEADY
from costgpu.estimator.gpu import foreign_optimizer, precision_of
from costgpu.estimator.prepared import Workload
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.prediction import AdviceKind, Candidate, Prediction

GPU_MODEL = "the GPU model and the traced step"
LOADING = "the measured time to make a batch, over workers and cores"
BFLOAT16_SINCE = (8, 0)  # compute capability. Source: NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities"
WORKERS = (1, 2, 4, 8, 16, 32)
BATCH_FACTORS = (2, 4, 8)
HOST_SHARE = 0.2  # of a step, that no GPU can speed up


def mixed_precision(context: AdviceContext) -> list[Option]:
    """bf16 where the hardware has it, else fp16; none if the script already computes in half precision."""
    workload = context.workload
    autocast = precision_of(workload.profile.framework).half
    half = sum(flops for work in workload.works for (_, dtype), flops in work.flops.items() if dtype in HALF_TYPES)
    mostly = half > 0.5 * sum(work.total_flops for work in workload.works)
    if not _torch(workload) or autocast is not None or mostly:
        return []

    def change(base: Workload, place: Candidate) -> Workload | None:
        dtype = half_for(place)
        return with_half(base, dtype) if dtype else None

    def action(after: Prediction) -> str:
        if half_for(after.candidate) == "bfloat16":
            return 'Mixed precision: torch.autocast("cuda", torch.bfloat16) around the forward pass'
        return 'Mixed precision: torch.autocast("cuda", torch.float16) and a GradScaler'

    casts = cast_seconds(workload)
    option = Option(
        kind=AdviceKind.MIXED_PRECISION,
        action=action,
        change=change,
        overhead=lambda _: casts,
        basis=GPU_MODEL,
        short=lambda after: f"mixed precision ({half_for(after.candidate)})",
        notes=("Compare the loss of the first steps with and without it.",),
    )
    return [option]


def _torch(workload: Workload) -> bool:
    """Return True for PyTorch that was traced op by op: other frameworks choose their precision in other words."""
    return traced(workload) and workload.profile.framework.name == "torch"


def half_for(place: Candidate) -> str:
    """Return the half precision to use on an accelerator; empty where there is no unit for it."""
    spec = place.accelerator
    if spec is None or spec.compute_capability is None:
        return ""
    if spec.compute_capability >= BFLOAT16_SINCE and spec.bf16_tensor_tflops:
        return "bfloat16"
    return "float16" if spec.fp16_tensor_tflops else ""


def tf32(context: AdviceContext) -> list[Option]:
    """TF32 for fp32 matrix products, which PyTorch leaves off; none under autocast, which leaves little in fp32."""
    precision = precision_of(context.workload.profile.framework)
    if not _torch(context.workload) or precision.matmul_tf32 or precision.half is not None:
        return []

    def change(base: Workload, place: Candidate) -> Workload | None:
        return with_tf32(base) if place.accelerator is not None and place.accelerator.tf32_tensor_tflops else None

    option = Option(
        kind=AdviceKind.TF32,
        change=change,
        basis=GPU_MODEL,
        action=lambda _: 'TF32 for matrix products: torch.set_float32_matmul_precision("high")',
        short=lambda _: "TF32",
        notes=("It rounds the inputs of matrix products to 10 bits of mantissa.",),
    )
    return [option]


def workers(context: AdviceContext) -> list[Option]:
    """More DataLoader workers, on a host with the cores for them."""
    loaders = [phase.data for phase in context.workload.profile.phases if uses_loader(phase.data)]
    machine = context.workload.profile.machine
    # workers on cores that neighbours use make nothing faster
    own_cores = not context.free or machine.gemm_gflops_low >= STEADY * machine.gemm_gflops
    if not loaders or context.before is None or not own_cores:
        return []
    now = min(data.workers for data in loaders)
    notes = [bound] if (bound := amdahl(context.before)) else []
    if any(
        (phase.total.steps or 0) > (phase.total.steps_per_epoch or 1e30) for phase in context.workload.profile.phases
    ):
        notes.append("With persistent_workers=True they start once, not in every epoch.")
    return [_with_workers(context, now, number, tuple(notes)) for number in WORKERS if number > now]


def _with_workers(context: AdviceContext, now: int, number: int, notes: tuple[str, ...]) -> Option:
    before = context.before.candidate.offer if context.before is not None else None

    def action(after: Prediction) -> str:
        offer = after.candidate.offer
        bigger = offer is not None and before is not None and offer.vcpus > before.vcpus
        host = f" on a host with {offer.vcpus} vCPUs" if bigger and offer is not None else ""
        return f"{number} DataLoader worker{'s' if number > 1 else ''} instead of {now or 'none'}{host}"

    return Option(
        kind=AdviceKind.WORKERS,
        size=number,
        action=action,
        basis=LOADING,
        notes=notes,
        short=lambda _: f"{number} DataLoader worker{'s' if number > 1 else ''}",
        change=lambda base, _: with_workers(base, number),
        overhead=lambda after: worker_seconds(context.workload, number, after),
        sigma=lambda after: 0.0 if after.candidate.is_gpu else SHARED_CORES_SIGMA,
    )


def amdahl(prediction: Prediction) -> str:
    """Return which part of a step no GPU can speed up, and what that limits; empty if it is little."""
    step = sum(prediction.terms.values())
    names = {"loading": "loading", "host": "the script's own Python", "copy": "copies to the GPU"}
    if step <= 0:
        return ""
    parts = {words: prediction.terms.get(name, 0.0) / step for name, words in names.items()}
    fixed = sum(parts.values())
    if fixed < HOST_SHARE:
        return ""
    listed = ", ".join(f"{100 * share:.0f} % {words}" for words, share in parts.items() if share >= 0.01)
    return f"Of a step there, {listed}: no GPU, however fast, makes it more than {1 / fixed:.1f}x as fast."


def host_python(context: AdviceContext) -> list[Option]:
    """Return the script's own Python out of the step, where it is a good part of it on a GPU."""
    before = context.before
    if before is None or not before.candidate.is_gpu or not traced(context.workload):
        return []
    step = sum(before.terms.values())
    share = before.terms.get("host", 0.0) / step if step > 0 else 0.0
    if share < HOST_SHARE:
        return []
    words = f"The script's own Python ({100 * share:.0f} % of a step) out of the step, into the Dataset or onto the GPU"
    option = Option(
        kind=AdviceKind.HOST_PYTHON,
        action=lambda _: words,
        short=lambda _: "no Python of its own in the step",
        change=lambda base, _: without_host_python(base),
        basis="the traced time between ops",
        at_most=True,
        notes=(bound,) if (bound := amdahl(before)) else (),
    )
    return [option]


def fewer_accumulations(context: AdviceContext) -> list[Option]:
    """Larger micro-batches instead of gradient accumulation, where the accelerator has the memory."""
    workload = context.workload
    if not _launches_known(context) or any(foreign_optimizer(phase) for phase in workload.profile.phases):
        return []
    counts = {phase.micro_batches for phase in workload.profile.phases}
    if len(counts) != 1 or (count := counts.pop()) < 2 or count != int(count):
        return []

    def option(factor: int) -> Option:
        left = int(count) // factor
        rest = "no gradient accumulation" if left == 1 else f"{left} accumulations instead of {int(count)}"
        words = f"micro-batches {factor} times as large{_sized(workload, factor)} and {rest}"
        return Option(
            kind=AdviceKind.FEWER_ACCUMULATIONS,
            size=factor,
            basis=GPU_MODEL,
            action=lambda _: words[0].upper() + words[1:],
            short=lambda _: words,
            change=lambda base, place: with_fewer_accumulations(base, factor) if place.is_gpu else None,
            notes=("The gradients stay the same (but for batch normalization).",),
        )

    return [option(factor) for factor in range(2, int(count) + 1) if int(count) % factor == 0]


def batches(context: AdviceContext) -> list[Option]:
    """More samples in a step, so that launches and the optimizer's work are spread over more of them."""
    if not _launches_known(context):
        return []

    def option(factor: int) -> Option:
        words = f"atches {factor} times as large{_sized(context.workload, factor)}"
        return Option(
            kind=AdviceKind.LARGER_BATCH,
            size=factor,
            basis=GPU_MODEL,
            at_most=True,
            action=lambda _: f"B{words}, for the same number of samples",
            short=lambda _: "b" + words,
            change=lambda base, place: with_batch(base, factor) if place.is_gpu else None,
            notes=("It changes the training: find the learning rate anew; it may need more epochs.",),
        )

    return [option(factor) for factor in BATCH_FACTORS]


def _launches_known(context: AdviceContext) -> bool:
    """Return whether there are traced launches to spread, and the memory of a larger batch can be told."""
    workload = context.workload
    known = traced(workload) and all(phase.saved_tensor_bytes > 0 for phase in workload.profile.phases)
    return known and context.before is not None and context.before.candidate.is_gpu


def _sized(workload: Workload, factor: int) -> str:
    size = workload.profile.phases[-1].data.batch_size
    return f" ({size * factor})" if size else ""
