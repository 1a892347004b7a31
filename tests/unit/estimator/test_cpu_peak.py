"""Half precision on CPUs with and without units for it, and decoding by memory bandwidth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.cpu_peak import (
    ABSOLUTE_UNMEASURED,
    HalfUnit,
    half_gain,
    half_unit,
    unit_seconds_on_cpu,
    unit_terms_on_cpu,
)
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.step import Step, step_on
from costgpu.estimator.unit_work import unit_of
from costgpu.models.workload import DataLoading, Phase
from costgpu.pricing.hardware import cpu
from tests.unit.estimator import builders
from tests.unit.estimator.units import generating, linear, phase

LARGE = phase([linear(4096, 4096, count=20)])


def half_of(dtype: str) -> Phase:
    unit = replace(LARGE.unit, weights_dtype=dtype)
    return replace(LARGE, ops=[linear(4096, 4096, dtype=dtype)], unit=unit)


def on_cpu(one: Phase, family: str, **facts: bool) -> Step:
    whole = builders.profile(one, **facts)
    place = builders.candidate(builders.offer(vcpus=16), cpu("aws", family))
    return step_on(prepare(whole, scope_of(whole), year=2026), 0, place)


@pytest.mark.parametrize(
    ("provider", "family", "unit"),
    [
        ("aws", "c7i", HalfUnit.AMX),
        ("aws", "c8i", HalfUnit.AMX),
        ("gcp", "c3", HalfUnit.AMX),
        ("gcp", "n4", HalfUnit.AMX),
        ("aws", "c7a", HalfUnit.AVX512_BF16),
        ("gcp", "c3d", HalfUnit.AVX512_BF16),
        ("aws", "c8g", HalfUnit.ARM_BF16),
        ("gcp", "c4a", HalfUnit.ARM_BF16),
        ("aws", "c6i", HalfUnit.NONE),
        ("aws", "c6g", HalfUnit.NONE),
        ("gcp", "n2", HalfUnit.NONE),
    ],
)
def test_families_and_their_units(provider: str, family: str, unit: HalfUnit) -> None:
    assert half_unit(cpu(provider, family), "bfloat16") is unit


@pytest.mark.parametrize(
    ("family", "unit"),
    [
        ("c7i", HalfUnit.UNMEASURED),
        ("c8g", HalfUnit.UNMEASURED),
        ("c7a", HalfUnit.NONE),
        ("c6i", HalfUnit.NONE),
    ],
)
def test_units_for_bf16_are_none_for_float16(family: str, unit: HalfUnit) -> None:
    assert half_unit(cpu("aws", family), "float16") is unit
    found = on_cpu(half_of("float16"), family)
    assert any("faster in float32" in note for note in found.notes) == (unit is HalfUnit.NONE)
    assert any("not measured" in note for note in found.notes) == (unit is HalfUnit.UNMEASURED)
    assert (found.interval.high > 2) == (unit is HalfUnit.UNMEASURED)


def test_bf16_gains_on_amx_and_loses_without_units() -> None:
    unit = unit_of(LARGE)
    assert half_gain(unit, cpu("aws", "c7i"), 16) > 2.5
    assert half_gain(unit, cpu("aws", "c6i"), 16) < 0.5


def test_half_models_are_not_scaled_from_here_and_fp32_ones_are() -> None:
    amx, none = (on_cpu(half_of("bfloat16"), family) for family in ("c7i", "c6i"))
    assert sum(none.terms.values()) > 5 * sum(amx.terms.values())
    assert any("float32" in note for note in none.notes)
    assert not any("from its peak" in note for note in on_cpu(LARGE, "c7i").notes)


def test_a_training_without_weights_is_told_by_the_units_and_less_surely() -> None:
    """Nobody measured how such a CPU trains; one in fp32 is scaled from the modelled step."""
    half = replace(half_of("bfloat16"), unit=replace(LARGE.unit, trains=True))
    wide = replace(LARGE, unit=half.unit)
    amx, none = (on_cpu(half, family, without_weights=True) for family in ("c7i", "c6i"))
    assert sum(none.terms.values()) > 5 * sum(amx.terms.values())
    for step in (amx, none):
        assert step.interval.covering(ABSOLUTE_UNMEASURED) == step.interval
        assert any("trains on such a CPU was not measured" in note for note in step.notes)
    assert not any("from its peak" in note for note in on_cpu(wide, "c7i", without_weights=True).notes)
    assert not any("from its peak" in note for note in on_cpu(half, "c7i").notes), "it was timed here"


def test_what_waits_hides_loading_of_a_half_model_as_of_any() -> None:
    data = DataLoading(batches_per_step=1, fetch_seconds_per_batch=2.0, workers=1)
    terms = on_cpu(replace(half_of("bfloat16"), data=data, waiting_seconds_per_step=1.5), "c7i").terms
    assert 0 < terms["loading"] < 0.5
    assert sum(terms.values()) == pytest.approx(2.0)


@given(vcpus=st.integers(min_value=2, max_value=96))
def test_more_cores_never_take_longer(vcpus: int) -> None:
    unit, family = unit_of(LARGE), cpu("aws", "c7i")
    for dtype in ("float32", "bfloat16"):
        most = unit_seconds_on_cpu(unit, family, vcpus, dtype)
        assert unit_seconds_on_cpu(unit, family, 2 * vcpus, dtype) <= most * (1 + 1e-9)


def test_decoding_is_limited_by_memory() -> None:
    terms = unit_terms_on_cpu(unit_of(generating()), cpu("aws", "c7i"), 32, "bfloat16")
    assert terms["memory"] > terms["compute"]
