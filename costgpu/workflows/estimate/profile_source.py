"""What is estimated: a script, a program that prints its progress, a saved profile, or a kind of work. Imports lazily."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from costgpu.errors import EXIT_INTERRUPTED, ProfileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from costgpu.models.workload import WorkloadProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that say what to measure, as given.

    Attributes:
        words: The script or program with its arguments, or a saved profile.
        module: Of ``-m``.
        python: Interpreter.
        workdir: Folder.
        measure_for_seconds: After the first step.
        start_limit_seconds: For the first step.
        steps: Stop after so many.
        save: Where the profile goes.
        like: A kind of work.
        params: Parameters of a language model.
        tokens: That it is trained on.
        step_pattern: Of a program's progress lines.
        epochs: For a kind of work: how many.
    """

    words: Sequence[str]
    module: str | None
    python: str | None
    workdir: str | None
    measure_for_seconds: float
    start_limit_seconds: float
    steps: int | None
    save: str | None
    like: str | None
    params: str | None
    tokens: str | None
    step_pattern: str | None
    epochs: float | None


@dataclass(frozen=True, slots=True)
class Subject:
    """What it is.

    Attributes:
        profile: Of the workload.
        log: Where the program's output went; None if nothing was run.
        epochs: Still to be applied; None where the profile has them already.
    """

    profile: WorkloadProfile
    log: str | None
    epochs: float | None


def check(asked: Asked) -> None:
    """Refuses what contradicts itself, before anything is measured.

    Raises:
        UsageError: With what does not go together.
    """
    if (asked.params is None) != (asked.tokens is None):
        raise UsageError("--params and --tokens go together.", hint="--params 7B --tokens 1B")
    if asked.params is not None and asked.like is not None:
        raise UsageError("--like and --params exclude each other.", hint="Give one of them.")
    prior = asked.params is not None or (asked.like is not None and not asked.words)
    if asked.params is not None and (asked.words or asked.module):
        raise UsageError(
            "--params is for a model that is not measured; there is a script as well.",
            hint="Leave --params and --tokens away to measure it.",
        )
    if asked.like is not None and (asked.module or (asked.words and not _is_program(asked.words[0]))):
        raise UsageError(
            "--like is for what cannot be measured, and a script can be.",
            hint="Leave it away; or leave the script away for the figures of the kind of work alone.",
        )
    if asked.step_pattern is not None:
        if prior or asked.module or not asked.words or not _is_program(asked.words[0]):
            raise UsageError(
                "--step-pattern is for programs that are measured by what they print.",
                hint="costgpu estimate --step-pattern 'tick (?P<step>[0-9]+)' -- ./program",
            )
        from costgpu.measure.log.lines import user_pattern

        user_pattern(asked.step_pattern)
    if asked.like is not None:
        from costgpu.pricing.speedups import kinds, speedups

        if prior:
            from costgpu.pricing.references import reference

            reference(asked.like)
        elif asked.like not in (known := kinds(speedups())):
            import difflib

            near = difflib.get_close_matches(asked.like, known, 3) or sorted(known)
            raise UsageError(f"There is no kind of work {asked.like!r}.", hint=f"Choose {', '.join(near)}.")
    if prior and asked.save:
        raise UsageError("--save keeps what was measured, and here nothing is.")
    if not prior and not asked.words and asked.module is None:
        raise UsageError("Which script?", hint="costgpu estimate train.py, or costgpu estimate -m package")


def subject(asked: Asked, now: datetime, version: str) -> Subject:
    """Measures, reads or looks up.

    Raises:
        UsageError: Of `check`.
        ScriptError: It cannot be measured.
        ProfileError: The saved profile cannot be read.
    """
    check(asked)
    if asked.params is not None or (asked.like is not None and not asked.words):
        return _prior(asked, now, version)
    first = asked.words[0] if asked.words else ""
    if asked.module is None and first.endswith(".json"):
        from costgpu.measure.profile_file import load_profile

        if len(asked.words) > 1:
            raise UsageError(
                f"A profile takes no arguments: {' '.join(asked.words[1:])}", hint="Put options before it."
            )
        return Subject(load_profile(Path(first)), None, asked.epochs)
    if asked.save:
        _check_save(Path(asked.save))
    program = asked.module is None and _is_program(first)
    profile, log = _measured_program(asked) if program else _measured_script(asked)
    return Subject(profile, log, asked.epochs)


