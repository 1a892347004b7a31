"""Memory of each GPU: published figures, and what must hold for any model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.memory import GIB, MemoryNeed
from costgpu.estimator.multi_gpu.layouts import least_gpus, memory_gib
from costgpu.estimator.multi_gpu.words import how_it_fits
from costgpu.models.parallelism import Scheme
from tests.properties import examples
from tests.unit.estimator.multi_gpu.groups import parallelism

SHARDING = [Scheme.ZERO3, Scheme.FSDP, Scheme.FSDP_GRAD_OP]


def held(parameters: float, activations: float = 0.0) -> MemoryNeed:
    """An fp32 training with Adam: 16 bytes for each parameter."""
    return MemoryNeed(
        weights=4 * parameters,
        gradients=4 * parameters,
        optimizer=8 * parameters,
        activations=activations,
        trained=parameters,
    )


def test_llama_on_8_and_on_128() -> None:
    """82.4 and 67.0 GiB were posted: the states make 14.0 GiB of the difference."""
    spread = parallelism(
        Scheme.FSDP, 8.03e9, gathered_bytes=2.0, reduced_bytes=2.0, largest_unit_parameters=525_000_000
    )
    few, many = (memory_gib(held(8.03e9), spread, gpus, 8) for gpus in (8, 128))
    assert few - many == pytest.approx(14.0, abs=0.1)


def test_what_each_way_divides() -> None:
    model = held(1e9, activations=GIB)

    def need(scheme: Scheme, **changes: float) -> float:
        spread = parallelism(
            scheme, 1e9, gathered_bytes=2.0, reduced_bytes=2.0, largest_unit_parameters=10**7, **changes
        )
        return (
            (memory_gib(model, spread, 8, 4) - 3) * GIB / 1e9
        )  # bytes of a parameter, without activations and runtime

    assert need(Scheme.DDP) == pytest.approx(16 + 4)
    assert need(Scheme.ZERO1) == pytest.approx(8 + 8 / 8 + 4)
    assert need(Scheme.ZERO2) == pytest.approx(4 + 12 / 8)
    assert need(Scheme.FSDP) == need(Scheme.ZERO3) == pytest.approx(16 / 8 + 0.08)
    assert need(Scheme.FSDP_GRAD_OP) == pytest.approx(16 / 8 + 0.08 + 2)
    assert need(Scheme.HSDP) == pytest.approx(16 / 4 + 0.08)


def test_a_model_wrapped_as_one_unit_is_gathered_whole() -> None:
    spread = parallelism(Scheme.FSDP, 1e9, gathered_bytes=2.0, reduced_bytes=4.0)
    assert memory_gib(held(1e9), spread, 8, 8) == pytest.approx((2e9 + 6e9) / GIB + 2)


@examples(200)
@given(st.sampled_from(SHARDING), st.floats(1e6, 1e11), st.floats(0, 1e11), st.sampled_from([2, 4, 8, 16, 32]))
def test_sharding_over_more_gpus_needs_less_of_each(
    scheme: Scheme, parameters: float, activations: float, gpus: int
) -> None:
    spread = parallelism(scheme, parameters, gathered_bytes=2.0, reduced_bytes=2.0, largest_unit_parameters=1000)
    model = held(parameters, activations)
    assert memory_gib(model, spread, 2 * gpus, gpus) < memory_gib(model, spread, gpus, gpus)
    assert memory_gib(model, spread, gpus, gpus) < memory_gib(model, parallelism(Scheme.DDP, parameters), gpus, gpus)


def test_the_least_number_that_it_fits() -> None:
    spread = parallelism(Scheme.FSDP, 7e9, gathered_bytes=2.0, reduced_bytes=2.0, largest_unit_parameters=10**8)
    number = least_gpus(held(7e9), spread, 40)
    assert number == 4
    assert 1.25 * memory_gib(held(7e9), spread, 4, 4) <= 40 < 1.25 * memory_gib(held(7e9), spread, 2, 2)
    assert least_gpus(held(7e9, activations=50 * GIB), spread, 40) is None


def test_how_it_would_fit_is_said() -> None:
    spread = parallelism(Scheme.DDP, 7e9, largest_unit_parameters=10**8)
    assert how_it_fits(held(7e9), spread, 40, 8, half=True) == "; it would fit under FSDP on 4 of them"
    sharded = parallelism(Scheme.FSDP, 7e9, gathered_bytes=2.0, reduced_bytes=2.0, largest_unit_parameters=10**8)
    assert how_it_fits(held(7e9), sharded, 40, 2, half=True) == "; it would fit on 4 of them"
    assert how_it_fits(held(7e9, 50 * GIB), sharded, 40, 2, half=True) == "; it would not fit on 64 of them, either"
