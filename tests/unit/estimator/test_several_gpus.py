"""Predictions for all GPUs of a place, of one machine and of several, for profiles of scripts that use them."""

from dataclasses import replace
from typing import Any

import pytest

from costgpu.estimator.cost import energy_kwh, hourly_usd
from costgpu.estimator.multi_gpu.step_time import RENDEZVOUS_SECONDS
from costgpu.estimator.multi_gpu.words import rows_by_gpus
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.reference_profiles import language_model_profile
from costgpu.estimator.scope import scope_of
from costgpu.models.parallelism import BatchScaling, Scheme
from costgpu.models.prediction import Candidate, Prediction
from costgpu.models.workload import DataLoading, GpuPath, Phase, StepTotals, WorkloadProfile
from tests.unit.estimator import inferring
from tests.unit.estimator.builders import GIB, candidate, gpu_spec, machine, offer, optimizer, phase, profile, total
from tests.unit.estimator.multi_gpu.groups import interconnect, parallelism

PARAMETERS = 25_600_000
SAMPLES, BATCH = 51_200, 64  # 800 steps of an epoch on one GPU
A100 = gpu_spec("A100", fp16_tensor_tflops=312, bf16_tensor_tflops=312, memory_gib=40)


def training(**changes: Any) -> Phase:
    """Ten epochs of a network as large as ResNet-50 whose sums are known."""
    known: dict[str, Any] = {
        "total": total(8000, 800),
        "gpu": GpuPath.COUNTED,
        "totals": StepTotals(flops=2e12, bytes_moved=2e10, kernels=500),
        "optimizers": [optimizer(parameters=PARAMETERS, tensors=161)],
        "saved_tensor_bytes": 2**30,
    }
    return phase(**{**known, **changes})


def script(scheme: Scheme = Scheme.DDP, *, of: Phase | None = None, **changes: Any) -> WorkloadProfile:
    """A script that trains it so."""
    size = changes.pop("size", PARAMETERS)
    spread = parallelism(scheme, size, **{"epoch_samples": SAMPLES, "rank_batch": BATCH, **changes})
    return profile(of or training(), parallelism=spread)


def place(count: int = 8, nodes: int = 1, *, vcpus: int = 96, memory_gib: float = 40, **links: Any) -> Candidate:
    """Machines with A100."""
    machines = offer(4.0 * count, gpu="A100", count=count, gpu_memory_gib=memory_gib, vcpus=vcpus, memory_gib=1000)
    known = interconnect(**({"link": "", "link_gbps": None} if count == 1 else {}) | links)
    return candidate(machines, accelerator=A100, nodes=nodes, interconnect=known)


def predicted(of: WorkloadProfile, where: Candidate) -> Prediction:
    return predict(prepare(of, scope_of(of), year=2026), where)


def test_eight_gpus_take_an_eighth_of_the_steps() -> None:
    one, eight = (predicted(script(), place(count)) for count in (1, 8))
    assert one.scaling is None
    scaling = eight.scaling
    assert (scaling.gpus, scaling.nodes, scaling.scheme, scaling.steps) == (8, 1, Scheme.DDP, 1000)
    assert scaling.efficiency_low < scaling.efficiency < scaling.efficiency_high <= 1
    assert eight.step_seconds == pytest.approx(one.step_seconds / scaling.efficiency)
    assert sum(eight.terms.values()) == pytest.approx(eight.step_seconds)
    assert eight.terms["communication"] == scaling.communication_seconds > 0
    assert eight.terms["stragglers"] == scaling.straggler_seconds > 0
    assert eight.parts["steps"] == pytest.approx(1000 * eight.step_seconds)
    assert eight.parts["rendezvous"] == RENDEZVOUS_SECONDS
    assert eight.run_seconds.low < eight.run_seconds.value < eight.run_seconds.high


def test_a_script_of_one_process_is_never_given_more() -> None:
    alone = profile(training())
    one, eight = (predicted(alone, place(count)) for count in (1, 8))
    assert eight.scaling is None
    assert eight.run_seconds == one.run_seconds
    assert "the script uses one of its 8 GPUs" in eight.notes
    assert "one process, which cannot use 2 machines" in predicted(alone, place(8, 2)).infeasible