def _is_program(word: str) -> bool:
    """Whether this is no Python script and no profile, but a program that can be started."""
    path = Path(word)
    if path.suffix in (".py", ".json", ".ipynb") or path.is_dir() or not word:
        return False
    if path.is_file():
        with path.open("rb") as file:
            first = file.readline(200)
        return os.access(path, os.X_OK) and b"python" not in first
    return shutil.which(word) is not None


def _prior(asked: Asked, now: datetime, version: str) -> Subject:
    from costgpu.estimate.reference_profiles import language_model_profile, reference_profile
    from costgpu.measure.host_info import measure_host
    from costgpu.units import parse_count

    created = now.isoformat(timespec="seconds")
    if asked.params is not None and asked.tokens is not None:
        parameters, tokens = parse_count(asked.params, what="--params"), parse_count(asked.tokens, what="--tokens")
        machine = measure_host().machine
        profile = language_model_profile(parameters, tokens, machine, created, version)
        return Subject(profile, None, asked.epochs)
    from costgpu.pricing.references import reference

    found = reference(str(asked.like))
    profile = reference_profile(found, measure_host().machine, created, version, epochs=asked.epochs)
    return Subject(profile, None, None)


def _measured_script(asked: Asked) -> tuple[WorkloadProfile, str]:
    from costgpu.workflows.estimate.measure import run_measurement, tell_about_files, to_request

    request = to_request(
        list(asked.words),
        asked.module,
        asked.workdir,
        asked.measure_for_seconds,
        asked.start_limit_seconds,
        asked.steps,
    )
    profile, outcome = run_measurement(request, asked.python)
    _save(profile, asked.save)
    tell_about_files(outcome)
    return profile, str(outcome.log)


def _measured_program(asked: Asked) -> tuple[WorkloadProfile, str]:
    import platformdirs

    from costgpu.measure.log.command import measure_command
    from costgpu.workflows.estimate.measure import progress

    if asked.steps is not None or asked.python is not None:
        raise UsageError("--steps and --python are for Python scripts.", hint=f"{asked.words[0]} runs as it is.")
    folder = Path(asked.workdir or ".").resolve()
    if not folder.is_dir():
        raise UsageError(f"There is no folder {asked.workdir}.", hint="--workdir is where it runs.")
    typer.echo("costgpu: this runs in place, without the probe: what it writes is really written.", err=True)
    name = Path(asked.words[0]).name
    try:
        with progress(
            f"Measuring {name} by what it prints", asked.measure_for_seconds, asked.start_limit_seconds
        ) as tick:
            profile, outcome = measure_command(
                asked.words,
                folder,
                platformdirs.user_cache_path("costgpu"),
                tick,
                pattern=asked.step_pattern,
                kind=asked.like or "",
                measure_for_seconds=asked.measure_for_seconds,
                start_limit_seconds=asked.start_limit_seconds,
            )
    except KeyboardInterrupt:
        typer.echo("Stopped. The program and everything that it started have been ended.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _save(profile, asked.save)
    return profile, str(outcome.log)


def _save(profile: WorkloadProfile, path: str | None) -> None:
    from costgpu.measure.profile_file import save_profile

    if path:
        save_profile(profile, Path(path))
        typer.echo(f"Profile written to {path}", err=True)


def _check_save(path: Path) -> None:
    """Refuses, before anything is measured, to write over what no costgpu has saved: the script, say.

    Raises:
        UsageError: It is such a file, or its folder is not there.
    """
    from costgpu.measure.profile_file import load_profile
    from costgpu.workflows.write_file import check_target

    if os.path.lexists(path):
        try:
            ours = path.is_file() and bool(load_profile(path))
        except ProfileError:
            ours = False
        if not ours:
            raise UsageError(
                f"--save {path}: it exists, and is no profile that costgpu has saved.", hint="Choose another name."
            )
    check_target(path, force=True)
