"""Hand-made workloads and offers for the tests of advice."""

from collections.abc import Sequence
from typing import Any

from costgpu.estimator.advice.advise import advise
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import Workload, prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Advice, AdviceKind, Candidate, Prediction, Verdict
from costgpu.models.workload import (
    DataLoading,
    Extra,
    ExtraKind,
    Framework,
    OpRow,
    Phase,
    Rhythm,
    TensorShape,
    WorkloadProfile,
)
from costgpu.pricing.hardware import accelerators
from tests.unit.estimator import builders

MIB = 2**20
YEAR = 2026
ANY = Preferences()
CPU = builders.cpu_spec()
MACHINE = builders.machine(cores=2, threads=2, memory_gib=8, gemm_gflops_low=95, copy_gbps=20, op_seconds=4e-6)


def framework(**facts: Any) -> Framework:
    return Framework(version="2.6.0", python="3.11", cuda_build="12.4", **facts)


def tensor(*shape: int, dtype: str = "float32", channels_last: bool = False) -> TensorShape:
    """A contiguous tensor, or a convolution's in channels-last order."""
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * shape[place + 1]
    if channels_last:
        _, channels, height, width = shape
        strides = [channels * height * width, 1, width * channels, channels]
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
        "ops": list(ops),
        "calls_per_step": 20.0,
        "total": builders.total(steps, steps / epochs),
        "step": builders.step_times(2, low_seconds=1.9, high_seconds=2.1),
        "optimizers": [builders.optimizer(parameters=100_000)],
        "model_bytes": 400_000,
        "saved_tensor_bytes": 100 * MIB,
    }
    return builders.phase(**{**known, **facts})


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
    known = {"setup_seconds": 10.0, "wall_seconds": 40.0, "machine": MACHINE, "framework": framework()}
    return builders.profile(*phases, **{**known, **facts})


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
    offer = builders.offer(
        price,
        gpu=name,
        count=count,
        gpu_memory_gib=spec.memory_gib,
        spot=spot,
        provider=provider,
        instance_type=type_ or f"{name.lower()}-{count:g}-{vcpus}",
        region=region,
        vcpus=vcpus,
        memory_gib=memory,
    )
    return builders.candidate(offer, CPU, accelerator=spec)


def host(price: float = 0.2, vcpus: int = 8, memory: float = 32, region: str = "us-east-1") -> Candidate:
    offer = builders.offer(price, vcpus=vcpus, instance_type=f"cpu-{vcpus}", memory_gib=memory, region=region)
    return builders.candidate(offer, CPU)


def workload_of(measured: WorkloadProfile) -> Workload:
    return prepare(measured, scope_of(measured), year=YEAR)


def predictions(workload: Workload, places: Sequence[Candidate]) -> list[Prediction]:
    return [predict(workload, place) for place in places]


def judged(
    workload: Workload, places: Sequence[Candidate], wanted: Preferences = ANY
) -> tuple[Verdict, list[Prediction]]:
    offers = predictions(workload, places)
    return decide(workload.scope, predict(workload, Candidate(offer=None)), offers, wanted, ()), offers


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
