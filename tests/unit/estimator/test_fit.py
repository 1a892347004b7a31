"""Whether a need of accelerator memory fits, as a probability."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.fit import BY_STORAGES, FITS, NeedError, fit_probability, fits, misfit, whole_percent
from costgpu.estimator.memory import BY_FORMULA, BY_TRACE
from tests.properties import examples

gib = st.floats(0.1, 500.0)
errors = st.sampled_from([BY_STORAGES, BY_FORMULA, BY_TRACE, NeedError(-0.1, 0.3)])


@examples(200)
@given(gib, gib, st.floats(1.001, 3.0), errors)
def test_it_falls_with_the_need_and_rises_with_the_memory(
    need: float, memory: float, more: float, error: NeedError
) -> None:
    probability = fit_probability(need, memory, error)
    assert 0.0 <= probability <= 1.0
    assert fit_probability(need * more, memory, error) <= probability <= fit_probability(need, memory * more, error)
    assert fit_probability(need * more, memory * more, error) == pytest.approx(probability, abs=1e-9)


@given(gib, errors)
def test_a_margin_says_the_same(need: float, error: NeedError) -> None:
    assert fits(need, need * error.margin * 1.0001, error)
    assert not fits(need, need * error.margin / 1.0001, error)
    assert fit_probability(need, need * math.exp(error.bias), error) == pytest.approx(0.5)


def test_the_margins() -> None:
    """An eighth for what was measured, which leans to too little; as before for the formulas."""
    assert pytest.approx(1.12, abs=0.001) == BY_STORAGES.margin
    assert pytest.approx(1.25) == BY_FORMULA.margin
    assert pytest.approx(1.10) == BY_TRACE.margin


def test_the_reason() -> None:
    assert misfit(10.0, 22.2, BY_STORAGES) == ""
    assert misfit(20.1, 22.2, BY_STORAGES) == (
        "needs 20.1 GiB of accelerator memory, has 22.2 GiB: fits with 86 %, and 90 % are asked for"
    )
    assert misfit(60.0, 22.2, BY_STORAGES, " on each of 4 GPUs under DDP") == (
        "needs 60.0 GiB of accelerator memory on each of 4 GPUs under DDP, each has 22.2 GiB"
    )
    assert [whole_percent(each) for each in (0.123, 0.898, 0.9, 0.904, 0.96)] == [12, 89, 90, 90, 96]
    assert fit_probability(0.0, 0.0, BY_STORAGES) == 0.0 < FITS
