"""A workload and verdicts to render and to weigh, made without measuring."""

from collections.abc import Sequence
from datetime import date

from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload, prepare
from costgpu.estimator.scope import Scope, scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.offer import AcceleratorSpec, Offer
from costgpu.models.prediction import Candidate, Verdict
from costgpu.models.workload import (
    DataLoading,
    Framework,
    OpRow,
    StepTimes,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.pricing.hardware import accelerators
from costgpu.providers import registry
from tests.unit.estimator import builders

TODAY = date(2026, 11, 21)
CPU = builders.cpu_spec(family="c7a", vcpus_per_core=1)


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
    phase = builders.phase(
        label=f"{script}:41",
        total=Total(kind=known, steps=steps, steps_per_epoch=None, how="the loop says so", loops=list(loops)),
        steps_observed=100,
        step=StepTimes(count=50, median_seconds=0.04, mean_seconds=0.041, low_seconds=0.038, high_seconds=0.045),
        data=data,
        ops=ops,
        trace_steps=10,
        calls_per_step=3,
        optimizers=[builders.optimizer(parameters=size * size, tensors=1)],
    )
    return builders.profile(
        phase,
        script=script,
        arguments=["--lr", "0.1"],
        created="2026-11-20T10:00:00+00:00",
        costgpu_version="1",
        machine=builders.machine(
            cpu_model="AMD EPYC", cores=2, threads=2, gemm_gflops_low=95, copy_gbps=20, op_seconds=4e-6
        ),
        framework=Framework(version="2.7.0", python="3.11", cuda_build=cuda),
        setup_seconds=10.0,
        wall_seconds=40.0,
        peak_rss_bytes=10**9,
        notes=list(notes),
    )


def workload(of: WorkloadProfile) -> tuple[Workload, Scope]:
    scope = scope_of(of)
    return prepare(of, scope, year=2026), scope


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
    return builders.offer(
        price,
        gpu=gpu,
        count=count,
        gpu_memory_gib=accelerators()[gpu].memory_gib if gpu else 0,
        spot=spot,
        provider=provider,
        instance_type=name or ("g6.xlarge" if gpu else "c7a.2xlarge"),
        region=region,
        memory_gib=32,
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


def verdict(work: Workload, scope: Scope, offers: Sequence[Offer] = OFFERS, *, rows: int = 10) -> Verdict:
    here = predict(work, Candidate(offer=None))
    found = [predict(work, candidate(each)) for each in offers]
    return decide(scope, here, found, Preferences(rows=rows), ())
