"""Seconds of one step on a cloud CPU, from its measured time on this one. Pure.

    t = (t_call + t_host) * S_here / S_there
        + t_compute * R_here s(n_here) / (R_there s(n_there)) + t_memory * BW_here / BW_there
    s(n) = n / (1 + sigma (n - 1)),  sigma = 0.01 + 0.015 sqrt(500e6 / FLOPs of an op), at most 1
    R    = F / (F_products / R_products + F_convolutions / R_convolutions)

S is the speed of one thread, R the fp32 rate of a core on the kinds of work that the step is made of, n physical cores,
BW memory bandwidth. Here, rates are measured by kind, and none is below what the step itself reaches; there, they are
shares of the nominal peak by kind and by what the libraries make of that core. Calls into the framework and the
script's own Python run on one thread anywhere. On a CPU of the same model as this one S and R are the same. No
prediction is above `MOST_OF_PEAK`, whatever was measured.
Measured error and sources: benchmarks/README.md, `python -m benchmarks.accuracy_cpu`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from costgpu.estimator.work import HALF_TYPES, Work
from costgpu.models.offer import CpuSpec
from costgpu.models.prediction import Candidate
from costgpu.models.workload import Machine

# How much of an op does not spread over cores: the less arithmetic it has, the more. Between the fits of llama.cpp's
# prompt processing on cloud machines of 2-64 cores and of torch on two servers. Source: benchmarks/README.md (2026-11-23).
SIGMA_LEAST, SIGMA_REST, REFERENCE_FLOPS = 0.01, 0.015, 500e6
# Of a library's own threads, by the CPU seconds of a step: boosted trees on 1-96 cores (the same source).
LIBRARY_LEAST, LIBRARY_REST, LIBRARY_SECONDS = 0.10, 0.15, 0.1
SIGMA_UNTRACED = 0.5  # of a step of which no op is known: not trusted to use more than two cores
SIGMA_LARGE = 0.015  # of a single large matrix multiply, such as the micro-benchmark's
# GFLOP/s of a core per PassMark matrix multiplication and second, where no clock is known: one Zen 3 core at 74 GFLOP/s
# (torch 2.13, 2026-11-21).
GFLOPS_PER_MATRIX_MULT = 0.0366
MOST_OF_PEAK = 0.8  # of the nominal peak, that a whole step of fp32 reaches on any CPU: more is an error of ours
# What one core reads from memory: 10-20 GB/s on servers since Haswell, more on new ones. The eight cores of an EPYC's
# complex share one path: families of one to three complexes read 36-40 GB/s each (cpu_measurements.csv: g6f, gr6, f2).
CORE_GBPS, COMPLEX_CORES, COMPLEX_GBPS = 15.0, 8, 40.0
CACHE_FACTOR = 4.0  # ops that fit a cache move bytes so much faster than memory does
DEFAULT_GHZ, DEFAULT_FLOPS_PER_CYCLE = 3.1, 16.0  # median of the families whose clock is known; a plain AVX core
# MB/s of the micro-benchmark's one thread over Spare Cores' bzip2 -9 on the same kind of core, whose text is another:
# 20.2 over 16.5 (Granite Rapids, c8i) and 19.1 over 17.0 (Zen 4, c7a), 2026-11-25. Families that nobody measured have
# the median rate by clock of those that were.
OUR_TEXT, BZIP2_MBPS_PER_GHZ = 1.17, 4.2
# An op of a net costs as much at least, however small: dispatch, allocation, waking and joining the threads. Source: 1,434
# nets of timm at batch 1 on two CPUs (benchmarks/README.md, 2026-11-23); with 5 us small nets were told 2.4x too fast.
KERNEL_SECONDS = 20e-6
STEADY, LEAST_SWING = 0.8, 0.4  # of the micro-benchmark: slowest window over fastest


class Core(NamedTuple):
    """What libraries reach of a core's nominal fp32 peak by kind of work, and how sure that is."""

    products: float
    convolutions: float
    unsure: float = 1.0  # the true rate lies between it over this and it times this; 1 where rows stand behind it


# Source: the hosts of benchmarks/cpu_hosts.csv (Granite Rapids: products 0.75, convolutions 0.53; Zen 4: 0.86 and 0.82;
# Zen 3: 0.65 and 0.54) and the study of one Intel host whose libraries were held to AVX-512, AVX2 and SSE 4.2
# (benchmarks/README.md, 2026-11-25). On Arm nobody measured convolutions, and training nowhere.
INTEL_AVX512 = Core(0.80, 0.57)
INTEL_AVX2 = Core(0.90, 0.80)
ZEN = Core(0.65, 0.57)  # AVX2
ZEN4 = Core(0.80, 0.77)  # AVX-512 in two halves
ZEN5 = Core(0.70, 0.62, unsure=1.25)  # full AVX-512: taken to lie between ZEN4 and INTEL_AVX512
ARM = Core(0.62, 0.45, unsure=1.6)
UNKNOWN_CORE = Core(0.70, 0.60, unsure=1.25)


