"""A profile measured on a GPU of this machine, as the anchor of predictions for others."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from costgpu.estimate.calibration import (
    CPU_UNKNOWN,
    KERNEL_TERMS,
    LEAST_SHARE,
    OTHER_CHIP,
    SAME_BOARD,
    SAME_CHIP,
    anchor_of,
    anchored,
    measured_on_gpu,
    spec_here,
    weight,
)
from costgpu.estimate.feasibility import why_not
from costgpu.estimate.gpu import HOST_TO_DEVICE_GBPS, gpu_terms, precision_of
from costgpu.estimate.op_costs import StepWork
from costgpu.models.offer import AcceleratorSpec, Offer, PurchaseOption
from costgpu.models.prediction import Candidate
from costgpu.models.workload import (
    DataLoading,
    Framework,
    Machine,
    OptimizerFacts,
    Phase,
    StepTimes,
    Total,
    TotalKind,
    WorkloadProfile,
)
from costgpu.pricing.hardware import accelerators
from costgpu.providers import registry

SPECS = accelerators()
WORK = StepWork(flops={("conv", "float32"): 4e12, ("matmul", "float32"): 5e11}, bytes_moved=2e10, kernels=800)
MACHINE = Machine(
    cpu_model="test",
    cores=8,
    threads=8,
    memory_gib=64,
    gemm_gflops=500,
    gemm_gflops_low=480,
    copy_gbps=40,
    op_seconds=4e-6,
    accelerators=["NVIDIA A10G"],
)


def profile(step: float, *, device: str = "cuda", wait: float = 0.0, host: float = 0.0) -> WorkloadProfile:
    phase = Phase(
        label="train.py:9",
        total=Total(kind=TotalKind.EXACT, steps=1000.0, steps_per_epoch=None, how="1000"),
        steps_observed=50,
        step=StepTimes(count=50, median_seconds=step, mean_seconds=step, low_seconds=step, high_seconds=step),
        data=DataLoading(
            wait_seconds_per_step=wait,
            batches_per_step=1.0,
            workers=2,
            fetch_seconds_per_batch=0.001,
            batch_bytes=32 * 3 * 224 * 224 * 4,
        ),
        optimizers=[OptimizerFacts(name="SGD", parameters=25_000_000, tensors=160, momentum=True)],
        trace_steps=1,
        host_seconds_per_step=host,
    )
    return WorkloadProfile(
        script="train.py",
        arguments=[],
        created="2026-11-21T00:00:00+00:00",
        costgpu_version="test",
        machine=MACHINE,
        framework=Framework(version="2.13.0", python="3.11", cuda_build="13.0", device=device),
        setup_seconds=1.0,
        ended=False,
        wall_seconds=30.0,
        peak_rss_bytes=1 << 30,
        phases=[phase],
    )


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
    anchor = anchor_of(measured, [WORK], SPECS[here])
    assert anchor is not None
    assert list(anchor.ratios) == pytest.approx([ratio])
    found = anchored(anchor, 0, {**modelled(SPECS[there]), "host": 0.004, "copy": 0.002}, SPECS[there])
    expected = ratio**part * sum(modelled(SPECS[there]).values())
    assert sum(found[name] for name in KERNEL_TERMS) == pytest.approx(expected)
    assert (found["host"], found["copy"]) == (0.004, 0.002)


def test_a_ratio_counts_for_less_the_less_the_chips_have_in_common() -> None:
    assert 0 < OTHER_CHIP < SAME_CHIP < SAME_BOARD == 1
    assert weight(SPECS["A100"], SPECS["A10"]) == OTHER_CHIP, "an A10 is no A100"


def test_this_gpu_gives_back_what_was_measured() -> None:
    here = SPECS["A10G"]
    measured = profile(0.9, wait=0.1, host=0.05)
    anchor = anchor_of(measured, [WORK], here)
    found = anchored(anchor, 0, modelled(here), here)
    assert sum(found.values()) + 0.1 + 0.05 + COPY_A10G == pytest.approx(0.9)


def test_waiting_and_python_are_not_the_gpus() -> None:
    here = SPECS["A10G"]
    anchor = anchor_of(profile(1.0, wait=0.97, host=0.5), [WORK], here)
    assert anchor is not None
    assert anchor.ratios[0] * sum(modelled(here).values()) == pytest.approx(LEAST_SHARE)


def test_no_anchor_without_a_gpu_that_is_known() -> None:
    here = SPECS["A10G"]
    assert anchor_of(profile(1.0, device="cpu"), [WORK], here) is None
    assert anchor_of(profile(1.0), [WORK], None) is None
    assert anchored(None, 0, {"compute": 2.0, "host": 1.0}, here) == {"compute": 2.0, "host": 1.0}
    nothing = anchor_of(profile(1.0), [StepWork()], replace(here))
    assert nothing is not None
    assert math.isfinite(nothing.ratios[0])


def offer(*, gpu: bool) -> Candidate:
    found = Offer(
        provider="aws",
        region="us-east-1",
        zone=None,
        instance_type="x",
        family="x",
        vcpus=8,
        memory_gib=32.0,
        architecture="x86_64",
        accelerator=None,
        purchase_option=PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal(1),
        price_source="test",
        price_as_of=date(2026, 11, 1),
    )
    return Candidate(costs=registry.costs("aws"), offer=found, accelerator=SPECS["T4"] if gpu else None)


def why(measured: WorkloadProfile, candidate: Candidate) -> str:
    return why_not(measured, candidate, precision_of(measured.framework))


def test_a_gpus_time_is_never_taken_for_a_cpus() -> None:
    on_gpu, on_cpu = profile(0.1), profile(0.1, device="cpu")
    assert measured_on_gpu(on_gpu)
    assert not measured_on_gpu(on_cpu)
    assert why(on_gpu, offer(gpu=False)) == CPU_UNKNOWN
    assert "CUDA_VISIBLE_DEVICES= measures it" in CPU_UNKNOWN
    assert why(on_gpu, offer(gpu=True)) != CPU_UNKNOWN
    assert why(on_gpu, Candidate(offer=None)) == "", "this machine is where it was measured"
    assert why(on_cpu, offer(gpu=False)) == ""


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla K80", "K80"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("Tesla P100-SXM2-16GB", "P100-SXM2-16GB"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("Tesla V100-PCIE-16GB", "V100-PCIE-16GB"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3080", "RTX 3080"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("GeForce GTX 1080 Ti", "GTX 1080 Ti"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("NVIDIA TITAN RTX", "Titan RTX"),
        # none of the table's
        ("NVIDIA GeForce RTX 3080 Ti", None),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA A100-SXM-64GB", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA GeForce RTX 9999", None),
        ("", None),
    ],
)
def test_the_local_gpu_in_the_table(name: str, spec: str | None) -> None:
    found = spec_here([name, "Tesla T4"], SPECS.values())
    assert (found.name if found else None) == spec


def test_without_a_device_there_is_no_spec() -> None:
    assert spec_here([], SPECS.values()) is None
