"""A profile measured on a GPU of this machine, as the calibration of predictions for others."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from costgpu.estimate.calibration import (
    CPU_UNKNOWN,
    KERNEL_TERMS,
    MIN_KERNEL_SHARE,
    OTHER_CHIP,
    SAME_BOARD,
    SAME_CHIP,
    calibrated,
    calibration_of,
    local_gpu,
    measured_on_gpu,
    transfer_weight,
)
from costgpu.estimate.feasibility import infeasible_reason
from costgpu.estimate.gpu import HOST_TO_DEVICE_GBPS, gpu_terms, precision_of
from costgpu.estimate.op_costs import StepWork
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Candidate
from costgpu.models.workload import DataLoading, Framework, WorkloadProfile
from costgpu.pricing.hardware import accelerators
from tests.unit.estimate import builders

SPECS = accelerators()
LOCAL_GPUS = list(csv.reader((Path(__file__).parent / "local_gpus.csv").read_text().splitlines()))[1:]
WORK = StepWork(flops={("conv", "float32"): 4e12, ("matmul", "float32"): 5e11}, bytes_moved=2e10, kernels=800)
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
    terms = gpu_terms(WORK, one.phases[0].optimizers, precision_of(one.framework), spec)
    return {"compute": terms.compute, "on-chip": terms.on_chip, "memory": terms.memory, "launch": terms.launch}


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
    calibration = calibration_of(measured, [WORK], SPECS[here])
    assert calibration is not None
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
    calibration = calibration_of(measured, [WORK], here)
    found = calibrated(calibration, 0, modelled(here), here)
    assert sum(found.values()) + 0.1 + 0.05 + COPY_A10G == pytest.approx(0.9)


def test_waiting_and_python_are_not_the_gpus() -> None:
    here = SPECS["A10G"]
    calibration = calibration_of(profile(1.0, wait=0.97, host=0.5), [WORK], here)
    assert calibration is not None
    assert calibration.ratios[0] * sum(modelled(here).values()) == pytest.approx(MIN_KERNEL_SHARE)


def test_no_calibration_without_a_gpu_that_is_known() -> None:
    here = SPECS["A10G"]
    assert calibration_of(profile(1.0, device="cpu"), [WORK], here) is None
    assert calibration_of(profile(1.0), [WORK], None) is None
    assert calibrated(None, 0, {"compute": 2.0, "host": 1.0}, here) == {"compute": 2.0, "host": 1.0}
    nothing = calibration_of(profile(1.0), [StepWork()], replace(here))
    assert nothing is not None
    assert math.isfinite(nothing.ratios[0])


def offer(*, gpu: bool) -> Candidate:
    return builders.candidate(builders.offer(memory_gib=32.0), accelerator=SPECS["T4"] if gpu else None)


def why(measured: WorkloadProfile, candidate: Candidate) -> str:
    return infeasible_reason(measured, candidate, precision_of(measured.framework))


def test_a_gpus_time_is_never_taken_for_a_cpus() -> None:
    on_gpu, on_cpu = profile(0.1), profile(0.1, device="cpu")
    assert measured_on_gpu(on_gpu)
    assert not measured_on_gpu(on_cpu)
    assert why(on_gpu, offer(gpu=False)) == CPU_UNKNOWN
    assert "CUDA_VISIBLE_DEVICES= measures it" in CPU_UNKNOWN
    assert why(on_gpu, offer(gpu=True)) != CPU_UNKNOWN
    assert why(on_gpu, Candidate(offer=None)) == "", "this machine is where it was measured"
    assert why(on_cpu, offer(gpu=False)) == ""


@pytest.mark.parametrize(("device", "name"), LOCAL_GPUS)
def test_the_local_gpu_in_the_table(device: str, name: str) -> None:
    """The name is empty where the table has no such GPU."""
    found = local_gpu([device, "Tesla T4"], SPECS.values())
    assert (found.name if found else "") == name


def test_without_a_device_there_is_no_spec() -> None:
    assert local_gpu([], SPECS.values()) is None
