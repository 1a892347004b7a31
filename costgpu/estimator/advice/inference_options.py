"""The changes of a script that infers that may be worth advising: what each is, and where it applies. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costgpu.estimator.advice.changes import traced
from costgpu.estimator.advice.context import AdviceContext, Option
from costgpu.estimator.advice.inference_changes import (
    with_channels_last,
    with_compile,
    with_cpu_bfloat16,
    with_cpu_float32,
    with_inference_tf32,
    with_items,
    with_weights,
)
from costgpu.estimator.advice.options import half_for
from costgpu.estimator.inference.cpu import HalfUnit, half_unit
from costgpu.estimator.inference.gpu import Runtime
from costgpu.estimator.inference.memory import largest_batch, memory_need
from costgpu.estimator.inference.options import best_batch
from costgpu.estimator.inference.unit import unit_terms
from costgpu.estimator.op_costs import HALF_TYPES
from costgpu.estimator.prepared import Workload
from costgpu.estimator.throughput import inference_phase
from costgpu.models.prediction import AdviceKind, Candidate, Prediction
from costgpu.models.workload import Phase
from costgpu.units import format_percent, plural_unit

FORWARD_MODEL = "the model of forward passes and the traced unit"
CPU_FORMULA = "published rates of CPUs in both types"
COMPILE_SECONDS = 120.0  # of compiling one shape: 20 to 120 s (assumed)
COMPILE_SIGMA = 0.2  # of its gain: 14 % median and 31 % p90 error at large batches (INFERENCE study, 2026-11)
CPU_TYPE_SIGMA = 0.4  # of the gain of another type on a CPU: rates by family, within a factor of two
# Gains of 0.96 to 1.23x, median 1.13x, over convolutional nets in half precision (INFERENCE study, 2026-11).
CHANNELS_LAST_SIGMA = 0.10
OWN_SHARE = 0.2  # of a unit, that is the script's own Python: it may grow with the batch
SAME_RESULTS = "Compare some results with and without it."


def inference_options(context: AdviceContext) -> list[list[Option]]:
    """Return all of them, those of one kind together; empty without inference."""
    if all(phase.unit.trains for phase in context.workload.profile.phases):
        return []
    return [batch(context), half(context), tf32(context), channels_last(context), compiled(context), cpu_type(context)]


def batch(context: AdviceContext) -> list[Option]:
    """More items in a unit, where they are independent: the batch that nearly saturates the GPU, if it fits."""
    last = context.workload.profile.phases[-1]
    items, item = last.unit.items, last.unit.item
    if not items or context.before is None or not _only_inference(context.workload):
        return []
    if not last.unit.independent or not traced(context.workload):
        return []

    def change(base: Workload, place: Candidate) -> Workload | None:
        factor = batch_factor(base, place)
        return with_items(base, factor) if factor > 1 else None

    def words(after: Prediction) -> str:
        phase = inference_phase(after)
        count = phase.unit.items if phase is not None and phase.unit is not None else 0.0
        return f"atches of {count:,.0f} {plural_unit(item)} instead of {items:,.0f}"

    def action(after: Prediction) -> str:
        idle = idle_share(context.workload, after.candidate)
        name = after.candidate.accelerator.name if after.candidate.accelerator is not None else "GPU"
        return f"B{words(after)} (at {items:,.0f} the {name} idles {format_percent(idle)} of the time)"

    made = last.unit.generation is not None
    own = last.host_seconds_per_step > OWN_SHARE * last.step.seconds
    option = Option(
        kind=AdviceKind.BATCH_SIZE,
        action=action,
        short=lambda after: "b" + words(after),
        change=change,
        basis=FORWARD_MODEL,
        at_most=own or made,
        notes=(
            *(("The script's own Python is taken to be the same for a larger batch.",) if own else ()),
            *(("A batch waits for its longest prompt and its longest answer.",) if made else ()),
        ),
    )
    return [option]


def batch_factor(workload: Workload, place: Candidate) -> float:
    """Return how many times the script's batch nearly saturates the place's GPU and fits it; 1 for no change."""
    spec, offer = place.accelerator, place.offer
    phase, unit = workload.profile.phases[-1], workload.units[-1]
    if spec is None or offer is None or offer.accelerator is None or unit is None:
        return 1.0
    largest = largest_batch(memory_need(phase, workload.execution), offer.accelerator.memory_gib)
    if phase.total.steps is not None:
        largest = min(largest, phase.total.steps)
    return best_batch(unit, spec, workload.execution, largest=max(1.0, largest))


def idle_share(workload: Workload, place: Candidate) -> float:
    """Return the share of a unit in which the place's GPU waits for its host."""
    unit, spec = workload.units[-1], place.accelerator
    return 1 - unit_terms(unit, spec, workload.execution).gpu_use if unit is not None and spec is not None else 0.0


def half(context: AdviceContext) -> list[Option]:
    """Return the model itself in half precision on a GPU: bf16 where the hardware has it, else fp16."""
    if not _wide(context.workload):
        return []

    def change(base: Workload, place: Candidate) -> Workload | None:
        dtype = half_for(place)
        return with_weights(base, dtype) if dtype else None

    def action(after: Prediction) -> str:
        dtype = half_for(after.candidate)
        return f"Half precision: the model and its inputs .to(torch.{dtype}), or torch_dtype=torch.{dtype}"

    return [
        Option(
            kind=AdviceKind.HALF_PRECISION,
            action=action,
            short=lambda after: f"half precision ({half_for(after.candidate)})",
            change=change,
            basis=FORWARD_MODEL,
            notes=(SAME_RESULTS,),
        )
    ]


