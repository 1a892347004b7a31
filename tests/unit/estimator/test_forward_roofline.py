"""The seconds of a forward pass: terms that add up, and what more work, bandwidth or precision does to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.gpu import Execution, Precision, Runtime, clock_share
from costgpu.estimator.op_costs import work_of
from costgpu.estimator.roofline import FORWARD, TRAINING, HostCpu, call_seconds, device_sums
from costgpu.estimator.work import Work
from costgpu.pricing.hardware import accelerator, accelerators
from tests.unit.estimator.units import PLAIN, convolution, forward_terms, linear, relu

AUTOCAST = Execution(Precision(half="float16", matmul_tf32=False, conv_tf32=True))
BATCHES = st.integers(min_value=1, max_value=4096)
CARDS = st.sampled_from(sorted(accelerators()))


def _net(batch: int) -> Work:
    return work_of([convolution(batch), linear(batch), relu(batch), convolution(batch, groups=64)], statistics=False)


@given(batch=BATCHES, card=CARDS)
def test_named_terms_add_up_to_the_seconds(batch: int, card: str) -> None:
    terms = forward_terms(_net(batch), accelerator(card), PLAIN)
    named = terms.compute + terms.on_chip + terms.memory + terms.launch + terms.calls
    assert named == pytest.approx(terms.seconds)
    assert terms.seconds >= max(terms.device_seconds, terms.calls_alone)
    assert 0 < terms.gpu_use <= 1


@given(batch=BATCHES, more=st.floats(min_value=1.0, max_value=64.0), card=CARDS)
def test_more_items_never_take_less_and_never_lower_the_throughput(batch: int, more: float, card: str) -> None:
    work, spec = _net(batch), accelerator(card)
    one, many = forward_terms(work, spec, PLAIN).seconds, forward_terms(work.scaled(size=more), spec, PLAIN).seconds
    assert many >= one * (1 - 1e-9)
    assert more / many >= 1 / one * (1 - 1e-9)


@given(times=st.floats(min_value=1.0, max_value=1000.0))
def test_passes_in_a_row_take_the_sum_of_their_seconds(times: float) -> None:
    spec = accelerator("T4")
    first, second = forward_terms(_net(1), spec, PLAIN), forward_terms(_net(64), spec, PLAIN)
    assert first.plus(second, times).seconds == pytest.approx(first.seconds + times * second.seconds)


def test_a_single_item_is_limited_by_the_host_and_a_large_batch_by_the_device() -> None:
    spec = accelerator("A100")
    assert forward_terms(_net(1), spec, PLAIN).gpu_use < 0.3
    assert forward_terms(_net(1024), spec, PLAIN).gpu_use > 0.95


def test_half_precision_is_faster_where_there_are_units_for_it() -> None:
    work = work_of([linear(8192, 4096)], statistics=False)
    half = replace(PLAIN, weights="float16")
    fast, slow = accelerator("T4"), accelerator("P100")
    assert forward_terms(work, fast, half).seconds < 0.5 * forward_terms(work, fast, PLAIN).seconds
    assert forward_terms(work, slow, half).compute == pytest.approx(forward_terms(work, slow, PLAIN).compute)


def test_channels_last_helps_convolutions_in_half_precision_alone() -> None:
    work, spec = work_of([convolution(256)], statistics=False), accelerator("A100")
    half = replace(PLAIN, weights="float16")
    gain = (
        forward_terms(work, spec, half).seconds / forward_terms(work, spec, replace(half, channels_last=True)).seconds
    )
    assert gain > 1.05
    traced = work_of([convolution(256, channels_last=True)], statistics=False)
    assert forward_terms(traced, spec, half).on_chip < forward_terms(work, spec, half).on_chip


def test_autocast_costs_the_host_more_than_a_model_in_half_precision() -> None:
    work, spec = _net(1), accelerator("A100")
    assert forward_terms(work, spec, AUTOCAST).seconds > forward_terms(work, spec, PLAIN).seconds


def test_compiled_and_graphs_shorten_what_the_host_does() -> None:
    work, spec = _net(1), accelerator("A100")
    seconds = [forward_terms(work, spec, replace(PLAIN, runtime=runtime)).seconds for runtime in Runtime]
    assert seconds == sorted(seconds, reverse=True)


def test_own_python_replaces_the_assumed_cost_of_a_launch() -> None:
    work = _net(1)
    assert call_seconds(work, PLAIN, FORWARD, host=HostCpu(1.0, 0.5)) == pytest.approx(0.5 + 10e-6 * work.kernels)
    assert call_seconds(work, PLAIN, FORWARD, host=HostCpu(0.5, 0.5)) == pytest.approx(0.5 + 20e-6 * work.kernels)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.3, 3))
def test_more_of_the_script_s_own_python_is_never_faster(one: float, other: float, speed: float) -> None:
    """And none that was measured is as none that was not."""
    work, (few, many) = _net(1), sorted((one, other))
    assert call_seconds(work, PLAIN, FORWARD, host=HostCpu(speed, few)) <= call_seconds(
        work, PLAIN, FORWARD, host=HostCpu(speed, many)
    )
    none = call_seconds(work, PLAIN, FORWARD, host=HostCpu(speed))
    assert call_seconds(work, PLAIN, FORWARD, host=HostCpu(speed, 0.0)) == pytest.approx(none)


def test_evaluated_batch_norm_is_one_pass_over_its_input() -> None:
    row = replace(relu(8), op="aten::native_batch_norm")
    assert work_of([row], statistics=False).bytes_moved == pytest.approx(
        work_of([relu(8)], statistics=False).bytes_moved
    )


@pytest.mark.parametrize(
    ("name", "dtype", "tf32", "factor"),
    [
        ("A100", "float16", False, 1),
        ("RTX-PRO-6000", "float16", False, 1),
        ("H100", "float16", False, 2),
        ("H100", "float32", True, 2),
        ("H100", "float32", False, 2),
        ("L40S", "float32", False, 1),
        ("B200", "bfloat16", False, 4),
        ("B300", "float32", True, 4),
        ("B200", "float32", False, 2),
    ],
)
def test_multiprocessors_of_newer_generations_do_more_in_a_clock(
    name: str, dtype: str, tf32: bool, factor: float
) -> None:
    work, spec = work_of([linear(4096, dtype=dtype)], statistics=False), accelerator(name)
    execution = Execution(Precision(half=None, matmul_tf32=tf32, conv_tf32=True))
    found, older = (forward_terms(work, one, execution) for one in (spec, replace(spec, compute_capability=(8, 0))))
    assert older.on_chip == pytest.approx(factor * found.on_chip)


def test_host_and_device_take_turns_where_a_pass_waits_often() -> None:
    spec = accelerator("A100")
    beside, once, often = (forward_terms(replace(_net(64), syncs=syncs), spec, PLAIN) for syncs in (0.0, 1.0, 13.0))
    assert once.seconds == beside.seconds
    assert often.seconds == pytest.approx(often.device_seconds + often.calls_alone)
    assert often.plus(often, 2).seconds == pytest.approx(3 * often.seconds)
    assert often.takes_turns


def test_coefficients_that_few_cards_show() -> None:
    half, conv = replace(PLAIN, weights="float16"), work_of([convolution(64)], statistics=False)
    older, newer = (device_sums(conv, accelerator(card), half, FORWARD) for card in ("T4", "A100"))
    assert ("half/older" in older, "half/older" in newer) == (True, False)
    assert forward_terms(conv, accelerator("T4"), half).on_chip == pytest.approx(0.0080 * older["half/older"])
    spec = accelerator("RTX 3090")
    deep = work_of([convolution(64, groups=64)], statistics=False)
    kind = next(kind for kind, _ in deep.flops)
    sums = device_sums(deep, spec, PLAIN, FORWARD)
    assert kind == "depthwise"
    assert sums["depthwise"] == pytest.approx(deep.total_flops / (spec.fp32_tflops * 1e12 * clock_share(spec)))
    assert clock_share(spec) != 1


def test_only_trainings_of_amd_were_slower_than_their_lists() -> None:
    spec, work = accelerator("MI100"), _net(64)
    for model, share in ((FORWARD, 1.0), (TRAINING, 0.75)):
        listed, amd = (device_sums(work, replace(spec, vendor=vendor), PLAIN, model) for vendor in ("NVIDIA", "AMD"))
        assert amd["moved"] == pytest.approx(listed["moved"] / share)
