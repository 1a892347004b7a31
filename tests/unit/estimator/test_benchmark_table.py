"""Predictions from the benchmark table, from sums, and for code that a GPU does nothing for.

One file of more than 400 lines: the cases share one table.
"""

import math
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from costgpu.estimator import benchmark_table
from costgpu.estimator.cpu import CpuRates, rates_here, step_there
from costgpu.estimator.gpu import execution_of
from costgpu.estimator.interval import COUNTED, Z80, Interval
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.roofline import TRAINING, gpu_terms
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.estimator.work import Work, counted_work
from costgpu.models.offer import Grade, Speedup
from costgpu.models.prediction import Candidate, Choice, Prediction, Provenance, Range
from costgpu.models.workload import Framework, GpuPath, Phase, StepTotals, Unit, WorkloadProfile
from costgpu.pricing.hardware import accelerators, cpus
from costgpu.pricing.speedups import speedups
from tests.unit.estimator import builders

MACHINE = builders.machine(gemm_gflops=200, gemm_gflops_low=190, copy_gbps=20, op_seconds=4e-6)
V100, T4, H100 = (accelerators()[name] for name in ("V100", "T4", "H100"))
ROW = Speedup(
    kind="gradient-boosted-trees",
    detail="1M rows",
    framework="xgboost of 2024",
    cpu="Xeon",
    cpu_cores=16,
    cpu_core_gflops=60.0,
    gpu="V100",
    gpu_tflops=V100.fp32_tflops,
    gpu_gbps=V100.memory_bandwidth_gbps,
    cpu_seconds=100.0,
    gpu_seconds=20.0,
    ratio_low=5.0,
    ratio_high=5.0,
    unit="round",
    units=100.0,
    grade=Grade.MEASURED,
    weight=1.0,
    plausible=True,
    remark="",
    source="https://example.org",
    measured="2024",
    as_of=date(2026, 11, 21),
)
RATE = benchmark_table.rate_of(ROW)[1]
WORK = benchmark_table.TableWork("gradient-boosted-trees", "xgboost", "round", 1.0, RATE)


def claimed(low: float, high: float, kind: str = "svm", weight: float = 0.5, *, plausible: bool = True) -> Speedup:
    return replace(
        ROW,
        kind=kind,
        cpu="",
        cpu_cores=None,
        cpu_core_gflops=None,
        gpu="",
        gpu_tflops=None,
        gpu_gbps=None,
        cpu_seconds=None,
        gpu_seconds=None,
        ratio_low=low,
        ratio_high=high,
        unit="",
        units=None,
        grade=Grade.CLAIM,
        weight=weight,
        plausible=plausible,
    )


def with_ratio(ratio: float, **changes: object) -> Speedup:
    return replace(ROW, gpu_seconds=100.0 / ratio, ratio_low=ratio, ratio_high=ratio, **changes)  # type: ignore[arg-type]


def found(work: benchmark_table.TableWork, *rows: Speedup, gpu: str = "V100") -> benchmark_table.TableSpeed:
    speed = benchmark_table.table_speed(work, accelerators()[gpu], rows)
    assert speed is not None
    return speed


# -- the formula


def test_the_same_machines_give_the_ratio_of_the_row_itself() -> None:
    speed = found(WORK, ROW)
    assert speed.speedup == pytest.approx(5.0)
    assert speed.sigma == benchmark_table.SPREAD["gradient-boosted-trees"]
    assert "1 measured line" in speed.notes[0]
    assert "Xeon against V100: 5.0x; https://example.org" in speed.notes[0]


def test_a_slower_cpu_gains_more_and_a_slower_gpu_gives_less() -> None:
    assert found(replace(WORK, unit_seconds=4.0, cpu_rate=RATE / 4), ROW).speedup == pytest.approx(5.0 * 4)
    ratio = benchmark_table.gpu_rate(T4.fp32_tflops, T4.memory_bandwidth_gbps) / benchmark_table.gpu_rate(
        V100.fp32_tflops, V100.memory_bandwidth_gbps
    )
    assert found(WORK, ROW, gpu="T4").speedup == pytest.approx(5.0 * ratio**0.25)
    net = replace(ROW, kind="resnet50")
    assert found(replace(WORK, kind="resnet50"), net, gpu="T4").speedup == pytest.approx(5.0 * ratio**0.75)