@dataclass(frozen=True, slots=True)
class CpuRates:
    """Speed of a CPU: GFLOP/s of one core by kind, cores, memory bandwidth in GB/s of all of them."""

    core_gflops: float  # of matrix products and attention
    cores: float
    memory_gbps: float
    conv_gflops: float = 0.0  # of convolutions; 0 where nobody measured them, and products stand for them

    def gflops(self, work: Work) -> float:
        """Return GFLOP/s of one core on the kinds of a step, each weighted by its FLOPs."""
        convolved = work.convolved_share
        if not self.conv_gflops or not convolved:
            return self.core_gflops
        return 1 / ((1 - convolved) / self.core_gflops + convolved / self.conv_gflops)


def speedup_of(cores: float, sigma: float) -> float:
    """s(n): how many times one core's speed n cores reach."""
    return cores / (1 + sigma * (cores - 1)) if cores >= 1 else cores


def rates_here(machine: Machine) -> CpuRates:
    """Return the rates of the machine that measured, by its micro-benchmark."""
    cores = max(1, min(machine.cores, machine.threads))
    timed = min(machine.gemm_threads or machine.cores, machine.cores)
    spread = speedup_of(timed, SIGMA_LARGE)
    return CpuRates(machine.gemm_gflops / spread, cores, machine.copy_gbps, machine.conv_gflops / spread)


def rates_there(cpu: CpuSpec, vcpus: int) -> CpuRates:
    """Return the rates of a cloud machine, from the CPU tables."""
    cores, core, peak = max(1.0, vcpus / cpu.vcpus_per_core), core_of(cpu), peak_gflops(cpu)
    products = core.products * peak
    if cpu.all_core_ghz is None and cpu.matrix_mult_per_vcpu is not None:
        by_mark = GFLOPS_PER_MATRIX_MULT * cpu.matrix_mult_per_vcpu * cpu.vcpus_per_core
        products = math.sqrt(products * by_mark)
    return CpuRates(products, cores, read_gbps(cpu, cores), products * core.convolutions / core.products)


def core_of(cpu: CpuSpec) -> Core:
    """Return what libraries make of this CPU's core."""
    name = cpu.microarchitecture
    if name.startswith("Zen"):
        return ZEN5 if name.startswith("Zen 5") else ZEN4 if name.startswith("Zen 4") else ZEN
    if name.startswith(("Neoverse", "Cortex")):
        return ARM
    if not name or cpu.fp32_flops_per_cycle is None:
        return UNKNOWN_CORE
    return INTEL_AVX512 if cpu.fp32_flops_per_cycle >= 64 else INTEL_AVX2


def peak_gflops(cpu: CpuSpec) -> float:
    """Return the nominal fp32 peak of a core, GFLOP/s, with all cores busy."""
    return (cpu.all_core_ghz or DEFAULT_GHZ) * (cpu.fp32_flops_per_cycle or DEFAULT_FLOPS_PER_CYCLE)


def read_gbps(cpu: CpuSpec, cores: float) -> float:
    """Return what so many cores of this CPU read from memory, GB/s: at least their share of what its largest size reads."""
    limit = cores * CORE_GBPS
    if cpu.microarchitecture.startswith("Zen"):
        limit = min(limit, math.ceil(cores / COMPLEX_CORES) * COMPLEX_GBPS)
    if not cpu.read_gbps or not cpu.read_vcpus:
        return limit
    share = cpu.read_gbps * cores / max(1.0, cpu.read_vcpus / cpu.vcpus_per_core)
    return max(share, min(limit, cpu.read_gbps))


def thread_mbps(cpu: CpuSpec) -> float:
    """Return what the micro-benchmark's one thread would reach on this CPU, MB/s."""
    return OUR_TEXT * (cpu.bzip2_mbps or BZIP2_MBPS_PER_GHZ * (cpu.all_core_ghz or DEFAULT_GHZ))


def scaling_sigma(flops_per_kernel: float) -> float:
    """Return how much of the arithmetic of ops of this size does not spread over cores, 0 to 1."""
    return min(1.0, SIGMA_LEAST + SIGMA_REST * math.sqrt(REFERENCE_FLOPS / max(flops_per_kernel, 1.0)))


def library_sigma(cpu_seconds: float) -> float:
    """Return the same for a step of a library with threads of its own, which takes so many CPU seconds."""
    return min(1.0, LIBRARY_LEAST + LIBRARY_REST * math.sqrt(LIBRARY_SECONDS / max(cpu_seconds, 1e-9)))


