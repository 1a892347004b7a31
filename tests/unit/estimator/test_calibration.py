"""What was measured in place of the model: a profile of a GPU of this machine, and earlier runs of the same job."""

import math
import random
import statistics
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from costgpu.estimator.calibration import (
    CPU_UNKNOWN,
    KERNEL_TERMS,
    MIN_KERNEL_SHARE,
    OTHER_CHIP,
    SAME_BOARD,
    SAME_CHIP,
    Calibration,
    calibrated,
    calibration_of,
    local_gpu,
    measured_on_gpu,
    transfer_weight,
)
from costgpu.estimator.cost import GPU_READY_SECONDS, billed_usd, hourly_usd
from costgpu.estimator.feasibility import infeasible_reason
from costgpu.estimator.gpu import HOST_TO_DEVICE_GBPS, execution_of
from costgpu.estimator.interval import Z80, sigma_of_runs
from costgpu.estimator.predict import as_measured, is_same_job
from costgpu.estimator.roofline import TRAINING, HostCpu, gpu_terms
from costgpu.estimator.scope import Scope
from costgpu.estimator.unit_work import Pass, unit_of
from costgpu.estimator.work import Work
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Candidate, MeasuredSpeed, Provenance
from costgpu.models.workload import DataLoading, Framework, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from tests.unit.estimator import builders
from tests.unit.estimator.test_verdict import EPOCH, WHOLE, cpu, gpu, verdict

SPECS = accelerators()
LOCAL_GPUS = """
NVIDIA A100-SXM4-80GB = A100-80GB
NVIDIA A100-SXM4-40GB = A100
NVIDIA A100 80GB PCIe = A100-PCIE-80GB
NVIDIA A100-PCIE-40GB = A100-PCIE-40GB
NVIDIA H100 80GB HBM3 = H100
NVIDIA H100 PCIe = H100-PCIE-80GB
NVIDIA H200 = H200
NVIDIA A10 = A10
NVIDIA A10G = A10G
NVIDIA L4 = L4
NVIDIA L40S = L40S
Tesla T4 = T4
Tesla K80 = K80
Tesla P100-PCIE-16GB = P100
Tesla P100-SXM2-16GB = P100-SXM2-16GB
Tesla V100-SXM2-16GB = V100
Tesla V100-SXM2-32GB = V100-32GB
Tesla V100-PCIE-16GB = V100-PCIE-16GB
NVIDIA GeForce RTX 3090 = RTX 3090
NVIDIA GeForce RTX 3080 = RTX 3080
NVIDIA GeForce RTX 2080 Ti = RTX 2080 Ti
GeForce GTX 1080 Ti = GTX 1080 Ti
NVIDIA RTX A6000 = RTX A6000
NVIDIA RTX 6000 Ada Generation = RTX 6000 Ada
Quadro RTX 6000 = Quadro RTX 6000
NVIDIA RTX PRO 6000 Blackwell Server Edition = RTX-PRO-6000
NVIDIA TITAN RTX = Titan RTX
NVIDIA GeForce RTX 3080 Ti =
NVIDIA GeForce RTX 3080 Laptop GPU =
NVIDIA GeForce RTX 4090 D =
NVIDIA H100 NVL =
NVIDIA A100-SXM-64GB =
NVIDIA A100-SXM4-40GB MIG 1g.5gb =
NVIDIA GeForce RTX 9999 =
"""
WORK = Work(
    flops={("conv", "float32"): 4e12, ("matmul", "float32"): 5e11}, moved={("pointwise", "float32"): 2e10}, kernels=800
)
MACHINE = builders.machine(accelerators=["NVIDIA A10G"])


def profile(step: float, *, device: str = "cuda", wait: float = 0.0, host: float = 0.0) -> WorkloadProfile:
    phase = builders.phase(
        total=builders.total(1000.0),
        step=builders.step_times(step, count=50),
        data=DataLoading(
            wait_seconds_per_step=wait,
            batches_per_step=1.0,
            workers=2,
            fetch_seconds_per_batch=0.001,
            batch_bytes=32 * 3 * 224 * 224 * 4,
        ),
        optimizers=[builders.optimizer(parameters=25_000_000, tensors=160, momentum=True)],
        host_seconds_per_step=host,
    )
    framework = Framework(version="2.13.0", python="3.11", cuda_build="13.0", device=device)
    return builders.profile(phase, machine=MACHINE, framework=framework)


