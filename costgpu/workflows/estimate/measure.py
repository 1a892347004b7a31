"""Measures a script on this machine."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from costgpu.errors import NotPython, ScriptNotFound, UsageError
from costgpu.measure import Outcome, Request, find_interpreter, measure_script
from costgpu.models.workload import WorkloadProfile
from costgpu.workflows.reporter import Reporter


def script_request(
    command: Sequence[str],
    module: str | None,
    workdir: str | None,
    reporter: Reporter,
    *,
    measure_seconds: float,
    start_seconds: float,
    steps: int | None = None,
) -> Request:
    """What to measure or run, with clear errors for what is not a script."""
    folder = Path(workdir).resolve() if workdir else None
    if folder is not None and not folder.is_dir():
        raise UsageError(f"There is no folder {workdir}.", hint="--workdir is where the script runs.")
    script = _script(command[0]) if module is None else None
    arguments = list(command if module is not None else command[1:])
    home = folder or (script.parent if script is not None else Path.cwd())
    if script is not None:
        _note_relative_paths(arguments, home, reporter)
    return Request(
        script=script,
        module=module,
        arguments=arguments,
        workdir=home,
        measure_for_seconds=measure_seconds,
        start_limit_seconds=start_seconds,
        steps=steps,
    )


def _script(word: str) -> Path:
    script = Path(word)
    if script.is_dir():
        raise NotPython(
            f"{script} is a folder.", hint=f"Name a script in it, or a package: -m {script.name or 'package'}"
        )
    if not script.exists():
        names = [path.name for path in script.parent.glob("*.py")] if script.parent.is_dir() else []
        near = difflib.get_close_matches(script.name, names, 3)
        hint = f"Did you mean {', '.join(near)}?" if near else "Check the path; the script's arguments come after it."
        raise ScriptNotFound(f"There is no script {script}.", hint=hint)
    if script.suffix == ".ipynb":
        raise NotPython(f"{script} is a notebook.", hint=f"Convert it: jupyter nbconvert --to script {script}")
    return script.resolve()


def _note_relative_paths(arguments: Sequence[str], workdir: Path, reporter: Reporter) -> None:
    for word in arguments:
        path = word.split("=", 1)[-1]
        if path and not path.startswith(("-", "/")) and Path(path).exists() and not (workdir / path).exists():
            reporter.note(f"{path} exists here, but the script runs in {workdir}; if it needs {path}, add --workdir .")


def run_measurement(request: Request, python: str | None, reporter: Reporter) -> tuple[WorkloadProfile, Outcome]:
    """Measures a script. Ctrl-C ends it and everything that it started."""
    interpreter = find_interpreter(python, dict(os.environ))
    what = f"Measuring {request.name} with {interpreter.path} (Python {interpreter.version}, {interpreter.origin})"
    try:
        with reporter.measuring(what, request.measure_for_seconds, request.start_limit_seconds) as tick:
            return measure_script(request, interpreter, platformdirs.user_cache_path("costgpu"), tick)
    except KeyboardInterrupt:
        reporter.note("Stopped. The script and everything that it started have been ended.")
        raise


def note_files(outcome: Outcome, reporter: Reporter) -> None:
    """Notes which files were diverted, made or put back."""
    if outcome.diverted:
        count = _files(len(outcome.diverted))
        reporter.note(f"{count} that the script writes went to a scratch folder instead: {outcome.scratch}")
    if outcome.created:
        shown = ", ".join(outcome.created[:3]) + (" ..." if len(outcome.created) > 3 else "")
        reporter.note(f"The script made {_files(len(outcome.created), 'new ')}: {shown}")
    if outcome.restored:
        reporter.note(f"Put back {_files(len(outcome.restored))}: {', '.join(outcome.restored[:3])}")
    if outcome.programs:
        reporter.note(f"It started other programs, whose writes costgpu cannot divert: {outcome.programs[0]}")


def _files(count: int, kind: str = "") -> str:
    return f"1 {kind}file" if count == 1 else f"{count} {kind}files"
