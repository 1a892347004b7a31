"""The table of advice: the changes of a script that may be worth a try, for which scripts, and in which words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from costgpu.estimator.advice import changes
from costgpu.estimator.advice.best_batch import best_batch
from costgpu.estimator.advice.context import SHARED_CORES_SIGMA, AdviceContext, Change, Changed
from costgpu.estimator.cpu import STEADY
from costgpu.estimator.gpu import Runtime, foreign_optimizer, precision_of
from costgpu.estimator.memory import largest_batch, memory_need
from costgpu.estimator.prepared import Workload
from costgpu.estimator.throughput import inference_phase
from costgpu.estimator.unit_work import unit_terms
from costgpu.estimator.work import HALF_TYPES
from costgpu.models.prediction import AdviceKind, Candidate
from costgpu.units import format_percent, plural_unit

LOADING = "the measured time to make a batch, over workers and cores"
CPU_FORMULA = "published rates of CPUs in both types"
WORKERS = (1, 2, 4, 8, 16, 32)
BATCH_FACTORS = (2, 4, 8)
HOST_SHARE = 0.2  # of a step, that no GPU can speed up
COMPILE_SECONDS = 120.0  # of compiling one shape: 20 to 120 s (assumed)
COMPILE_SIGMA = 0.2  # of its gain: 14 % median and 31 % p90 error at large batches (INFERENCE study, 2026-11)
CPU_TYPE_SIGMA = 0.4  # of the gain of another type on a CPU: rates by family, within a factor of two
# Gains of 0.96 to 1.23x, median 1.13x, over convolutional nets in half precision (INFERENCE study, 2026-11).
CHANNELS_LAST_SIGMA = 0.10
OWN_SHARE = 0.2  # of a unit, that is the script's own Python: it may grow with the batch
SAME_RESULTS = "Compare some results with and without it."


def _where(applies: bool) -> tuple[int, ...]:
    """Return the sizes of a change that has none: one where it applies."""
    return (1,) if applies else ()


# -------------------------------------------------------------------------------------------------------- precision


def _autocast_sizes(context: AdviceContext) -> tuple[int, ...]:
    """Return one for a script that does not compute in half precision already."""
    works = [unit.work for unit in context.workload.units]
    half = sum(flops for work in works for (_, dtype), flops in work.flops.items() if dtype in HALF_TYPES)
    mostly = half > 0.5 * sum(work.total_flops for work in works)
    autocast = precision_of(context.workload.profile.framework).half
    return _where(changes.is_torch(context.workload) and autocast is None and not mostly)


def _autocast_words(case: Changed) -> str:
    if case.half == "bfloat16":
        return 'Mixed precision: torch.autocast("cuda", torch.bfloat16) around the forward pass'
    return 'Mixed precision: torch.autocast("cuda", torch.float16) and a GradScaler'


def _tf32_sizes(context: AdviceContext) -> tuple[int, ...]:
    """Return one for a script in fp32 that leaves TF32 off, as PyTorch does; autocast leaves little in fp32."""
    precision = precision_of(context.workload.profile.framework)
    wide = changes.is_torch(context.workload) if context.trains else changes.in_float32(context.workload)
    return _where(wide and not precision.matmul_tf32 and precision.half is None)


def _channels_last_sizes(context: AdviceContext) -> tuple[int, ...]:
    """Return one where images are convolved, not only sequences: the tensor cores want them so in half precision."""
    workload = context.workload
    already = workload.execution.channels_last or workload.profile.framework.channels_last
    convolves = any(
        row.op == "aten::convolution" and row.inputs and len(row.inputs[0][0]) == 4
        for phase in changes.inferences(workload)
        for row in phase.ops
    )
    return _where(changes.is_torch(workload) and convolves and not already)


def _on_cpus(context: AdviceContext) -> bool:
    """Return whether another type on CPUs is worth a look: all of it runs models of PyTorch forward, on a rented machine."""
    return not context.free and not context.trains and changes.is_torch(context.workload)


def _narrow_on_cpus(context: AdviceContext) -> tuple[int, ...]:
    return _where(_on_cpus(context) and changes.weight_types(context.workload) <= HALF_TYPES)


def _on_cpu(
    dtype: str,
    action: str,
    sizes: Callable[[AdviceContext], Sequence[int]],
    change: Callable[[Workload, Candidate, int], Workload | None],
) -> Change:
    """Return the row of a change of the type that models compute in on a CPU."""
    return Change(
        kind=AdviceKind.CPU_PRECISION,
        trains=False,
        sizes=sizes,
        transform=change,
        action=lambda _: action,
        short=lambda _: f"{dtype} on the CPU",
        sigma=lambda _: CPU_TYPE_SIGMA,
        basis=CPU_FORMULA,
        notes=lambda _: [SAME_RESULTS],
    )


# ---------------------------------------------------------------------------------------------- loading, and Python


def _present_workers(context: AdviceContext) -> int:
    data = [phase.data for phase in context.workload.profile.phases]
    return min((one.workers for one in data if changes.uses_loader(one)), default=max(WORKERS))


def _worker_sizes(context: AdviceContext) -> list[int]:
    machine = context.workload.profile.machine
    # workers on cores that neighbours use make nothing faster
    own_cores = not context.free or machine.gemm_gflops_low >= STEADY * machine.gemm_gflops
    return [number for number in WORKERS if own_cores and number > _present_workers(context)]


def _worker_words(case: Changed) -> str:
    before, offer = case.context.before.offer, case.after.offer
    bigger = offer is not None and before is not None and offer.vcpus > before.vcpus
    host = f" on a host with {offer.vcpus} vCPUs" if bigger and offer is not None else ""
    return f"{_workers(case)} instead of {_present_workers(case.context) or 'none'}{host}"


def _workers(case: Changed) -> str:
    return f"{case.size} DataLoader worker{'s' if case.size > 1 else ''}"


def _worker_notes(context: AdviceContext) -> list[str]:
    phases = context.workload.profile.phases
    notes = _amdahl(context)
    if any((phase.total.steps or 0) > (phase.total.steps_per_epoch or 1e30) for phase in phases):
        notes.append("With persistent_workers=True they start once, not in every epoch.")
    return notes


def _amdahl(context: AdviceContext) -> list[str]:
    """Return which part of a step no GPU can speed up, and what that limits; nothing if it is little."""
    terms, step = context.before.terms, sum(context.before.terms.values())
    names = {"loading": "loading", "host": "the script's own Python", "copy": "copies to the GPU"}
    if step <= 0:
        return []
    parts = {words: terms.get(name, 0.0) / step for name, words in names.items()}
    fixed = sum(parts.values())
    if fixed < HOST_SHARE:
        return []
    listed = ", ".join(f"{100 * share:.0f} % {words}" for words, share in parts.items() if share >= 0.01)
    return [f"Of a step there, {listed}: no GPU, however fast, makes it more than {1 / fixed:.1f}x as fast."]


def _python_share(context: AdviceContext) -> float:
    """Return the share of a step on the recommended GPU that is the script's own Python."""
    before, step = context.before, sum(context.before.terms.values())
    if not before.candidate.is_gpu or not changes.traced(context.workload):
        return 0.0
    return before.terms.get("host", 0.0) / step if step > 0 else 0.0


