"""Advice on several GPUs for scripts of one process: what DDP would take, and how many GPUs hold the model under FSDP."""

from dataclasses import replace
from typing import Any

from costgpu.models.prediction import Advice, AdviceKind, Prediction
from costgpu.models.workload import WorkloadProfile
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import advice_of, by_kind, framework, gpu, phase, product, profile
from tests.unit.estimator.multi_gpu.groups import interconnect

TUNED = framework(float32_matmul_precision="high", matmul_tf32=True)
LARGE = product(4096, 60)


def several(name: str, price: float, count: int) -> Any:
    """A machine with so many GPUs and links between them."""
    place = gpu(name, price, count=count)
    link = {"link": "", "link_gbps": None} if count == 1 else {"link": "nvlink3", "link_gbps": 125.0}
    return replace(place, interconnect=interconnect(**link))


PLACES = [several("A10G", 1.0, 1), several("A10G", 4.5, 4)]


def ddp_of(of: WorkloadProfile) -> Advice | None:
    return by_kind(advice_of(of, PLACES)).get(AdviceKind.DDP)


def test_what_ddp_would_take_and_cost() -> None:
    found = ddp_of(profile(phase(LARGE, steps=200_000), framework=TUNED))
    after: Prediction | None = found.after
    assert after.scaling.gpus == 4
    assert "torchrun --nproc-per-node 4" in found.action
    assert found.saving_seconds > 0.6 * found.before.wall_seconds.value
    assert found.probability >= 0.8
    assert any("DistributedSampler(data)" in note for note in found.notes)


def test_not_for_short_jobs_other_frameworks_or_inference() -> None:
    assert ddp_of(profile(phase(LARGE, steps=2000), framework=TUNED)) is None
    assert ddp_of(profile(phase(LARGE, steps=200_000), framework=replace(TUNED, name="keras"))) is None


def test_a_fixed_number_of_steps_divides_the_batch() -> None:
    counted = phase(LARGE, total=builders.total(200_000))
    found = ddp_of(profile(counted, framework=TUNED))
    assert found is None or any("of the batch" in note for note in found.notes)


def test_a_model_too_large_for_any_gpu_is_sharded() -> None:
    large = phase(LARGE, optimizers=[builders.optimizer("Adam", parameters=1_700_000_000, state_bytes=13_600_000_000)])
    found = by_kind(advice_of(profile(large, framework=TUNED), [several("A10G", 1.0, 1), several("A10G", 9, 8)]))
    words = found[AdviceKind.DOES_NOT_FIT]
    assert "under FSDP it fits aws" in words.action
    assert any("fully_shard()" in note for note in words.notes)
