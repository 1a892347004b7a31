"""Measures a Python script: runs it under the probe as often as it takes, and describes what it does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from costgpu.errors import InterpreterError, NeedsCuda
from costgpu.measure.cuda_errors import fails_as_one_of_several, only_on_a_gpu, wants_launcher, wants_several_gpus
from costgpu.measure.failures import explain, too_large
from costgpu.measure.host_info import machine_of_torch, measure_host, time_torch
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.isolation.levels import isolation_notes
from costgpu.measure.probe.frameworks.registry import FRAMEWORKS
from costgpu.measure.probe.schedstat import busy_share
from costgpu.measure.profile.profile_builder import build_profile, trained_by_torch
from costgpu.measure.read_record import check_record
from costgpu.measure.session import Outcome, Request, run_probe
from costgpu.measure.workload_key import workload_key
from costgpu.models.memory_change import Changes, word_of
from costgpu.models.workload import Extra, ExtraKind, Phase, WorkloadProfile
from costgpu.version import __version__

# Where other programs use more of the cores than this, threads of the script do not spin for each other: the time for
# which one spins while another has no core cannot be told from work. For GNU's OpenMP, and for Intel's and LLVM's.
BUSY_FROM = 0.15
WAIT_PASSIVELY = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
WINDOWS_BEFORE, WINDOWS_AFTER = 2, 5  # of each figure of the micro-benchmark
AGAIN_STEPS = 2  # beside the traced one: the second has the states of the optimizer
AGAIN_SECONDS = 60.0, 120.0  # least and most that a script has for its first step once more, whatever it took before
USES_TORCH = re.compile("|".join(one.name for one in FRAMEWORKS if one.on_torch).encode())


def measure_script(
    request: Request, interpreter: Interpreter, cache: Path, progress: Callable[[float, bool], None]
) -> tuple[WorkloadProfile, Outcome]:
    """Measure a script on this machine.

    `progress` is called with the seconds so far and whether the script has stepped; logs and diverted files go to `cache`.

    Raises:
        ScriptError: It could not be measured; the subclass says why.
        KeyboardInterrupt: After everything has been ended.
    """
    key = workload_key(
        script=request.script,
        module=request.module,
        arguments=request.arguments,
        workdir=request.workdir,
        processes=-1 if request.launch is not None and request.launch.per_gpu else 0,
        variables=request.assigned,
    )  # before the script can change anything
    threads = WAIT_PASSIVELY if busy_share() > BUSY_FROM else {}
    before = _time_before(request, interpreter, threads)
    outcome = _run_until_measured(request, interpreter, cache, progress, threads)
    error = explain(outcome, request, interpreter)
    if error is not None:
        raise error
    record = outcome.record
    assert record is not None  # noqa: S101 - explain() has an error for a missing record
    torch = record.get("torch")
    if torch is not None and trained_by_torch(record):
        timed = [*before, time_torch(interpreter, WINDOWS_AFTER, threads)]
        machine = machine_of_torch(timed, torch["threads"], torch["cuda_devices"])
    else:
        machine = measure_host(python=interpreter.path).machine
    profile = build_profile(
        record,
        machine,
        script=request.name,
        arguments=list(request.arguments),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        launch=request.launch,
    )
    return replace(
        profile, workload=key, footprint=outcome.footprint, notes=[*profile.notes, *isolation_notes(outcome.isolation)]
    ), outcome


def measure_changed(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    before: WorkloadProfile,
    changes: Changes,
) -> tuple[WorkloadProfile, tuple[str, ...]] | None:
    """Measure a script with changes that save memory, by shapes, as far as they tell on it, and say how each was made.

    None where it could not be measured so, or there was nothing to change.

    Args:
        before: Its profile without them, which tells its length and this machine.
    """
    again = _again_without_weights(request, interpreter, cache, progress, before, word_of(changes))
    if again is None or len(again[0].phases) != len(before.phases) or not all(one in again[1] for one in changes):
        return None
    found, how = again
    phases = [
        replace(
            old,
            optimizers=new.optimizers,
            ops=new.ops,
            trace_steps=new.trace_steps,
            calls_per_step=new.calls_per_step,
            saved_tensor_bytes=new.saved_tensor_bytes,
            model_bytes=new.model_bytes,
            frozen_bytes=new.frozen_bytes,
            unit=new.unit,
            extras=[_saved_less(extra, _saved_bytes(new) / max(1, _saved_bytes(old))) for extra in old.extras],
        )
        for old, new in zip(before.phases, found.phases, strict=True)
    ]
    profile = replace(
        before,
        phases=phases,
        parallelism=found.parallelism,
        memory=found.memory,
        weights_bytes=found.weights_bytes,
    )
    return profile, tuple(how[one] for one in changes)


def measure_memory(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    before: WorkloadProfile,
) -> WorkloadProfile:
    """Return the profile of a script that was measured with its weights, with what it holds on a GPU, measured without them.

    As it was where that could not be measured.
    """
    again = _again_without_weights(request, interpreter, cache, progress, before)
    if again is None or again[0].ranks.measured_ranks != before.ranks.measured_ranks:
        return before
    return replace(before, memory=again[0].memory)


def _again_without_weights(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    before: WorkloadProfile,
    change: str = "",
) -> tuple[WorkloadProfile, dict[str, str]] | None:
    """Measure a script once more, for a few steps without weights, and say how each change was made; None if that fails."""
    least, most = AGAIN_SECONDS
    limit = min(max(least, 2 * before.wall_seconds), most)
    asked = replace(request, weights="none", change=change, steps=AGAIN_STEPS, start_limit_seconds=limit)
    outcome = _run_until_measured(asked, interpreter, cache, progress, {})
    record = outcome.record
    if record is None or explain(outcome, asked, interpreter) is not None:
        return None
    found = build_profile(
        record,
        before.machine,
        script=before.script,
        arguments=before.arguments,
        created=before.created,
        version=__version__,
        launch=request.launch,
    )
    return (found, record.get("changed", {})) if found.without_weights else None


def _saved_bytes(phase: Phase) -> int:
    """Return the bytes of a checkpoint of what a phase trains."""
    return sum(4 * one.parameters + one.state_bytes for one in phase.optimizers)


def _saved_less(extra: Extra, factor: float) -> Extra:
    return replace(extra, seconds_each=extra.seconds_each * factor) if extra.kind is ExtraKind.CHECKPOINT else extra


def _time_before(request: Request, interpreter: Interpreter, threads: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the micro-benchmark before the script runs, where it is likely to compute with torch; else nothing."""
    with contextlib.suppress(OSError):
        if request.script is None or not USES_TORCH.search(request.script.read_bytes()):
            return []
        with contextlib.suppress(InterpreterError):  # there is no torch: the script will say so better
            return [time_torch(interpreter, WINDOWS_BEFORE, threads)]
    return []


