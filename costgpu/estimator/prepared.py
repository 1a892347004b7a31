"""A workload with everything that its predictions on all candidates share, computed once. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from costgpu.estimator import cpu as cpu_model
from costgpu.estimator.calibration import Calibration, calibration_of, local_gpu
from costgpu.estimator.gpu import Execution, Precision, execution_of
from costgpu.estimator.scope import Scope
from costgpu.estimator.storage import storage_of
from costgpu.estimator.unit_work import Pass, UnitWork, passes_of, unit_of
from costgpu.models.offer import AcceleratorSpec, Speedup
from costgpu.models.storage import NO_STORAGE, StorageNeed
from costgpu.models.workload import Phase, WorkloadProfile

WRITTEN = Execution(Precision(half=None, matmul_tf32=False, conv_tf32=True))  # fp32, and PyTorch's defaults


@dataclass(slots=True)
class Workload:
    """A profile with everything that does not depend on the candidate computed once; and the benchmark table."""

    profile: WorkloadProfile
    scope: Scope
    passes: list[tuple[Pass, ...]]  # what a unit of each phase computes
    splits: list[cpu_model.StepSplit]
    year: int
    speedups: tuple[Speedup, ...] = ()
    calibration: Calibration | None = None
    cpu_dtype: str = ""  # type in which half-precision models run on a cloud CPU; empty for their own
    execution: Execution = WRITTEN  # how phases of inference run on a GPU
    storage: StorageNeed = NO_STORAGE  # what it puts on a rented machine's disk
    # what the GPUs of a machine type make of it, which is the same wherever the type is rented
    known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def units(self) -> list[UnitWork]:
        """Return the unit of each phase."""
        return [unit_of(phase, passes) for phase, passes in zip(self.profile.phases, self.passes, strict=True)]

    def execution_of(self, phase: Phase) -> Execution:
        """Return how a phase runs on a GPU: training as the framework is told to, inference by `execution`."""
        return execution_of(self.profile.framework) if phase.unit.trains else self.execution


def prepare(
    profile: WorkloadProfile,
    scope: Scope,
    *,
    year: int,
    speedups: Sequence[Speedup] = (),
    cards: Iterable[AcceleratorSpec] = (),
) -> Workload:
    """Compute what all candidates share.

    Args:
        year: This year, to tell a new architecture.
        speedups: The benchmark table, for phases whose `gpu` is `GpuPath.TABLE`.
        cards: All known GPUs, to find the one of this machine where that measured the profile.
    """
    passes = [passes_of(phase) for phase in profile.phases]
    units = [unit_of(phase, each) for phase, each in zip(profile.phases, passes, strict=True)]
    splits = [
        cpu_model.split_step(
            busy_seconds(phase),
            unit.work,
            phase.calls_per_step,
            phase.host_seconds_per_step,
            profile.machine,
        )
        for phase, unit in zip(profile.phases, units, strict=True)
    ]
    calibration = calibration_of(profile, units, local_gpu(profile.machine.accelerators, cards))
    return Workload(
        profile,
        scope,
        passes,
        splits,
        year,
        tuple(speedups),
        calibration,
        execution=execution_of(profile.framework),
        storage=storage_of(profile, scope),
    )


def busy_seconds(phase: Phase) -> float:
    """Return the measured step without the time that it waited, for data or anything else."""
    step = phase.step.seconds
    fed = max(step - phase.data.wait_seconds_per_step, 0.1 * step)
    return max(0.0, fed - phase.waiting_seconds_per_step)
