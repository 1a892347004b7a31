"""Advice on inference: each change where it applies, priced by the model; training's advice does not appear."""

import re
from dataclasses import replace
from typing import Any

import pytest

from costgpu.estimator.advice.changes import with_cpu_float32, with_items
from costgpu.estimator.advice.table import batch_factor, idle_share
from costgpu.estimator.predict import predict
from costgpu.models.prediction import Advice, AdviceKind, Candidate
from costgpu.models.workload import GpuPath, Phase, WorkloadProfile
from tests.unit.estimator import inferring
from tests.unit.estimator.advisable import CPU, advice_of, by_kind, framework, gpu, host, product, tiny, workload_of
from tests.unit.estimator.advisable import phase as training_phase

T4, A100, HOST = gpu("T4", 0.5), gpu("A100", 3.0), host(0.2)
OF_TRAINING = {
    AdviceKind.MIXED_PRECISION,
    AdviceKind.LARGER_BATCH,
    AdviceKind.FEWER_ACCUMULATIONS,
    AdviceKind.HOST_PYTHON,
}
AMX = replace(CPU, microarchitecture="Sapphire Rapids", bf16_in_hardware=True, family="m7i")


def advised(measured: WorkloadProfile, *places: Candidate) -> dict[AdviceKind, Advice]:
    return by_kind(advice_of(measured, places or (T4, A100, HOST)))


def scoring(batch: int, **facts: Any) -> WorkloadProfile:
    return inferring.profile(inferring.scoring(batch, 40_000_000 / batch, **facts))


def on_cpu(price: float, cpu: Any) -> Candidate:
    return replace(host(price), cpu=cpu)


def test_a_small_batch_is_advised_to_grow_and_the_idle_gpu_is_the_reason() -> None:
    found = advised(scoring(1), A100)[AdviceKind.BATCH_SIZE]
    assert found.after.phases[-1].unit is not None
    assert found.after.phases[-1].unit.items >= 8
    assert found.saving_usd > 0
    assert "images instead of 1 (at 1 the A100 idles " in found.action
    assert idle_share(workload_of(scoring(1)), A100) > idle_share(workload_of(scoring(64)), A100)


FEW = inferring.scoring(1, 4)
HUNGRY = inferring.scoring(1, 1_000_000, unit=replace(FEW.unit, activation_bytes=8 * 2**30))


@pytest.mark.parametrize(
    ("measured", "most"),
    [
        (scoring(256), 1.0),  # saturates the GPU
        (inferring.profile(HUNGRY), 1.0),  # nothing larger fits
        (inferring.profile(FEW), 4.0),  # no more is batched than there is
    ],
)
def test_how_much_larger_a_batch_may_become(measured: WorkloadProfile, most: float) -> None:
    assert 1.0 <= batch_factor(workload_of(measured), T4) <= most
    assert most > 1 or AdviceKind.BATCH_SIZE not in advised(measured, T4)


def test_only_the_loop_whose_batch_is_advised_is_changed() -> None:
    before = inferring.chat(1, 2000, label="gen.py:3")
    workload = workload_of(inferring.profile(before, inferring.scoring(1, 200_000)))
    larger = with_items(workload, 8)
    assert larger.profile.phases[0] is before
    assert list(larger.scope.steps) == [2000, 25_000]
    assert predict(larger, A100).phases[0] == predict(workload, A100).phases[0]


def test_a_larger_batch_scores_the_same_images() -> None:
    """Images and arithmetic stay; launches, calls and the reading of weights become fewer."""
    workload = workload_of(scoring(4))
    larger = with_items(workload, 8)
    before, after = predict(workload, T4), predict(larger, T4)
    assert larger.scope.steps[0] * 32 == pytest.approx(workload.scope.steps[0] * 4)
    unit = after.phases[-1].unit
    assert unit.items == 32
    assert after.run_seconds.value < before.run_seconds.value
    assert after.terms["compute"] * larger.scope.steps[0] == pytest.approx(
        before.terms["compute"] * workload.scope.steps[0]
    )


