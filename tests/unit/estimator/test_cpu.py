"""From this CPU to a cloud CPU: what must hold for any machine, and a few numbers worked out by hand.

One file of more than 400 lines: every property is of the same few machines.
"""

from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from costgpu.estimator.cpu import (
    BZIP2_MBPS_PER_GHZ,
    COMPLEX_GBPS,
    CORE_GBPS,
    GFLOPS_PER_MATRIX_MULT,
    KERNEL_SECONDS,
    MOST_OF_PEAK,
    OUR_TEXT,
    SIGMA_LARGE,
    SIGMA_UNTRACED,
    UNKNOWN_CORE,
    ZEN,
    CpuRates,
    StepSplit,
    least_seconds,
    library_sigma,
    peak_gflops,
    rates_here,
    rates_there,
    read_gbps,
    same_chip,
    scaling_sigma,
    speedup_of,
    split_step,
    step_there,
    thread_mbps,
    undisturbed_share,
)
from costgpu.estimator.work import Work
from costgpu.models.offer import CpuSpec
from costgpu.models.workload import Machine
from costgpu.pricing.hardware import cpus
from tests.unit.estimator.builders import cpu_spec, machine

HERE = machine(cpu_model="AMD EPYC 7R13 Processor", gemm_gflops=300, gemm_gflops_low=280, copy_gbps=40, op_seconds=2e-6)
CLOUD = cpu_spec(model="AMD EPYC 7R13", read_gbps=300.0, read_vcpus=192, matrix_mult_per_vcpu=900.0)
LARGE = Work(flops={("matmul", "float32"): 1e12}, moved={("pointwise", "float32"): 4e9}, kernels=500, large_bytes=3e9)
TINY = Work(flops={("matmul", "float32"): 1e6}, moved={("pointwise", "float32"): 1e6}, kernels=200)


def twin(local: Machine) -> CpuSpec:
    """A cloud CPU with exactly the local rates, one vCPU to a core."""
    rates = rates_here(local)
    return replace(
        CLOUD,
        vcpus_per_core=1,
        all_core_ghz=rates.core_gflops / ZEN.products,
        fp32_flops_per_cycle=1.0,
        matrix_mult_per_vcpu=None,
        read_gbps=rates.memory_gbps,
    )


def there(seconds: float, work: Work, cpu: CpuSpec, vcpus: int, *, calls: float = 500, host: float = 0.0) -> float:
    step = split_step(seconds, work, calls, host, HERE)
    return sum(step_there(step, work, HERE, cpu, vcpus).values())


def possible(seconds: float, work: Work, local: Machine) -> float:
    """Longer seconds, in which this machine can do the work beside any calls and Python."""
    spread = speedup_of(rates_here(local).cores, split_step(1.0, work, 0, 0, local).sigma)
    return seconds + 100 * work.total_flops / (rates_here(local).core_gflops * 1e9 * spread)


works = st.builds(
    lambda flops, small, large, kernels: Work(
        flops={("matmul", "float32"): flops},
        moved={("pointwise", "float32"): small + large},
        kernels=kernels,
        large_bytes=large,
    ),
    st.floats(0, 1e14),
    st.floats(0, 1e12),
    st.floats(0, 1e12),
    st.floats(0, 1e5),
)
times = st.floats(1e-5, 1e4)


# ------------------------------------------------------------------------- s(n) = n / (1 + sigma (n - 1))


@pytest.mark.parametrize(
    ("cores", "sigma", "expected"),
    [(1, 0.04, 1.0), (2, 0.04, 2 / 1.04), (16, 0.015, 16 / 1.225), (96, 0.08, 96 / 8.6), (0.5, 0.04, 0.5)],
)
def test_how_many_times_one_core(cores: float, sigma: float, expected: float) -> None:
    assert speedup_of(cores, sigma) == pytest.approx(expected)


@given(st.floats(0.25, 512), st.floats(0.25, 512), st.sampled_from([SIGMA_LARGE, 0.04, 0.08, SIGMA_UNTRACED, 0.99]))
def test_more_cores_help_less_and_less(one: float, other: float, sigma: float) -> None:
    few, many = sorted((one, other))
    assert speedup_of(few, sigma) <= speedup_of(many, sigma) <= many
    assert speedup_of(many, sigma) < 1 / sigma
    assert speedup_of(few, sigma) / few >= speedup_of(many, sigma) / many * (1 - 1e-12)