def modelled(spec: AcceleratorSpec) -> dict[str, float]:
    one = profile(1.0)
    terms = gpu_terms(WORK, spec, execution_of(one.framework), TRAINING, optimizers=one.phases[0].optimizers)
    names = ("compute", "on-chip", "memory", "depthwise", "launch", "calls")
    return {name: getattr(terms, name.replace("-", "_")) for name in names}


def calibration_on(measured: WorkloadProfile, here: AcceleratorSpec | None, work: Work = WORK) -> Calibration | None:
    return calibration_of(measured, [unit_of(measured.phases[0], (Pass(work),))], here)


COPY_A10G = 32 * 3 * 224 * 224 * 4 / 13.5e9


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.6])
@pytest.mark.parametrize(
    ("here", "there", "part"),
    [
        ("A10G", "A10G", 1.0),
        ("A100", "A100-80GB", SAME_CHIP),
        ("V100", "V100-PCIE-16GB", SAME_CHIP),
        ("A10G", "T4", OTHER_CHIP),
        ("A100", "H100", OTHER_CHIP),
        ("L4", "L40S", OTHER_CHIP),
    ],
)
def test_another_gpu_is_the_model_and_part_of_what_it_missed_here(
    ratio: float, here: str, there: str, part: float
) -> None:
    copy = 32 * 3 * 224 * 224 * 4 / (HOST_TO_DEVICE_GBPS[here] * 1e9)
    measured = profile(ratio * sum(modelled(SPECS[here]).values()) + copy)
    calibration = calibration_on(measured, SPECS[here])
    assert list(calibration.ratios) == pytest.approx([ratio])
    found = calibrated(calibration, 0, {**modelled(SPECS[there]), "host": 0.004, "copy": 0.002}, SPECS[there])
    expected = ratio**part * sum(modelled(SPECS[there]).values())
    assert sum(found[name] for name in KERNEL_TERMS) == pytest.approx(expected)
    assert (found["host"], found["copy"]) == (0.004, 0.002)


def test_a_ratio_counts_for_less_the_less_the_chips_have_in_common() -> None:
    assert 0 < OTHER_CHIP < SAME_CHIP < SAME_BOARD == 1
    assert transfer_weight(SPECS["A100"], SPECS["A10"]) == OTHER_CHIP, "an A10 is no A100"


def test_this_gpu_gives_back_what_was_measured() -> None:
    here = SPECS["A10G"]
    measured = profile(0.9, wait=0.1, host=0.05)
    calibration = calibration_on(measured, here)
    found = calibrated(calibration, 0, modelled(here), here)
    one = measured.phases[0].optimizers
    own = gpu_terms(
        WORK, here, execution_of(measured.framework), TRAINING, optimizers=one, host=HostCpu(script_seconds=0.05)
    ).host
    assert sum(found.values()) + 0.1 + own + COPY_A10G == pytest.approx(0.9)


def test_waiting_and_python_are_not_the_gpus() -> None:
    here = SPECS["A10G"]
    calibration = calibration_on(profile(1.0, wait=0.97, host=0.5), here)
    assert calibration.ratios[0] * sum(modelled(here).values()) == pytest.approx(MIN_KERNEL_SHARE)


def test_no_calibration_without_a_gpu_that_is_known() -> None:
    here = SPECS["A10G"]
    assert calibration_on(profile(1.0, device="cpu"), here) is None
    assert calibration_on(profile(1.0), None) is None
    assert calibrated(None, 0, {"compute": 2.0, "host": 1.0}, here) == {"compute": 2.0, "host": 1.0}
    nothing = calibration_on(profile(1.0), replace(here), Work())
    assert math.isfinite(nothing.ratios[0])


def offer(*, gpu: bool) -> Candidate:
    return builders.candidate(builders.offer(memory_gib=32.0), accelerator=SPECS["T4"] if gpu else None)


def why(measured: WorkloadProfile, candidate: Candidate) -> str:
    return infeasible_reason(measured, candidate)


def test_a_gpus_time_is_never_taken_for_a_cpus() -> None:
    on_gpu, on_cpu = profile(0.1), profile(0.1, device="cpu")
    assert measured_on_gpu(on_gpu)
    assert not measured_on_gpu(on_cpu)
    assert why(on_gpu, offer(gpu=False)) == CPU_UNKNOWN
    assert "CUDA_VISIBLE_DEVICES= measures it" in CPU_UNKNOWN
    assert why(on_gpu, offer(gpu=True)) != CPU_UNKNOWN
    assert why(on_gpu, Candidate(offer=None)) == "", "this machine is where it was measured"
    assert why(on_cpu, offer(gpu=False)) == ""