def test_small_work_is_compared_with_small_work() -> None:
    small = with_ratio(0.4, cpu_seconds=1.0, detail="10k rows")
    large = with_ratio(6.0, cpu_seconds=100.0, detail="10M rows")
    assert found(replace(WORK, unit_seconds=0.01), small, large).speedup == pytest.approx(0.4, rel=0.02)
    assert found(replace(WORK, unit_seconds=1.0), small, large).speedup == pytest.approx(6.0, rel=0.02)
    between = found(replace(WORK, unit_seconds=0.1), small, large).speedup
    assert between == pytest.approx(math.sqrt(0.4 * 6.0))
    assert "10M rows" in found(replace(WORK, unit_seconds=2.0), small, large).notes[0]


def test_a_round_on_hardly_any_data_takes_a_gpu_what_it_takes_to_start() -> None:
    rows = [row for row in speedups() if row.kind == benchmark_table.TREES]
    quickest = min(row.cpu_seconds / row.ratio / row.units for row in rows if row.cpu_seconds and row.units)
    for seconds in (1e-5, 1e-3):
        tiny = benchmark_table.TableWork(benchmark_table.TREES, "lightgbm 4.6", "round", seconds, 50.0)
        speed = found(tiny, *rows, gpu="T4")
        assert seconds / speed.speedup >= 0.99 * quickest
        assert "at least" in speed.notes[-1]


def test_work_of_another_unit_counts_by_weight_alone() -> None:
    light, heavy = with_ratio(2.0, weight=0.25), with_ratio(8.0, weight=0.75)
    speed = found(replace(WORK, unit="fit"), light, heavy)
    assert speed.speedup == pytest.approx(math.exp(0.25 * math.log(2) + 0.75 * math.log(8)))
    assert found(replace(WORK, unit="tree"), ROW).speedup == pytest.approx(5.0)  # a round of boosting is a tree


def test_rows_of_the_same_library_count_alone_if_there_are_enough() -> None:
    others = [with_ratio(50.0, framework="catboost of 2024", detail=f"{n}") for n in range(4)]
    two = [with_ratio(2.0, detail=f"x{n}") for n in range(2)]
    three = [*two, with_ratio(2.0, detail="x3")]
    assert found(WORK, *others, *three).speedup == pytest.approx(2.0)
    assert found(WORK, *others, *two).speedup > 10
    assert found(replace(WORK, framework="lightgbm"), *others, *three).speedup > 10


def test_rows_that_disagree_widen_the_interval() -> None:
    agreeing = found(WORK, with_ratio(5.0), with_ratio(5.0, detail="b"))
    quarrelling = found(WORK, with_ratio(0.2), with_ratio(125.0, detail="b"))
    assert quarrelling.speedup == pytest.approx(agreeing.speedup)
    assert quarrelling.sigma == pytest.approx(math.log(25))
    assert agreeing.sigma == benchmark_table.SPREAD["gradient-boosted-trees"]


def test_a_kind_without_rows_goes_to_its_relatives_and_then_to_claims() -> None:
    lstm = replace(ROW, kind="lstm")
    related = found(replace(WORK, kind="rnn"), lstm, claimed(10, 15, "any"))
    assert related.sigma == benchmark_table.SPREAD_RELATIVE
    assert "no measured line of rnn: its relatives stand for it" in related.notes[1]
    only_claims = found(replace(WORK, kind="svm"), lstm, claimed(9, 36), claimed(10, 15, "any"))
    assert only_claims.speedup == pytest.approx(18.0)
    assert (
        only_claims.sigma
        == benchmark_table.SPREAD_CLAIM
        > benchmark_table.SPREAD_RELATIVE
        > benchmark_table.SPREAD["gradient-boosted-trees"]
    )
    assert "no measured line of svm: only claims, such as 18x" in only_claims.notes[0]
    general = found(replace(WORK, kind="pca"), claimed(10, 50, "scikit-learn"), claimed(10, 15, "any"))
    assert general.speedup == pytest.approx(math.sqrt(500))
    assert found(replace(WORK, kind="gan"), claimed(10, 15, "any"), claimed(10, 50, "scikit-learn")).speedup < 13


