"""Measures any command by the progress that it prints: other languages, old frameworks, anything with a log.

It runs in place, not in a copy: its data may be large, and absolute paths would lead out of a copy anyway. Without the
probe nothing of what it writes is diverted, and the profile says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from costgpu.errors import ScriptNotFound, UsageError
from costgpu.measure.host_info import measure_host
from costgpu.measure.log.failures import explain_command
from costgpu.measure.log.lines import user_pattern
from costgpu.measure.log.patterns import PATTERNS
from costgpu.measure.log.phase import read_phase
from costgpu.measure.log.process_monitor import ProcessMonitor
from costgpu.measure.scratch import new_scratch
from costgpu.measure.session import Outcome
from costgpu.models.workload import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS, Framework, WorkloadProfile
from costgpu.version import __version__

IN_PLACE = "It ran in place, without the probe: what it writes is not diverted."


def measure_command(
    argv: Sequence[str],
    workdir: Path,
    cache: Path,
    progress: Callable[[float, bool], None],
    *,
    pattern: str | None = None,
    kind: str = "",
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
    scratch = new_scratch(cache, name)
    log = scratch / "output.log"
    watch = ProcessMonitor(patterns, measure_for_seconds, start_limit_seconds)
    watch.run([program, *argv[1:]], workdir, log, progress)
    ended = watch.returncode == 0 and not watch.stopped
    reading = read_phase(watch.log, started_at=watch.started_at, ended=ended, kind=kind)
    error = explain_command(watch, reading, name=name, log=log, pattern=pattern, limit=start_limit_seconds)
    if error is not None:
        raise error
    assert reading is not None  # noqa: S101 - explain_command() has an error for a missing reading
    host = measure_host()
    notes = [*reading.notes, IN_PLACE, host.how]
    if host.machine.accelerators:
        gpu = host.machine.accelerators[0]
        notes.append(f"This machine has a GPU ({gpu}): if the program used it, its steps were timed on it.")
    if watch.returncode != 0 and not watch.stopped:
        notes.append(f"It ended with status {watch.returncode} while it was measured.")
    profile = WorkloadProfile(
        script=name,
        arguments=list(argv[1:]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        costgpu_version=__version__,
        machine=host.machine,
        framework=Framework(version="", python="", name=reading.framework),
        setup_seconds=reading.setup_seconds,
        ended=ended,
        wall_seconds=watch.wall_seconds,
        peak_rss_bytes=watch.peak_rss_bytes or None,
        phases=[reading.phase],
        notes=notes,
    )
    outcome = Outcome(
        record=None,
        returncode=watch.returncode,
        timed_out=watch.stopped,
        log=log,
        probe=log,
        scratch=scratch,
        survivors=watch.survivors,
    )
    return profile, outcome


def find_program(argv: Sequence[str], workdir: Path) -> str:
    """The absolute path of the program.

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
