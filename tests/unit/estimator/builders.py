"""Values of the estimate with defaults; every builder takes changes by field name."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

from costgpu.models.offer import Accelerator, AcceleratorSpec, CpuSpec, InterruptionRate, Offer, PurchaseOption
from costgpu.models.prediction import Candidate
from costgpu.models.workload import (
    Framework,
    Machine,
    MeasuredMemory,
    MemoryPeak,
    OptimizerFacts,
    Phase,
    StepTimes,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.providers import registry

GIB = 2**30


def machine(**changes: Any) -> Machine:
    """Four cores of 100 GFLOP/s together."""
    return replace(
        Machine(
            cpu_model="test",
            cores=4,
            threads=4,
            memory_gib=16,
            gemm_gflops=100,
            gemm_gflops_low=100,
            copy_gbps=10,
            op_seconds=1e-6,
        ),
        **changes,
    )


def cpu_spec(**changes: Any) -> CpuSpec:
    """A Zen 3 of which nothing was measured."""
    return replace(
        CpuSpec(
            provider="aws",
            family="x",
            model="AMD EPYC",
            microarchitecture="Zen 3",
            vcpus_per_core=2,
            all_core_ghz=3.0,
            fp32_flops_per_cycle=32,
            bf16_in_hardware=False,
            read_gbps=None,
            read_vcpus=None,
            matrix_mult_per_vcpu=None,
            bzip2_mbps=None,
            burstable=False,
        ),
        **changes,
    )


def gpu_spec(name: str = "GPU", **changes: Any) -> AcceleratorSpec:
    """An NVIDIA board of 16 GiB without tensor cores."""
    return replace(
        AcceleratorSpec(
            name=name,
            model=name,
            vendor="NVIDIA",
            architecture="Ampere",
            year=2020,
            memory_gib=16,
            memory_bandwidth_gbps=1000,
            fp32_tflops=10,
            fp32_matrix_tflops=None,
            tf32_tensor_tflops=None,
            fp16_tensor_tflops=None,
            bf16_tensor_tflops=None,
            multiprocessors=80,
            compute_capability=(8, 0),
            tdp_watts=300,
        ),
        **changes,
    )


def offer(
    price: float | str = 1.0,
    *,
    gpu: str = "",
    count: float = 1,
    gpu_memory_gib: float = 16,
    spot: bool = False,
    **changes: Any,
) -> Offer:
    """An offer at this price per hour; without a GPU unless one is named."""
    return replace(
        Offer(
            provider="aws",
            instance_type="x1.large",
            family="x",
            region="us-east-1",
            zone=None,
            purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
            price_usd_per_hour=Decimal(str(price)),
            vcpus=8,
            memory_gib=16,
            architecture="x86_64",
            accelerator=Accelerator(name=gpu, count=count, memory_gib=gpu_memory_gib) if gpu else None,
            price_source="list",
            price_as_of=date(2026, 9, 17),
        ),
        **changes,
    )


def interruption_rate(per_hour: float = 0.05, **changes: Any) -> InterruptionRate:
    """Once in 20 hours, in nobody's measurement."""
    rate = InterruptionRate(
        percent_a_month=">20",
        low_per_hour=per_hour / 100,
        per_hour=per_hour,
        high_per_hour=per_hour * 10,
        basis="published",
        source="an advisor",
        as_of=date(2026, 9, 17),
    )
    return replace(rate, **changes)


def candidate(place: Offer, cpu: CpuSpec | None = None, **changes: Any) -> Candidate:
    """The place of an offer, with its provider's prices of disk and address."""
    spot = place.purchase_option is PurchaseOption.SPOT
    known = Candidate(
        offer=place,
        cpu=cpu or cpu_spec(),
        costs=registry.costs(place.provider),
        interruptions=interruption_rate() if spot else None,
    )
    return replace(known, **changes)


def step_times(seconds: float = 1.0, count: int = 10, **changes: Any) -> StepTimes:
    """Steps that all take as long."""
    times = StepTimes(
        count=count, median_seconds=seconds, mean_seconds=seconds, low_seconds=seconds, high_seconds=seconds
    )
    return replace(times, **changes)


def total(steps: float | None, per_epoch: float | None = None, kind: TotalKind = TotalKind.EXACT) -> Total:
    """A number of steps."""
    return Total(kind=kind, steps=steps, steps_per_epoch=per_epoch, how="for epoch in range(epochs) (train.py:9)")


def optimizer(name: str = "SGD", parameters: int = 1000, tensors: int = 10, **changes: Any) -> OptimizerFacts:
    """An optimizer of a small model."""
    return replace(OptimizerFacts(name=name, parameters=parameters, tensors=tensors), **changes)


def phase(**changes: Any) -> Phase:
    """Ten traced steps of a second each."""
    known = Phase(label="train.py:9", total=total(10), steps_observed=10, step=step_times(), trace_steps=1)
    return replace(known, **changes)


def lora_memory() -> MeasuredMemory:
    """What LoRA on an 8B in bf16 holds, sequence after sequence: 19.1 GiB reserved, 15.4 of them always."""
    loaded = {"weights": 15 * GIB, "states": GIB // 4, "gradients": 0}
    return MeasuredMemory(
        peaks=[
            MemoryPeak(phase="load", bytes=15 * GIB, kinds={"weights": 15 * GIB}),
            MemoryPeak(phase="forward", bytes=17 * GIB, kinds={**loaded, "activations": 7 * GIB // 4}),
            MemoryPeak(
                phase="backward",
                bytes=18 * GIB,
                kinds={**loaded, "gradients": GIB // 8, "activations": 7 * GIB // 4, "logits": 7 * GIB // 8},
            ),
            MemoryPeak(phase="optimizer", bytes=31 * GIB // 2, kinds={**loaded, "gradients": GIB // 4}),
        ],
        reserved_bytes=int(19.1 * GIB),
        steady_bytes=int(15.4 * GIB),
    )


def profile(*phases: Phase, **changes: Any) -> WorkloadProfile:
    """A script of these phases, measured on `machine()`."""
    known = WorkloadProfile(
        script="train.py",
        arguments=[],
        created="2026-11-21T00:00:00+00:00",
        costgpu_version="test",
        machine=machine(),
        framework=Framework(version="2.13.0", python="3.11"),
        setup_seconds=0.0,
        ended=False,
        wall_seconds=30.0,
        peak_rss_bytes=GIB,
        phases=list(phases) or [phase()],
    )
    return replace(known, **changes)