def test_items_that_are_not_independent_keep_their_batch() -> None:
    phase = inferring.scoring(1, 40_000_000)
    bound = replace(phase, unit=replace(phase.unit, independent=False))
    assert AdviceKind.BATCH_SIZE not in advised(inferring.profile(bound))


def test_precision_layout_and_compiling_are_priced() -> None:
    found = advised(scoring(64), T4)
    for kind in (AdviceKind.HALF_PRECISION, AdviceKind.COMPILE):
        assert found[kind].saving_usd > 0, kind
    assert "torch.float16" in found[AdviceKind.HALF_PRECISION].action
    assert "torch.bfloat16" in advised(scoring(64), A100)[AdviceKind.HALF_PRECISION].action
    together = found[AdviceKind.TOGETHER]
    assert together.saving_usd > found[AdviceKind.HALF_PRECISION].saving_usd


def test_tf32_is_for_matrix_products_on_gpus_that_have_it() -> None:
    long = inferring.profile(inferring.embedding(64, 3_000_000, seconds=12.0))  # what two cores can do
    assert AdviceKind.TF32 in advised(long, A100)
    assert AdviceKind.TF32 not in advised(long, T4)
    on = replace(long, framework=framework(matmul_tf32=True))
    assert AdviceKind.TF32 not in advised(on, A100)


def test_channels_last_is_for_images_in_half_precision() -> None:
    halved = inferring.scoring(64, 600_000)
    rows = [
        replace(
            row,
            inputs=[(s, t, "float16") for s, t, _ in row.inputs],
            outputs=[(s, t, "float16") for s, t, _ in row.outputs],
        )
        for row in halved.ops
    ]
    halved = replace(halved, ops=rows, unit=replace(halved.unit, weights_dtype="float16"))
    assert AdviceKind.CHANNELS_LAST in advised(inferring.profile(halved), A100)
    assert AdviceKind.CHANNELS_LAST not in advised(scoring(64), A100)
    assert AdviceKind.HALF_PRECISION not in advised(inferring.profile(halved), A100)


def test_bf16_is_advised_on_cpus_that_have_units_for_it() -> None:
    long = inferring.profile(inferring.embedding(64, 3_000_000, seconds=12.0))  # what two cores can do
    found = advised(long, on_cpu(0.3, AMX))[AdviceKind.CPU_PRECISION]
    assert found.saving_usd > 0
    assert "bfloat16" in found.action
    assert AdviceKind.CPU_PRECISION not in advised(long, on_cpu(0.3, CPU))


def test_fp32_is_advised_on_cpus_without_units_for_half_precision() -> None:
    chat = inferring.profile(inferring.chat(16, 20_000, seconds=2000.0))
    found = advised(chat, on_cpu(0.3, CPU))[AdviceKind.CPU_PRECISION]
    assert "fp32" in found.action
    assert AdviceKind.CPU_PRECISION not in advised(chat, on_cpu(0.3, AMX))
    more = with_cpu_float32(workload_of(chat), on_cpu(0.3, CPU)).profile.peak_rss_bytes
    assert more == (chat.peak_rss_bytes or 0) + chat.phases[0].model_bytes


def test_float16_is_left_for_bf16_where_only_that_has_units() -> None:
    zen = replace(CPU, microarchitecture="Zen 4 (Genoa)", bf16_in_hardware=True, family="m7a")
    chat = inferring.profile(inferring.chat(16, 20_000, seconds=2000.0, dtype="float16"))
    assert "bf16 instead of float16" in advised(chat, on_cpu(0.3, zen))[AdviceKind.CPU_PRECISION].action