# ---------------------------------------------------------------------------------------------------------- batches


def _launches_known(context: AdviceContext) -> bool:
    """Return whether there are traced launches to spread, and the memory of a larger batch can be told."""
    workload = context.workload
    profile, known = workload.profile, changes.traced(workload)
    known &= profile.memory is not None or all(phase.saved_tensor_bytes > 0 for phase in profile.phases)
    return known and context.before.candidate.is_gpu


def _micro_batches(context: AdviceContext) -> int:
    """Return the micro-batches of every step; 1 where steps have different numbers of them."""
    counts = {phase.micro_batches for phase in context.workload.profile.phases}
    count = counts.pop()
    return int(count) if not counts and count == int(count) else 1


def _accumulation_sizes(context: AdviceContext) -> list[int]:
    if not _launches_known(context) or any(foreign_optimizer(phase) for phase in context.workload.profile.phases):
        return []
    count = _micro_batches(context)
    return [factor for factor in range(2, count + 1) if count % factor == 0]


def _accumulation_words(case: Changed) -> str:
    count = _micro_batches(case.context)
    left = count // case.size
    rest = "no gradient accumulation" if left == 1 else f"{left} accumulations instead of {count}"
    return f"micro-batches {_times_as_large(case)} and {rest}"


def _times_as_large(case: Changed) -> str:
    size = case.context.workload.profile.phases[-1].data.batch_size
    return f"{case.size} times as large" + (f" ({size * case.size})" if size else "")


