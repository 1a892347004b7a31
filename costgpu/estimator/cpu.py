"""Seconds of one training step on a cloud CPU, from its measured time on this one. Pure.

    t = t_call + t_host + t_compute * R_here s(n_here) / (R_there s(n_there)) + t_memory * BW_here / BW_there
    s(n) = n / (1 + sigma (n - 1))

R is the fp32 rate of a core, n physical cores, BW memory bandwidth. Calls into the framework and the script's own
Python run on one core anywhere. Source of s(n) and sigma: benchmarks/README.md (2026-10); its measured error is
13-19 % between sizes of one family and 17-35 % between families.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimator.op_costs import StepWork
from costgpu.models.offer import CpuSpec
from costgpu.models.prediction import Candidate
from costgpu.models.workload import Machine

SIGMA_LARGE, SIGMA_SMALL, SIGMA_MEMORY = 0.015, 0.04, 0.08
LARGE_FLOPS_PER_KERNEL = 50e6  # above it an op is a large GEMM or convolution
TINY_FLOPS_PER_KERNEL = 1e6  # below it an op is over before a second core could help
# What a core reaches of its peak in torch's fp32 GEMM, and GFLOP/s per PassMark matrix multiplication and second:
# both set on one Zen 3 core at 74 GFLOP/s (torch 2.13, 2 cores, 2026-11-21); the two estimates are then averaged.
GEMM_SHARE_OF_PEAK = 0.66
GFLOPS_PER_MATRIX_MULT = 0.0366
CORE_GBPS = 12.0  # one core's share of memory bandwidth at most; 10-20 GB/s on servers since Haswell
CACHE_FACTOR = 4.0  # ops that fit a cache move bytes so much faster than memory does
DEFAULT_GHZ, DEFAULT_FLOPS_PER_CYCLE = 2.5, 16.0


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
    """Rates of a cloud machine, from the CPU table."""
    cores = max(1.0, vcpus / cpu.vcpus_per_core)
    ghz = cpu.all_core_ghz or DEFAULT_GHZ
    by_peak = GEMM_SHARE_OF_PEAK * ghz * (cpu.fp32_flops_per_cycle or DEFAULT_FLOPS_PER_CYCLE)
    if cpu.matrix_mult_per_vcpu is not None:
        by_mark = GFLOPS_PER_MATRIX_MULT * cpu.matrix_mult_per_vcpu * cpu.vcpus_per_core
        core = math.sqrt(by_peak * by_mark)
    else:
        core = by_peak
    whole = cpu.read_gbps or cores * CORE_GBPS
    return CpuRates(core, cores, min(whole, cores * CORE_GBPS))


def scaling_sigma(work: StepWork, memory_share: float) -> float:
    """How much of this work does not spread over cores."""
    if memory_share > 0.5:
        return SIGMA_MEMORY
    per_kernel = work.total_flops / work.kernels if work.kernels else 0.0
    return SIGMA_LARGE if per_kernel > LARGE_FLOPS_PER_KERNEL else SIGMA_SMALL


@dataclass(frozen=True, slots=True)
class StepSplit:
    """A measured step, split by what limits it; seconds."""

    compute: float  # scales with the cores' arithmetic
    memory: float  # scales with memory bandwidth
    calls: float  # framework calls: one core, anywhere
    host: float  # the script's own Python
    sigma: float  # for s(n)


def split_step(seconds: float, work: StepWork, calls: float, host: float, machine: Machine) -> StepSplit:
    """Splits the measured `seconds` of a step (without data loading).

    Args:
        calls: Ops called per step.
        host: Measured seconds of the script's own Python.
    """
    host = min(host, 0.9 * seconds)
    rest = seconds - host
    call = min(calls * machine.op_seconds, 0.9 * rest)
    here = rates_here(machine)
    small = work.bytes_moved - work.large_bytes
    compute = work.total_flops / (here.core_gflops * 1e9 * speedup_of(here.cores, SIGMA_LARGE))
    compute += small / (CACHE_FACTOR * here.memory_gbps * 1e9)
    memory = work.large_bytes / (here.memory_gbps * 1e9)
    share = memory / (compute + memory) if compute + memory > 0 else 0.5
    spread = rest - call
    return StepSplit((1 - share) * spread, share * spread, call, host, scaling_sigma(work, share))


def step_there(
    step: StepSplit, work: StepWork, machine: Machine, cpu: CpuSpec, vcpus: int, *, spreads: bool = False
) -> dict[str, float]:
    """Seconds by term of the same step on a cloud CPU, data loading apart.

    Args:
        spreads: Whether its parallel part uses every core, though its ops are not known.
    """
    here, there = rates_here(machine), rates_there(cpu, vcpus)
    per_kernel = work.total_flops / work.kernels if work.kernels else 0.0
    if per_kernel < TINY_FLOPS_PER_KERNEL and not spreads:
        spread = min(speedup_of(here.cores, step.sigma), 2.0) / min(speedup_of(there.cores, step.sigma), 2.0)
    else:
        spread = speedup_of(here.cores, step.sigma) / speedup_of(there.cores, step.sigma)
    return {
        "compute": step.compute * here.core_gflops / there.core_gflops * spread,
        "memory": step.memory * here.memory_gbps / there.memory_gbps,
        "calls": step.calls,
        "host": step.host,
    }


def host_cores(candidate: Candidate) -> float:
    """Physical cores of the host of an accelerator, at least 1."""
    vcpus = candidate.offer.vcpus if candidate.offer is not None else 0
    return max(1.0, vcpus / (candidate.cpu.vcpus_per_core if candidate.cpu is not None else 2))


def same_chip(machine: Machine, cpu: CpuSpec) -> bool:
    """Whether the local CPU is of the offer's model, by name."""
    return bool(cpu.model) and cpu.model.split("@")[0].strip().lower() in machine.cpu_model.lower()