def tf32(context: AdviceContext) -> list[Option]:
    """TF32 for fp32 matrix products, which PyTorch leaves off."""
    precision = context.workload.execution.precision
    if not _wide(context.workload) or precision.matmul_tf32 or precision.half is not None:
        return []

    def change(base: Workload, place: Candidate) -> Workload | None:
        return with_inference_tf32(base) if place.accelerator and place.accelerator.tf32_tensor_tflops else None

    return [
        Option(
            kind=AdviceKind.TF32,
            action=lambda _: 'TF32 for matrix products: torch.set_float32_matmul_precision("high")',
            short=lambda _: "TF32",
            change=change,
            basis=FORWARD_MODEL,
            notes=("It rounds the inputs of matrix products to 10 bits of mantissa.",),
        )
    ]


def channels_last(context: AdviceContext) -> list[Option]:
    """Channels-last images for convolutions in half precision, which the tensor cores want so."""
    workload = context.workload
    already = workload.execution.channels_last or workload.profile.framework.channels_last
    if already or not _torch(workload) or not _convolves(workload):
        return []

    def change(base: Workload, place: Candidate) -> Workload | None:
        halved = base.execution.weights is not None or base.execution.precision.half is not None
        return with_channels_last(base) if place.is_gpu and (halved or not _any_wide(base)) else None

    return [
        Option(
            kind=AdviceKind.CHANNELS_LAST,
            action=lambda _: "Channels-last images and weights: .to(memory_format=torch.channels_last)",
            short=lambda _: "channels-last images",
            change=change,
            paired_sigma=CHANNELS_LAST_SIGMA,
            basis=FORWARD_MODEL,
        )
    ]


def compiled(context: AdviceContext) -> list[Option]:
    """torch.compile, with the time that compiling takes."""
    workload = context.workload
    if not _torch(workload) or workload.execution.runtime is not Runtime.EAGER:
        return []
    once = COMPILE_SECONDS if workload.scope.whole else 0.0
    return [
        Option(
            kind=AdviceKind.COMPILE,
            action=lambda _: "torch.compile(model)",
            short=lambda _: "torch.compile",
            change=lambda base, place: with_compile(base) if place.is_gpu else None,
            overhead=lambda _: once,
            sigma=lambda _: COMPILE_SIGMA,
            basis=FORWARD_MODEL,
            notes=(f"Compiling, up to {COMPILE_SECONDS:.0f} s for each shape of its input, is not in the saving.",),
        )
    ]


def cpu_type(context: AdviceContext) -> list[Option]:
    """On CPUs bf16 where they have units for it, and fp32 where they have none."""
    workload, before = context.workload, context.before
    if before is None or before.candidate.offer is None or not _torch(workload) or not _only_inference(workload):
        return []
    if _wide(workload):
        return [_cpu_option("bfloat16", "bf16 on the CPU: the model and its inputs .to(torch.bfloat16)", _in_bfloat16)]
    if not _any_wide(workload):
        return [
            _cpu_option("float32", "fp32 on this CPU, which has no units for the model's type: .float()", _in_float32),
            _cpu_option("bfloat16", "bf16 instead of float16 on this CPU: .to(torch.bfloat16)", _from_float16),
        ]
    return []


def _cpu_option(dtype: str, action: str, change: Callable[[Workload, Candidate], Workload | None]) -> Option:
    return Option(
        kind=AdviceKind.CPU_PRECISION,
        action=lambda _: action,
        short=lambda _: f"{dtype} on the CPU",
        change=change,
        sigma=lambda _: CPU_TYPE_SIGMA,
        basis=CPU_FORMULA,
        notes=(SAME_RESULTS,),
    )


def _in_bfloat16(base: Workload, place: Candidate) -> Workload | None:
    if place.is_gpu or place.cpu is None or place.offer is None or half_unit(place.cpu, "bfloat16") is HalfUnit.NONE:
        return None
    return with_cpu_bfloat16(base, place.cpu, place.offer.vcpus)


def _from_float16(base: Workload, place: Candidate) -> Workload | None:
    if place.is_gpu or place.cpu is None or half_unit(place.cpu, "bfloat16") is HalfUnit.NONE:
        return None
    if _half_types(base) != {"float16"}:
        return None
    return replace(base, cpu_dtype="bfloat16")


def _in_float32(base: Workload, place: Candidate) -> Workload | None:
    if place.cpu is None or any(half_unit(place.cpu, dtype) is not HalfUnit.NONE for dtype in _half_types(base)):
        return None
    return with_cpu_float32(base)


def _half_types(workload: Workload) -> set[str]:
    return {phase.unit.weights_dtype for phase in _inferences(workload)}


def _torch(workload: Workload) -> bool:
    return traced(workload) and workload.profile.framework.name == "torch"


def _inferences(workload: Workload) -> list[Phase]:
    return [phase for phase in workload.profile.phases if not phase.unit.trains]


def _only_inference(workload: Workload) -> bool:
    return len(_inferences(workload)) == len(workload.profile.phases)


def _any_wide(workload: Workload) -> bool:
    """Return whether a model is in fp32."""
    return any(p.unit.weights_dtype not in HALF_TYPES for p in _inferences(workload))


def _wide(workload: Workload) -> bool:
    """Return whether all models are PyTorch's and in fp32, and stay so on a GPU."""
    narrow = any(p.unit.weights_dtype in HALF_TYPES for p in _inferences(workload))
    return _torch(workload) and not narrow and workload.execution.weights is None


def _convolves(workload: Workload) -> bool:
    """Return whether images are convolved, not only sequences."""
    return any(
        row.op == "aten::convolution" and row.inputs and len(row.inputs[0][0]) == 4
        for phase in _inferences(workload)
        for row in phase.ops
    )
