"""Measures any command by the progress that it prints: other languages, old frameworks, anything with a log.

It runs where its data are, without the probe, in the same copy-on-write world as a Python script.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from costgpu.errors import (
    NeedsCuda,
    NoProgressLines,
    NothingToMeasure,
    NoTrainingStep,
    ScriptCrashed,
    ScriptError,
    ScriptNotFound,
    UsageError,
)
from costgpu.measure.cuda_errors import says_cuda
from costgpu.measure.failures import killed_by_signal, quote_last_lines, writes_too_much
from costgpu.measure.host_info import measure_host
from costgpu.measure.isolation.levels import Isolation, isolation_notes
from costgpu.measure.log.lines import user_pattern
from costgpu.measure.log.patterns import PATTERNS
from costgpu.measure.log.process_monitor import ENOUGH_LINES, ProcessMonitor
from costgpu.measure.log.series import read_record
from costgpu.measure.profile.profile_builder import build_profile
from costgpu.measure.scratch import Scratch
from costgpu.measure.session import Outcome
from costgpu.models.defaults import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS
from costgpu.models.workload import WorkloadProfile
from costgpu.units import format_duration
from costgpu.version import __version__

SHOWN_CHARS = 200
_PATTERN_HINT = (
    r"Name its progress lines: --step-pattern 'step (?P<step>\d+)/(?P<total>\d+)'. Does it print at all when"
    " its output is no terminal?"
)


def measure_command(
    argv: Sequence[str],
    workdir: Path,
    cache: Path,
    progress: Callable[[float, bool], None],
    *,
    pattern: str | None = None,
    kind: str = "",
    isolation: Isolation | None = None,
    measure_for_seconds: float = MEASURE_FOR_SECONDS,
    start_limit_seconds: float = START_LIMIT_SECONDS,
) -> tuple[WorkloadProfile, Outcome]:
    """Measures a command on this machine by the lines that it prints.

    Args:
        argv: The program and its arguments.
        workdir: Where it runs.
        cache: Folder under which this measurement gets its own, for the log.
        progress: Called some times a second with the seconds since the start and whether it has made progress.
        pattern: The user's ``--step-pattern``; None for those that are built in.
        kind: Kind of work, as the benchmark table names it; empty to recognise it by its lines.
        isolation: The only level to measure at; None for the strongest that this machine gives.
        measure_for_seconds: After its first line of progress.
        start_limit_seconds: To reach that line.

    Raises:
        UsageError: There is no command, or the pattern is none.
        ScriptError: There is no such program, or it could not be measured; the subclass says why.
        KeyboardInterrupt: After everything has been ended.
    """
    patterns = (user_pattern(pattern),) if pattern is not None else PATTERNS
    program = find_program(argv, workdir)
    name = Path(argv[0]).name
    scratch = Scratch.make(cache.absolute(), name)
    watch = ProcessMonitor(patterns, measure_for_seconds, start_limit_seconds)
    outcome = watch.run([program, *argv[1:]], workdir, scratch, progress, isolation)
    ended = outcome.returncode == 0 and not watch.stopped
    reading = read_record(
        watch.log,
        ended=ended,
        kind=kind,
        started_at=watch.started_at,
        wall_seconds=watch.wall_seconds,
        activity=watch.activity,
    )
    crashed = outcome.returncode != 0 and not watch.stopped
    if reading is None or outcome.too_large is not None or (crashed and _progress_lines(watch) < ENOUGH_LINES):
        raise _explain(watch, outcome, name=name, pattern=pattern, limit=start_limit_seconds)
    host = measure_host()
    record, notes = reading
    notes += [*isolation_notes(outcome.isolation), host.how]
    record["peak_rss_bytes"] = watch.peak_rss_bytes or None
    if host.machine.accelerators:
        record.pop("cpu_seconds", None)  # what it does beside waiting for a GPU is not known
        gpu = host.machine.accelerators[0]
        notes.append(f"This machine has a GPU ({gpu}): if the program used it, its steps were timed on it.")
    if crashed:
        notes.append(f"It ended with status {outcome.returncode} while it was measured.")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    profile = build_profile(
        record, host.machine, script=name, arguments=list(argv[1:]), created=now, version=__version__
    )
    profile = replace(profile, notes=notes + profile.notes, footprint=outcome.footprint)
    return profile, outcome


def find_program(argv: Sequence[str], workdir: Path) -> str:
    """Return the absolute path of the program.

    Raises:
        UsageError: There is no command at all.
        ScriptNotFound: There is no such program, or it cannot be executed.
    """
    if not argv or not argv[0].strip():
        raise UsageError("Which command?", hint="costgpu estimate -- caffe train --solver=solver.prototxt")
    word = argv[0]
    if os.sep not in word:
        found = shutil.which(word)
        if found is not None:
            return str(Path(found).absolute())
        hint = "Is it installed, and its environment active? What a shell would do needs one: sh -c '...'"
        if (workdir / word).exists():
            hint = f"If the file of this name is meant, write ./{word}"
        raise ScriptNotFound(f"There is no program {word!r} on PATH.", hint=hint)
    path = workdir / word
    if not path.is_file():
        raise ScriptNotFound(f"There is no program {path}.", hint="Check the path; it counts from where it runs.")
    if not os.access(path, os.X_OK):
        raise ScriptNotFound(f"{path} may not be executed.", hint=f"Name what runs it (sh {word}), or: chmod +x {word}")
    return str(path.absolute())


def _progress_lines(watch: ProcessMonitor) -> int:
    return max((stream.lines for stream in watch.log.streams.values()), default=0)


def _explain(watch: ProcessMonitor, outcome: Outcome, *, name: str, pattern: str | None, limit: float) -> ScriptError:
    """Return the error of a command that cannot be measured. `limit` is in seconds."""
    took, seen = format_duration(watch.wall_seconds), _progress_lines(watch)
    if outcome.too_large is not None:
        return writes_too_much(name, outcome.too_large)
    if outcome.returncode != 0 and not watch.stopped:
        return _crash(watch, outcome, name, took)
    if watch.log.unreadable:
        return NoProgressLines(
            f"--step-pattern '{pattern}' matches, but its step is no number: {watch.log.unreadable[:SHOWN_CHARS]}",
            hint="Let the group take digits only.",
        )
    if not watch.log.lines:
        after = f"in {format_duration(limit)}" if watch.stopped else "and ended"
        return NoProgressLines(
            f"{name} printed nothing {after}.",
            hint="It is measured by the progress that it prints: is there an option to make it (--verbose)?",
        )
    if not seen:
        what = f"--step-pattern '{pattern}' matches none" if pattern else "None tells its progress"
        message = f"{name} printed {_lines(watch.log.lines)} in {took}. {what}."
        return NoProgressLines(
            quote_last_lines(message, watch.tail),
            hint=f"Its output is in {outcome.log}" if pattern else _PATTERN_HINT,
        )
    shown = next(stream.first.text for stream in watch.log.streams.values() if stream.lines == seen)
    if not watch.stopped:
        return NothingToMeasure(
            f"{name} ended after {took} and {_lines(seen)} of progress: {shown[:SHOWN_CHARS]}",
            hint="At least two are needed, some time apart. Give it arguments with which it works for longer.",
        )
    return NoTrainingStep(
        f"{name} printed {_lines(seen)} of progress in {took}, and none further on: {shown[:SHOWN_CHARS]}",
        hint="Raise --start-limit if there is so much time between two of them, or make it print more often.",
    )


def _crash(watch: ProcessMonitor, outcome: Outcome, name: str, took: str) -> ScriptError:
    if line := next((line for line in reversed(watch.tail) if says_cuda(line)), ""):
        return NeedsCuda(
            f"{name} refuses to run without a CUDA device: {line.strip()[:SHOWN_CHARS]}",
            hint="Tell it to use the CPU for the measurement (Caffe: solver_mode: CPU), then measure again.",
        )
    if outcome.returncode < 0:
        return killed_by_signal(name, -outcome.returncode, watch.tail, outcome.log)
    message = f"{name} ended with status {outcome.returncode} after {took}, before enough progress was seen."
    return ScriptCrashed(quote_last_lines(message, watch.tail), hint=f"Its whole output is in {outcome.log}")


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"
