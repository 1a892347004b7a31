"""How wide the interval of a step on a cloud CPU is, and why."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.interval import CPU_OTHER_FAMILY, CPU_SAME_FAMILY, Interval, cpu_interval
from tests.unit.estimator.builders import cpu_spec, machine

HERE = machine(cores=4, threads=4, conv_gflops=80, cpu_model="AMD EPYC 7R13 Processor")
SAME = cpu_spec(model="AMD EPYC 7R13", bzip2_mbps=15.7)
OTHER = cpu_spec(model="AMD EPYC 9R14", microarchitecture="Zen 4 (Genoa)", bzip2_mbps=17.0)


def test_the_same_chip_is_known_better_than_another_family() -> None:
    same, reasons = cpu_interval(HERE, SAME, cores=4)
    assert (same, reasons) == (CPU_SAME_FAMILY, [])
    other, reasons = cpu_interval(HERE, OTHER, cores=4)
    assert (other, reasons) == (CPU_OTHER_FAMILY, ["another CPU family than this machine's"])
    assert other.low < same.low < 1 < same.high < other.high


@given(st.floats(4, 400), st.floats(4, 400), st.booleans(), st.booleans())
def test_the_further_the_cores_the_wider(one: float, other: float, same_chip: bool, library: bool) -> None:
    near, far = sorted((one, other))
    narrow, _ = cpu_interval(HERE, SAME if same_chip else OTHER, cores=near, library=library)
    wide, _ = cpu_interval(HERE, SAME if same_chip else OTHER, cores=far, library=library)
    assert wide.low <= narrow.low < 1 < narrow.high <= wide.high


def test_half_the_cores_is_as_far_as_twice_as_many() -> None:
    half, _ = cpu_interval(HERE, SAME, cores=2)
    double, _ = cpu_interval(HERE, SAME, cores=8)
    assert (half.low, half.high) == pytest.approx((double.low, double.high))


def test_it_is_from_the_threads_that_the_script_had() -> None:
    one_thread, _ = cpu_interval(replace(HERE, threads=1), SAME, cores=4)
    assert one_thread.high > cpu_interval(HERE, SAME, cores=4)[0].high


def test_what_widens_it() -> None:
    base, _ = cpu_interval(HERE, OTHER, cores=8)
    trees, _ = cpu_interval(HERE, OTHER, cores=8, library=True)
    assert trees.high > 1.15 * base.high, "threads that get into each other's way"
    unknown, reasons = cpu_interval(HERE, replace(OTHER, bzip2_mbps=None), cores=8)
    assert unknown.low < base.low < base.high < unknown.high
    assert "nothing was measured on this CPU family" in reasons
    _, reasons = cpu_interval(HERE, OTHER, cores=64)
    assert "16 times the cores of this machine" in reasons


def test_cores_on_which_nobody_measured_training() -> None:
    base, _ = cpu_interval(HERE, OTHER, cores=8)
    for name, least in (("Neoverse V1 (Graviton3)", 1.5), ("Zen 5 (Turin)", 1.2)):
        wide, reasons = cpu_interval(HERE, replace(OTHER, microarchitecture=name), cores=8)
        assert wide.high >= least * base.high
        assert wide.low <= base.low / least
        assert f"nobody measured training on {name}" in reasons


def test_convolutions_that_were_not_timed_and_half_precision_widen_it() -> None:
    old = replace(HERE, conv_gflops=0.0)
    base, _ = cpu_interval(HERE, OTHER, cores=4, convolved=0.9)
    wide, reasons = cpu_interval(old, OTHER, cores=4, convolved=0.9)
    assert wide.low < base.low < base.high < wide.high
    assert any("measure it again" in reason for reason in reasons)
    assert cpu_interval(old, OTHER, cores=4) == cpu_interval(HERE, OTHER, cores=4), "a step without any"
    assert cpu_interval(old, SAME, cores=4, convolved=0.9)[0] == CPU_SAME_FAMILY
    assert cpu_interval(HERE, OTHER, cores=4, half=0.9)[0].high >= 3


@given(st.floats(0, 0.95), st.floats(0, 0.95))
def test_the_more_the_neighbours_took_the_wider(one: float, other: float) -> None:
    little, much = sorted((one, other))
    narrow, _ = cpu_interval(replace(HERE, disturbed_share=little), SAME, cores=4)
    wide, reasons = cpu_interval(replace(HERE, disturbed_share=much), SAME, cores=4)
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert bool(reasons) == (much > 0.02)


def test_a_shared_machine_may_have_been_disturbed_or_not() -> None:
    shared = replace(HERE, gemm_gflops_low=0.49 * HERE.gemm_gflops)
    found, reasons = cpu_interval(shared, SAME, cores=4)
    assert (found.low, found.high) == pytest.approx((CPU_SAME_FAMILY.low * 0.7, CPU_SAME_FAMILY.high / 0.7))
    assert any("swung by a factor of 2.0" in reason for reason in reasons)
    stuck, _ = cpu_interval(replace(HERE, gemm_gflops_low=0.0), SAME, cores=4)
    assert stuck == Interval(CPU_SAME_FAMILY.low * math.sqrt(0.4), CPU_SAME_FAMILY.high / math.sqrt(0.4)), (
        "at most so wide"
    )