def test_an_engine_is_compared_with_the_same_tokens_in_the_same_time() -> None:
    """A long prompt and a short answer: reading the prompt belongs to both figures, or to neither."""
    made = inferring.chat(8, 20_000, seconds=200.0)
    assert made.unit.generation is not None
    short = replace(made.unit.generation, new_tokens=8.0, decodes=7.0)
    short_chat = replace(made, unit=replace(made.unit, generation=short))
    found = advised(inferring.profile(short_chat), A100)[AdviceKind.ENGINE]
    rates = re.search(r"about ([\d,.]+) output tokens/s .* instead of ([\d,.]+)$", found.action)
    assert rates is not None, found.action
    now = 8 * 8 / found.before.phases[-1].sustained_seconds.value
    assert float(rates[2].replace(",", "")) == pytest.approx(now, rel=0.05)
    assert float(rates[1].replace(",", "")) > now


@pytest.mark.parametrize("phase", [inferring.scoring(1, 40_000_000), inferring.chat(1, 50_000)])
def test_advice_for_training_is_not_for_inference(phase: Phase) -> None:
    assert not OF_TRAINING & advised(inferring.profile(phase)).keys()


def test_training_gets_none_of_it() -> None:
    kinds = advised(inferring.profile(training_phase(product(2048, 20), tiny(2000)))).keys()
    assert not {AdviceKind.BATCH_SIZE, AdviceKind.HALF_PRECISION, AdviceKind.COMPILE, AdviceKind.ENGINE} & kinds


def test_a_script_that_trains_and_scores_gets_both() -> None:
    both = inferring.profile(training_phase(product(2048, 200), steps=20_000), inferring.scoring(64, 600_000))
    found = advised(both, A100)
    assert AdviceKind.MIXED_PRECISION in found
    assert AdviceKind.HALF_PRECISION in found
    assert AdviceKind.BATCH_SIZE not in found


def test_engines_and_quantization_are_named_without_a_saving() -> None:
    found = advised(inferring.profile(inferring.chat(1, 50_000)), A100)
    for kind in (AdviceKind.ENGINE, AdviceKind.QUANTIZATION):
        assert (found[kind].saving_usd, found[kind].after) == (0.0, None)
    assert "vLLM" in found[AdviceKind.ENGINE].action
    assert "factor of 1.6" in found[AdviceKind.ENGINE].notes[0]
    scored = advised(scoring(64), T4)
    assert "TensorRT" in scored[AdviceKind.ENGINE].notes[0]
    assert AdviceKind.QUANTIZATION not in scored


@pytest.mark.parametrize("path", [GpuPath.TABLE, GpuPath.NONE, GpuPath.COUNTED])
def test_what_was_not_traced_gets_no_advice_on_its_arithmetic(path: GpuPath) -> None:
    phase = replace(inferring.scoring(1, 40_000_000), gpu=path, trace_steps=0, kind="classical-ml")
    kinds = advised(inferring.profile(phase), HOST).keys()
    assert not {AdviceKind.BATCH_SIZE, AdviceKind.HALF_PRECISION, AdviceKind.CPU_PRECISION} & kinds


def test_a_model_that_fits_nowhere_is_told_with_what_it_would_fit() -> None:
    """30 GiB of fp32 weights on a T4 of 16 GiB: in half precision they are 15, in int8 8.3, in int4 5.1."""
    phase = inferring.scoring(1, 1_000_000, model_bytes=30 * 2**30)
    phase = replace(phase, unit=replace(phase.unit, activation_bytes=2**30))
    found = advised(inferring.profile(phase, peak_rss_bytes=2**30), T4, HOST)[AdviceKind.DOES_NOT_FIT]
    assert found.saving_usd == 0
    assert "more than any offer has" in found.action
    assert found.notes == ("On aws t4-1-8 (T4), us-east-1, on-demand it fits with int8 weights or with int4 weights.",)


def test_loading_a_model_is_not_advised_to_be_done_elsewhere() -> None:
    long = inferring.profile(inferring.scoring(64, 600_000), setup_seconds=900.0)
    assert AdviceKind.PREPROCESSING not in advised(long)