def test_the_claims_reach_is_the_least_width() -> None:
    wide = Interval.of_sigma(found(replace(WORK, kind="svm"), claimed(1, 10000)).sigma)
    assert wide.low <= 1 / 100
    assert wide.high >= 100


def test_what_is_implausible_or_without_weight_is_never_used() -> None:
    wild = claimed(1440, 1440, "svm", weight=1.0, plausible=False)
    shown = claimed(5, 5, "svm", weight=0.0)
    assert benchmark_table.table_speed(replace(WORK, kind="svm"), V100, [wild, shown]) is None
    assert found(replace(WORK, kind="svm"), wild, shown, claimed(10, 10)).speedup == pytest.approx(10)
    assert benchmark_table.table_speed(WORK, V100, [replace(ROW, weight=0.0)]) is None


def test_a_net_of_which_nothing_is_known_is_any_net_but_no_tree() -> None:
    nets = [replace(ROW, kind="resnet50"), with_ratio(20.0, kind="lstm", detail="b")]
    speed = found(replace(WORK, kind="", unit="fit"), *nets, with_ratio(0.1, detail="trees"))
    assert speed.speedup == pytest.approx(10.0)
    assert "no measured line of this net" in speed.notes[1]


def test_work_on_one_core_knows_only_one_core() -> None:
    rates = CpuRates(50.0, 16, 40.0)
    assert benchmark_table.cpu_rate(rates, 1.0) == pytest.approx(50.0)
    assert benchmark_table.cpu_rate(rates) == pytest.approx(50.0 * 16 / (1 + 0.04 * 15))
    assert benchmark_table.cpu_rate(rates, 0.5) == pytest.approx(50.0 / (0.5 + 0.05))


# -- the shipped table


def test_the_width_covers_what_other_sources_say_of_a_row() -> None:
    """Each row of a kind with several sources from the other sources alone: the promise of an 80 % interval."""
    measured = [row for row in speedups() if row.grade is Grade.MEASURED]
    inside = total = 0
    for row in measured:
        others = [other for other in measured if other.kind == row.kind and other.source != row.source]
        if not others:
            continue
        assert row.cpu_seconds is not None
        seconds = row.cpu_seconds / (row.units or 1.0)
        unit = row.unit if row.units else ""
        work = benchmark_table.TableWork(
            row.kind, benchmark_table.library(row.framework), unit, seconds, benchmark_table.rate_of(row)[1]
        )
        speed = benchmark_table.table_speed(work, accelerators()[row.gpu], others)
        total += 1
        inside += abs(math.log(speed.speedup / row.ratio)) <= Z80 * speed.sigma
    assert total >= 80
    assert 0.75 <= inside / total <= 0.95


def test_trees_on_few_rows_are_not_faster_on_a_gpu_and_on_many_they_are() -> None:
    few = benchmark_table.TableWork("gradient-boosted-trees", "xgboost", "round", 0.003, 1350.0)
    many = replace(few, unit_seconds=0.3)
    for gpu in (T4, V100, H100):
        small, large = (
            benchmark_table.table_speed(few, gpu, speedups()),
            benchmark_table.table_speed(many, gpu, speedups()),
        )
        assert small.speedup < 1 < 2.5 < large.speedup < 15


# -- predictions


def candidate(
    gpu: str | None, *, price: str = "1.0", architecture: str = "x86_64", memory_gib: float = 64
) -> Candidate:
    spec = accelerators()[gpu] if gpu else None
    offer = builders.offer(
        price,
        gpu=gpu or "",
        gpu_memory_gib=spec.memory_gib if spec else 0,
        instance_type="g.xlarge" if gpu else "c7a.4xlarge",
        vcpus=8 if gpu else 16,
        memory_gib=memory_gib,
        architecture=architecture,
    )
    return builders.candidate(offer, cpus()["aws", "c7a"], accelerator=spec)