def _run_until_measured(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    threads: Mapping[str, str],
) -> Outcome:
    """Run the script as it is; if it refuses, once more for each of the reasons that there is an answer to."""
    options: dict[str, Any] = {}
    while True:
        outcome = run_probe(request, interpreter, cache, progress, threads=threads, **options)
        if outcome.record is not None:
            check_record(outcome.record)
        option = _missing_option(outcome, request, interpreter, launched="launched" in options)
        if option is None or option[0] in options:
            return outcome
        options[option[0]] = option[1]


def _missing_option(
    outcome: Outcome, request: Request, interpreter: Interpreter, *, launched: bool
) -> tuple[str, Any] | None:
    """Keyword of `run_probe` that this script may need; None if it was measured, or nothing helps."""
    record = outcome.record
    error = explain(outcome, request, interpreter)
    if error is not None and request.weights == "tried" and too_large(outcome, error):
        return "weights", "none"
    if record is None or error is None:
        return None
    if wants_launcher(record):
        return "launched", True
    crashed = record["status"] == "crashed"
    if isinstance(error, NeedsCuda):
        if crashed and only_on_a_gpu(record):
            return None
        one_each = launched or request.launch is not None  # a GPU for each process
        return ("many_gpus" if not one_each and wants_several_gpus(record) else "fake_cuda"), True
    if crashed and fails_as_one_of_several(record):
        return "alone", True
    memory = record.get("memory")
    if crashed and memory is not None and memory["skipped"]:
        return "every_part", True
    if crashed and record.get("while_tracing"):
        return "saved_hooks", False  # torch.func and some extensions do not allow saved-tensor hooks
    return None