def test_one_rank_on_one_gpu_is_the_script_alone() -> None:
    assert predicted(script(), place(1)).run_seconds == predicted(profile(training()), place(1)).run_seconds


def test_a_global_batch_is_divided() -> None:
    one, eight = (predicted(script(batch=BatchScaling.GLOBAL), place(count)) for count in (1, 8))
    scaling = eight.scaling
    assert scaling.strong
    assert scaling.steps is None
    assert one.step_seconds / 8 < eight.step_seconds < one.step_seconds  # launches do not get fewer
    assert scaling.efficiency == pytest.approx(one.step_seconds / (8 * eight.step_seconds))
    assert scaling.memory_gib is not None
    assert (
        "its global batch of 4 cannot be divided"
        in predicted(script(batch=BatchScaling.GLOBAL, rank_batch=4), place(8)).infeasible
    )


def test_accumulation_is_divided_first() -> None:
    """A script that accumulates has fewer micro-batches with more ranks, and so fewer launches, too."""
    accumulating = training(micro_batches=8.0)
    one, eight = (predicted(script(of=accumulating, batch=BatchScaling.GLOBAL), place(n)) for n in (1, 8))
    whole = predicted(script(batch=BatchScaling.GLOBAL), place(8))
    assert eight.terms["launch"] < one.terms["launch"] / 4
    assert whole.terms["launch"] == one.terms["launch"]


def test_a_batch_that_the_gpus_do_not_divide_is_remarked() -> None:
    for of, what in ((training(micro_batches=12.0), "12 micro-batches"), (training(), "60 samples")):
        found = predicted(script(of=of, batch=BatchScaling.GLOBAL, rank_batch=60), place(8))
        assert any(f"8 GPUs do not divide the {what} of a step evenly" in note for note in found.notes)


def test_data_that_is_not_divided_is_warned_of() -> None:
    found = predicted(script(sampler_distributed=False), place(8))
    assert found.parts["steps"] == pytest.approx(8000 * found.step_seconds)
    assert any("its sampler is not distributed" in note for note in found.notes)


def test_processes_share_the_cores_of_the_machine() -> None:
    data = DataLoading(batches_per_step=1, fetch_seconds_per_batch=0.6, workers=8, batch_size=BATCH)
    loading = script(of=training(data=data))
    few, many = (predicted(loading, place(8, vcpus=vcpus)) for vcpus in (16, 1000))
    assert few.terms["loading"] > 0 == many.terms["loading"]
    assert few.step_seconds == pytest.approx(8 * 0.6 / (0.9 * 16))
    assert few.scaling.input_seconds == few.terms["loading"]
    assert any("start 64 workers for data, on 16 vCPUs" in note for note in few.notes)


def test_processes_with_less_than_a_core_wait_for_it() -> None:
    few, many = (predicted(script(of=training(host_seconds_per_step=0.2)), place(8, vcpus=n)) for n in (4, 96))
    assert few.terms["host"] > 1.5 * many.terms["host"]
    assert few.scaling.efficiency < 0.8 < many.scaling.efficiency


def test_several_machines_cost_as_many_times_more() -> None:
    one, four = (predicted(script(), place(8, nodes)) for nodes in (1, 4))
    assert hourly_usd(four.candidate) == pytest.approx(4 * hourly_usd(one.candidate))
    assert four.cost_usd.value == pytest.approx(hourly_usd(four.candidate) * four.wall_seconds.value / 3600, rel=0.01)
    assert (four.scaling.gpus, four.scaling.nodes) == (32, 4)
    assert four.scaling.efficiency < one.scaling.efficiency
    assert four.run_seconds.value < one.run_seconds.value
    assert energy_kwh(four, machine()) > 2 * energy_kwh(one, machine()) / 4
    assert "not known: measure it" in predicted(script(), place(8, 4, network_gbps=None)).infeasible


def test_links_that_are_not_known_are_no_default() -> None:
    found = predicted(script(), replace(place(8), interconnect=None))
    assert "the links between its GPUs are not known" in found.infeasible
    assert "tensor parallelism" in predicted(script(Scheme.TENSOR), place(8)).infeasible
    assert not predicted(script(Scheme.TENSOR), place(1)).infeasible