def profile(phase: Phase, name: str = "xgboost") -> WorkloadProfile:
    framework = Framework(version="3.0", python="3.11", name=name)
    return builders.profile(
        phase, machine=MACHINE, framework=framework, setup_seconds=10.0, wall_seconds=60.0, peak_rss_bytes=2 << 30
    )


def phase_of(gpu: GpuPath, seconds: float = 4.0, **changes: Any) -> Phase:
    known = {"total": builders.total(2000.0), "step": builders.step_times(seconds, count=20), "trace_steps": 0}
    return builders.phase(gpu=gpu, **{**known, **changes})


TREES = phase_of(
    GpuPath.TABLE,
    kind="gradient-boosted-trees",
    unit=Unit(name="round"),
    gpu_reason="on a GPU it takes device='cuda'",
    host_seconds_per_step=0.4,
)


def predicted(work: WorkloadProfile, where: Candidate, rows: tuple[Speedup, ...] = speedups()) -> Prediction:
    return predict(prepare(work, scope_of(work), year=2026, speedups=rows), where)


def test_a_phase_from_the_table_is_its_seconds_here_over_the_speed_up() -> None:
    there = predicted(profile(TREES), candidate("V100"))
    rate = benchmark_table.cpu_rate(rates_here(MACHINE), 0.1)
    speed = found(benchmark_table.TableWork(TREES.kind, "xgboost", "round", 4.0, rate), *speedups())
    assert there.step_seconds == pytest.approx(4.0 / speed.speedup)
    assert there.provenance is Provenance.BENCHMARKED
    assert not there.infeasible
    assert there.terms["table"] == there.step_seconds
    assert there.run_seconds.high / there.run_seconds.low > 4  # the interval says how little is known
    assert there.notes[0] == "on a GPU it takes device='cuda'"
    assert "benchmark table" in there.notes[1]
    assert "https://" in there.notes[1]


def test_without_a_table_there_is_no_gpu_figure_to_rank() -> None:
    there = predicted(profile(TREES), candidate("V100"), ())
    assert there.infeasible == "no speed-up of gradient-boosted-trees on a GPU is known"


def test_a_cpu_candidate_uses_its_cores_and_here_stays_as_measured() -> None:
    there = predicted(profile(TREES), candidate(None))
    here = predicted(profile(TREES), Candidate(offer=None))
    assert here.provenance is Provenance.MEASURED
    assert here.step_seconds == 4.0
    assert there.provenance is Provenance.MODELLED
    assert there.step_seconds < 4.0 / 2  # 16 cores against 4, of which a part is serial
    whole = step_there(
        prepare(profile(TREES), scope_of(profile(TREES)), year=2026).splits[0],
        Work(),
        MACHINE,
        cpus()["aws", "c7a"],
        16,
    )
    assert there.step_seconds < sum(whole.values())  # an untraced torch step is not trusted to spread


def test_code_that_a_gpu_does_nothing_for() -> None:
    reason = "no GPU implementation of scikit-learn's HistGradientBoostingClassifier: CPU"
    work = profile(phase_of(GpuPath.NONE, gpu_reason=reason, unit=Unit(name="fit")), "scikit-learn")
    gpu, cpu = predicted(work, candidate("V100")), predicted(work, candidate(None))
    assert gpu.infeasible == reason
    assert not cpu.infeasible
    assert predicted(profile(phase_of(GpuPath.NONE), "Python"), candidate("V100")).infeasible.startswith(
        "a GPU does nothing"
    )
    here = predicted(work, Candidate(offer=None))
    verdict = decide(scope_of(work), here, [gpu, cpu], Preferences(), ())
    assert verdict.choice is Choice.CPU
    assert verdict.best_gpu is None
    assert f"No GPU will do: {reason}." in verdict.sentence


