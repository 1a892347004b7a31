"""A workload and verdicts to render and to weigh, made without measuring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from costgpu.estimate.predict import Workload, predict, prepare
from costgpu.estimate.scope import Amount, amount_of
from costgpu.estimate.verdict import Preferences, decide
from costgpu.models.offer import Accelerator, AcceleratorSpec, CpuSpec, Offer, PurchaseOption
from costgpu.models.prediction import Candidate, Verdict
from costgpu.models.workload import (
    DataLoading,
    Framework,
    Machine,
    OpRow,
    OptimizerFacts,
    Phase,
    StepTimes,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.pricing.hardware import accelerators
from costgpu.providers import registry

TODAY = date(2026, 11, 21)
CPU = CpuSpec(
    provider="aws",
    family="c7a",
    model="AMD EPYC 9R14",
    microarchitecture="Zen 4",
    vcpus_per_core=1,
    all_core_ghz=3.0,
    fp32_flops_per_cycle=32,
    bf16_in_hardware=True,
    read_gbps=None,
    read_vcpus=None,
    matrix_mult_per_vcpu=None,
    burstable=False,
)


def profile(
    *,
    script: str = "train.py",
    steps: float | None = 20_000,
    size: int = 1024,
    loops: Sequence[str] = (),
    notes: Sequence[str] = (),
    cuda: str | None = None,
    workers: int = 0,
    fetch: float | None = None,
) -> WorkloadProfile:
    """A square matrix multiply of `size`, 40 ms a step here."""
    shape = ([size, size], [size, 1], "float32")
    ops = [
        OpRow(op="aten::mm", phase=phase, inputs=[shape, shape], outputs=[shape], count=10)
        for phase in ("forward", "backward", "backward")
    ]
    known = TotalKind.EXACT if steps is not None else TotalKind.UNKNOWN
    data = DataLoading(batches_per_step=1, workers=workers, fetch_seconds_per_batch=fetch, batch_bytes=10**6)
    return WorkloadProfile(
        script=script,
        arguments=["--lr", "0.1"],
        created="2026-11-20T10:00:00+00:00",
        costgpu_version="1",
        machine=Machine(
            cpu_model="AMD EPYC",
            cores=2,
            threads=2,
            memory_gib=16,
            gemm_gflops=100,
            gemm_gflops_low=95,
            copy_gbps=20,
            op_seconds=4e-6,
        ),
        framework=Framework(version="2.7.0", python="3.11", cuda_build=cuda),
        setup_seconds=10.0,
        ended=False,
        wall_seconds=40.0,
        peak_rss_bytes=10**9,
        phases=[
            Phase(
                label=f"{script}:41",
                total=Total(kind=known, steps=steps, steps_per_epoch=None, how="the loop says so", loops=list(loops)),
                steps_observed=100,
                step=StepTimes(
                    count=50, median_seconds=0.04, mean_seconds=0.041, low_seconds=0.038, high_seconds=0.045
                ),
                data=data,
                ops=ops,
                trace_steps=10,
                calls_per_step=3,
                optimizers=[OptimizerFacts(name="SGD", parameters=size * size, tensors=1)],
            )
        ],
        notes=list(notes),
    )


def workload(of: WorkloadProfile) -> tuple[Workload, Amount]:
    amount = amount_of(of)
    return prepare(of, amount, year=2026), amount


def offer(
    price: str,
    *,
    gpu: str = "",
    name: str = "",
    spot: bool = False,
    region: str = "us-east-1",
    provider: str = "aws",
    count: float = 1.0,
) -> Offer:
    spec = accelerators()[gpu] if gpu else None
    return Offer(
        provider=provider,
        instance_type=name or ("g6.xlarge" if gpu else "c7a.2xlarge"),
        family="x",
        region=region,
        zone=None,
        purchase_option=PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal(price),
        vcpus=8,
        memory_gib=32,
        architecture="x86_64",
        accelerator=Accelerator(name=gpu, count=count, memory_gib=spec.memory_gib) if spec else None,
        price_source="list",
        price_as_of=date(2026, 9, 17),
    )


def candidate(of: Offer) -> Candidate:
    spec: AcceleratorSpec | None = accelerators()[of.accelerator.name] if of.accelerator else None
    return Candidate(costs=registry.costs("aws"), offer=of, cpu=CPU, accelerator=spec)


OFFERS = (
    offer("0.41"),
    offer("0.21", name="c7a.xlarge"),
    offer("0.81", gpu="L4"),
    offer("4.10", gpu="A100", name="p4d.slice"),
)


def verdict(work: Workload, amount: Amount, offers: Sequence[Offer] = OFFERS, *, rows: int = 10) -> Verdict:
    here = predict(work, Candidate(offer=None))
    found = [predict(work, candidate(each)) for each in offers]
    return decide(amount, here, found, Preferences(rows=rows), ())


def near(value: float, other: float, share: float = 1e-9) -> bool:
    return math.isclose(value, other, rel_tol=share)