def _item_sizes(context: AdviceContext) -> tuple[int, ...]:
    """Return one where independent items are all that it makes results of, so that a unit can have more of them."""
    unit = context.workload.profile.phases[-1].unit
    alone = not context.trains and changes.traced(context.workload)
    return _where(bool(unit.items) and alone and unit.independent)


def batch_factor(workload: Workload, place: Candidate) -> float:
    """Return how many times the script's batch nearly saturates the place's GPU and fits it; 1 for no change."""
    spec, offer = place.accelerator, place.offer
    phase, unit = workload.profile.phases[-1], workload.units[-1]
    if spec is None or offer is None or offer.accelerator is None:
        return 1.0
    largest = largest_batch(memory_need(phase, workload.execution), place.room_gib)
    if phase.total.steps is not None:
        largest = min(largest, phase.total.steps)
    return best_batch(unit, spec, workload.execution, largest=max(1.0, largest))


def _with_best_batch(workload: Workload, place: Candidate, _: int) -> Workload | None:
    factor = batch_factor(workload, place)
    return changes.with_items(workload, factor) if factor > 1 else None


def idle_share(workload: Workload, place: Candidate) -> float:
    """Return the share of a unit in which the place's GPU waits for its host."""
    unit, spec = workload.units[-1], place.accelerator
    return 1 - unit_terms(unit, spec, workload.execution).gpu_use if spec is not None else 0.0


def _batch_words(case: Changed) -> str:
    before, phase = case.context.workload.profile.phases[-1].unit, inference_phase(case.after)
    count = phase.unit.items if phase is not None and phase.unit is not None else 0.0
    return f"batches of {count:,.0f} {plural_unit(before.item)} instead of {before.items or 0:,.0f}"


def _idle_words(case: Changed) -> str:
    items, spec = case.context.workload.profile.phases[-1].unit.items or 0, case.after.candidate.accelerator
    idle = format_percent(idle_share(case.context.workload, case.after.candidate))
    return f" (at {items:,.0f} the {spec.name if spec is not None else 'GPU'} idles {idle} of the time)"


def _batch_notes(context: AdviceContext) -> list[str]:
    """Return why the saving of a larger batch is an upper bound; nothing if it is none."""
    last, notes = context.workload.profile.phases[-1], []
    if last.host_seconds_per_step > OWN_SHARE * last.step.seconds:
        notes.append("The script's own Python is taken to be the same for a larger batch.")
    if last.unit.generation is not None:
        notes.append("A batch waits for its longest prompt and its longest answer.")
    return notes


# ------------------------------------------------------------------------------------------------------------ table