def test_a_wide_figure_is_too_close_to_call_even_where_the_costs_differ_by_more_than_two() -> None:
    rows = (claimed(10, 10),)
    work = profile(phase_of(GpuPath.TABLE, kind="svm", unit=Unit(name="fit"), seconds=40.0), "scikit-learn")
    cpu = predicted(work, candidate(None), rows)
    gpu = predicted(work, candidate("V100"), rows)
    price = cpu.cost_usd.value / gpu.cost_usd.value / 2.5  # so that the GPU costs 1 / 2.5
    gpu = predicted(work, candidate("V100", price=f"{price:.4f}"), rows)
    assert gpu.cost_usd.value < cpu.cost_usd.value / 2
    here = predicted(work, Candidate(offer=None))
    assert decide(scope_of(work), here, [gpu, cpu], Preferences(), ()).choice is Choice.TOO_CLOSE
    seconds = gpu.wall_seconds.value
    certain = replace(gpu, wall_seconds=Range(value=seconds, low=seconds / 1.1, high=seconds * 1.1))
    assert decide(scope_of(work), here, [certain, cpu], Preferences(), ()).choice is Choice.GPU


# -- sums of a step


TOTALS = StepTotals(flops=4e12, bytes_moved=2e11, kernels=400, convolutions=0.25, source="the layers' shapes")


def test_sums_become_work_that_the_gpu_model_knows() -> None:
    work = counted_work(TOTALS)
    assert work.flops == {("conv", "float32"): 1e12, ("matmul", "float32"): 3e12}
    assert (work.total_flops, work.bytes_moved, work.kernels) == (4e12, 2e11, 400)
    assert work.large_bytes == 2e11  # 500 MB an op
    assert counted_work(replace(TOTALS, kernels=1e6)).large_bytes == 0
    assert dict(counted_work(replace(TOTALS, convolutions=1.0)).flops) == {("conv", "float32"): 4e12}
    assert dict(counted_work(replace(TOTALS, flops=0.0)).flops) == {}


def test_a_counted_phase_is_predicted_by_the_model_with_a_wider_interval() -> None:
    optimizer = builders.optimizer("Adam", 25_000_000, tensors=160, state_bytes=200_000_000)
    phase = phase_of(
        GpuPath.COUNTED, totals=TOTALS, optimizers=[optimizer], model_bytes=100_000_000, saved_tensor_bytes=10**9
    )
    work = profile(phase, "keras (jax)")
    there = predicted(work, candidate("V100"))
    terms = gpu_terms(counted_work(TOTALS), V100, execution_of(work.framework), TRAINING, optimizers=[optimizer])
    assert there.step_seconds == pytest.approx(terms.seconds)
    assert there.provenance is Provenance.MODELLED
    assert not there.infeasible
    assert any("from the sums of a step" in note and "the layers' shapes" in note for note in there.notes)
    assert there.run_seconds.high / there.run_seconds.low >= COUNTED.high / COUNTED.low * 0.98
    assert predicted(work, candidate(None)).step_seconds < 4.0


def test_the_gpu_builds_of_other_frameworks() -> None:
    k80 = candidate("K80")
    assert (
        predicted(profile(TREES), k80).infeasible == "a GPU build of xgboost needs compute capability 5.0; K80 has 3.7"
    )
    learn = profile(replace(TREES, kind="random-forest"), "scikit-learn")
    assert predicted(learn, candidate("P100")).infeasible == "cuML needs compute capability 7.0; P100 has 6.0"
    assert not predicted(learn, candidate("T4")).infeasible
    assert not predicted(learn, candidate("T4G", architecture="arm64")).infeasible
    arm = predicted(profile(TREES), candidate("T4G", architecture="arm64"))
    assert arm.infeasible == "no CUDA build of xgboost for this arm64 host is known"
    assert not predicted(profile(TREES, "log lines"), k80).infeasible  # Caffe ran on it, and its build is not known
    assert "not a CUDA device" in predicted(profile(TREES), candidate("MI210")).infeasible
    seen_by_its_log = replace(profile(TREES, "torch"), framework=Framework(version="", python="", name="torch"))
    assert not predicted(seen_by_its_log, candidate("H100")).infeasible
    assert (
        predicted(seen_by_its_log, k80).infeasible == "a GPU build of torch needs compute capability 5.0; K80 has 3.7"
    )


def test_an_untraced_step_of_torch_is_still_an_error_of_its_own() -> None:
    there = predicted(profile(phase_of(GpuPath.TRACED), "torch"), candidate("V100"))
    assert there.infeasible == "no step could be traced with torch 3.0, so that no GPU time is known"
