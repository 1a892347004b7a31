"""Inference on CPUs: half precision by what units a CPU has for it, and decoding by memory bandwidth. Pure.

    seconds = F/(R s(n)) + B/BW + 22e-6 K

R is what a core reaches in that precision, n physical cores. fp32 models are scaled from their measured unit as training
is (`estimator.cpu`); a model in half precision cannot be, because here its matrix products may be 3-50 times as slow as on
a CPU with units for it, so its seconds are those of the formula.
"""

from __future__ import annotations

from enum import StrEnum

from costgpu.estimator.cpu import rates_there, speedup_of
from costgpu.estimator.interval import Interval
from costgpu.estimator.unit_work import UnitWork
from costgpu.estimator.work import HALF_TYPES, Work
from costgpu.models.offer import CpuSpec

# Source of the figures of this module: INFERENCE study (2026-11): prefill rows of vLLM and PyTorch in bf16 on 12 families.
CALL_SECONDS = 22e-6
SIGMA = 0.015  # of large matrix products, for s(n) of `estimator.cpu`
MOST_CORES = 20.0  # half-precision matrix products do not get faster beyond so many cores
ABSOLUTE = Interval(0.50, 2.00)  # nothing measured there, nor here in that precision: assumed
ABSOLUTE_UNMEASURED = Interval(0.33, 3.00)  # as fast as without units, or as bf16
DECODE_GBPS_PER_CORE, DECODE_GBPS_AT_MOST = 6.0, 80.0  # PyTorch in bf16; 50-110 at most


class HalfUnit(StrEnum):
    """Units of a CPU for half-precision matrix products."""

    AMX = "amx"
    AVX512_BF16 = "avx512_bf16"
    ARM_BF16 = "arm_bf16"
    UNMEASURED = "unmeasured"  # float16 on CPUs with vector instructions for it
    NONE = ""


# GFLOP/s of one core in half-precision matrix products, as PyTorch reaches them: bf16, or float16 without units, 15-30
# (25 on a Zen 5 core with 463 in bf16, torch 2.13, 2026-11-23). Float16 elsewhere is taken to lie between.
HALF_GFLOPS = {
    HalfUnit.AMX: 600.0,
    HalfUnit.AVX512_BF16: 170.0,
    HalfUnit.ARM_BF16: 190.0,
    HalfUnit.UNMEASURED: 65.0,
    HalfUnit.NONE: 22.0,
}


def half_unit(cpu: CpuSpec, dtype: str) -> HalfUnit:
    """Return what a CPU has for matrix products in ``bfloat16`` or ``float16``."""
    arm, rapids = cpu.model.startswith("Neoverse"), "Rapids" in cpu.microarchitecture
    if not cpu.bf16_in_hardware:
        return HalfUnit.NONE
    if dtype == "float16":
        return HalfUnit.UNMEASURED if arm or rapids else HalfUnit.NONE
    return HalfUnit.ARM_BF16 if arm else HalfUnit.AMX if rapids else HalfUnit.AVX512_BF16


def unit_terms_on_cpu(unit: UnitWork, cpu: CpuSpec, vcpus: int, dtype: str) -> dict[str, float]:
    """Return the formula above for a whole unit, by term.

    Args:
        dtype: Type that the model computes in: ``float32``, ``bfloat16`` or ``float16``.
    """
    rates = rates_there(cpu, vcpus)
    half = dtype in HALF_TYPES
    gflops = HALF_GFLOPS[half_unit(cpu, dtype)] if half else rates.core_gflops
    cores = speedup_of(min(rates.cores, MOST_CORES) if half else rates.cores, SIGMA)
    compute = memory = calls = 0.0
    decoding_gbps = min(rates.memory_gbps, DECODE_GBPS_PER_CORE * rates.cores, DECODE_GBPS_AT_MOST)
    for one in unit.passes:
        gbps = decoding_gbps if one.decode and half else rates.memory_gbps
        compute += one.times * one.work.total_flops / (gflops * 1e9 * cores)
        memory += one.times * _bytes(one.work, dtype) / (gbps * 1e9)
        calls += one.times * one.work.kernels * CALL_SECONDS
    return {"compute": compute, "memory": memory, "calls": calls}


def unit_seconds_on_cpu(unit: UnitWork, cpu: CpuSpec, vcpus: int, dtype: str) -> float:
    """Return the sum of its terms."""
    return sum(unit_terms_on_cpu(unit, cpu, vcpus, dtype).values())


def half_gain(unit: UnitWork, cpu: CpuSpec, vcpus: int) -> float:
    """Return the seconds of a unit in fp32 over those in bf16 on a CPU; below 1 where it has no units for it."""
    half = unit_seconds_on_cpu(unit, cpu, vcpus, "bfloat16")
    return unit_seconds_on_cpu(unit, cpu, vcpus, "float32") / half if half > 0 else 1.0


def _bytes(work: Work, dtype: str) -> float:
    """Return the bytes moved, floating-point tensors in `dtype`."""
    width = 2.0 if dtype in HALF_TYPES else 4.0
    return sum(
        moved * (width / (2.0 if traced in HALF_TYPES else 4.0) if traced in HALF_TYPES or traced == "float32" else 1.0)
        for (_, traced), moved in work.moved.items()
    )