TABLE = (
    Change(
        kind=AdviceKind.MIXED_PRECISION,
        trains=True,
        sizes=_autocast_sizes,
        transform=changes.with_autocast,
        action=_autocast_words,
        short=lambda case: f"mixed precision ({case.half})",
        overhead=lambda case: changes.cast_seconds(case.context.workload),
        notes=lambda _: ["Compare the loss of the first steps with and without it."],
    ),
    Change(
        kind=AdviceKind.TF32,
        trains=None,
        sizes=_tf32_sizes,
        transform=changes.with_tf32,
        action=lambda _: 'TF32 for matrix products: torch.set_float32_matmul_precision("high")',
        short=lambda _: "TF32",
        notes=lambda _: ["It rounds the inputs of matrix products to 10 bits of mantissa."],
    ),
    Change(
        kind=AdviceKind.HOST_PYTHON,
        trains=True,
        sizes=lambda context: _where(_python_share(context) >= HOST_SHARE),
        transform=lambda base, *_: changes.without_host_python(base),
        action=lambda case: (
            f"The script's own Python ({100 * _python_share(case.context):.0f} % of a step) out of the step, into the"
            " Dataset or onto the GPU"
        ),
        short=lambda _: "no Python of its own in the step",
        basis="the traced time between ops",
        at_most=lambda _: True,
        notes=_amdahl,
    ),
    Change(
        kind=AdviceKind.FEWER_ACCUMULATIONS,
        trains=True,
        sizes=_accumulation_sizes,
        transform=lambda base, place, size: changes.with_fewer_accumulations(base, size) if place.is_gpu else None,
        action=lambda case: "M" + _accumulation_words(case)[1:],
        short=_accumulation_words,
        notes=lambda _: ["The gradients stay the same (but for batch normalization)."],
    ),
    Change(
        kind=AdviceKind.WORKERS,
        trains=None,
        sizes=_worker_sizes,
        transform=lambda base, _, size: changes.with_workers(base, size),
        action=_worker_words,
        short=_workers,
        overhead=lambda case: changes.worker_seconds(case.context.workload, case.size, case.after),
        sigma=lambda case: 0.0 if case.after.candidate.is_gpu else SHARED_CORES_SIGMA,
        basis=LOADING,
        notes=_worker_notes,
    ),
    Change(
        kind=AdviceKind.BATCH_SIZE,
        trains=False,
        sizes=_item_sizes,
        transform=_with_best_batch,
        action=lambda case: "B" + _batch_words(case)[1:] + _idle_words(case),
        short=_batch_words,
        at_most=lambda context: bool(_batch_notes(context)),
        notes=_batch_notes,
    ),
    Change(
        kind=AdviceKind.HALF_PRECISION,
        trains=False,
        sizes=lambda context: _where(changes.in_float32(context.workload)),
        transform=changes.with_half_weights,
        action=lambda case: (
            f"Half precision: the model and its inputs .to(torch.{case.half}), or torch_dtype=torch.{case.half}"
        ),
        short=lambda case: f"half precision ({case.half})",
        notes=lambda _: [SAME_RESULTS],
    ),
    Change(
        kind=AdviceKind.CHANNELS_LAST,
        trains=False,
        sizes=_channels_last_sizes,
        transform=changes.with_channels_last,
        action=lambda _: "Channels-last images and weights: .to(memory_format=torch.channels_last)",
        short=lambda _: "channels-last images",
        paired_sigma=CHANNELS_LAST_SIGMA,
    ),
    Change(
        kind=AdviceKind.COMPILE,
        trains=False,
        sizes=lambda context: _where(
            changes.is_torch(context.workload) and context.workload.execution.runtime is Runtime.EAGER
        ),
        transform=changes.with_compile,
        action=lambda _: "torch.compile(model)",
        short=lambda _: "torch.compile",
        overhead=lambda case: COMPILE_SECONDS if case.context.workload.scope.whole else 0.0,
        sigma=lambda _: COMPILE_SIGMA,
        notes=lambda _: [
            f"Compiling, up to {COMPILE_SECONDS:.0f} s for each shape of its input, is not in the saving."
        ],
    ),
    _on_cpu(
        "bfloat16",
        "bf16 on the CPU: the model and its inputs .to(torch.bfloat16)",
        lambda context: _where(_on_cpus(context) and changes.in_float32(context.workload)),
        changes.with_cpu_bfloat16,
    ),
    _on_cpu(
        "float32",
        "fp32 on this CPU, which has no units for the model's type: .float()",
        _narrow_on_cpus,
        changes.with_cpu_float32,
    ),
    _on_cpu(
        "bfloat16",
        "bf16 instead of float16 on this CPU: .to(torch.bfloat16)",
        _narrow_on_cpus,
        changes.from_cpu_float16,
    ),
    Change(
        kind=AdviceKind.LARGER_BATCH,
        trains=True,
        sizes=lambda context: BATCH_FACTORS if _launches_known(context) else (),
        transform=lambda base, place, size: changes.with_batch(base, size) if place.is_gpu else None,
        action=lambda case: f"Batches {_times_as_large(case)}, for the same number of samples",
        short=lambda case: f"batches {_times_as_large(case)}",
        at_most=lambda _: True,
        notes=lambda _: ["It changes the training: find the learning rate anew; it may need more epochs."],
    ),
)
