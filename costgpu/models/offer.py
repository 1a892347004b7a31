"""Offers, hardware, speed-ups and reference workloads. Imports nothing of ours.

Plain dataclasses, so that a command that reads prices does not pay for pydantic; documents that come from
outside are validated against these same classes by pydantic where they are read.

Units are in the names: seconds, GiB (2**30 bytes), USD, USD per hour, GB/s (1e9 bytes), TFLOP/s (1e12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum


class PurchaseOption(StrEnum):
    """How an instance is paid for."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The accelerators of one instance.

    Attributes:
        name: Canonical name, such as ``A100`` or ``A100-80GB``; a key of the hardware table.
        count: Number of them; below 1 for a slice (0.5 is half of one).
        memory_gib: Memory of each in GiB; of the slice, if it is one.
    """

    name: str
    count: float
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type in one place, bought one way, at one price.

    Attributes:
        provider: ``aws`` or ``gcp``.
        instance_type: The provider's name, such as ``g5.xlarge`` or ``g2-standard-4``.
        family: The part of the instance type that fixes the CPU: ``g5``, ``g2``.
        zone: Zone of the price; None where the price holds in the whole region.
        price_usd_per_hour: Always above zero.
        vcpus: Virtual CPUs (hardware threads on most x86 families).
        memory_gib: Main memory in GiB.
        architecture: ``x86_64`` or ``arm64``.
        accelerator: Accelerators of the instance; None for a CPU instance.
        price_source: Place where the price was read; ``derived`` in it means computed from a price that was read.
        price_as_of: The day on which the source was current.
    """

    provider: str
    instance_type: str
    family: str
    region: str
    zone: str | None
    purchase_option: PurchaseOption
    price_usd_per_hour: Decimal
    vcpus: int
    memory_gib: float
    architecture: str
    accelerator: Accelerator | None
    price_source: str
    price_as_of: date


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorSpec:
    """What one accelerator can do. Source: pricing/data/accelerators.csv.

    Attributes:
        model: The exact board that the figures are for, such as ``A100-SXM4-40GB``.
        vendor: ``NVIDIA``, ``AMD`` or ``Intel``.
        architecture: ``Ampere``, ``CDNA2``, ...
        year: Year of the first shipment.
        memory_bandwidth_gbps: Peak, GB/s.
        fp32_tflops: Peak of the fp32 cores, dense.
        fp32_matrix_tflops: Peak of fp32 matrix units (AMD CDNA); None without them.
        tf32_tensor_tflops: Peak of TF32 units, dense; None without them.
        fp16_tensor_tflops: Peak of fp16 tensor cores, dense, fp32 accumulation; None without them.
        bf16_tensor_tflops: Peak of bf16 units, dense; None without them.
        multiprocessors: Streaming multiprocessors or compute units.
        compute_capability: CUDA's, such as (8, 6); None for others.
        tdp_watts: Board power.
    """

    name: str
    model: str
    vendor: str
    architecture: str
    year: int
    memory_gib: float
    memory_bandwidth_gbps: float
    fp32_tflops: float
    fp32_matrix_tflops: float | None
    tf32_tensor_tflops: float | None
    fp16_tensor_tflops: float | None
    bf16_tensor_tflops: float | None
    multiprocessors: int
    compute_capability: tuple[int, int] | None
    tdp_watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSpec:
    """What the CPU of an instance family can do. Source: pricing/data/cpus.csv and cpu_measurements.csv.

    Attributes:
        microarchitecture: Microarchitecture, such as ``Ice Lake-SP``; empty if unknown.
        vcpus_per_core: 2 where a vCPU is a hardware thread.
        all_core_ghz: Sustained clock with all cores busy; None if not known.
        fp32_flops_per_cycle: Per core, fused multiply-add counted as two; None if not known.
        bf16_in_hardware: Whether bf16 arithmetic is fast.
        read_gbps: Measured memory read of the largest size, GB/s; None if not measured.
        read_vcpus: The vCPUs of the size on which `read_gbps` was measured.
        matrix_mult_per_vcpu: Measured PassMark matrix multiplications per second and vCPU; None if not measured.
        burstable: Runs at full speed only on credits (t3, e2 shared-core and the like).
    """

    provider: str
    family: str
    model: str
    microarchitecture: str
    vcpus_per_core: int
    all_core_ghz: float | None
    fp32_flops_per_cycle: float | None
    bf16_in_hardware: bool
    read_gbps: float | None
    read_vcpus: int | None
    matrix_mult_per_vcpu: float | None
    burstable: bool


