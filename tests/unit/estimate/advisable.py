"""Hand-made workloads and offers for the tests of advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

from costgpu.estimate.advice.advise import advise
from costgpu.estimate.predict import Workload, predict, prepare
from costgpu.estimate.scope import amount_of
from costgpu.estimate.verdict import Preferences, decide
from costgpu.models.offer import Accelerator, CpuSpec, Offer, PurchaseOption
from costgpu.models.prediction import Advice, AdviceKind, Candidate, Prediction, Verdict
from costgpu.models.workload import (
    DataLoading,
    Extra,
    ExtraKind,
    Framework,
    Machine,
    OpRow,
    OptimizerFacts,
    Phase,
    Rhythm,
    StepTimes,
    TensorShape,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.pricing.hardware import accelerators
from costgpu.providers import registry

MIB, GIB = 2**20, 2**30
YEAR = 2026
ANY = Preferences()
CPU = CpuSpec(
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
    burstable=False,
)
MACHINE = Machine(
    cpu_model="test",
    cores=2,
    threads=2,
    memory_gib=8,
    gemm_gflops=100,
    gemm_gflops_low=95,
    copy_gbps=20,
    op_seconds=4e-6,
)


def tensor(*shape: int, dtype: str = "float32") -> TensorShape:
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * shape[place + 1]
    return list(shape), strides, dtype


def product(size: int, count: int, dtype: str = "float32") -> OpRow:
    """Square matrix products."""
    one = tensor(size, size, dtype=dtype)
    return OpRow(op="aten::mm", phase="forward", inputs=[one, one], outputs=[one], count=count, seconds=0.01)


def tiny(count: int) -> OpRow:
    """Kernels of no size."""
    one = tensor(8)
    return OpRow(op="aten::mul", phase="forward", inputs=[one, one], outputs=[one], count=count, seconds=1e-5)


def phase(*ops: OpRow, steps: float = 100_000, epochs: float = 10, **facts: Any) -> Phase:
    known: dict[str, Any] = {
        "label": "train.py:1",
        "steps_observed": 10,
        "trace_steps": 1,
        "ops": list(ops),
        "calls_per_step": 20.0,
        "total": Total(kind=TotalKind.EXACT, steps=steps, steps_per_epoch=steps / epochs, how=""),
        "step": StepTimes(count=10, median_seconds=2, mean_seconds=2, low_seconds=1.9, high_seconds=2.1),
        "optimizers": [OptimizerFacts(name="SGD", parameters=100_000, tensors=10)],
        "model_bytes": 400_000,
        "saved_tensor_bytes": 100 * MIB,
    }
    return Phase(**{**known, **facts})


def loading(fetch: float, workers: int = 0, *, wait: float = 0.0, size: int = 32) -> DataLoading:
    return DataLoading(
        wait_seconds_per_step=wait,
        fetch_seconds_per_batch=fetch,
        batches_per_step=1,
        workers=workers,
        batch_size=size,
        batch_bytes=MIB,
    )


def profile(*phases: Phase, **facts: Any) -> WorkloadProfile:
    known: dict[str, Any] = {
        "script": "train.py",
        "arguments": [],
        "created": "",
        "costgpu_version": "",
        "setup_seconds": 10.0,
        "ended": False,
        "wall_seconds": 40.0,
        "machine": MACHINE,
        "peak_rss_bytes": GIB,
        "framework": Framework(version="2.6.0", python="3.11", cuda_build="12.4"),
    }
    return WorkloadProfile(phases=list(phases), **{**known, **facts})


def checkpoint(every: float = 1.0, rhythm: Rhythm = Rhythm.EPOCH) -> Extra:
    return Extra(kind=ExtraKind.CHECKPOINT, seconds_each=1.0, rhythm=rhythm, every=every)


def gpu(
    name: str,
    price: float,
    *,
    count: float = 1,
    vcpus: int = 8,
    region: str = "us-east-1",
    spot: bool = False,
    type_: str = "",
    memory: float = 64,
    provider: str = "aws",
) -> Candidate:
    spec = accelerators()[name]
    return Candidate(
        costs=registry.costs("aws"),
        offer=Offer(
            provider=provider,
            instance_type=type_ or f"{name.lower()}-{count:g}-{vcpus}",
            family="x",
            region=region,
            zone=None,
            purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
            price_usd_per_hour=Decimal(str(price)),
            vcpus=vcpus,
            memory_gib=memory,
            architecture="x86_64",
            accelerator=Accelerator(name=name, count=count, memory_gib=spec.memory_gib),
            price_source="list",
            price_as_of=date(2026, 9, 17),
        ),
        cpu=CPU,
        accelerator=spec,
    )


def host(price: float = 0.2, vcpus: int = 8, memory: float = 32, region: str = "us-east-1") -> Candidate:
    chip = gpu("T4", price, vcpus=vcpus, type_=f"cpu-{vcpus}", memory=memory, region=region)
    assert chip.offer is not None
    return Candidate(costs=registry.costs("aws"), offer=replace(chip.offer, accelerator=None), cpu=CPU)


def workload_of(measured: WorkloadProfile) -> Workload:
    return prepare(measured, amount_of(measured), year=YEAR)


def predictions(workload: Workload, places: Sequence[Candidate]) -> list[Prediction]:
    return [predict(workload, place) for place in places]


def judged(
    workload: Workload, places: Sequence[Candidate], wanted: Preferences = ANY
) -> tuple[Verdict, list[Prediction]]:
    offers = predictions(workload, places)
    return decide(workload.amount, predict(workload, Candidate(offer=None)), offers, wanted, ()), offers


def advice_of(
    measured: WorkloadProfile,
    places: Sequence[Candidate],
    *,
    spot: Sequence[Candidate] = (),
    wider: Sequence[Candidate] = (),
    wanted: Preferences = ANY,
) -> tuple[Advice, ...]:
    workload = workload_of(measured)
    verdict, offers = judged(workload, places, wanted)
    return advise(
        workload,
        verdict,
        offers,
        wanted,
        spot_offers=predictions(workload, spot),
        wider_offers=predictions(workload, wider),
    )


def by_kind(advice: Sequence[Advice]) -> dict[AdviceKind, Advice]:
    found = {one.kind: one for one in advice}
    assert len(found) == len(advice), "one line for each kind"
    return found
