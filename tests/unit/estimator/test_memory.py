"""What fits an accelerator."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.gpu import Execution, Precision
from costgpu.estimator.memory import largest_batch, memory_need, what_fits
from costgpu.models.workload import Generation, Unit
from tests.unit.estimator.units import PLAIN, generating, linear, phase


def test_the_measured_case_of_a_large_language_model() -> None:
    """Llama-2 7B in fp16, batch 64, 768 tokens: 65.1 GB measured, with the cache held twice."""
    made = Generation(
        sequences=2 * 64, prompt_tokens=512, new_tokens=256, decodes=255, cache_bytes_per_token=2 * 32 * 4096 * 2
    )
    one = Unit(trains=False, items=64, weights_dtype="float16", activation_bytes=1, generation=made)
    need = memory_need(phase([], unit=one, model_bytes=13_500_000_000), PLAIN)
    assert need.weights + need.cache == pytest.approx(65.1e9, rel=0.06)


def test_autocast_keeps_both_weights_and_half_halves_them() -> None:
    plain = phase([linear(8)])
    autocast = memory_need(plain, Execution(Precision(half="float16", matmul_tf32=False, conv_tf32=True)))
    half = memory_need(plain, replace(PLAIN, weights="float16"))
    assert autocast.weights == 1.5 * plain.model_bytes
    assert half.weights == 0.5 * plain.model_bytes
    assert half.activations == 0.5 * memory_need(plain, PLAIN).activations


def test_without_a_trace_the_margin_is_wider() -> None:
    known, unknown = phase([]), phase([], unit=Unit(trains=False, items=8))
    assert memory_need(known, PLAIN).gib_with_margin == pytest.approx(1.10 * memory_need(known, PLAIN).gib)
    assert memory_need(unknown, PLAIN).gib_with_margin == pytest.approx(1.25 * memory_need(unknown, PLAIN).gib)


@given(memory=st.floats(min_value=16.0, max_value=200.0))
def test_the_largest_batch_fits_and_no_more(memory: float) -> None:
    need = memory_need(generating(), PLAIN)
    batch = largest_batch(need, memory)
    assert replace(
        need, cache=need.cache * batch, activations=need.activations * batch
    ).gib_with_margin == pytest.approx(memory)


def test_nothing_fits_below_the_weights_and_anything_does_without_growth() -> None:
    need = memory_need(generating(), PLAIN)
    assert largest_batch(need, 12.0) == 0.0
    assert largest_batch(replace(need, cache=0.0, activations=0.0), 80.0) == math.inf


def test_what_fits_a_small_card_is_quantized() -> None:
    wide = phase(
        [],
        model_bytes=28_000_000_000,
        unit=Unit(trains=False, items=1, weights_dtype="float32", activation_bytes=1),
    )
    assert [fit.change for fit in what_fits(wide, PLAIN, 15.0)] == ["int8", "int4"]
    assert [fit.change for fit in what_fits(wide, PLAIN, 80.0)] == ["as written", "half", "int8", "int4"]
