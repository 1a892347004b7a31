"""From what was seen of a command that cannot be measured to an error that tells the user what to do."""

from __future__ import annotations

from pathlib import Path

from costgpu.errors import (
    NeedsCuda,
    NoProgressLines,
    NothingToMeasure,
    NoTrainingStep,
    ScriptCrashed,
    ScriptError,
)
from costgpu.measure.cuda_errors import says_cuda
from costgpu.measure.failures import killed_by_signal, quote_last_lines
from costgpu.measure.log.phase import LogReading
from costgpu.measure.log.process_monitor import ENOUGH_LINES, ProcessMonitor
from costgpu.units import format_duration

SHOWN_CHARS = 200
_PATTERN_HINT = (
    r"Name its progress lines: --step-pattern 'step (?P<step>\d+)/(?P<total>\d+)'. Does it print at all when"
    " its output is no terminal?"
)


def explain_command(
    watch: ProcessMonitor, reading: LogReading | None, *, name: str, log: Path, pattern: str | None, limit: float
) -> ScriptError | None:
    """The error of a command that cannot be measured; None for one that can. `limit` is in seconds."""
    crashed = watch.returncode != 0 and not watch.stopped
    seen = max((stream.lines for stream in watch.log.streams.values()), default=0)
    if crashed and (reading is None or seen < ENOUGH_LINES):
        return _crash(watch, name, log)
    if reading is not None:
        return None
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
        return NoProgressLines(
            quote_last_lines(f"{name} printed {_lines(watch.log.lines)} in {_time(watch)}. {what}.", watch.tail),
            hint=f"Its output is in {log}" if pattern else _PATTERN_HINT,
        )
    shown = next(stream.example for stream in watch.log.streams.values() if stream.lines == seen)
    if not watch.stopped:
        return NothingToMeasure(
            f"{name} ended after {_time(watch)} and {_lines(seen)} of progress: {shown[:SHOWN_CHARS]}",
            hint="At least two are needed, some time apart. Give it arguments with which it works for longer.",
        )
    return NoTrainingStep(
        f"{name} printed {_lines(seen)} of progress in {_time(watch)}, and none further on: {shown[:SHOWN_CHARS]}",
        hint="Raise --start-limit if there is so much time between two of them, or make it print more often.",
    )


def _crash(watch: ProcessMonitor, name: str, log: Path) -> ScriptError:
    if line := next((line for line in reversed(watch.tail) if says_cuda(line)), ""):
        return NeedsCuda(
            f"{name} refuses to run without a CUDA device: {line.strip()[:SHOWN_CHARS]}",
            hint="Tell it to use the CPU for the measurement (Caffe: solver_mode: CPU), then measure again.",
        )
    if watch.returncode < 0:
        return killed_by_signal(name, -watch.returncode, watch.tail, log)
    message = f"{name} ended with status {watch.returncode} after {_time(watch)}, before enough progress was seen."
    return ScriptCrashed(quote_last_lines(message, watch.tail), hint=f"Its whole output is in {log}")


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _time(watch: ProcessMonitor) -> str:
    return format_duration(watch.wall_seconds)
