"""Step times of this machine for what was measured without weights: from the ops, and the machine's own rates. Pure.

The terms are those into which `cpu.split_step` splits a measured step, added up instead. Measured over told, of steps of
six small models in fp32 on two cores: 1.06, 1.06, 1.22, 1.48, 1.60 and 1.62 (2026-11-24).
"""

from __future__ import annotations

from dataclasses import replace

from costgpu.estimator.cpu import CACHE_FACTOR, KERNEL_SECONDS, rates_here, scaling_sigma, speedup_of
from costgpu.estimator.unit_work import passes_of, unit_of
from costgpu.estimator.work import Work
from costgpu.models.workload import ExtraKind, Machine, Phase, StepTimes, WorkloadProfile

SLOWER = 1.3  # what steps take over the sum of their terms: the middle of the six
OF_STEPS = (ExtraKind.VALIDATION, ExtraKind.OTHER)  # work beside the steps that computes as they do


def with_modelled_steps(profile: WorkloadProfile) -> WorkloadProfile:
    """Return a profile that was measured without weights with the seconds that its steps would take on this machine."""
    return replace(profile, phases=[_modelled(phase, profile.machine) for phase in profile.phases])


def _modelled(phase: Phase, machine: Machine) -> Phase:
    work = unit_of(phase, passes_of(phase)).work
    seconds = step_seconds(work, phase, machine)
    ratio = seconds / phase.step.seconds if phase.step.seconds > 0 else 1.0
    return replace(
        phase,
        step=StepTimes(
            count=0, median_seconds=seconds, mean_seconds=seconds, low_seconds=seconds, high_seconds=seconds
        ),
        extras=[
            replace(extra, seconds_each=extra.seconds_each * ratio) if extra.kind in OF_STEPS else extra
            for extra in phase.extras
        ],
    )


def step_seconds(work: Work, phase: Phase, machine: Machine) -> float:
    """Return the seconds of a step on the machine that measured, its waits for data included."""
    here = rates_here(machine)
    spread = speedup_of(here.cores, scaling_sigma(work.total_flops / work.kernels)) if work.kernels else here.cores
    compute = work.total_flops / (here.gflops(work) * 1e9 * spread)
    small = (work.bytes_moved - work.large_bytes) / (CACHE_FACTOR * here.memory_gbps * 1e9)
    memory = work.large_bytes / (here.memory_gbps * 1e9)
    calls = max(phase.calls_per_step * machine.op_seconds, work.kernels * KERNEL_SECONDS)
    apart = phase.data.wait_seconds_per_step + phase.waiting_seconds_per_step
    return SLOWER * (compute + small + memory + calls) + phase.host_seconds_per_step + apart
