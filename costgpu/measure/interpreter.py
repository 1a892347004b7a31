"""Which Python runs the user's script, and what machine this is."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from costgpu.errors import InterpreterError
from costgpu.models.workload import Machine

OLDEST = (3, 8)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that was started once and answered; `origin` says why it was chosen."""

    path: str
    version: str
    origin: str


def find_interpreter(asked: str | None, environment: dict[str, str]) -> Interpreter:
    """The interpreter for the script: the one asked for, else the active venv's, else ``python``.

    Raises:
        InterpreterError: It is missing, does not start, or is older than 3.8.
    """
    hint = "Name the Python that has the script's packages: --python /path/to/python."
    if asked is not None:
        path, origin = shutil.which(os.path.expanduser(asked)), "--python"  # noqa: PTH111 - which() wants str
        if path is None:
            raise InterpreterError(f"There is no interpreter {asked!r}.", hint=hint)
    else:
        path, origin = default_interpreter(environment)
        if path is None:
            raise InterpreterError("There is no python on PATH.", hint=hint)
    path = os.path.abspath(path)  # noqa: PTH100 - it is started from other folders; a link is what makes it a venv's
    try:
        answer = subprocess.run(
            [path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(f"{path} does not start: {error}.", hint=hint) from error
    version = answer.stdout.strip()
    try:
        numbers = tuple(int(part) for part in version.split("."))
    except ValueError:
        raise InterpreterError(f"{path} is not a Python interpreter.", hint=hint) from None
    if numbers < OLDEST:
        raise InterpreterError(f"{path} is Python {version}; costgpu measures with 3.8 or newer.", hint=hint)
    return Interpreter(path, version, origin)


def default_interpreter(environment: dict[str, str]) -> tuple[str | None, str]:
    """The active environment's Python, else the one on PATH, and which of the two it is; None without any."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if folder := environment.get(variable):
            for place in ("bin/python", "Scripts/python.exe", "python.exe"):
                if (candidate := Path(folder, place)).exists():
                    return str(candidate), variable
    search = environment.get("PATH")
    return shutil.which("python", path=search) or shutil.which("python3", path=search), "PATH"


def usable_cores() -> int:
    """Physical cores that this process may use, with affinity and a container's quota taken into account."""
    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    cores = max(1, min(physical, round(allowed * physical / logical)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores
    return cores


def cpu_model() -> str:
    """The CPU's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor() or platform.machine()
    return platform.processor() or platform.machine()


def describe_machine(interpreter: Interpreter, probe: Path, threads: int, accelerators: list[str]) -> Machine:
    """This machine's speed as torch reaches it, by the probe's micro-benchmark in the user's interpreter.

    Raises:
        InterpreterError: The micro-benchmark does not run there.
    """
    try:
        answer = subprocess.run(
            [interpreter.path, str(probe), "bench"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        figures = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise InterpreterError(
            f"The micro-benchmark failed in {interpreter.path}: {str(detail).strip().splitlines()[-1:]}.",
            hint="Does `import torch` work there?",
        ) from error
    gemm, copy = figures["gemm_gflops"], figures["copy_gbps"]
    return Machine(
        cpu_model=cpu_model(),
        cores=usable_cores(),
        threads=threads,
        memory_gib=psutil.virtual_memory().total / 2**30,
        gemm_gflops=gemm[-1],
        gemm_gflops_low=gemm[len(gemm) // 10],
        copy_gbps=copy[-1],
        op_seconds=figures["op_seconds"][0],
        gemm_threads=figures["threads"],
        accelerators=accelerators,
    )