class Grade(StrEnum):
    """How a speed-up is known."""

    MEASURED = "measured"  # both machines are named, and their seconds are given
    CLAIM = "claim"  # published without one of the machines, without the seconds, or without a source


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """One row of the benchmark table: the same work on a CPU and on a GPU. Source: pricing/data/speedups.csv.

    Attributes:
        kind: Kind of work, such as ``resnet50`` or ``gradient-boosted-trees``; ``any`` for a claim about no kind.
        detail: Model, data and batch.
        framework: Framework with its version, as far as the source tells.
        cpu: Name of the CPU; empty if the source does not tell.
        cpu_cores: Physical cores that worked; None if the source does not tell.
        cpu_core_gflops: fp32 GEMM rate of one core, GFLOP/s; None without a CPU.
        gpu: A name of the hardware table; empty if the source does not tell.
        gpu_tflops: fp32 peak of the GPU, TFLOP/s; None without one.
        gpu_gbps: Memory bandwidth of the GPU, GB/s; None without one.
        cpu_seconds: Seconds on the CPU; None if only a ratio is known.
        gpu_seconds: Seconds on the GPU; None if only a ratio is known.
        ratio_low: CPU seconds over GPU seconds; of a claimed range its lower end.
        ratio_high: The upper end of a claimed range, else the same.
        unit: Unit of work: ``step``, ``round``, ``tree``, ``fit``; empty if unknown.
        units: Number of units that the seconds are for; None if unknown.
        weight: Weight in predictions, 0 to 1; 0 for a row that is shown and not used.
        plausible: False for a figure that no comparison of whole machines can give.
        source: Address or publication.
        measured: Date of the measurement: a year, a month or a day, ISO 8601; empty if the source does not tell.
        as_of: The day on which the source was read.
    """

    kind: str
    detail: str
    framework: str
    cpu: str
    cpu_cores: int | None
    cpu_core_gflops: float | None
    gpu: str
    gpu_tflops: float | None
    gpu_gbps: float | None
    cpu_seconds: float | None
    gpu_seconds: float | None
    ratio_low: float
    ratio_high: float
    unit: str
    units: float | None
    grade: Grade
    weight: float
    plausible: bool
    remark: str
    source: str
    measured: str
    as_of: date

    @property
    def ratio(self) -> float:
        """CPU seconds over GPU seconds; the geometric middle of a range."""
        return math.sqrt(self.ratio_low * self.ratio_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A well-known training workload, for scripts that cannot be measured. Source: pricing/data/references.csv.

    Attributes:
        kind: Kind of work, as in the benchmark table.
        detail: Model and data set.
        parameters: Number of trained parameters.
        tensors: Number of tensors that hold them.
        flops_per_sample: FLOPs of matrix products and convolutions, forward and backward.
        convolutions: Share of these FLOPs that are convolutions.
        bytes_per_sample: Bytes moved to and from memory, forward and backward, fp32.
        kernels_per_step: Kernels launched, without the optimizer's.
        saved_bytes_per_sample: Bytes kept for the backward pass, fp32.
        sample_bytes: Bytes of one sample as it goes to the GPU.
        optimizer: ``SGD`` or ``Adam``, as torch names them.
        momentum: Whether the SGD has momentum.
        batch_size: A batch that fits a GPU of 16 GB.
        samples_per_epoch: Size of its data set; None where nobody speaks of epochs.
        epochs: Usual number of epochs; None where there is none.
        source: Source of the model, and who counted.
        as_of: The day on which it was counted.
    """

    name: str
    kind: str
    detail: str
    parameters: int
    tensors: int
    flops_per_sample: float
    convolutions: float
    bytes_per_sample: float
    kernels_per_step: float
    saved_bytes_per_sample: float
    sample_bytes: int
    optimizer: str
    momentum: bool
    batch_size: int
    samples_per_epoch: int | None
    epochs: float | None
    source: str
    as_of: date
