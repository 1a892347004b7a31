"""Seconds of one step on a cloud CPU, from its measured time on this one. Pure.

    t = (t_call + t_host) * S_here / S_there
        + t_compute * R_here s(n_here) / (R_there s(n_there)) + t_memory * BW_here / BW_there
    s(n) = n / (1 + sigma (n - 1)),  sigma = 0.01 + 0.015 sqrt(500e6 / FLOPs of an op), at most 1

S is the speed of one thread, R the fp32 rate of a core, n physical cores, BW memory bandwidth. Calls into the framework
and the script's own Python run on one thread anywhere. On a CPU of the same model as this one S and R are the same.
Measured error and sources: benchmarks/README.md, `python -m benchmarks.accuracy_cpu`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimator.op_costs import StepWork
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
# What a core reaches of its peak in torch's fp32 GEMM, and GFLOP/s per PassMark matrix multiplication and second:
# both set on one Zen 3 core at 74 GFLOP/s (torch 2.13, 2 cores, 2026-11-21); the two estimates are then averaged.
GEMM_SHARE_OF_PEAK = 0.66
GFLOPS_PER_MATRIX_MULT = 0.0366
# What one core reads from memory: 10-20 GB/s on servers since Haswell, more on new ones. The eight cores of an EPYC's
# complex share one path: families of one to three complexes read 36-40 GB/s each (cpu_measurements.csv: g6f, gr6, f2).
CORE_GBPS, COMPLEX_CORES, COMPLEX_GBPS = 15.0, 8, 40.0
CACHE_FACTOR = 4.0  # ops that fit a cache move bytes so much faster than memory does
DEFAULT_GHZ, DEFAULT_FLOPS_PER_CYCLE = 3.1, 16.0  # median of the families whose clock is known; a plain AVX core
# MB/s of the micro-benchmark's one thread per GHz: 3.8 on a Zen 5 core (2026-11-23, a shared machine: +- 10 %), less on
# older ones: assumed. Arm's wide cores do more per clock: Amazon announced Graviton3 as 25 % faster than Graviton2, and
# Graviton4 as 30 % faster than Graviton3.
THREAD_MBPS_PER_GHZ = 3.6
THREAD_PER_CLOCK = {"Neoverse V1": 1.2, "Neoverse V2": 1.45}
# An op of a net costs as much at least, however small: dispatch, allocation, waking and joining the threads. Source: 1,434
# nets of timm at batch 1 on two CPUs (benchmarks/README.md, 2026-11-23); with 5 us small nets were told 2.4x too fast.
KERNEL_SECONDS = 20e-6
STEADY, LEAST_SWING = 0.8, 0.4  # of the micro-benchmark: slowest window over fastest


@dataclass(frozen=True, slots=True)
class CpuRates:
    """Speed of a CPU: GFLOP/s of one core, cores, memory bandwidth in GB/s of all of them."""

    core_gflops: float
    cores: float
    memory_gbps: float


def speedup_of(cores: float, sigma: float) -> float:
    """s(n): how many times one core's speed n cores reach."""
    return cores / (1 + sigma * (cores - 1)) if cores >= 1 else cores


def rates_here(machine: Machine) -> CpuRates:
    """Rates of the machine that measured, by its micro-benchmark."""
    cores = max(1, min(machine.cores, machine.threads))
    timed = min(machine.gemm_threads or machine.cores, machine.cores)
    return CpuRates(machine.gemm_gflops / speedup_of(timed, SIGMA_LARGE), cores, machine.copy_gbps)


def rates_there(cpu: CpuSpec, vcpus: int) -> CpuRates:
    """Rates of a cloud machine, from the CPU tables."""
    cores = max(1.0, vcpus / cpu.vcpus_per_core)
    ghz = cpu.all_core_ghz or DEFAULT_GHZ
    by_peak = GEMM_SHARE_OF_PEAK * ghz * (cpu.fp32_flops_per_cycle or DEFAULT_FLOPS_PER_CYCLE)
    if cpu.matrix_mult_per_vcpu is not None:
        by_mark = GFLOPS_PER_MATRIX_MULT * cpu.matrix_mult_per_vcpu * cpu.vcpus_per_core
        core = math.sqrt(by_peak * by_mark)
    else:
        core = by_peak
    return CpuRates(core, cores, read_gbps(cpu, cores))


