"""Whether a need of accelerator memory fits, as a probability by the error of the need that is told. Pure.

true need = told need * exp(bias + sigma Z), Z standard normal
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costgpu.estimator.interval import Z80, probability_less

# From this probability on a GPU fits, and may be recommended: a training that runs out of memory has cost a rented machine
# and a wait, the next larger GPU costs little more, and a higher bar would rule out GPUs that nine times of ten do.
FITS = 0.9
LEAST_TOLD = 0.01  # a lower probability is no chance


@dataclass(frozen=True, slots=True)
class NeedError:
    """How far a told need is from the true one."""

    bias: float  # mean of the logarithm of the true need over the told one
    sigma: float  # standard deviation of that logarithm

    @classmethod
    def of_margin(cls, margin: float) -> NeedError:
        """Return the error without a bias with which a need fits if so many times it is below the memory."""
        return cls(0.0, math.log(margin) / Z80)

    @property
    def margin(self) -> float:
        """Return the factor of the told need that an accelerator must have."""
        return math.exp(self.bias + Z80 * self.sigma)


# Of a need measured by storages, one GiB beside them included. Of 34 published fine-tunes the logarithm of the true over the
# told need is 0.055 in the mean, 0.056 its deviation, and 30 are within the margin (benchmarks/README.md, 2026-11-30).
BY_STORAGES = NeedError(bias=0.03, sigma=0.065)


def fit_probability(need_gib: float, memory_gib: float, error: NeedError) -> float:
    """Return the probability that a need fits.

    Args:
        need_gib: The need as told, GiB.
        memory_gib: Memory that programs get, GiB.
        error: Of the told need.
    """
    if memory_gib <= 0:
        return 0.0
    return probability_less(need_gib * math.exp(error.bias), memory_gib, error.sigma)


def fits(need_gib: float, memory_gib: float, error: NeedError) -> bool:
    """Return whether a need fits well enough to be recommended; see `fit_probability`."""
    return fit_probability(need_gib, memory_gib, error) >= FITS


def whole_percent(probability: float) -> int:
    """Return a probability in percent, rounded, but not to the other side of what is asked for."""
    rounded, asked = round(100 * probability), round(100 * FITS)
    return max(rounded, asked) if probability >= FITS else min(rounded, asked - 1)


def misfit(need_gib: float, memory_gib: float, error: NeedError, where: str = "") -> str:
    """``needs 18.3 GiB of accelerator memory, has 22.0 GiB: fits with 89 %, and 90 % are asked for``; empty if it fits.

    Args:
        where: What stands between the need and the memory; empty for one GPU.
    """
    probability = fit_probability(need_gib, memory_gib, error)
    if probability >= FITS:
        return ""
    chance = f": fits with {whole_percent(probability)} %, and {100 * FITS:.0f} % are asked for"
    return (
        f"needs {need_gib:.1f} GiB of accelerator memory{where}, {'each ' * bool(where)}has {memory_gib:.1f} GiB"
        f"{chance if probability >= LEAST_TOLD else ''}"
    )
