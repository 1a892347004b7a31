"""Runs a user's script under the probe and describes what it does. May import `workload`, `units` and `errors`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from costgpu import __version__
from costgpu.errors import NeedsCuda
from costgpu.measure.cuda_errors import only_on_a_gpu, wants_launcher
from costgpu.measure.failures import explain
from costgpu.measure.host_info import plain_machine
from costgpu.measure.interpreter import Interpreter, describe_machine, find_interpreter
from costgpu.measure.profile.profile_builder import build_profile, trained_by_torch
from costgpu.measure.session import Outcome, Request, measure
from costgpu.measure.workload_key import workload_key
from costgpu.models.workload import WorkloadProfile

__all__ = ["Interpreter", "Outcome", "Request", "find_interpreter", "measure_script", "workload_key"]


def measure_script(
    request: Request, interpreter: Interpreter, cache: Path, progress: Callable[[float, bool], None]
) -> tuple[WorkloadProfile, Outcome]:
    """Measures a script on this machine.

    Args:
        request: What to run and for how long.
        interpreter: With which Python.
        cache: Where logs and diverted files go.
        progress: Called with the seconds so far and whether the script has stepped.

    Raises:
        ScriptError: It could not be measured; the subclass says why.
        KeyboardInterrupt: After everything has been ended.
    """
    key = workload_key(
        script=request.script, module=request.module, arguments=request.arguments, workdir=request.workdir
    )  # before the script can change anything
    outcome = _measured(request, interpreter, cache, progress)
    record = outcome.record
    error = explain(outcome, request, interpreter)
    if error is not None:
        raise error
    assert record is not None  # noqa: S101 - explain() has an error for a missing record
    if trained_by_torch(record):
        facts = record["torch"]
        machine = describe_machine(interpreter, outcome.probe, facts["threads"], facts["cuda_devices"])
    else:
        machine = plain_machine(python=interpreter.path).machine
    profile = build_profile(
        record,
        machine,
        script=request.name,
        arguments=list(request.arguments),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )
    return replace(profile, workload=key), outcome


def _measured(
    request: Request, interpreter: Interpreter, cache: Path, progress: Callable[[float, bool], None]
) -> Outcome:
    """Runs the script as it is; if it refuses, once more for each of the reasons that there is an answer to."""
    ways: dict[str, bool] = {}
    while True:
        outcome = measure(request, interpreter, cache, progress, **ways)
        way = _another_way(outcome, request, interpreter)
        if way is None or way[0] in ways:
            return outcome
        ways[way[0]] = way[1]


def _another_way(outcome: Outcome, request: Request, interpreter: Interpreter) -> tuple[str, bool] | None:
    """Keyword of `measure` that this script may need; None if it was measured, or nothing helps."""
    record = outcome.record
    error = explain(outcome, request, interpreter)
    if record is None or error is None:
        return None
    if wants_launcher(record):
        return "launched", True
    if isinstance(error, NeedsCuda) and not (record["status"] == "crashed" and only_on_a_gpu(record)):
        return "pretend", True
    if record["status"] == "crashed" and record.get("while_tracing"):
        return "saved_hooks", False  # torch.func and some extensions do not allow saved-tensor hooks
    return None