def test_how_well_work_spreads() -> None:
    """The less arithmetic an op has, the less of it spreads."""
    assert scaling_sigma(500e6) == pytest.approx(0.025)
    assert split_step(1.0, LARGE, 0, 0, HERE).sigma == scaling_sigma(2e9) < 0.03
    assert split_step(1.0, TINY, 0, 0, HERE).sigma == 1.0, "an op is over before a second core could help"
    assert split_step(1.0, Work(), 0, 0, HERE).sigma == SIGMA_UNTRACED, "at most two cores' worth"


@given(st.floats(0, 1e14), st.floats(1, 1000))
def test_more_arithmetic_in_an_op_spreads_no_worse(flops: float, factor: float) -> None:
    assert 0 < scaling_sigma(flops * factor) <= scaling_sigma(flops) <= 1


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_librarys_longer_steps_spread_no_worse(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert 0 < library_sigma(long) <= library_sigma(short) <= 1
    assert library_sigma(0.1) == pytest.approx(0.25)


# ------------------------------------------------------------------------------------------------------------ rates


def test_rates_of_this_machine() -> None:
    rates = rates_here(HERE)
    assert rates.core_gflops == pytest.approx(300 / (4 / 1.045))
    assert (rates.cores, rates.memory_gbps) == (4, 40)


def test_a_script_that_uses_fewer_threads() -> None:
    """The micro-benchmark had all cores, the script has one."""
    rates = rates_here(replace(HERE, threads=1))
    assert rates.cores == 1
    assert rates.core_gflops == rates_here(HERE).core_gflops


def test_rates_of_a_cloud_machine() -> None:
    """Eight vCPUs are four cores: shares of the peak by kind, and what a complex reads."""
    rates = rates_there(CLOUD, 8)
    assert rates == CpuRates(rates.core_gflops, 4.0, COMPLEX_GBPS, rates.conv_gflops)
    assert rates_there(CLOUD, 1).cores == 1.0, "one thread is a core"
    assert (rates.core_gflops, rates.conv_gflops) == pytest.approx((ZEN.products * 96, ZEN.convolutions * 96))
    hidden = rates_there(replace(CLOUD, all_core_ghz=None), 8)
    by_peak, by_mark = ZEN.products * 3.1 * 32, GFLOPS_PER_MATRIX_MULT * 900 * 2
    assert hidden.core_gflops == pytest.approx((by_peak * by_mark) ** 0.5), "PassMark tells where no clock is known"


def test_the_kinds_of_a_step_are_weighted_by_their_flops() -> None:
    rates = CpuRates(100.0, 4, 40, 50.0)
    mixed = Work(flops={("matmul", "float32"): 1e9, ("conv3x3", "float32"): 3e9})
    assert rates.gflops(mixed) == pytest.approx(4 / (1 / 100 + 3 / 50))
    assert rates.gflops(LARGE) == 100.0
    assert replace(rates, conv_gflops=0.0).gflops(mixed) == 100.0, "convolutions were not timed"


def test_a_rate_here_is_never_below_what_the_step_reaches() -> None:
    """A micro-benchmark that was disturbed, or a library that is slow in it alone."""
    quick = Work(flops={("conv", "float32"): 3e12}, kernels=100)
    slow = replace(HERE, gemm_gflops=100.0, gemm_gflops_low=100.0, conv_gflops=100.0)
    step = split_step(5.0, quick, 0, 0, slow)
    assert step.core_gflops > 100 / 4 * 1.5
    assert split_step(50.0, quick, 0, 0, slow).core_gflops == pytest.approx(rates_here(slow).conv_gflops)


@given(
    st.floats(1e-5, 1e4),
    works,
    st.sampled_from(sorted(cpus().values(), key=lambda c: (c.provider, c.family))),
    st.integers(1, 192),
)
def test_nothing_exceeds_a_nominal_peak(seconds: float, work: Work, cpu: CpuSpec, vcpus: int) -> None:
    step = split_step(seconds, work, 0, 0, HERE)
    told, cores = sum(step_there(step, work, HERE, cpu, vcpus).values()), max(1.0, vcpus / cpu.vcpus_per_core)
    assert work.total_flops / 1e9 <= told * MOST_OF_PEAK * peak_gflops(cpu) * cores * (1 + 1e-9)
    assert told >= least_seconds(work, cpu, cores) * (1 - 1e-9)


def test_bandwidth_is_never_more_than_was_measured() -> None:
    assert rates_there(CLOUD, 192).memory_gbps == 300.0
    assert rates_there(replace(CLOUD, read_gbps=None), 192).memory_gbps == 96 / 8 * COMPLEX_GBPS


def test_cores_read_at_least_their_share_of_the_largest_size() -> None:
    wide = replace(CLOUD, read_gbps=1104.0, read_vcpus=96)
    assert read_gbps(wide, 2) == pytest.approx(2 * 1104 / 48), "23 GB/s a core"
    small = replace(CLOUD, read_gbps=23.0, read_vcpus=4)
    assert read_gbps(small, 8) == pytest.approx(8 * 23 / 2), "only a small size was measured"


def test_the_cores_of_a_complex_share_what_it_reads() -> None:
    epyc = replace(CLOUD, vcpus_per_core=1, microarchitecture="Zen 4 (Genoa)", read_gbps=720.0, read_vcpus=192)
    assert [read_gbps(epyc, cores) for cores in (1, 2, 4, 8, 9, 64, 192)] == [15, 30, 40, 40, 80, 320, 720]


@given(st.floats(1, 400), st.floats(1, 400), st.floats(1, 2000), st.integers(1, 448), st.booleans())
def test_more_cores_never_read_less(one: float, other: float, gbps: float, vcpus: int, zen: bool) -> None:
    few, many = sorted((one, other))
    name = "Zen 3 (Milan)" if zen else "Ice Lake-SP"
    cpu = replace(CLOUD, microarchitecture=name, read_gbps=gbps, read_vcpus=vcpus)
    assert read_gbps(cpu, few) <= read_gbps(cpu, many) * (1 + 1e-12)


def test_a_thread_is_as_fast_as_it_was_measured() -> None:
    assert thread_mbps(replace(CLOUD, bzip2_mbps=16.0)) == pytest.approx(16 * OUR_TEXT)
    assert thread_mbps(CLOUD) == pytest.approx(3 * BZIP2_MBPS_PER_GHZ * OUR_TEXT)
    assert thread_mbps(replace(CLOUD, all_core_ghz=None)) == pytest.approx(3.1 * BZIP2_MBPS_PER_GHZ * OUR_TEXT)


def test_what_is_not_known_falls_back() -> None:
    nothing = replace(
        CLOUD,
        microarchitecture="",
        matrix_mult_per_vcpu=None,
        all_core_ghz=None,
        fp32_flops_per_cycle=None,
        read_gbps=None,
    )
    rates = rates_there(nothing, 8)
    assert rates.core_gflops == pytest.approx(UNKNOWN_CORE.products * 3.1 * 16), "a plain AVX core"
    assert rates.memory_gbps == 4 * CORE_GBPS
    assert read_gbps(replace(nothing, microarchitecture="Ice Lake-SP"), 4) == 4 * CORE_GBPS


# ------------------------------------------------------------------------------------------------------------- a step


@given(times, works, st.floats(0, 1e6), st.floats(0, 1e5))
@example(1.0, Work(), 1.0, 0.0)
@example(1.0, Work(), 1.0, 1.0 - 1e-9)
def test_the_parts_of_a_step_are_the_step(seconds: float, work: Work, calls: float, host: float) -> None:
    step = split_step(seconds, work, calls, host, HERE)
    parts = (step.compute, step.memory, step.calls, step.host)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(seconds)
    if work.kernels:
        assert step.compute + step.memory > 0, "something is left that another machine can do faster"
    else:
        on_one_thread = min(host, seconds) + step.calls
        assert step.compute + step.memory == pytest.approx(seconds - on_one_thread), "all that was not on one thread"
        assert step.calls <= 0.9 * (seconds - min(host, seconds)), "calls that were counted are not all of it"


def test_what_limits_a_step() -> None:
    flops = split_step(1.0, replace(LARGE, large_bytes=0.0), 0, 0, HERE)
    assert flops.memory == 0
    moved = split_step(1.0, Work(moved={("pointwise", "float32"): 4e9}, kernels=500, large_bytes=4e9), 0, 0, HERE)
    assert moved.compute == 0
    cached = split_step(1.0, Work(moved={("pointwise", "float32"): 4e9}, kernels=500), 0, 0, HERE)
    assert cached.memory == 0, "what fits a cache scales with the cores"
    both = Work(
        flops={("matmul", "float32"): 300e9}, moved={("pointwise", "float32"): 40e9}, large_bytes=40e9, kernels=100
    )
    half = split_step(1.0, both, 0, 0, HERE)
    assert half.compute == pytest.approx(half.memory, rel=0.1), "a second of each on this machine"


def test_calls_and_python_take_what_they_take_on_a_thread() -> None:
    step = split_step(1.0, LARGE, 100_000, 0.3, HERE)
    assert step.host == 0.3
    assert step.calls == pytest.approx(0.2)
    slow = replace(CLOUD, model="AMD EPYC 7551", all_core_ghz=1.0, matrix_mult_per_vcpu=100.0)
    terms = step_there(step, LARGE, HERE, slow, 2)
    assert (terms["calls"], terms["host"]) == (step.calls, step.host), "this machine's thread was not measured"
    assert terms["compute"] > step.compute
    timed = step_there(step, LARGE, replace(HERE, single_thread_mbps=2.5 * thread_mbps(slow)), slow, 2)
    assert (timed["calls"], timed["host"]) == pytest.approx((2.5 * step.calls, 2.5 * step.host))


def test_every_kernel_costs_a_call_however_cheap_the_smallest_one_is() -> None:
    assert split_step(1.0, LARGE, 500, 0.0, HERE).calls == pytest.approx(500 * KERNEL_SECONDS)


# --------------------------------------------------------------------------------------------------- another machine


@given(
    times, works, st.floats(0, 1e5), st.floats(0, 1e3), st.integers(1, 128), st.floats(1, 5000), st.floats(0.1, 11.9)
)
def test_the_same_machine_takes_the_same_time(
    seconds: float, work: Work, calls: float, host: float, cores: int, gflops: float, gbps_per_core: float
) -> None:
    local = replace(HERE, cores=cores, threads=cores, gemm_gflops=gflops, copy_gbps=gbps_per_core * cores)
    local = replace(local, gemm_gflops_low=gflops)  # nobody shares it
    seconds = possible(seconds, work, local)
    step = split_step(seconds, work, calls, host, local)
    terms = step_there(step, work, local, twin(local), cores)
    assert sum(terms.values()) == pytest.approx(seconds)


@given(times, works, st.floats(0, 1e5), st.floats(0, 1e3), st.integers(1, 96), st.booleans())
def test_the_same_chip_with_as_many_cores_takes_the_same_time(
    seconds: float, work: Work, calls: float, host: float, cores: int, spreads: bool
) -> None:
    """Whatever the tables say of it."""
    local = replace(HERE, cores=cores, threads=cores, single_thread_mbps=3.0)
    seconds = possible(seconds, work, local) + least_seconds(work, CLOUD, cores)
    step = split_step(seconds, work, calls, host, local)
    terms = step_there(step, work, local, CLOUD, 2 * cores, spreads=spreads)
    assert sum(terms.values()) == pytest.approx(seconds)


def test_a_shared_machine_slowed_the_steps_by_half_of_its_swing() -> None:
    assert undisturbed_share(HERE) == 1.0
    assert undisturbed_share(replace(HERE, gemm_gflops_low=0.8 * HERE.gemm_gflops)) == 1.0
    assert undisturbed_share(replace(HERE, gemm_gflops_low=0.45 * HERE.gemm_gflops)) == pytest.approx(0.75)
    assert undisturbed_share(replace(HERE, gemm_gflops_low=0.0)) == pytest.approx(0.5**0.5), "no less than 0.4"
    shared = replace(HERE, gemm_gflops_low=0.45 * HERE.gemm_gflops)
    step = split_step(10.0, LARGE, 500, 0.1, shared)
    assert sum(step_there(step, LARGE, shared, CLOUD, 8).values()) == pytest.approx(7.5), "this very chip, undisturbed"


@given(times, works, st.floats(1, 5), st.floats(1, 5))
def test_a_faster_thread_is_never_slower(seconds: float, work: Work, one: float, other: float) -> None:
    slow, fast = sorted((one, other))
    local = replace(HERE, single_thread_mbps=10.0)
    step = split_step(seconds, work, 500, 0.1, local)
    took = [
        sum(step_there(step, work, local, replace(CLOUD, model="x", all_core_ghz=ghz), 16).values())
        for ghz in (slow, fast)
    ]
    assert took[1] <= took[0] * (1 + 1e-9)


@given(times, works, st.integers(1, 448), st.integers(1, 448), st.sampled_from([1, 2]))
def test_more_cores_are_never_slower(seconds: float, work: Work, one: int, other: int, per_core: int) -> None:
    few, many = sorted((one, other))
    cpu = replace(CLOUD, vcpus_per_core=per_core)
    assert there(seconds, work, cpu, many) <= there(seconds, work, cpu, few) * (1 + 1e-9)


@given(times, works, st.integers(1, 192), st.floats(1, 10), st.floats(1, 10), st.floats(1, 10))
def test_a_faster_core_is_never_slower(
    seconds: float, work: Work, vcpus: int, clock: float, mark: float, bandwidth: float
) -> None:
    assert CLOUD.all_core_ghz is not None
    assert CLOUD.matrix_mult_per_vcpu is not None
    assert CLOUD.read_gbps is not None
    other = replace(CLOUD, model="another")  # of the same model this machine would be the better one too
    better = replace(
        other,
        all_core_ghz=CLOUD.all_core_ghz * clock,
        matrix_mult_per_vcpu=CLOUD.matrix_mult_per_vcpu * mark,
        read_gbps=CLOUD.read_gbps * bandwidth,
    )
    assert there(seconds, work, better, vcpus) <= there(seconds, work, other, vcpus) * (1 + 1e-9)


@given(times, works, st.integers(1, 192), st.floats(1, 10))
def test_a_step_that_takes_longer_here_takes_longer_there(
    seconds: float, work: Work, vcpus: int, longer: float
) -> None:
    assume(seconds > 0.1)  # the calls are a fixed price
    assert there(seconds * longer, work, CLOUD, vcpus) >= there(seconds, work, CLOUD, vcpus) * (1 - 1e-9)


def test_large_work_scales() -> None:
    ratio = there(10.0, LARGE, CLOUD, 16, calls=0) / there(10.0, LARGE, CLOUD, 64, calls=0)
    sigma = scaling_sigma(2e9)
    assert ratio == pytest.approx(speedup_of(32, sigma) / speedup_of(8, sigma), rel=0.1)


def test_tiny_nets_do_not_scale() -> None:
    """An op is over before a second core could help."""
    alone, small, big, huge = (there(0.002, TINY, CLOUD, vcpus) for vcpus in (2, 8, 64, 192))
    assert alone == pytest.approx(small, rel=0.02)
    assert small == pytest.approx(big, rel=0.02)
    assert big == pytest.approx(huge, rel=0.02)


def test_trees_go_by_the_thread_and_not_by_the_matrix_multiply() -> None:
    local = replace(HERE, single_thread_mbps=thread_mbps(CLOUD))
    step = split_step(10.0, Work(), 0, 0.0, local)
    wide = replace(CLOUD, model="x", fp32_flops_per_cycle=64.0)
    terms = step_there(step, Work(), local, wide, 8, spreads=True)
    assert terms["compute"] == pytest.approx(step.compute)


def test_a_step_without_a_trace_scales_as_memory_and_compute_alike() -> None:
    step = split_step(1.0, Work(), 0, 0, HERE)
    assert step == StepSplit(
        0.5, 0.5, calls=0.0, host=0.0, sigma=SIGMA_UNTRACED, core_gflops=rates_here(HERE).core_gflops
    )


def test_the_same_chip_by_its_name() -> None:
    assert same_chip(HERE, CLOUD)
    assert not same_chip(HERE, replace(CLOUD, model="AMD EPYC 9R14"))
    assert not same_chip(HERE, replace(CLOUD, model=""))
    intel = replace(HERE, cpu_model="Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz")
    assert same_chip(intel, replace(CLOUD, model="Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"))
    assert same_chip(intel, replace(CLOUD, model="Intel(R) Xeon(R) Platinum 8375C CPU @ 3.50GHz")), (
        "the clock is set apart"
    )
