"""What one unit computes, and the passes of a generation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costgpu.estimator.roofline import FORWARD, TRAINING
from costgpu.estimator.unit_work import mean_context, pass_terms, traced_context, unit_of, unit_terms
from costgpu.models.workload import GpuPath, OpRow, StepTotals
from costgpu.pricing.hardware import accelerator
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import tensor
from tests.unit.estimator.units import PLAIN, generating, linear, phase, relu


def test_a_batch_is_one_pass_of_its_trace() -> None:
    unit = unit_of(replace(phase([linear(8, count=4)]), trace_steps=2))
    (one,) = unit.passes
    assert (one.work.kernels, one.times, unit.items) == (2.0, 1.0, 8.0)


def test_own_python_counts_only_where_it_was_measured() -> None:
    assert unit_of(phase([linear(8)])).own_seconds is None
    assert unit_of(phase([linear(8)], host_seconds_per_step=0.01)).own_seconds == 0.01


def test_a_scaled_unit_reads_its_weights_once() -> None:
    unit = unit_of(phase([linear(8), relu(8)]))
    work, more = unit.passes[0].work, unit.scaled(4).passes[0].work
    assert more.weight_bytes == work.weight_bytes > 0
    assert more.total_flops == 4 * work.total_flops
    assert more.kernels == work.kernels
    assert unit.scaled(4).items == 32


def test_sums_alone_make_a_unit_too() -> None:
    totals = StepTotals(flops=1e12, bytes_moved=1e9, kernels=100, convolutions=0.5)
    unit = unit_of(phase([], gpu=GpuPath.COUNTED, totals=totals))
    assert unit.passes[0].work.total_flops == pytest.approx(1e12)
    assert unit_terms(unit, accelerator("T4"), PLAIN).seconds > 0


def test_a_generation_is_a_prefill_and_its_decodes() -> None:
    spec = accelerator("A100")
    unit = unit_of(generating(decodes=100, traced=2))
    prefill, decode = pass_terms(unit, spec, PLAIN)
    assert unit_terms(unit, spec, PLAIN).seconds == pytest.approx(prefill.seconds + 100 * decode.seconds)
    assert unit.passes[1].work.kernels == 96


def test_the_work_of_a_unit_is_that_of_all_its_passes() -> None:
    unit = unit_of(generating(decodes=100, traced=2))
    prefill, decode = (one.work for one in unit.passes)
    assert unit.work.kernels == 32 + 96 * 100
    assert unit.work.total_flops == pytest.approx(prefill.total_flops + 100 * decode.total_flops)
    assert unit.work.bytes_moved == pytest.approx(prefill.bytes_moved + 100 * decode.bytes_moved)
    assert unit.work.weight_bytes == pytest.approx(prefill.weight_bytes + 100 * decode.weight_bytes)
    assert unit.work.moved.keys() == prefill.moved.keys() | decode.moved.keys()


def test_a_training_step_is_one_pass_with_its_optimizer() -> None:
    norm = replace(relu(8), op="aten::native_batch_norm")
    step = builders.phase(ops=[linear(8), norm], optimizers=[builders.optimizer()], host_seconds_per_step=0.01)
    unit = unit_of(step)
    (one,) = unit.passes
    assert unit.work is one.work
    assert (unit.model, unit.optimizers, unit.own_seconds, unit.items) == (TRAINING, step.optimizers, 0.01, None)
    scored = unit_of(phase(step.ops))
    assert (scored.model, scored.optimizers) == (FORWARD, ())
    assert unit.work.bytes_moved > scored.work.bytes_moved, "statistics of a batch take a second look at it"


def test_the_cache_of_a_decode_is_that_of_the_middle_of_the_answer() -> None:
    attention = OpRow(
        op="aten::_scaled_dot_product_flash_attention",
        phase="decode",
        inputs=[tensor(2, 32, 1, 128, dtype="float16"), *[tensor(2, 32, 257, 128, dtype="float16")] * 2],
        outputs=[tensor(2, 32, 1, 128, dtype="float16")],
        count=32,
    )
    made = generating(decodes=100)
    there = replace(made, ops=[*made.ops, attention])
    assert traced_context([attention]) == 257
    generation = there.unit.generation
    assert generation is not None
    assert mean_context(generation) == 256 + 101 / 2
    extra = 3 * 524_288 * 2 * (256 + 101 / 2 - 257)
    no_cache = replace(there.unit, generation=replace(generation, cache_bytes_per_token=0.0))
    with_cache, without = (unit_of(one).passes[1].work for one in (there, replace(there, unit=no_cache)))
    assert with_cache.bytes_moved - without.bytes_moved == pytest.approx(extra)
    assert sum(with_cache.autocast_moved.values()) - sum(without.autocast_moved.values()) == pytest.approx(extra), (
        "it is in half precision already"
    )
