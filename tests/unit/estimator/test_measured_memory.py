"""Measured memory for other batches, precisions and numbers of GPUs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.feasibility import cpu_need_gib, host_need_gib, infeasible_reason
from costgpu.estimator.fit import BY_STORAGES
from costgpu.estimator.gpu import Execution, Precision
from costgpu.estimator.gpu_fits import gpu_fits
from costgpu.estimator.measured_memory import HALF_SHARE, resized_memory, under_autocast
from costgpu.estimator.memory import GIB, RUNTIME_GIB, memory_need, need_gib
from costgpu.estimator.multi_gpu.layouts import SEVERAL_RUNTIME_GIB, as_sharded, memory_gib, sharded
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.resize import in_larger_units, resized
from costgpu.estimator.scope import scope_of
from costgpu.models.parallelism import BatchScaling, Scheme
from costgpu.models.prediction import Candidate
from costgpu.models.workload import MeasuredMemory, MemoryKind, MemoryPeak, Phase, WorkloadProfile
from tests.properties import examples
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import gpu, host, loading, product
from tests.unit.estimator.advisable import phase as traced_phase
from tests.unit.estimator.advisable import profile as traced_profile
from tests.unit.estimator.multi_gpu.groups import parallelism
from tests.unit.estimator.test_several_gpus import place
from tests.unit.estimator.units import PLAIN

AMP = Execution(Precision(half="bfloat16", matmul_tf32=False, conv_tf32=True))
SCHEMES = [one for one in Scheme if one.predicted and one not in (Scheme.SINGLE, Scheme.DATA_PARALLEL)]
sizes = st.integers(0, 2**40)


@st.composite
def memories(draw: st.DrawFn) -> MeasuredMemory:
    peaks = []
    for phase in ("load", "forward", "backward", "optimizer"):
        kinds = {kind.value: draw(sizes) for kind in MemoryKind}
        peaks.append(MemoryPeak(phase=phase, bytes=sum(kinds.values()), kinds=kinds))
    steady = min(peaks[0].bytes, draw(sizes))
    reserved = max(peak.bytes for peak in peaks) + draw(st.integers(1, 2**34))
    return MeasuredMemory(peaks=peaks, reserved_bytes=reserved, steady_bytes=steady)


def phase(**facts: Any) -> Phase:
    known = {"model_bytes": 16 * 10**9, "optimizers": [builders.optimizer("AdamW", 4 * 10**9, state_bytes=32 * 10**9)]}
    return builders.phase(**{**known, **facts})


def measured(**facts: Any) -> WorkloadProfile:
    known = {"memory": builders.lora_memory(), "without_weights": True, "weights_bytes": 16 * 10**9}
    return traced_profile(traced_phase(product(512, 10)), **{**known, **facts})


@examples(100)
@given(memories(), st.sampled_from([PLAIN, AMP]))
def test_the_need_is_what_the_allocator_reserves_in_any_precision(memory: MeasuredMemory, there: Execution) -> None:
    need = memory_need(phase(), there, memory)
    assert (need.gib - RUNTIME_GIB) * GIB == pytest.approx(memory.reserved_bytes, abs=1)
    highest = max(memory.peaks, key=lambda peak: peak.bytes)
    assert (need.weights, need.gradients, need.optimizer) == tuple(
        highest.kinds[kind] for kind in ("weights", "gradients", "states")
    )
    assert need.error == BY_STORAGES


@examples(100)
@given(memories(), st.sampled_from(SCHEMES), st.sampled_from([2, 4, 8]), st.integers(10**6, 10**12))
def test_as_many_gpus_as_were_measured_hold_exactly_what_was_measured(
    memory: MeasuredMemory, scheme: Scheme, ranks: int, model_bytes: int
) -> None:
    spread = parallelism(scheme, 4e9, measured_ranks=ranks, largest_unit_parameters=10**8)
    held = memory_need(phase(model_bytes=model_bytes), PLAIN, memory, spread)
    there = memory_gib(held, spread, ranks, ranks) - SEVERAL_RUNTIME_GIB
    assert there * GIB == pytest.approx(memory.reserved_bytes, rel=1e-9)
    more, fewer = (memory_gib(held, spread, count, count) - SEVERAL_RUNTIME_GIB for count in (2 * ranks, ranks // 2))
    if scheme is Scheme.DDP:
        assert more == fewer == pytest.approx(there)
    else:
        assert more <= there * (1 + 1e-9) <= fewer * (1 + 1e-8)


def test_what_a_rank_gathers_is_not_divided() -> None:
    """A rank of 8 with an eighth of 80 GiB, and 2 GiB of gathered units: 40 GiB and 2 on two."""
    kinds = {"weights": 4 * GIB, "gradients": 2 * GIB, "states": 6 * GIB, "activations": 3 * GIB}
    memory = MeasuredMemory(
        peaks=[MemoryPeak(phase="backward", bytes=15 * GIB, kinds=kinds)],
        reserved_bytes=16 * GIB,
        steady_bytes=10 * GIB,
    )
    whole = phase(model_bytes=16 * GIB, optimizers=[builders.optimizer("AdamW", 4 * GIB, state_bytes=48 * GIB)])
    spread = parallelism(Scheme.FSDP, 4 * GIB, measured_ranks=8)
    held = memory_need(whole, PLAIN, memory, spread)
    assert [memory_gib(held, spread, count, count) - SEVERAL_RUNTIME_GIB for count in (2, 8, 16)] == [46, 16, 11]


def test_a_measured_ddp_may_be_sharded_and_a_single_process_spread() -> None:
    """All that one of 8 held under DDP is divided by FSDP, whose units come on top; one alone has no buckets yet."""
    memory = builders.lora_memory()
    states = 15 + 1 / 4 + 1 / 8
    ddp = parallelism(Scheme.DDP, 8e9, measured_ranks=8, largest_unit_parameters=10**8)
    held, fsdp = memory_need(phase(), PLAIN, memory, ddp), sharded(ddp, half=True)
    rest = 19.1 - states + 2 * 1e8 * 4 / GIB + SEVERAL_RUNTIME_GIB
    assert memory_gib(held, fsdp, 8, 8) == pytest.approx(rest + states / 8)
    assert memory_gib(memory_need(phase(), PLAIN, memory, fsdp), fsdp, 8, 8) == pytest.approx(rest + states / 8)
    alone = memory_need(phase(), PLAIN, memory)
    several = memory_gib(alone, replace(ddp, measured_ranks=1), 4, 4)
    assert several == pytest.approx(19.1 + 4 * 4e9 / GIB + SEVERAL_RUNTIME_GIB)
    changed = as_sharded(prepare(measured(), scope_of(measured()), year=2026))
    assert changed is not None
    assert changed.profile.ranks.measured_scheme is Scheme.DDP


@examples(100)
@given(memories(), st.floats(0.01, 1.0), st.floats(1.0, 100.0))
def test_another_batch_scales_all_but_what_stays(memory: MeasuredMemory, smaller: float, larger: float) -> None:
    assert resized_memory(memory, 1) is memory
    less, more = resized_memory(memory, smaller), resized_memory(memory, larger)
    for few, now, many in zip(less.peaks, memory.peaks, more.peaks, strict=True):
        stays = sum(now.kinds[kind] for kind in ("weights", "gradients", "states"))
        assert stays <= few.bytes <= now.bytes <= many.bytes
        assert many.bytes - now.bytes <= (larger - 1) * (now.bytes - stays) + 1
        if now.phase in ("load", "optimizer"):
            assert few == now == many
        assert sum(many.kinds.values()) == pytest.approx(many.bytes, abs=len(MemoryKind) + 1)
    assert less.reserved_bytes <= memory.reserved_bytes <= more.reserved_bytes
    assert less.steady_bytes == more.steady_bytes == memory.steady_bytes


def test_another_batch_of_the_profile() -> None:
    """Twice the samples in as many micro-batches, or in twice as many; each scales the memory once."""
    work = prepare(measured(), scope_of(measured()), year=2026)
    double = resized_memory(builders.lora_memory(), 2.0)
    assert resized(work, 0, 2.0).profile.memory == in_larger_units(work, 0, 2.0).profile.memory == double
    assert resized(work, 0, 2.0, 2.0).profile.memory == builders.lora_memory()
    two = measured(phases=[traced_phase(product(512, 10))] * 2)
    again = prepare(two, scope_of(two), year=2026)
    assert in_larger_units(in_larger_units(again, 0, 2.0), 1, 2.0).profile.memory == double


def test_autocast_halves_what_scales_and_keeps_copies_of_the_weights() -> None:
    memory = builders.lora_memory()
    halved = under_autocast(memory)
    backward = halved.peaks[2]
    assert backward.kinds["weights"] == 1.5 * 15 * GIB
    assert backward.bytes == resized_memory(memory, HALF_SHARE).peaks[2].bytes + 15 * GIB // 2
    assert halved.peaks[3] == memory.peaks[3], "an optimizer's step holds no activations"


def test_main_memory_of_a_script_that_was_measured_without_weights() -> None:
    """Its process held no tensor: a CPU needs them all, the host of a GPU a file of them at a time."""
    one = measured(peak_rss_bytes=GIB)
    assert cpu_need_gib(one) == pytest.approx(1 + 18 * BY_STORAGES.margin + 1)
    assert host_need_gib(one, 2) == pytest.approx(2 * (1 + 5e9 / GIB) + 1)
    assert infeasible_reason(one, Candidate(offer=None)) == "needs 22.2 GiB of memory, has 8.0 GiB"
    assert infeasible_reason(replace(one, without_weights=False), Candidate(offer=None)) == ""
    assert "needs 22.2 GiB" in infeasible_reason(one, host(memory=16))
    assert infeasible_reason(one, host(memory=32)) == ""
    assert "needs 6.7 GiB of main memory" in infeasible_reason(one, gpu("L40S", 1.0, memory=6))
    assert infeasible_reason(one, gpu("L40S", 1.0, memory=8)) == ""


def test_the_kinds_of_gpus_around_the_need() -> None:
    one = measured()
    work = prepare(one, scope_of(one), year=2026)
    names = ["H100", "T4", "L4", "A10G", "L40S", "A100", "A100-80GB", "H200", "V100", "RTX 3070", "MI100"]
    found = gpu_fits(work, [host(), *(gpu(name, 1.0) for name in names), gpu("A10G", 0.5)], None)
    assert [fit.name for fit in found] == ["V100", "L4", "A10G", "A100", "L40S", "H100", "A100-80GB"]
    assert [fit.enough for fit in found] == [False] * 3 + [True] * 4
    assert all(fit.need_gib == pytest.approx(19.1 + RUNTIME_GIB) for fit in found)
    assert [fit.probability for fit in found] == sorted(fit.probability for fit in found)
    for fit in found:
        assert fit.enough == (need_gib(one) <= fit.memory_gib) == (not infeasible_reason(one, gpu(fit.name, 1.0)))
    assert gpu_fits(prepare(replace(one, memory=None), scope_of(one), year=2026), [gpu("T4", 1.0)], None) == ()


def test_kinds_of_several_gpus_are_told_with_their_number() -> None:
    spread = parallelism(Scheme.FSDP, 4e9, measured_ranks=8, largest_unit_parameters=10**8)
    one = measured(parallelism=spread)
    work = prepare(one, scope_of(one), year=2026)
    found = gpu_fits(work, [gpu("L4", 1.0, count=count) for count in (1, 8)], None)
    assert [(fit.name, fit.gpus) for fit in found] == [("L4", 1)], "links between the eight are not known"
    (eight,) = gpu_fits(work, [place(8)], None)
    assert (eight.name, eight.gpus) == ("A100", 8)
    assert eight.need_gib == pytest.approx(19.1 + SEVERAL_RUNTIME_GIB)


def test_the_prediction_for_as_many_gpus_as_were_measured() -> None:
    """The same batch of each; of a global batch, fewer GPUs hold more samples."""

    def needs(batch: BatchScaling) -> list[float | None]:
        spread = parallelism(Scheme.DDP, 4e9, measured_ranks=8, batch=batch, rank_batch=8)
        one = measured(parallelism=spread, phases=[traced_phase(product(512, 10), data=loading(0.1, size=8))])
        work = prepare(one, scope_of(one), year=2026)
        found = [predict(work, place(count)).scaling for count in (8, 4)]
        return [scaling.memory_gib if scaling is not None else None for scaling in found]

    assert needs(BatchScaling.PER_RANK) == [pytest.approx(19.1 + SEVERAL_RUNTIME_GIB)] * 2
    double = resized_memory(builders.lora_memory(), 2.0).reserved_bytes / GIB
    assert needs(BatchScaling.GLOBAL) == [pytest.approx(gib + SEVERAL_RUNTIME_GIB) for gib in (19.1, double)]
