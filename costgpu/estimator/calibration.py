"""Calibration: a profile that was measured on an NVIDIA GPU of this machine corrects predictions for others. Pure.

    t_there = model_there * (t_here / model_here) ** w

What the model misses about a workload it misses on other GPUs too; what it misses about a GPU, or about the software on
one machine, it does not. So the ratio counts in full for the very board that measured, and with a weight below 1 for
another. It is applied to the kernels and to what their launches add. What the script's own Python adds, the copy of a
batch and data loading are not the GPU's and keep their own figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from costgpu.estimator.gpu import copy_seconds, execution_of
from costgpu.estimator.unit_work import UnitWork, unit_terms
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.workload import WorkloadProfile

# Least-squares weights of the logarithm of the ratio, over pairs of public training rows of one model, layout and precision
# on two GPUs, each pair with constants that were fitted on neither the other chip nor the model (benchmarks/calibration.py,
# 2026-11-23): 554 pairs of different chips, 0.11 (median error 4.9 %, as without it; 7.0 % with the full ratio); 58 pairs
# of boards with the same chip, 0.21 (4.0 % and p90 10.1 %; 3.3 % and 10.4 % without, 5.9 % and 12.6 % with the full
# ratio). The better the model, the less does what it misses on one GPU say of another.
OTHER_CHIP, SAME_CHIP, SAME_BOARD = 0.11, 0.21, 1.0
KERNEL_TERMS = ("compute", "on-chip", "memory", "depthwise", "launch", "calls")
MIN_KERNEL_SHARE = 0.1  # of a measured step that is taken for its kernels, whatever the other terms say
CPU_UNKNOWN = "measured on a GPU: CPU time not known; CUDA_VISIBLE_DEVICES= measures it"
# Words of a board's name that make it another chip, or a part of one.
_ANOTHER = frozenset({"TI", "SUPER", "LAPTOP", "MOBILE", "MAX", "Q", "D", "NVL", "MIG", "OAM"})
_SIZE = re.compile(r"^(\d+)GB$")
_SAME_SIZE_GIB = 4.0  # boards of "80GB" are sold with 79 to 80 GiB


@dataclass(frozen=True, slots=True)
class Calibration:
    """The GPU that measured, and how far the model was off on it."""

    spec: AcceleratorSpec  # the GPU that measured
    ratios: tuple[float, ...]  # one for each phase: seconds measured over seconds modelled, of the kernels of one step


def measured_on_gpu(profile: WorkloadProfile) -> bool:
    """Return whether the measured steps computed on a CUDA device of this machine."""
    return profile.framework.device == "cuda"


def local_gpu(names: Sequence[str], specs: Iterable[AcceleratorSpec]) -> AcceleratorSpec | None:
    """Return the spec of the first of this machine's devices.

    Args:
        names: Devices as the framework names them: ``NVIDIA A100-SXM4-80GB``, ``Tesla T4``.

    Returns:
        None if none fits, or two fit equally well.
    """
    if not names:
        return None
    scored = sorted(
        ((score, spec.name, spec) for spec in specs if (score := _score(_words(names[0]), spec))), reverse=True
    )
    if not scored or (len(scored) > 1 and scored[0][0] == scored[1][0]):
        return None
    return scored[0][2]


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Z0-9]+", name.upper()))


def _score(device: frozenset[str], spec: AcceleratorSpec) -> int:
    """Return how many words of the spec's name, or of its board's, the device has; 0 if it is another one."""
    size = next((float(found.group(1)) for word in device if (found := _SIZE.match(word))), None)
    if size is not None and abs(size - spec.memory_gib) > _SAME_SIZE_GIB:
        return 0
    best = 0
    for words in (_words(spec.name), _words(spec.model)):
        needed = {word for word in words if not _SIZE.match(word)}
        if needed <= device and not (device - words) & _ANOTHER:
            best = max(best, len(words & device))
    return best


def calibration_of(
    profile: WorkloadProfile, units: Sequence[UnitWork], spec: AcceleratorSpec | None
) -> Calibration | None:
    """Return the calibration that a profile gives; None if it was not measured on a GPU, or that GPU is not known."""
    if spec is None or not measured_on_gpu(profile):
        return None
    ratios = []
    for phase, unit in zip(profile.phases, units, strict=True):
        found = unit_terms(unit, spec, execution_of(profile.framework))
        kernels, measured = found.seconds - found.host, phase.step.seconds
        others = phase.data.wait_seconds_per_step + found.host + copy_seconds(phase, spec)
        ratios.append(max(measured - others, MIN_KERNEL_SHARE * measured) / kernels if kernels > 0 else 1.0)
    return Calibration(spec, tuple(ratios))


def transfer_weight(here: AcceleratorSpec, there: AcceleratorSpec) -> float:
    """Return how much of what was found on one GPU holds on another."""
    if here.name == there.name:
        return SAME_BOARD
    return SAME_CHIP if here.model.split("-")[0] == there.model.split("-")[0] else OTHER_CHIP


def calibrated(
    calibration: Calibration | None, index: int, terms: Mapping[str, float], spec: AcceleratorSpec
) -> dict[str, float]:
    """Return the modelled seconds by term of a step of phase `index` on the GPU `spec`, corrected."""
    factor = calibration.ratios[index] ** transfer_weight(calibration.spec, spec) if calibration is not None else 1.0
    return {name: seconds * (factor if name in KERNEL_TERMS else 1.0) for name, seconds in terms.items()}
