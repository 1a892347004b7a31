"""Offers, hardware, speed-ups and reference workloads. Imports nothing of ours.

Plain dataclasses, so that a command that reads prices does not pay for pydantic; documents that come from
outside are validated against these same classes by pydantic where they are read.

Units are in the names: seconds, GiB (2**30 bytes), USD, USD per hour, GB/s (1e9 bytes), TFLOP/s (1e12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum

USABLE_SHARE = 0.98  # of a board's memory, that programs get: the median of the rows of accelerators.csv that tell it
MOST_USD_PER_HOUR = 100_000  # of a machine; more is read wrongly


class PurchaseOption(StrEnum):
    """How an instance is paid for."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The accelerators of one instance."""

    name: str  # canonical name, such as ``A100`` or ``A100-80GB``; a key of the hardware table
    count: float  # number of them; below 1 for a slice (0.5 is half of one)
    memory_gib: float  # memory of each in GiB; of the slice, if it is one


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrice:
    """Why the price of an offer is the user's own, and what it is without that."""

    set_on: date
    until: date  # the last day, UTC, on which it holds
    list_usd_per_hour: Decimal  # the price after that day
    list_as_of: date
    list_source: str
    note: str = ""

    @property
    def ends_at(self) -> datetime:
        """From then on the list price counts."""
        return datetime.combine(self.until + timedelta(days=1), time(), UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type in one place, bought one way, at one price.

    Attributes:
        provider: ``aws`` or ``gcp``.
        instance_type: The provider's name, such as ``g5.xlarge`` or ``g2-standard-4``.
        family: The part of the instance type that fixes the CPU: ``g5``, ``g2``.
        zone: Zone of the price; None where the price holds in the whole region.
        price_usd_per_hour: Above zero, unless it is the user's own or this machine's.
        vcpus: Virtual CPUs (hardware threads on most x86 families).
        memory_gib: Main memory in GiB.
        architecture: ``x86_64`` or ``arm64``.
        accelerator: Accelerators of the instance; None for a CPU instance.
        price_source: Place where the price was read; ``derived`` in it means computed from a price that was read.
        price_as_of: The day on which the source was current.
        own_price: What the price is the user's own by; None for a list price.
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
    own_price: OwnPrice | None = None

    @property
    def dearest_usd_per_hour(self) -> Decimal:
        """Return the price, or the list price behind it if that is higher."""
        own = self.own_price
        return self.price_usd_per_hour if own is None else max(self.price_usd_per_hour, own.list_usd_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorSpec:
    """What one accelerator can do. Source: pricing/data/accelerators.csv."""

    name: str
    model: str  # the exact board that the figures are for, such as ``A100-SXM4-40GB``
    vendor: str  # ``NVIDIA``, ``AMD`` or ``Intel``
    architecture: str  # ``Ampere``, ``CDNA2``, ...
    year: int  # year of the first shipment
    memory_gib: float
    memory_bandwidth_gbps: float  # peak, GB/s
    fp32_tflops: float  # peak of the fp32 cores, dense
    fp32_matrix_tflops: float | None  # peak of fp32 matrix units (AMD CDNA); None without them
    tf32_tensor_tflops: float | None  # peak of TF32 units, dense; None without them
    fp16_tensor_tflops: float | None  # peak of fp16 tensor cores, dense, fp32 accumulation; None without them
    bf16_tensor_tflops: float | None  # peak of bf16 units, dense; None without them
    multiprocessors: int  # streaming multiprocessors or compute units
    compute_capability: tuple[int, int] | None  # CUDA's, such as (8, 6); None for others
    tdp_watts: float  # board power
    l2_mib: float | None = None  # cache before the memory, MiB; None if not known
    usable_gib: float | None = None  # memory that programs get, as CUDA tells it; None if not known

    @property
    def room_gib(self) -> float:
        """Return the memory that programs get, GiB: all but what ECC and the driver keep, mostly taken if not known."""
        return self.memory_gib * USABLE_SHARE if self.usable_gib is None else self.usable_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSpec:
    """What the CPU of an instance family can do. Source: pricing/data/cpus.csv and cpu_measurements.csv."""

    provider: str
    family: str
    model: str
    microarchitecture: str  # microarchitecture, such as ``Ice Lake-SP``; empty if unknown
    vcpus_per_core: int  # 2 where a vCPU is a hardware thread
    all_core_ghz: float | None  # sustained clock with all cores busy; None if not known
    fp32_flops_per_cycle: float | None  # per core, fused multiply-add counted as two; None if not known
    bf16_in_hardware: bool  # whether bf16 arithmetic is fast
    read_gbps: float | None  # measured memory read of the largest size, GB/s; None if not measured
    read_vcpus: int | None  # the vCPUs of the size on which `read_gbps` was measured
    # measured PassMark matrix multiplications per second and vCPU; None if not measured
    matrix_mult_per_vcpu: float | None
    bzip2_mbps: float | None  # measured bzip2 -9 of one thread, MB/s; None if not measured
    burstable: bool  # runs at full speed only on credits (t3, e2 shared-core and the like)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """Links of an instance type: between its GPUs, and to other machines. Source: pricing/data/interconnects.csv."""

    provider: str
    instance_type: str
    link: str  # key of the link between its GPUs, such as ``nvlink3``; empty with one GPU, ``none`` if it is unusable
    link_gbps: float | None  # effective GB/s between its GPUs while training; None with one GPU
    network_gbit: float | None  # line rate of the one network interface that a run gets, Gbit/s; None if not known
    all_interfaces_gbit: float | None = None  # of all that the machine could have; None if one is all
    network: str  # ``tcp``, ``tcpx``, ``rdma``, ``efa`` or ``efa-host-staged`` (without GPUDirect)
    network_gbps: float | None  # effective GB/s between machines while training; None if they cannot train together
    efa_interfaces: int  # AWS; 0 without EFA
    placement: bool  # whether machines of the type can be placed close together
    basis: str  # ``fitted``, ``extrapolated`` or ``assumed``
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRate:
    """How often a spot machine is taken back, with its 80 % interval. Source: pricing/data/interruptions.csv."""

    percent_a_month: str  # published share of machines of the type, such as ``5-10`` or ``>20``; empty without one
    low_per_hour: float  # interruptions per hour that a machine runs; 0 for none
    per_hour: float
    high_per_hour: float
    basis: str  # ``published`` where the rate is computed from the share, ``assumed`` where nothing is published
    source: str
    as_of: date


class Grade(StrEnum):
    """How a speed-up is known."""

    MEASURED = "measured"  # both machines are named, and their seconds are given
    CLAIM = "claim"  # published without one of the machines, without the seconds, or without a source


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """One row of the benchmark table: the same work on a CPU and on a GPU. Source: pricing/data/speedups.csv."""

    kind: str  # kind of work, such as ``resnet50`` or ``gradient-boosted-trees``; ``any`` for a claim about no kind
    detail: str  # model, data and batch
    framework: str  # framework with its version, as far as the source tells
    cpu: str  # name of the CPU; empty if the source does not tell
    cpu_cores: int | None  # physical cores that worked; None if the source does not tell
    cpu_core_gflops: float | None  # fp32 GEMM rate of one core, GFLOP/s; None without a CPU
    gpu: str  # a name of the hardware table; empty if the source does not tell
    gpu_tflops: float | None  # fp32 peak of the GPU, TFLOP/s; None without one
    gpu_gbps: float | None  # memory bandwidth of the GPU, GB/s; None without one
    cpu_seconds: float | None  # seconds on the CPU; None if only a ratio is known
    gpu_seconds: float | None  # seconds on the GPU; None if only a ratio is known
    ratio_low: float  # CPU seconds over GPU seconds; of a claimed range its lower end
    ratio_high: float  # the upper end of a claimed range, else the same
    unit: str  # unit of work: ``step``, ``round``, ``tree``, ``fit``; empty if unknown
    units: float | None  # number of units that the seconds are for; None if unknown
    grade: Grade
    weight: float  # weight in predictions, 0 to 1; 0 for a row that is shown and not used
    plausible: bool  # False for a figure that no comparison of whole machines can give
    remark: str
    source: str  # address or publication
    measured: str  # date of the measurement: a year, a month or a day, ISO 8601; empty if the source does not tell
    as_of: date  # the day on which the source was read

    @property
    def ratio(self) -> float:
        """CPU seconds over GPU seconds; the geometric middle of a range."""
        return math.sqrt(self.ratio_low * self.ratio_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A well-known training workload, for scripts that cannot be measured. Source: pricing/data/references.csv."""

    name: str
    kind: str  # kind of work, as in the benchmark table
    detail: str  # model and data set
    parameters: int  # number of trained parameters
    tensors: int  # number of tensors that hold them
    flops_per_sample: float  # FLOPs of matrix products and convolutions, forward and backward
    convolutions: float  # share of these FLOPs that are convolutions
    bytes_per_sample: float  # bytes moved to and from memory, forward and backward, fp32
    kernels_per_step: float  # kernels launched, without the optimizer's
    saved_bytes_per_sample: float  # bytes kept for the backward pass, fp32
    sample_bytes: int  # bytes of one sample as it goes to the GPU
    optimizer: str  # ``SGD`` or ``Adam``, as torch names them
    momentum: bool  # whether the SGD has momentum
    batch_size: int  # a batch that fits a GPU of 16 GB
    samples_per_epoch: int | None  # size of its data set; None where nobody speaks of epochs
    epochs: float | None  # usual number of epochs; None where there is none
    source: str  # source of the model, and who counted
    as_of: date  # the day on which it was counted
