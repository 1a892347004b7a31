"""80 % intervals around a prediction, and when they widen. Pure.

Source of the widening rules and of the CPU widths: benchmarks/README.md (2026-10). The GPU base is set so
that 75-90 % of the public rows lie inside (benchmarks/accuracy.py, 2026-11-21).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimate.gpu import GpuTerms
from costgpu.models.offer import AcceleratorSpec

GPU_BASE = (0.86, 1.17)
LAUNCH_BOUND = (0.65, 1.50)
UNRULED = (0.60, 1.70)
# Only the sums of a step are known. Summing as such costs nearly nothing (p90 error 16.5 -> 17.7 % on the public rows,
# benchmarks/counted.py, 2026-11-21), but frameworks count bytes and kernels before their compilers fuse them: assumed.
COUNTED = (0.70, 1.45)
# Nothing was measured: a reference workload's arithmetic, on a CPU at its nominal rate. Three of them took 0.85 to 1.5
# times that on one core (see `like`); the user's own code is another program, so it is about doubled: assumed.
PRIOR = (0.45, 2.20)
CPU_SAME_FAMILY = (0.73, 1.26)
CPU_OTHER_FAMILY = (0.65, 1.45)
Z80 = 1.2816  # an 80 % interval of a normal distribution is +- this many standard deviations


@dataclass(frozen=True, slots=True)
class Interval:
    """Multipliers of a prediction: with 80 % probability the truth lies between `low` and `high` times it."""

    low: float
    high: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return (math.log(self.high) - math.log(self.low)) / (2 * Z80)


def gpu_interval(
    terms: GpuTerms, spec: AcceleratorSpec, *, compiled: bool, as_of_year: int
) -> tuple[float, float, list[str]]:
    """Multipliers and the reasons why they are wider than the base.

    Args:
        terms: Of the prediction.
        spec: Of the GPU.
        compiled: The script asks for torch.compile or custom kernels.
        as_of_year: Of the prediction, to tell a new architecture.
    """
    low, high = GPU_BASE
    reasons: list[str] = []
    if terms.launch > 0.3 * terms.seconds:
        low, high = min(low, LAUNCH_BOUND[0]), max(high, LAUNCH_BOUND[1])
        reasons.append("host-CPU bound: kernels are too small to keep the GPU busy")
    if terms.unruled_share > 0.2:
        low, high = min(low, UNRULED[0]), max(high, UNRULED[1])
        reasons.append(f"{terms.unruled_share:.0%} of the bytes are in ops without a rule")
    if as_of_year - spec.year < 1:
        high *= 1.6
        reasons.append(f"{spec.architecture} is too new for public measurements")
    elif terms.unusual_half_share > 0.5:
        high *= 1.6
        reasons.append("grouped or one- or three-dimensional convolutions at half precision")
    if spec.vendor == "AMD":
        high *= 1.4
        reasons.append("AMD: few public measurements")
    if spec.tdp_watts <= 75:
        high *= 1.1
    if compiled:
        low *= 0.6
        reasons.append("torch.compile may be faster than what was traced")
    return low, high, reasons
