"""Can it run there at all: accelerator memory, main memory, and what the framework's build supports. Pure."""

from __future__ import annotations

import re

from costgpu.estimator.calibration import CPU_UNKNOWN, measured_on_gpu
from costgpu.estimator.fit import BY_STORAGES, misfit
from costgpu.estimator.gpu import Execution
from costgpu.estimator.memory import GIB, needs_of
from costgpu.models.offer import AcceleratorSpec
from costgpu.models.prediction import Candidate
from costgpu.models.workload import Framework, GpuPath, WorkloadProfile

HOST_RESERVE_GIB = 1.0  # the system of a cloud machine
# Files of weights are mapped, and their pages come and go: those of one file at most are needed at once. Source: the largest
# file that hubs' libraries make (`MAX_SHARD_SIZE` of huggingface_hub 1, `max_shard_size` of transformers 4). Loaded here by
# transformers 4.46 and 5.24, 1.4 GiB of bfloat16 in 6 files take 3 MiB of main memory, with and without `device_map`; as
# float32 all of their 2.8 GiB (2026-11-30).
SHARD_BYTES = 5e9
CONVERTED = 1.5  # a model of so many times its files has been loaded in a wider type, or begins without them
# From which torch release on the default wheels are for this CUDA. Source: PyTorch release notes (read 2026-10).
DEFAULT_CUDA = (((2, 11), 13), ((2, 0), 12), ((1, 13), 11))
OLDEST_FOR_BLACKWELL = (12, 8)
# Least compute capability of the GPU builds of other frameworks: those of today are made with CUDA 12, which has dropped
# Kepler (CUDA 12.0 release notes); cuML, which stands for scikit-learn on a GPU, needs 7.0 since its release 24.02 (RAPIDS
# support notice 34, 2024-02). Read 2026-11-21.
LEAST_CAPABILITY = {"scikit-learn": (7, 0)}
OTHERS_LEAST_CAPABILITY = (5, 0)
# Programs known by their output alone, or not at all: what their builds need is not known.
ANY_BUILD = frozenset({"log lines", "reference", "caffe", "mxnet", "cntk", "theano"})
# GPU builds for arm64 hosts that are known: JAX's and RAPIDS' own lists of platforms; XGBoost's says there is none (read
# 2026-11-21).
ON_ARM = ("scikit-learn", "jax")
NOTHING_FOR_IT = "a GPU does nothing for this code as it is written"


def cuda_of(framework: Framework) -> tuple[int, int]:
    """CUDA version that this torch's GPU wheel is for; the default one's where a CPU build is installed."""
    if framework.cuda_build:
        parts = re.findall(r"\d+", framework.cuda_build)
        return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
    parts = re.findall(r"\d+", framework.version)
    version = (int(parts[0]), int(parts[1])) if len(parts) > 1 else (0, 0)
    major = next((cuda for since, cuda in DEFAULT_CUDA if version >= since), 10)
    if major == 12 and version < (2, 7):
        return 12, 4
    return (12, 8) if major == 12 else (major, 0)


def incompatible(spec: AcceleratorSpec, candidate: Candidate, framework: Framework) -> str:
    """Return why the script's framework build cannot use this accelerator; empty if it can."""
    if spec.vendor != "NVIDIA" or spec.compute_capability is None:
        return f"{spec.name} is not a CUDA device"
    if framework.name != "torch" or not framework.version:
        return _incompatible_elsewhere(spec.name, spec.compute_capability, candidate, framework)
    capability, cuda = spec.compute_capability, cuda_of(framework)
    word = f"torch {framework.version} (CUDA {cuda[0]}.{cuda[1]})"
    dotted = f"{capability[0]}.{capability[1]}"
    if cuda[0] >= 13 and capability < (7, 5):
        return f"{word} needs compute capability 7.5; {spec.name} has {dotted}"
    if cuda[0] == 12 and capability < (5, 0):
        return f"{word} needs compute capability 5.0; {spec.name} has {dotted}"
    if capability >= (10, 0) and cuda < OLDEST_FOR_BLACKWELL:
        return f"{word} is older than {spec.name}, which needs CUDA 12.8"
    if capability >= (8, 9) and cuda < (11, 8):
        return f"{word} is older than {spec.name}, which needs CUDA 11.8"
    if candidate.offer is not None and candidate.offer.architecture == "arm64":
        return "there is no CUDA wheel of torch for this arm64 host"
    return ""


def _incompatible_elsewhere(name: str, capability: tuple[int, int], candidate: Candidate, framework: Framework) -> str:
    arm = candidate.offer is not None and candidate.offer.architecture == "arm64"
    if arm and not any(known in framework.name for known in ON_ARM):
        who = "its program" if framework.name in ANY_BUILD else framework.name
        return f"no CUDA build of {who} for this arm64 host is known"
    if framework.name in ANY_BUILD:
        return ""
    library = framework.name.split(" ")[0]
    least = LEAST_CAPABILITY.get(library, OTHERS_LEAST_CAPABILITY)
    if capability >= least:
        return ""
    what = "cuML" if library == "scikit-learn" else f"a GPU build of {framework.name}"
    return f"{what} needs compute capability {least[0]}.{least[1]}; {name} has {capability[0]}.{capability[1]}"


