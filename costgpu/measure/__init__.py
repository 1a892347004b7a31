"""Runs a user's script under the probe and describes what it does. May import `workload`, `units` and `errors`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from costgpu import __version__
from costgpu.measure.build import build_profile
from costgpu.measure.failures import explain
from costgpu.measure.fingerprint import workload_key
from costgpu.measure.interpreter import Interpreter, describe_machine, find_interpreter
from costgpu.measure.session import Outcome, Request, measure
from costgpu.workload import WorkloadProfile

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
    outcome = measure(request, interpreter, cache, progress)
    record = outcome.record
    if record is not None and record["status"] == "crashed" and record.get("while_tracing"):
        # torch.func and some extensions do not allow saved-tensor hooks: once more without them
        second = measure(request, interpreter, cache, progress, saved_hooks=False)
        if explain(second, request, interpreter) is None:
            outcome, record = second, second.record
    error = explain(outcome, request, interpreter)
    if error is not None:
        raise error
    assert record is not None  # noqa: S101 - explain() has an error for a missing record
    facts = record["torch"]
    machine = describe_machine(interpreter, outcome.probe, facts["threads"], facts["cuda_devices"])
    profile = build_profile(
        record, machine, script=request.name, arguments=list(request.arguments),
        created=datetime.now(UTC).isoformat(timespec="seconds"), version=__version__,
    )  # fmt: skip
    return replace(profile, workload=key), outcome
