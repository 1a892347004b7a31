"""The profile of a workload: of a script, a program that prints its progress, a saved file, or a kind of work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import platformdirs

from costgpu.errors import ProfileError, UsageError
from costgpu.measure.profile_file import load_profile, save_profile
from costgpu.models.workload import WorkloadProfile
from costgpu.units import parse_count
from costgpu.version import __version__
from costgpu.workflows.estimate.measure import note_files, run_measurement, script_request
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.write_file import check_target


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """A profile and where it is from.

    Attributes:
        log: File with the program's output; None if nothing was run.
        epochs: Epochs still to be applied; None where the profile has them already.
    """

    profile: WorkloadProfile
    log: str | None
    epochs: float | None


def find_profile(request: EstimateRequest, now: datetime, reporter: Reporter) -> ProfileSource:
    """Measures, reads or looks up.

    Raises:
        ScriptError: It cannot be measured.
        ProfileError: The saved profile cannot be read.
    """
    if not request.is_measured:
        return _nominal(request, now)
    if request.module is None and request.command[0].endswith(".json"):
        if len(request.command) > 1:
            words = " ".join(request.command[1:])
            raise UsageError(f"A profile takes no arguments: {words}", hint="Put options before it.")
        return ProfileSource(load_profile(Path(request.command[0])), None, request.epochs)
    if request.save:
        _check_save(Path(request.save))
    measure = _measure_program if request.is_program else _measure_script
    profile, log = measure(request, reporter)
    if request.save:
        save_profile(profile, Path(request.save))
        reporter.note(f"Profile written to {request.save}")
    return ProfileSource(profile, log, request.epochs)


def _nominal(request: EstimateRequest, now: datetime) -> ProfileSource:
    """The profile of a kind of work or of a language model that is not here."""
    from costgpu.estimate.reference_profiles import language_model_profile, reference_profile
    from costgpu.measure.host_info import measure_host
    from costgpu.pricing.references import reference

    created, machine = now.isoformat(timespec="seconds"), measure_host().machine
    if request.params is not None and request.tokens is not None:
        parameters = parse_count(request.params, what="--params")
        tokens = parse_count(request.tokens, what="--tokens")
        return ProfileSource(
            language_model_profile(parameters, tokens, machine, created, __version__), None, request.epochs
        )
    found = reference(str(request.like))
    return ProfileSource(reference_profile(found, machine, created, __version__, epochs=request.epochs), None, None)


def _measure_script(request: EstimateRequest, reporter: Reporter) -> tuple[WorkloadProfile, str]:
    script = script_request(
        request.command,
        request.module,
        request.workdir,
        reporter,
        measure_seconds=request.measure_seconds,
        start_seconds=request.start_seconds,
        steps=request.steps,
    )
    profile, outcome = run_measurement(script, request.python, reporter)
    note_files(outcome, reporter)
    return profile, str(outcome.log)


def _measure_program(request: EstimateRequest, reporter: Reporter) -> tuple[WorkloadProfile, str]:
    from costgpu.measure.log.command import measure_command

    if request.steps is not None or request.python is not None:
        raise UsageError("--steps and --python are for Python scripts.", hint=f"{request.command[0]} runs as it is.")
    folder = Path(request.workdir or ".").resolve()
    if not folder.is_dir():
        raise UsageError(f"There is no folder {request.workdir}.", hint="--workdir is where it runs.")
    reporter.note("The program runs in place, without the probe: what it writes is really written.")
    what = f"Measuring {Path(request.command[0]).name} by what it prints"
    try:
        with reporter.measuring(what, request.measure_seconds, request.start_seconds) as tick:
            profile, outcome = measure_command(
                request.command,
                folder,
                platformdirs.user_cache_path("costgpu"),
                tick,
                pattern=request.step_pattern,
                kind=request.like or "",
                measure_for_seconds=request.measure_seconds,
                start_limit_seconds=request.start_seconds,
            )
    except KeyboardInterrupt:
        reporter.note("Stopped. The program and everything that it started have been ended.")
        raise
    return profile, str(outcome.log)


def _check_save(path: Path) -> None:
    """Refuses, before anything is measured, to overwrite a file that is not a saved profile: the script, say."""
    if os.path.lexists(path):
        try:
            ours = path.is_file() and bool(load_profile(path))
        except ProfileError:
            ours = False
        if not ours:
            raise UsageError(
                f"--save {path}: the file exists, and is not a profile that costgpu has saved.",
                hint="Choose another name.",
            )
    check_target(path, force=True)