def test_what_does_not_fit_says_how_it_would() -> None:
    large = training(optimizers=[optimizer("Adam", parameters=2_000_000_000, state_bytes=16 * 10**9)])
    units: dict[str, Any] = {"size": 2 * 10**9, "largest_unit_parameters": 10**8}
    data_parallel = predicted(script(of=large, **units), place(8))
    assert (
        "on each of 8 GPUs under DDP, each has 39.2 GiB: fits with 44 %, and 90 % are asked for; it would fit under FSDP"
        " on 2 of them" in data_parallel.infeasible
    )
    sharded = predicted(script(Scheme.FSDP, of=large, gathered_bytes=2.0, reduced_bytes=2.0, **units), place(8))
    assert not sharded.infeasible
    assert sharded.scaling is not None
    assert sharded.scaling.memory_gib is not None
    assert sharded.scaling.memory_gib < 10


def test_inference_on_all_gpus_makes_as_many_items_more() -> None:
    scores = replace(inferring.profile(inferring.scoring(64, 8000)), parallelism=parallelism())
    one, eight = (predicted(scores, place(count, memory_gib=80)) for count in (1, 8))
    alone, together = one.phases[0].unit, eight.phases[0].unit
    assert together.items == pytest.approx(8 * alone.items)
    assert eight.scaling.memory_gib == pytest.approx((102e6 + 64 * 1e7) / GIB + 1), "which DDP adds nothing to"
    assert eight.terms["communication"] == 0
    assert eight.parts["steps"] < one.parts["steps"] / 7


class TestALanguageModelOfAKnownSize:
    @staticmethod
    def model(parameters: float, where: Candidate) -> Prediction:
        return predicted(language_model_profile(parameters, 1e9, machine(), "2026-11-24T00:00:00+00:00", "test"), where)

    def test_it_uses_all_gpus_by_the_scheme_that_fits(self) -> None:
        small, large = (self.model(size, place(8, memory_gib=80)) for size in (1e8, 7e9))
        assert large.scaling is not None
        assert (small.scaling.scheme, large.scaling.scheme) == (Scheme.DDP, Scheme.FSDP)
        assert large.scaling.memory_gib is not None
        assert large.scaling.memory_gib * 1.25 <= 0.98 * 80
        assert large.scaling.mfu is not None
        assert 0.2 < large.scaling.mfu < 0.6
        assert any("taken to train under FSDP" in note for note in large.notes)

    def test_checkpointing_is_said_and_takes_longer(self) -> None:
        roomy, tight = (self.model(7e9, place(8, memory_gib=gib)) for gib in (80, 32))
        assert (roomy.scaling.checkpointed, tight.scaling.checkpointed) == (False, True)
        assert any("with activation checkpointing (1.33 times" in note for note in tight.notes)
        assert tight.run_seconds.value > roomy.run_seconds.value

    def test_more_machines_make_room(self) -> None:
        assert "under FSDP, each has 39.2 GiB; it would fit on 64 of them" in self.model(7e10, place(8)).infeasible
        assert not self.model(7e10, place(8, 8)).infeasible

    def test_published_throughput(self) -> None:
        """Llama 8B on 8 H100 under FSDP: 5,762 tokens/s per GPU in eager mode, 6,667 compiled (torchtitan, 2024-12)."""
        h100 = gpu_spec(
            "H100",
            model="H100-SXM5",
            architecture="Hopper",
            memory_gib=80,
            memory_bandwidth_gbps=3350,
            fp32_tflops=67,
            bf16_tensor_tflops=989,
            fp16_tensor_tflops=989,
        )
        where = candidate(
            offer(55, gpu="H100", count=8, gpu_memory_gib=80, vcpus=192, memory_gib=2000),
            accelerator=h100,
            interconnect=interconnect(link="nvlink4", link_gbps=200),
        )
        each = 1e9 / self.model(8.03e9, where).run_seconds.value / 8
        assert 5000 < each < 8000


def test_rows_by_the_number_of_gpus() -> None:
    offers = [predicted(script(), place(count)) for count in (8, 1, 4, 2)]
    rows = rows_by_gpus(offers, offers[0])
    assert [one.scaling.gpus if one.scaling else 1 for one in rows] == [1, 2, 4, 8]
    alone = [predicted(profile(training()), place(count)) for count in (1, 8)]
    assert rows_by_gpus(alone, alone[0]) == ()