def read_gbps(cpu: CpuSpec, cores: float) -> float:
    """What so many cores of this CPU read from memory, GB/s: at least their share of what its largest size reads."""
    limit = cores * CORE_GBPS
    if cpu.microarchitecture.startswith("Zen"):
        limit = min(limit, math.ceil(cores / COMPLEX_CORES) * COMPLEX_GBPS)
    if not cpu.read_gbps or not cpu.read_vcpus:
        return limit
    share = cpu.read_gbps * cores / max(1.0, cpu.read_vcpus / cpu.vcpus_per_core)
    return max(share, min(limit, cpu.read_gbps))


def thread_mbps(cpu: CpuSpec) -> float:
    """What the micro-benchmark's one thread would reach on this CPU, MB/s: by its clock."""
    per_clock = next((more for name, more in THREAD_PER_CLOCK.items() if cpu.microarchitecture.startswith(name)), 1.0)
    return THREAD_MBPS_PER_GHZ * per_clock * (cpu.all_core_ghz or DEFAULT_GHZ)


def scaling_sigma(flops_per_kernel: float) -> float:
    """How much of the arithmetic of ops of this size does not spread over cores, 0 to 1."""
    return min(1.0, SIGMA_LEAST + SIGMA_REST * math.sqrt(REFERENCE_FLOPS / max(flops_per_kernel, 1.0)))


def library_sigma(cpu_seconds: float) -> float:
    """The same for a step of a library with threads of its own, which takes so many CPU seconds."""
    return min(1.0, LIBRARY_LEAST + LIBRARY_REST * math.sqrt(LIBRARY_SECONDS / max(cpu_seconds, 1e-9)))


@dataclass(frozen=True, slots=True)
class StepSplit:
    """A measured step, split by what limits it; seconds."""

    compute: float  # scales with the cores' arithmetic
    memory: float  # scales with memory bandwidth
    calls: float  # framework calls: one thread, anywhere
    host: float  # the script's own Python
    sigma: float  # for s(n)


def split_step(seconds: float, work: StepWork, calls: float, host: float, machine: Machine) -> StepSplit:
    """Splits the measured `seconds` of a step (without data loading).

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
    compute = work.total_flops / (here.core_gflops * 1e9 * speedup_of(here.cores, sigma))
    compute += small / (CACHE_FACTOR * here.memory_gbps * 1e9)
    memory = work.large_bytes / (here.memory_gbps * 1e9)
    share = memory / (compute + memory) if compute + memory > 0 else 0.5
    spread = rest - call
    return StepSplit((1 - share) * spread, share * spread, call, host, sigma)


def undisturbed_share(machine: Machine) -> float:
    """Share of a step's seconds that it would take if no neighbour disturbed this machine; 1 for a steady one.

    The steps were slowed like the windows of the micro-benchmark: on average by half of what the slowest one lost.
    """
    if machine.gemm_gflops <= 0:
        return 1.0
    swing = max(machine.gemm_gflops_low / machine.gemm_gflops, LEAST_SWING)
    return math.sqrt(min(1.0, swing / STEADY))


def step_there(
    step: StepSplit, work: StepWork, machine: Machine, cpu: CpuSpec, vcpus: int, *, spreads: bool = False
) -> dict[str, float]:
    """Seconds by term of the same step on a cloud CPU, data loading apart.

    Args:
        spreads: Whether its parallel part uses every core, though its ops are not known.
    """
    here, there = rates_here(machine), rates_there(cpu, vcpus)
    library = spreads and not work.kernels
    sigma = library_sigma((step.compute + step.memory) * here.cores) if library else step.sigma
    core, thread = here.core_gflops / there.core_gflops, thread_ratio(machine, cpu)
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
    return {name: share * seconds for name, seconds in terms.items()}


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
    """Whether the local CPU is of the offer's model, by name."""
    return bool(cpu.model) and cpu.model.split("@")[0].strip().lower() in machine.cpu_model.lower()