@dataclass(frozen=True, slots=True)
class StepSplit:
    """A measured step, split by what limits it; seconds."""

    compute: float  # scales with the cores' arithmetic
    memory: float  # scales with memory bandwidth
    calls: float  # framework calls: one thread, anywhere
    host: float  # the script's own Python
    sigma: float  # for s(n)
    core_gflops: float  # of a core here on this step's kinds of work; at least what the step itself reaches

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole."""
        return self.compute + self.memory + self.calls + self.host


def split_step(seconds: float, work: Work, calls: float, host: float, machine: Machine) -> StepSplit:
    """Split the measured `seconds` of a step (without data loading).

    Args:
        calls: Ops called per step.
        host: Measured seconds of the script's own Python.
    """
    host = min(host, 0.9 * seconds if work.kernels else seconds)  # what is traced has a part in torch
    rest = seconds - host
    call = min(max(calls * machine.op_seconds, work.kernels * KERNEL_SECONDS), 0.9 * rest)
    here = rates_here(machine)
    sigma = scaling_sigma(work.total_flops / work.kernels) if work.kernels else SIGMA_UNTRACED
    small = work.bytes_moved - work.large_bytes
    spread = rest - call
    own = work.total_flops / (spread * 1e9 * speedup_of(here.cores, sigma)) if spread > 0 else 0.0
    core = max(here.gflops(work), own)  # a disturbed micro-benchmark, or a library that is slow in it alone
    compute = work.total_flops / (core * 1e9 * speedup_of(here.cores, sigma))
    compute += small / (CACHE_FACTOR * here.memory_gbps * 1e9)
    memory = work.large_bytes / (here.memory_gbps * 1e9)
    share = memory / (compute + memory) if compute + memory > 0 else 0.5
    return StepSplit((1 - share) * spread, share * spread, call, host, sigma, core)


def undisturbed_share(machine: Machine) -> float:
    """Share of a step's seconds that it would take if no neighbour disturbed this machine; 1 for a steady one.

    The steps were slowed like the windows of the micro-benchmark: on average by half of what the slowest one lost.
    """
    if machine.gemm_gflops <= 0:
        return 1.0
    swing = max(machine.gemm_gflops_low / machine.gemm_gflops, LEAST_SWING)
    return math.sqrt(min(1.0, swing / STEADY))


def step_there(
    step: StepSplit, work: Work, machine: Machine, cpu: CpuSpec, vcpus: int, *, spreads: bool = False
) -> dict[str, float]:
    """Return the seconds by term of the same step on a cloud CPU, data loading apart.

    Args:
        spreads: Whether its parallel part uses every core, though its ops are not known.
    """
    here, there = rates_here(machine), rates_there(cpu, vcpus)
    library = spreads and not work.kernels
    sigma = library_sigma((step.compute + step.memory) * here.cores) if library else step.sigma
    core, thread = step.core_gflops / there.gflops(work), thread_ratio(machine, cpu)
    memory = here.memory_gbps / there.memory_gbps
    if same_chip(machine, cpu):
        core, memory = 1.0, read_gbps(cpu, here.cores) / there.memory_gbps
    elif machine.single_thread_mbps:
        core = thread if library else core  # trees and the like are no matrix multiply
    terms = {
        "compute": step.compute * core * speedup_of(here.cores, sigma) / speedup_of(there.cores, sigma),
        "memory": step.memory * memory,
        "calls": step.calls * thread,
        "host": step.host * thread,
    }
    share = undisturbed_share(machine)
    terms = {name: share * seconds for name, seconds in terms.items()}
    missing = least_seconds(work, cpu, there.cores) - sum(terms.values())
    if missing > 0:
        terms["compute"] += missing
    return terms


def least_seconds(work: Work, cpu: CpuSpec, cores: float) -> float:
    """Return seconds below which no step of this work is, on so many cores: half-precision units apart."""
    flops = sum(flops for (_, dtype), flops in work.flops.items() if dtype not in HALF_TYPES)
    return flops / (MOST_OF_PEAK * peak_gflops(cpu) * 1e9 * cores)


def thread_ratio(machine: Machine, cpu: CpuSpec) -> float:
    """Seconds of one thread on a cloud CPU for a second here; 1 where this machine's thread was not measured."""
    if same_chip(machine, cpu) or not machine.single_thread_mbps:
        return 1.0
    return machine.single_thread_mbps / thread_mbps(cpu)


def host_cores(candidate: Candidate) -> float:
    """Physical cores of the host of an accelerator, at least 1."""
    vcpus = candidate.offer.vcpus if candidate.offer is not None else 0
    return max(1.0, vcpus / (candidate.cpu.vcpus_per_core if candidate.cpu is not None else 2))


def same_chip(machine: Machine, cpu: CpuSpec) -> bool:
    """Return whether the local CPU is of the offer's model, by name."""
    return bool(cpu.model) and cpu.model.split("@")[0].strip().lower() in machine.cpu_model.lower()