@pytest.mark.parametrize(("device", "name"), [line.split(" =") for line in LOCAL_GPUS.strip().splitlines()])
def test_the_local_gpu_in_the_table(device: str, name: str) -> None:
    """The name is empty where the table has no such GPU."""
    found = local_gpu([device, "Tesla T4"], SPECS.values())
    assert (found.name if found else "") == name.strip()


def test_without_a_device_there_is_no_spec() -> None:
    assert local_gpu([], SPECS.values()) is None
    assert local_gpu(["", "Tesla T4"], SPECS.values()) is None


# ----------------------------------------------------------------------------------------------------- earlier runs


AT = datetime(2026, 11, 20, tzinfo=UTC)


def speed(seconds: float = 1800.0, runs: int = 1, spread: float = 0.0, steps: float | None = None) -> MeasuredSpeed:
    return MeasuredSpeed(job_seconds=seconds, runs=runs, log_spread=spread, last_at=AT, steps=steps)


def half_width(found: MeasuredSpeed) -> float:
    return math.exp(Z80 * sigma_of_runs(found)) - 1


def test_what_was_measured_takes_the_place_of_the_model() -> None:
    modelled = gpu(3600.0, infeasible="out of memory, the model says")
    found = as_measured(modelled, speed(1800.0, 3))
    assert found.provenance is Provenance.MEASURED
    assert found.run_seconds.value == 1800.0
    assert found.wall_seconds.value == 1800.0 + GPU_READY_SECONDS
    assert found.cost_usd.value == pytest.approx(billed_usd(found.wall_seconds.value, hourly_usd(found.candidate)))
    assert found.cost_usd.low < found.cost_usd.value < found.cost_usd.high
    assert found.step_seconds == pytest.approx(modelled.step_seconds / 2)
    assert found.infeasible == ""
    assert found.notes == ("measured in 3 runs, last 2026-11-20",)
    assert as_measured(modelled, speed()).notes == ("measured in 1 run, last 2026-11-20",)


def test_it_decides_the_verdict() -> None:
    slow, quick = cpu(36_000.0), gpu(36_000.0)
    assert verdict([slow, quick]).recommended is slow
    found = verdict([slow, as_measured(quick, speed(3_600.0, 5))])
    assert found.recommended.candidate is quick.candidate
    assert "measured in 5 runs" in found.recommended.notes[0]


@pytest.mark.parametrize(
    ("steps", "wanted", "meant"),
    [
        (1000.0, WHOLE, True),
        (1005.0, WHOLE, True),  # told approximately
        (2000.0, WHOLE, False),
        (1000.0, EPOCH, False),  # a part of it
        (None, WHOLE, True),
        (None, Scope("the whole job", True, (2000.0,), (20.0,)), False),  # longer than the script makes it
    ],
)
def test_only_the_same_job_counts(steps: float | None, wanted: Scope, meant: bool) -> None:
    assert is_same_job(speed(steps=steps), wanted, WHOLE) is meant


def test_a_script_of_unknown_length_was_not_this_long() -> None:
    assert not is_same_job(speed(steps=None), WHOLE, EPOCH)


def test_the_interval_narrows_with_every_run_and_never_below_five_percent() -> None:
    widths = [half_width(speed(runs=runs, spread=0.01)) for runs in range(1, 9)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(0.15, abs=0.005)
    assert widths[2] == pytest.approx(0.08, abs=0.01)
    assert half_width(speed(runs=1000, spread=0.0)) == pytest.approx(0.05)
    assert half_width(speed(runs=5, spread=0.3)) > 0.3


@pytest.mark.parametrize("spread", [0.02, 0.06, 0.15])
@pytest.mark.parametrize("runs", [1, 2, 3, 5])
def test_the_interval_holds_as_often_as_it_says(spread: float, runs: int) -> None:
    """However steady the job is; only a single run can tell nothing of its spread."""
    random.seed(runs)
    held = 0
    for _ in range(2000):
        seen = [random.gauss(0, spread) for _ in range(runs)]
        found = speed(1.0, runs, statistics.stdev(seen) if runs > 1 else 0.0)
        held += abs(random.gauss(0, spread) - statistics.median(seen)) <= Z80 * sigma_of_runs(found)
    assert held / 2000 >= (0.45 if spread > 0.06 and runs == 1 else 0.77)


def test_nobody_is_told_to_measure_what_was_measured() -> None:
    slow, quick = cpu(36_000.0), gpu(19_000.0)
    assert "would settle it" in verdict([slow, quick]).sentence
    assert "would settle it" not in verdict([slow, as_measured(quick, speed(19_000.0, 3))]).sentence
