"""What this machine is and how fast it computes: through the user's torch, or without it.

Without torch the matrix multiply is measured by the NumPy of the user's Python where there is one; else it is computed
from the CPU's vector units and clock, which `HostSpeed.how` says. The memory copy is measured in any case.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from costgpu.errors import InterpreterError
from costgpu.files import parse_json
from costgpu.measure.interpreter import Interpreter, default_interpreter
from costgpu.models.workload import Machine

MICROBENCHMARK = Path(__file__).with_name("probe") / "microbenchmark.py"
TORCH_LIMIT_SECONDS = 120.0
WINDOW_SECONDS = 0.6  # for each of the figures without torch
LIMIT_SECONDS = 60.0
WINDOWED = ("gemm_gflops", "conv_gflops", "copy_gbps", "calls")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Of the peak, in an fp32 GEMM; as in the estimate of cloud CPUs. Source: one Zen 3 core, torch 2.13 (2026-11-21).
GEMM_SHARE_OF_PEAK = 0.66
# fp32 FLOPs of one core in one cycle, by its widest vector unit. Source: the processor vendors' documentation
# (2026-09): two FMA units as a rule, AVX-512 of AMD before Zen 5 in two halves.
FLOPS_PER_CYCLE = {"avx512": 64.0, "avx512_halved": 32.0, "avx2": 32.0, "avx": 16.0, "sve": 32.0, "asimd": 16.0}
PLAIN_FLOPS_PER_CYCLE, DEFAULT_GHZ, DEFAULT_CORE_GBPS = 8.0, 2.5, 12.0
CALL_SECONDS = 5e-6  # nominal; only the probe of torch counts calls


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpeed:
    """This machine, and where its figures come from."""

    machine: Machine
    how: str  # one sentence for people
    measured: bool  # whether the matrix multiply was measured; False: computed from the CPU's units and clock


def time_torch(interpreter: Interpreter, windows: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of the micro-benchmark through torch in the user's interpreter.

    Args:
        windows: Number of windows of each figure.
        environment: Variables to set where the interpreter has none of the name.

    Raises:
        InterpreterError: The micro-benchmark does not run there.
    """
    command = [interpreter.path, str(MICROBENCHMARK), "torch", str(windows)]
    try:
        return _run_json(command, TORCH_LIMIT_SECONDS, {**environment, **interpreter.variables})
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise InterpreterError(
            f"The micro-benchmark failed in {interpreter.path}: {str(detail).strip().splitlines()[-1:]}.",
            hint="Does `import torch` work there?",
        ) from error


