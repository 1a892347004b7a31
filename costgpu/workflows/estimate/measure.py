"""The profile of a workload: of a script, a program that prints its progress, a saved file, or a kind of work."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import platformdirs

from costgpu.errors import NotPython, ProfileError, ScriptNotFound, UsageError
from costgpu.estimator.memory import is_near
from costgpu.estimator.modelled_steps import with_modelled_steps
from costgpu.files import FileKind, read_bytes
from costgpu.measure import Outcome, Request, find_interpreter, measure_memory, measure_script
from costgpu.measure.check_source import SOURCE, check_source, module_file
from costgpu.measure.interpreter import (
    Interpreter,
    Surroundings,
    default_interpreter,
    find_surroundings,
    has_inline_metadata,
    python_of_script,
)
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.launcher import Launch, local_rank_argument, with_settings
from costgpu.measure.prefixes import split_prefixes
from costgpu.measure.profile_file import load_profile, save_profile
from costgpu.models.workload import WorkloadProfile
from costgpu.pricing.hardware import accelerators
from costgpu.render.phrases import counted
from costgpu.units import format_size, parse_count
from costgpu.version import __version__
from costgpu.workflows.estimate.like_model import finetune_of
from costgpu.workflows.estimate.request import SYSTEM_FOLDERS, EstimateRequest, ScriptOptions, started
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.write_file import check_target

LAUNCHER = FileKind(most_bytes=2**20, error=UsageError)
ACCELERATE_SETTINGS = "~/.cache/huggingface/accelerate/default_config.yaml"  # written by `accelerate config`
LEAST_RENTED_GIB = 8.0  # memory of an M60: nobody rents out a smaller GPU
DOWNLOAD_BYTES = 100_000_000  # written while it was measured; a download of this size is worth a word


def script_request(options: ScriptOptions, reporter: Reporter, steps: int | None = None) -> Request:
    """Return what to measure or run, with clear errors for what is not a script."""
    measure_seconds, start_seconds = options.measure_seconds, options.start_seconds  # a wrong time span is told first
    launch, workdir = options.launch, options.workdir
    command, module = options.command, options.module
    folder = Path(workdir).resolve() if workdir else None
    if folder is not None and not folder.is_dir():
        raise UsageError(f"There is no folder {workdir}.", hint="--workdir is where the script runs.")
    if options.program:
        return _program_request(options, folder or Path.cwd())
    if launch is not None:
        module, command = launch.module, (*(() if launch.script is None else (launch.script,)), *launch.arguments)
    script = _script(command[0]) if module is None else None
    arguments = list(command if module is not None else command[1:])
    home = folder or (script.parent if script is not None and launch is None else Path.cwd())
    environment: dict[str, str] | None = None
    if launch is not None:
        launch, arguments = _resolved(launch, script, arguments, split_prefixes(options.command)[1])
        if launch.prefixes.left_out:
            reporter.note(
                f"{script.name if script else module} is measured without {', '.join(launch.prefixes.left_out)}."
            )
        if launch.prefixes.asked:
            found = _surroundings(launch, script, options.python, home)
            launch, environment = replace(launch, python=found.python), found.environment
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
        launch=launch,
        isolation=options.isolation_level,
        environment=environment,
        weights=options.weights_policy,
    )


def _program_request(options: ScriptOptions, folder: Path) -> Request:
    """Return what to run of a command that is no Python script."""
    prefixes = split_prefixes(options.command)[0]
    if prefixes.deciding:
        raise UsageError(
            f"{options.program[0]} is no Python script, and {prefixes.deciding[0]} starts it here.",
            hint=f"Leave {prefixes.deciding[0]} out, and say with --setup what the machine is to install.",
        )
    program = options.program
    named = split_prefixes(options.command)[1][0]
    path = Path(os.path.abspath(named))  # noqa: PTH100 - a link is what is named
    if path.is_file() and (os.sep in named or program[0] != named) and not named.startswith(SYSTEM_FOLDERS):
        word = f"./{path.relative_to(folder)}" if path.is_relative_to(folder) else str(path)
        program = tuple(word if Path(each) == Path(named) else each for each in options.program)
    return Request(
        script=None,
        module=None,
        arguments=list(program[1:]),
        workdir=folder,
        program=program,
        variables=prefixes.assigned,
        measure_for_seconds=options.measure_seconds,
        start_limit_seconds=options.start_seconds,
        isolation=options.isolation_level,
    )


def _surroundings(launch: Launch, script: Path | None, python: str | None, folder: Path) -> Surroundings:
    """Return what the script finds behind its prefixes; `python` is the interpreter that was asked for besides."""
    prefixes = launch.prefixes
    uv = next((one.removesuffix(" run") for one in prefixes.deciding if one.endswith("uv run")), None)
    if uv and python is None and launch.python is None and script is not None and has_inline_metadata(_bytes(script)):
        python = python_of_script(uv, script, folder)
        prefixes = replace(prefixes, asked=prefixes.asked[: prefixes.asked.index(uv)])
    return find_surroundings(prefixes, python or launch.python or "python", folder)


def _resolved(
    launch: Launch, script: Path | None, arguments: list[str], command: Sequence[str]
) -> tuple[Launch, list[str]]:
    """Resolve what depends on files: accelerate's settings, the launcher's interpreter, the argument for the rank."""
    if launch.config is not None:
        settings = Path(launch.config or ACCELERATE_SETTINGS).expanduser()
        if settings.is_file():
            launch = with_settings(launch, (read_bytes(settings, LAUNCHER) or b"").decode(errors="replace"))
        elif launch.config:
            raise UsageError(f"There is no file {launch.config}.", hint="It is to hold the settings of accelerate.")
    beside = Path(command[0]).parent / "python" if command and os.sep in command[0] else None
    if launch.python is None and beside is not None and beside.exists():
        launch = replace(launch, python=str(beside))
    if (
        launch.local_rank
        and script is not None
        and (told := local_rank_argument(_bytes(script).decode(errors="replace")))
    ):
        arguments = [told, *arguments]
    return launch, arguments


def _bytes(script: Path) -> bytes:
    return read_bytes(script, SOURCE) or b""


def _script(word: str) -> Path:
    script = Path(word)
    if not word.strip():
        raise ScriptNotFound("The name of the script is empty.", hint="A variable of the shell may not be set.")
    if script.is_dir():
        raise NotPython(
            f"{script} is a folder.", hint=f"Name a script in it, or a package: -m {script.name or 'package'}"
        )
    if not script.exists():
        kind = "script"
        names = [path.name for path in script.parent.glob("*.py")] if script.parent.is_dir() else []
        near = difflib.get_close_matches(script.name, names, 3)
        hint = f"Did you mean {', '.join(near)}?" if near else "Check the path; the script's arguments come after it."
        if split_prefixes([word])[0].assigned:
            hint = f"Before a program that is no Python script, write: env {word}"
        elif os.sep not in word and not script.suffix and not near:
            kind = "program or script"
            hint = f"Is it installed? One that only the machine has: bash -c '{word} ...'"
        raise ScriptNotFound(f"There is no {kind} {script}.", hint=hint)
    if script.suffix in (".yaml", ".yml"):
        raise NotPython(f"{script} is no Python script.", hint=f"A task file is run: costgpu run {script}")
    if not script.is_file():
        raise NotPython(f"{script} is no ordinary file.", hint="Name a script.")
    if script.suffix == ".ipynb":
        raise NotPython(f"{script} is a notebook.", hint=f"Convert it: jupyter nbconvert --to script {script}")
    return script.resolve()


def _note_relative_paths(arguments: Sequence[str], workdir: Path, reporter: Reporter) -> None:
    for word in arguments:
        path = word.split("=", 1)[-1]
        if path and not path.startswith(("-", "/")) and Path(path).exists() and not (workdir / path).exists():
            reporter.note(f"{path} exists here, but the script runs in {workdir}; if it needs {path}, add --workdir .")


def check_script(request: Request, python: str | None) -> None:
    """Refuse what is no Python, before a machine is asked for.

    Raises:
        NotPython: It does not compile.
        ScriptNotFound: The folder's own package has no such module.
    """
    if request.program:
        return
    named = shutil.which(found) if (found := python or request.python) else default_interpreter(dict(os.environ))[0]
    path = named or sys.executable
    source = request.script or module_file(str(request.module), request.workdir, path)
    if source is not None:
        check_source(source, path)


def interpreter_of(request: Request, python: str | None) -> Interpreter:
    """Return the Python that runs the script; `python` is the one that was asked for besides."""
    interpreter = find_interpreter(python or request.python, dict(os.environ))
    if request.launch is None or request.environment is None:
        return interpreter
    origin = " and ".join(request.launch.prefixes.deciding) or interpreter.origin
    return replace(interpreter, origin=origin, environment=request.environment)


def run_measurement(request: Request, python: str | None, reporter: Reporter) -> tuple[WorkloadProfile, Outcome]:
    """Measure a script. Ctrl-C ends it and everything that it started."""
    interpreter, cache = interpreter_of(request, python), platformdirs.user_cache_path("costgpu")
    what = f"Measuring {request.name} with {interpreter.path} (Python {interpreter.version}, {interpreter.origin})"
    try:
        with reporter.measuring(what, request.measure_for_seconds, request.start_limit_seconds) as tick:
            profile, outcome = measure_script(request, interpreter, cache, tick)
        rooms = [card.room_gib for card in accelerators().values() if card.memory_gib >= LEAST_RENTED_GIB]
        harmless = outcome.isolation is not Isolation.COPY  # where it really writes, it does so once
        if harmless and request.weights == "tried" and profile.framework.device == "cpu" and is_near(profile, rooms):
            what = f"Measuring {request.name} once more without weights, for what it holds on a GPU"
            with reporter.measuring(what, request.measure_for_seconds, request.start_limit_seconds) as tick:
                profile = measure_memory(request, interpreter, cache, tick, profile)
    except KeyboardInterrupt:
        reporter.note("Stopped. The script and everything that it started have been ended.")
        raise
    return (with_modelled_steps(profile) if profile.without_weights else profile), outcome


def note_files(outcome: Outcome, reporter: Reporter) -> None:
    """Note what became of the files that were written."""
    changes = outcome.changes
    if count := len(changes.changed) + len(changes.created):
        what = f"{counted(count, 'file')}, {format_size(changes.written_bytes)}"
        where = f"for now it is in {changes.folder}" if changes.folder else "it has been removed"
        reporter.note(f"What it wrote ({what}) touched nothing of yours; {where}.")
    if changes.removed:
        reporter.note(f"What it removed ({counted(len(changes.removed), 'file')}) is still there.")
    if changes.written_bytes >= DOWNLOAD_BYTES and changes.created:
        reporter.note(
            "If some of that was downloaded: let the script do it once by itself, and it is not measured again."
        )


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """A profile and where it is from."""

    profile: WorkloadProfile
    log: str | None  # file with the program's output; None if nothing was run
    epochs: float | None  # epochs still to be applied; None where the profile has them already
    script: Request | None = None  # the script that was measured; None for anything else


def find_profile(request: EstimateRequest, now: datetime, reporter: Reporter) -> ProfileSource:
    """Measure the script, read its saved profile, or look the profile up.

    Raises:
        ScriptError: It cannot be measured.
        ProfileError: The saved profile cannot be read.
    """
    if not request.is_measured:
        return _nominal(request, now)
    if request.like_model is not None:
        finetune = finetune_of(request)
        found = find_profile(finetune.request(request), now, reporter)
        return replace(found, profile=finetune.named(found.profile))
    if request.module is None and request.command[0].endswith(".json"):
        if len(request.command) > 1:
            words = " ".join(request.command[1:])
            raise UsageError(f"A profile takes no arguments: {words}", hint="Put options before it.")
        return ProfileSource(load_profile(Path(request.command[0])), None, request.epochs)
    if request.save:
        _check_save(Path(request.save))
    script = None
    if request.is_program:
        profile, outcome = _measure_program(request, reporter)
    else:
        script = script_request(request, reporter, request.steps)
        profile, outcome = run_measurement(script, request.python, reporter)
    note_files(outcome, reporter)
    if request.save:
        save_profile(profile, Path(request.save))
        reporter.note(f"Profile written to {request.save}")
    return ProfileSource(profile, str(outcome.log), request.epochs, script)


def _nominal(request: EstimateRequest, now: datetime) -> ProfileSource:
    """Return the profile of a kind of work or of a language model that is not here."""
    from costgpu.estimator.reference_profiles import language_model_profile, reference_profile
    from costgpu.measure.host_info import measure_host
    from costgpu.pricing.speedups import reference

    created, machine = now.isoformat(timespec="seconds"), measure_host().machine
    if request.params is not None and request.tokens is not None:
        parameters = parse_count(request.params, what="--params")
        tokens = parse_count(request.tokens, what="--tokens")
        return ProfileSource(
            language_model_profile(parameters, tokens, machine, created, __version__), None, request.epochs
        )
    found = reference(str(request.like))
    return ProfileSource(reference_profile(found, machine, created, __version__, epochs=request.epochs), None, None)


def _measure_program(request: EstimateRequest, reporter: Reporter) -> tuple[WorkloadProfile, Outcome]:
    if request.steps is not None or request.python is not None:
        raise UsageError("--steps and --python are for Python scripts.", hint=f"{request.command[0]} runs as it is.")
    folder = Path(request.workdir or ".").resolve()
    if not folder.is_dir():
        raise UsageError(f"There is no folder {request.workdir}.", hint="--workdir is where it runs.")
    pattern, kind = request.step_pattern, request.like or ""
    return run_program(started(request.command), folder, request, reporter, pattern=pattern, kind=kind)


def run_program(
    command: Sequence[str],
    folder: Path,
    options: ScriptOptions,
    reporter: Reporter,
    *,
    pattern: str | None = None,
    kind: str = "",
) -> tuple[WorkloadProfile, Outcome]:
    """Measure a program by what it prints. Ctrl-C ends it and everything that it started."""
    from costgpu.measure.log.command import measure_command

    what = f"Measuring {Path(command[0]).name} by what it prints"
    try:
        with reporter.measuring(what, options.measure_seconds, options.start_seconds) as tick:
            return measure_command(
                command,
                folder,
                platformdirs.user_cache_path("costgpu"),
                tick,
                pattern=pattern,
                kind=kind,
                isolation=options.isolation_level,
                measure_for_seconds=options.measure_seconds,
                start_limit_seconds=options.start_seconds,
            )
    except KeyboardInterrupt:
        reporter.note("Stopped. The program and everything that it started have been ended.")
        raise


def _check_save(path: Path) -> None:
    """Refuse, before anything is measured, to overwrite a file that is not a saved profile: the script, say."""
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
