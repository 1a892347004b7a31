"""An answer with everything that it rests on and that is told beside it. Imports `prediction` and `workload`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from costgpu.models.prediction import Advice, Ownership, Prediction, Service, Verdict
from costgpu.models.workload import WorkloadProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFit:
    """Whether a training fits the memory of a kind of GPU."""

    name: str  # of the accelerator
    gpus: int  # that work together, each of which needs as much
    need_gib: float  # of each, without a margin
    memory_gib: float  # that programs get of each
    probability: float
    enough: bool  # whether that is enough to recommend it


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An answer with what it rests on, and what else there is to say."""

    verdict: Verdict
    profile: WorkloadProfile
    today: date  # day from which the age of prices is counted
    log: str | None = None  # file with the program's output; None if nothing was run
    advice: tuple[Advice, ...] = ()  # changes that would make the job cheaper, best first
    own: Ownership | None = None  # the job on the user's own GPU; None without one
    looked_up: tuple[str, ...] = ()  # kinds of work whose GPU times come from the benchmark table
    fits_colab: bool = False  # whether it fits the machine that Google lends free of charge
    # kWh of this machine and of each row of the verdict's table; None if not asked for
    energy: tuple[tuple[Prediction, float], ...] | None = None
    by_gpus: tuple[Prediction, ...] = ()  # what fewer or more GPUs of the recommended kind would do
    service: Service | None = None  # the script as a service at a steady rate; None if that was not asked for
    fits: tuple[
        GpuFit, ...
    ] = ()  # GPUs about as large as a training needs, the smallest first; empty if it is not measured
