"""What a larger batch brings, and what an engine needs."""

from __future__ import annotations

import math

import pytest

from costgpu.estimator.advice.best_batch import best_batch, saturating_batch, throughput
from costgpu.estimator.advice.engines import engine_decode_seconds, engine_prefill_seconds
from costgpu.estimator.unit_work import unit_of
from costgpu.pricing.hardware import accelerator
from tests.unit.estimator.units import PLAIN, convolution, linear, phase, relu

UNIT = unit_of(phase([convolution(8), linear(8), relu(8)]))
SMALL = unit_of(phase([linear(8, 256, count=50), relu(8, 256, count=50)]))
SPEC = accelerator("T4")


def test_the_saturating_batch_reaches_89_percent_of_the_best() -> None:
    batch = saturating_batch(UNIT, SPEC, PLAIN)
    best = throughput(UNIT, SPEC, PLAIN, 2.0**16)
    assert throughput(UNIT, SPEC, PLAIN, batch) == pytest.approx(0.89 * best, rel=0.02)


def test_the_best_batch_is_a_power_of_two_that_fits() -> None:
    free = best_batch(SMALL, SPEC, PLAIN)
    assert math.log2(free * 8) == int(math.log2(free * 8))
    assert throughput(SMALL, SPEC, PLAIN, free) > throughput(SMALL, SPEC, PLAIN)
    assert best_batch(SMALL, SPEC, PLAIN, largest=1.5) == 1.0


def test_an_engine_reads_the_weights_once_for_a_token() -> None:
    spec = accelerator("A100-80GB")
    one = engine_decode_seconds(13.5e9, 0.0, 32, spec)
    assert one == pytest.approx(1.2 * 13.5e9 / 2039e9 + 32 * 45e-6)
    assert engine_decode_seconds(13.5e9, 13.5e9, 32, spec) > one
    assert engine_prefill_seconds(6.7e9, 16384, spec) > engine_prefill_seconds(6.7e9, 256, spec)