def machine_of_torch(timed: Sequence[Mapping[str, Any]], threads: int, accelerators: list[str]) -> Machine:
    """Return this machine's speed by the best windows of one or more micro-benchmarks through torch."""
    every = {name: sorted(rate for one in timed for rate in one[name]) for name in WINDOWED}
    gemm = every["gemm_gflops"]
    return _machine(
        threads=threads,
        gemm_gflops=gemm[-1],
        gemm_gflops_low=gemm[len(gemm) // 10],
        conv_gflops=every["conv_gflops"][-1],
        copy_gbps=every["copy_gbps"][-1],
        op_seconds=1.0 / every["calls"][-1],
        gemm_threads=timed[0]["threads"],
        single_thread_mbps=max(one["single_thread_mbps"] for one in timed),
        accelerators=accelerators,
    )


def measure_host(threads: int = 0, python: str | None = None) -> HostSpeed:
    """Return this machine's speed without torch, for so many threads (0: as many as cores); takes about two seconds."""
    cores = usable_cores()
    figures = _figures(python, cores)
    copy = figures.get("copy_gbps") or [DEFAULT_CORE_GBPS * cores]
    gemm = figures.get("gemm_gflops") or []
    if gemm:
        best, low = gemm[-1], gemm[len(gemm) // 10]
        how = f"The machine's speed was measured with NumPy {figures['numpy']}."
    else:
        best = GEMM_SHARE_OF_PEAK * _clock_ghz() * flops_per_cycle(_cpu_info()) * cores
        low = best * copy[len(copy) // 10] / copy[-1]
        how = (
            f"The machine's matrix multiply ({best:.0f} GFLOP/s) is computed from the CPU's vector units and clock,"
            " not measured: there is no NumPy to measure it with."
        )
    machine = _machine(
        threads=threads or cores,
        gemm_gflops=best,
        gemm_gflops_low=low,
        copy_gbps=copy[-1],
        op_seconds=1.0 / calls[-1] if (calls := figures.get("calls")) else CALL_SECONDS,
        gemm_threads=cores,
        single_thread_mbps=figures.get("single_thread_mbps", 0.0),
        accelerators=local_accelerators(),
    )
    return HostSpeed(machine=machine, how=how, measured=bool(gemm))


def _machine(**figures: Any) -> Machine:
    memory_gib = psutil.virtual_memory().total / 2**30
    return Machine(cpu_model=cpu_model(), cores=usable_cores(), memory_gib=memory_gib, **figures)


def _figures(python: str | None, cores: int) -> dict[str, Any]:
    """Measure with the first interpreter that has NumPy; without one measure the copy alone, without Python nothing."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(cores))}
    best: dict[str, Any] = {}
    candidates = [python] if python else [default_interpreter(dict(os.environ))[0], sys.executable]
    for path in dict.fromkeys(filter(None, candidates)):
        command = [path, str(MICROBENCHMARK), str(cores), str(WINDOW_SECONDS)]
        try:
            found = _run_json(command, LIMIT_SECONDS, environment)
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            continue
        if found.get("gemm_gflops"):
            return found
        best = best or found
    return best


def _run_json(command: list[str], limit_seconds: float, environment: dict[str, str]) -> dict[str, Any]:
    """Return the last line that a command prints, as JSON."""
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=limit_seconds,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    found = parse_json(answer.stdout.splitlines()[-1])
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def usable_cores() -> int:
    """Physical cores that this process may use, with affinity and a container's quota taken into account."""
    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    cores = max(1, min(physical, round(allowed * physical / logical)))
    with contextlib.suppress(OSError, ValueError, ArithmeticError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = max(1, min(cores, int(quota) // int(period)))
    return cores


def free_memory_bytes(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that a program may still take, with a container's limit taken into account."""
    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        free = min(free, max(0, limit - int((group / "memory.current").read_text())))
    return free


def cpu_model() -> str:
    """Return the CPU's name as the system gives it."""
    for line in _cpu_info().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def flops_per_cycle(info: str) -> float:
    """fp32 FLOPs of one core in one cycle, from the text of ``/proc/cpuinfo``."""
    lines = [line for line in info.splitlines() if line.startswith(("flags", "Features"))]
    flags = set(lines[0].partition(":")[2].split()) if lines else set()
    if "avx512f" in flags:
        halved = "AuthenticAMD" in info and "avx512_vp2intersect" not in flags  # which Zen 5 brought to AMD
        return FLOPS_PER_CYCLE["avx512_halved" if halved else "avx512"]
    for name in ("avx2", "avx", "sve", "asimd"):
        if name in flags:
            return FLOPS_PER_CYCLE[name]
    arm = not flags and platform.machine().lower() in ("arm64", "aarch64")  # macOS has no such file
    return FLOPS_PER_CYCLE["asimd"] if arm else PLAIN_FLOPS_PER_CYCLE


def _cpu_info() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""


def _clock_ghz() -> float:
    """Return the highest clock that the system tells, GHz."""
    try:
        clock: Any = psutil.cpu_freq()  # None where the system does not tell
    except (OSError, RuntimeError, NotImplementedError, AttributeError):
        return DEFAULT_GHZ
    megahertz = max(clock.max or 0.0, clock.current or 0.0) if clock else 0.0
    return megahertz / 1000 if 500 <= megahertz <= 8000 else DEFAULT_GHZ


def local_accelerators(root: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """Return the names of the NVIDIA GPUs of this machine as its driver tells them (Linux); empty elsewhere."""
    try:
        texts = [(folder / "information").read_text(errors="replace") for folder in sorted(root.iterdir())]
    except OSError:
        return []
    lines = [line for text in texts for line in text.splitlines() if line.startswith("Model:")]
    return [line.partition(":")[2].strip() for line in lines]