def loading_bytes(profile: WorkloadProfile) -> float:
    """Return the bytes of main memory that weights take on their way to an accelerator.

    A model that is made or converted on the host is there as a whole; one that is read as it is, a file at a time.
    """
    if not (profile.without_weights or profile.weights_bytes):
        return 0.0
    model = max((phase.model_bytes for phase in profile.phases), default=0)
    return model if model > CONVERTED * profile.weights_bytes else min(profile.weights_bytes, SHARD_BYTES)


def _unfit_here(profile: WorkloadProfile) -> str:
    """Return why this machine, where it ran without its weights, cannot run it with them; empty if it can."""
    need, memory = cpu_need_gib(profile), profile.machine.memory_gib
    fits = not profile.without_weights or measured_on_gpu(profile) or profile.machine.accelerators or need <= memory
    return "" if fits else f"needs {need:.1f} GiB of memory, has {memory:.1f} GiB"


def cpu_need_gib(profile: WorkloadProfile) -> float:
    """Return the GiB of main memory that a script needs where it computes on the CPU."""
    tensors = 0.0  # which a measurement without weights has not held, so that its memory lacks them
    if profile.without_weights and profile.memory is not None:
        tensors = profile.memory.peak_bytes * BY_STORAGES.margin
    return ((profile.peak_rss_bytes or 0) + tensors) / GIB + HOST_RESERVE_GIB


def host_need_gib(profile: WorkloadProfile, processes: int = 1) -> float:
    """Return the GiB of main memory on the host of accelerators: what each process took without tensors, and to load them.

    Args:
        processes: Processes that train there, each with its own copy of what it loads.
    """
    moved = max(
        phase.saved_tensor_bytes
        + phase.unit.activation_bytes
        + phase.model_bytes
        + sum(4 * o.parameters + o.state_bytes for o in phase.optimizers)
        for phase in profile.phases
    )
    if profile.without_weights:
        moved = 0  # its memory had none of them
    left = max(0.0, (profile.peak_rss_bytes or 0) - moved) + loading_bytes(profile)
    return processes * left / GIB + HOST_RESERVE_GIB


def infeasible_reason(
    profile: WorkloadProfile,
    candidate: Candidate,
    execution: Execution | None = None,
    *,
    too_large: str | None = None,
    processes: int = 1,
) -> str:
    """Return why the workload cannot run on the candidate; empty if it can.

    Args:
        execution: How its inference runs on an accelerator; None for as it is written.
        too_large: Why it does not fit the memory of several accelerators, empty if it does; None for a training on one.
        processes: Processes that train on one machine.
    """
    offer, spec = candidate.offer, candidate.accelerator
    if offer is None:
        return _unfit_here(profile)
    if measured_on_gpu(profile) and spec is None:
        return CPU_UNKNOWN
    if candidate.cpu is not None and candidate.cpu.burstable:
        return "its CPU is burstable: under load its speed and price cannot be predicted"
    if spec is not None and offer.accelerator is not None:
        nothing = next((phase for phase in profile.phases if phase.gpu is GpuPath.NONE), None)
        if nothing is not None:
            return nothing.gpu_reason or NOTHING_FOR_IT
        if any(phase.gpu is GpuPath.TRACED and phase.trace_steps == 0 for phase in profile.phases):
            name = f"{profile.framework.name} {profile.framework.version}".rstrip()
            return f"no step could be traced with {name}, so that no GPU time is known"
        if offer.accelerator.count < 1:
            return "a slice of a GPU: its speed must be measured"
        reason = incompatible(spec, candidate, profile.framework)
        if reason:
            return reason
    return memory_shortage(profile, candidate, execution, too_large=too_large, processes=processes)


def memory_shortage(
    profile: WorkloadProfile,
    candidate: Candidate,
    execution: Execution | None = None,
    *,
    too_large: str | None = None,
    processes: int = 1,
) -> str:
    """Return why the memory of a rented candidate does not suffice, of accelerators or of the machine; empty if it does.

    Args:
        execution: As for `infeasible_reason`.
        too_large: As there.
        processes: As there.
    """
    offer = candidate.offer
    if offer is None:
        return ""
    if candidate.accelerator is None or offer.accelerator is None:
        need = cpu_need_gib(profile)
        return f"needs {need:.1f} GiB of memory, has {offer.memory_gib:g} GiB" if need > offer.memory_gib else ""
    if too_large is None:
        why = (misfit(need.gib, candidate.room_gib, need.error) for need in needs_of(profile, execution))
        too_large = next(filter(None, why), "")
    if too_large:
        return too_large
    need = host_need_gib(profile, processes)
    return f"needs {need:.1f} GiB of main memory, has {offer.memory_gib:g} GiB" if need > offer.memory_gib else ""
