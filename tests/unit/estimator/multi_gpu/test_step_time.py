"""Seconds of a step on several GPUs: the worked examples of the method, and what must hold for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.multi_gpu.network import Group, Volume, bytes_per_step, communication_seconds
from costgpu.estimator.multi_gpu.step_time import StepSeconds, step_seconds, window_share
from costgpu.models.parallelism import Collective, Parallelism, Scheme
from tests.properties import examples
from tests.unit.estimator.multi_gpu.groups import group, parallelism

SECONDS = st.floats(1e-3, 100.0)
GPUS = st.sampled_from([1, 2, 4, 8, 16, 64])
BANDWIDTHS = st.floats(0.5, 400.0)
VOLUMES = st.floats(0.0, 1e12)
WINDOWS = st.floats(0.0, 1.0)


def seconds(alone: float, spread: Parallelism, place: Group, micro_batches: float = 1) -> StepSeconds:
    volume = bytes_per_step(spread, micro_batches)
    assert volume is not None
    return step_seconds(alone, place, communication_seconds(volume, place), window_share(spread.scheme, micro_batches))


LLAMA = parallelism(Scheme.FSDP, 8.03e9, gathered_bytes=2.0, reduced_bytes=2.0)
BERT = parallelism(Scheme.DDP, 336e6, gradient_bytes=2.0)


@pytest.mark.parametrize(
    ("alone", "spread", "place", "micro_batches", "expected", "efficiency"),
    [
        pytest.param(0.213, parallelism(), group(8, 30), 1, 0.2247, 0.948, id="ResNet-50 AMP on 8 V100"),
        pytest.param(
            0.305, parallelism(), group(16, 30, nodes=2, network=25 / 8 * 0.25, kind="tcp"), 1, 0.462, 0.66, id="TCP"
        ),
        pytest.param(1.2, BERT, group(8), 8, 1.2285, 0.977, id="BERT-large with accumulation on 8 A100"),
        pytest.param(1.35, LLAMA, group(8, 200), 1, 1.4975, 0.90, id="Llama 8B under FSDP on 8 H100"),
        pytest.param(1.35, LLAMA, group(128, 200, nodes=16, network=320), 1, 1.5733, 0.86, id="16 such machines"),
        pytest.param(0.4, parallelism(Scheme.DDP, 124e6), group(4, 1.7), 1, 0.715, 0.56, id="GPT-2 on 4 A10G"),
    ],
)
def test_the_worked_examples(
    alone: float, spread: Parallelism, place: Group, micro_batches: float, expected: float, efficiency: float
) -> None:
    found = seconds(alone, spread, place, micro_batches)
    assert found.seconds == pytest.approx(expected, rel=5e-4)
    assert found.efficiency == pytest.approx(efficiency, abs=6e-3)


@examples(200)
@given(SECONDS, GPUS, BANDWIDTHS, VOLUMES, WINDOWS)
def test_efficiency_is_a_share_and_one_gpu_is_as_before(
    alone: float, gpus: int, link: float, volume: float, window: float
) -> None:
    place = group(gpus, link)
    found = step_seconds(alone, place, communication_seconds(Volume(volume), place), window)
    assert 0 < found.efficiency <= 1
    assert found.seconds == pytest.approx(found.alone + found.communication + found.stragglers)
    if gpus == 1:
        assert found == StepSeconds(alone=alone)


@examples(200)
@given(SECONDS, GPUS, BANDWIDTHS, VOLUMES, WINDOWS, st.floats(1.0, 3.0))
def test_more_of_anything_takes_no_less_time(
    alone: float, gpus: int, link: float, volume: float, window: float, more: float
) -> None:
    def on(place: Group, seconds: float = alone, moved: float = volume) -> float:
        return step_seconds(seconds, place, communication_seconds(Volume(moved), place), window).seconds

    least = on(group(gpus, link)) * (1 - 1e-9)
    assert on(group(2 * gpus, link)) >= least
    assert on(group(gpus, link / more)) >= least
    assert on(group(gpus, link), moved=volume * more) >= least
    assert on(group(gpus, link), seconds=alone * more) >= least


def test_machines_share_their_network() -> None:
    """With a GPU in each, the network alone counts; between machines with links of their own, the slower of the two."""
    volume = Volume(1e9)
    assert communication_seconds(volume, group(2, None, nodes=2, network=1)) == pytest.approx(0.5)
    assert communication_seconds(volume, group(16, 100, nodes=2, network=1)) == pytest.approx(15 / 16)
    assert communication_seconds(volume, group(16, 1, nodes=2, network=100)) == pytest.approx(15 / 16)


def test_hybrid_sharding_gathers_within_a_machine() -> None:
    spread = parallelism(Scheme.HSDP, 1e9, gathered_bytes=2.0, reduced_bytes=2.0)
    volume = bytes_per_step(spread, 1)
    assert volume == Volume(6e9, 4e9)
    found = communication_seconds(volume, group(16, 100, nodes=2, network=10))
    assert found == pytest.approx(7 / 8 * 6e9 / 100e9 + 1 / 2 * 4e9 / 10e9)


@pytest.mark.parametrize(
    ("spread", "micro_batches", "expected"),
    [
        (parallelism(Scheme.DDP, 1e9), 4, 8e9),  # no_sync
        (parallelism(Scheme.DDP, 1e9, reductions_per_step=4.0), 4, 32e9),
        (parallelism(Scheme.DDP, 1e9, trained_parameters=1_000_000), 1, 8e6),  # LoRA reduces its adapters alone
        (parallelism(Scheme.ZERO1, 1e9), 4, 8e9),
        (parallelism(Scheme.ZERO2, 1e9), 4, 20e9),
        (parallelism(Scheme.FSDP, 1e9, gathered_bytes=2.0, reduced_bytes=4.0), 3, 24e9),
        (parallelism(Scheme.FSDP_GRAD_OP, 1e9, gathered_bytes=2.0, reduced_bytes=2.0), 3, 12e9),
        (
            parallelism(Scheme.FSDP, 1e9, trained_parameters=1_000_000, gathered_bytes=2.0, reduced_bytes=2.0),
            1,
            4.002e9,
        ),
    ],
)
def test_bytes_of_a_step(spread: Parallelism, micro_batches: float, expected: float) -> None:
    found = bytes_per_step(spread, micro_batches)
    assert found.all_ranks == pytest.approx(expected)
    assert found.between == 0


def test_a_model_of_unknown_size_exchanges_what_was_seen() -> None:
    seen = [
        Collective(op="all_reduce", dtype="float32", calls_per_step=4, bytes_per_step=1e8),
        Collective(op="all_gather", dtype="bfloat16", calls_per_step=4, bytes_per_step=1e8),
    ]
    assert bytes_per_step(parallelism(parameters=0, collectives=seen), 1) == Volume(3e8)
    assert bytes_per_step(parallelism(parameters=0), 1) is None
