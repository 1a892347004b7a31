"""The border to the agent: what it answers is parsed here, once, into typed values, each within its bounds.

The job runs as the same user and may have replaced the agent; whoever holds the machine can say anything. What does not
fit is `MachineUnusable`, and behind this module nothing looks again. The stream of the job's output is in `log_frames`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from costgpu.errors import HostUnreachable, MachineUnusable, SyncRefused
from costgpu.models.job import Checkpoint, EndReason, FileEntry, JobPhase, JobStatus, Outputs
from costgpu.runner.agent.main import REPLY
from costgpu.runner.files.paths import is_inside
from costgpu.runner.machine.host import Completed

MAX_FILES = 200_000  # outputs of one job
MAX_PATH = 4096  # characters: no system opens a longer one
MAX_TEXT = 16 * 1024  # characters of a text for people
MAX_DEPTH = 8  # of objects and lists in each other; answers have 3
MAX_FILE_BYTES = 1 << 60
_LAST_EPOCH = 253402300799.0  # the end of the year 9999
_LAST_NS = int(_LAST_EPOCH) * 10**9
_HINT = "The machine, or the job on it, has changed the agent. The machine ends itself at the end of its lease."
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COLUMNS = 5  # of a file of a checkpoint
_SIGNALLED = 128  # and above: what a shell makes of a command that a signal ended
_NOT_FOUND = 127
_SILENT = frozenset({"ConnectionRefusedError", "ConnectionResetError", "FileNotFoundError", "TimeoutError"})

E = TypeVar("E", bound=StrEnum)


class Unfit(ValueError):
    """What does not fit, and where; becomes a `MachineUnusable`."""


def was_ended(completed: Completed) -> bool:
    """Return whether a signal ended it, as when its machine is switched off."""
    return completed.returncode < 0 or completed.returncode >= _SIGNALLED


def unusable(what: str, completed: Completed) -> MachineUnusable:
    """Return the error for a command that failed, with its last line on stderr."""
    words = completed.stderr[-4096:].decode("utf-8", "replace").strip().splitlines()
    return MachineUnusable(f"The machine cannot be used: {what}" + (f" ({words[-1][:300]})." if words else "."))


def misfit(border: str, error: Exception) -> MachineUnusable:
    """Return the error for something that the machine said and that does not fit."""
    return MachineUnusable(f"What the agent on the machine says ({border}) cannot be used: {error}.", hint=_HINT)


class AgentError(NamedTuple):
    """The agent could not do it."""

    text: str
    kind: str  # the class of its exception; empty if unknown


class Fields:
    """The fields of one JSON object, taken out one by one.

    Raises:
        Unfit: It is none. Every method raises it for a field that is missing or out of its bounds.
    """

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise Unfit(f"an object is expected, not {_kind(value)}")
        self._fields: Mapping[str, object] = value

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def has_value(self, name: str) -> bool:
        """Return whether it is there, and not null."""
        return self._fields.get(name) is not None

    def _take(self, name: str) -> object:
        if name not in self._fields:
            raise Unfit(f"`{name}` is missing")
        return self._fields[name]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; one that is too long for people is cut."""
        value = default if default is not None and name not in self._fields else self._take(name)
        if not isinstance(value, str):
            raise Unfit(f"`{name}` is {_kind(value)} instead of a text")
        return value[:MAX_TEXT]

    def count(self, name: str, most: int) -> int:
        """Return a whole number from 0 to `most`; 0 if it is missing."""
        return whole(self._fields.get(name, 0), name, most)

    def optional_count(self, name: str, most: int) -> int | None:
        """Return the same, or null, or missing."""
        value = self._fields.get(name)
        return None if value is None else whole(value, name, most)

    def epoch(self, name: str) -> float | None:
        """Return a Unix time, or null, or missing."""
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unfit(f"`{name}` is {_kind(value)} instead of a number")
        if not 0 <= value <= _LAST_EPOCH:  # neither is NaN
            raise Unfit(f"`{name}` is no time between the years 1970 and 9999")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a boolean; False if it is missing."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise Unfit(f"`{name}` is {_kind(value)} instead of true or false")
        return value

    def choice(self, name: str, kind: type[E]) -> E:
        """Return a member of an enumeration."""
        value = self._take(name)
        if not isinstance(value, str) or value not in kind.__members__.values():
            raise Unfit(f"`{name}` is {_shown(value)}, none of those that are known")
        return kind(value)

    def inner(self, name: str) -> Fields:
        """Return the fields of an object that is in this one."""
        return Fields(self._take(name))

    def rows(self, name: str) -> list[object]:
        """Return a list of at most `MAX_FILES` items."""
        value = self._take(name)
        if not isinstance(value, list):
            raise Unfit(f"`{name}` is {_kind(value)} instead of a list")
        return _bounded(value, name)

    def texts(self, name: str) -> Mapping[str, str]:
        """Return an object with nothing but texts; empty if it is missing."""
        value = self._fields.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise Unfit(f"`{name}` is no object of texts")
        _bounded(value, name)
        return {key[: 4 * MAX_PATH]: each[:MAX_TEXT] for key, each in value.items()}


def whole(value: object, name: str, most: int) -> int:
    """Return a whole number from 0 to `most`.

    Raises:
        Unfit: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit(f"`{name}` is {_kind(value)} instead of a whole number")
    if not 0 <= value <= most:
        raise Unfit(f"`{name}` is not between 0 and {most}")
    return value


C = TypeVar("C", bound=Collection[Any])


def _bounded(value: C, name: str) -> C:
    if len(value) > MAX_FILES:
        raise Unfit(f"`{name}` has {len(value)} items, and {MAX_FILES} are the most: a job packs more into an archive")
    return value


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _shown(value: object) -> str:
    return repr(value)[:80] if isinstance(value, str | int | float) else _kind(value)


def decode(text: str | bytes) -> Any:
    """Return a JSON value that is not deeper than `MAX_DEPTH`, and without NaN and infinities.

    Raises:
        Unfit: It is none.
    """
    try:
        value = json.loads(text, parse_constant=_no_number)
    except Unfit:
        raise
    except (ValueError, RecursionError) as error:
        raise Unfit("it is no JSON") from error
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return value
    raise Unfit(f"it is deeper than {MAX_DEPTH} levels")


def _items(value: object) -> Collection[object]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for each in found if isinstance(each, dict | list)]


def _no_number(name: str) -> None:
    raise Unfit(f"{name} is no number")


def parse_reply(completed: Completed, border: str) -> Fields | AgentError | None:
    """Return what the agent has answered; None if it has not.

    Raises:
        MachineUnusable: It has, and that is no answer.
    """
    mark = REPLY.encode()
    at = completed.stdout.rfind(b"\n" + mark) + 1
    if not completed.stdout.startswith(mark, at):
        return None
    line = completed.stdout[at + len(mark) :].partition(b"\n")[0]
    try:
        fields = Fields(decode(line.decode("utf-8", "replace")))
        return AgentError(fields.text("error"), fields.text("kind", "")) if "error" in fields else fields
    except Unfit as error:
        raise misfit(border, error) from error


def checked_reply(completed: Completed, border: str) -> Fields:
    """Return the agent's answer.

    Raises:
        HostUnreachable: There is none because the machine has ended the command, or the agent is silent.
        MachineUnusable: The agent is not there, or has failed, or answers what is no answer.
        SyncRefused: The files changed while they were sent.
    """
    reply = parse_reply(completed, border)
    if isinstance(reply, Fields):
        return reply
    if reply is None:
        if completed.returncode == _NOT_FOUND or b"No such file" in completed.stderr:
            raise unusable("the agent is not on the machine", completed)
        if was_ended(completed) or completed.returncode == 0:
            raise HostUnreachable("The machine ended the command without an answer.")
        raise unusable("the agent failed", completed)
    if reply.kind == "Damaged":
        raise SyncRefused(
            f"The working folder could not be sent: {reply.text.partition(': ')[2]}",
            hint="Run it again when nothing changes the folder.",
        )
    if reply.kind in _SILENT:
        raise HostUnreachable(f"The agent on the machine does not answer: {reply.text}")
    raise MachineUnusable(f"The agent on the machine failed: {reply.text}")


def status(fields: Fields) -> JobStatus:
    """Return how the job fares. Raises `Unfit`."""
    phase = fields.choice("phase", JobPhase)
    reason = fields.choice("reason", EndReason) if fields.has_value("reason") else None
    if (phase is JobPhase.FINISHED) != (reason is not None):
        raise Unfit(f"the phase is {phase.value}, and the reason of the end {reason}")
    return JobStatus(
        phase=phase,
        reason=reason,
        exit_code=fields.optional_count("exit_code", 255),
        detail=fields.text("detail", ""),
        started_epoch=fields.epoch("started_epoch"),
        job_started_epoch=fields.epoch("job_started_epoch"),
        finished_epoch=fields.epoch("finished_epoch"),
        stdout_bytes=fields.count("stdout_bytes", MAX_FILE_BYTES),
        stderr_bytes=fields.count("stderr_bytes", MAX_FILE_BYTES),
        uploaded=fields.flag("uploaded"),
    )


def entries(fields: Fields, *, verified: bool) -> tuple[FileEntry, ...]:
    """Return the rows of `files`. Raises `Unfit`.

    Args:
        verified: Whether each must have a checksum.
    """
    found = tuple(_entry(row, verified=verified) for row in fields.rows("files"))
    if len({entry.path for entry in found}) != len(found):
        raise Unfit("a file is named twice")
    return found


def _entry(row: object, *, verified: bool) -> FileEntry:
    if not isinstance(row, list) or len(row) != 4:
        raise Unfit("a file is not described by path, size, checksum and mode")
    path, size, sha256, mode = row
    if not isinstance(path, str) or len(path) > MAX_PATH or not is_inside(path):
        raise Unfit(f"a file is named {_shown(path)}, which is not inside its folder")
    if not isinstance(sha256, str) or not (_SHA256.fullmatch(sha256) or (sha256 == "" and not verified)):
        raise Unfit(f"the checksum of {_shown(path)} is none")
    size = whole(size, "size", MAX_FILE_BYTES)
    return FileEntry(path=path, size=size, sha256=sha256, mode=whole(mode, "mode", 0o7777) & 0o777)


def checkpoint(fields: Fields) -> Checkpoint:
    """Return what was whole when it was looked for. Raises `Unfit`."""
    files = []
    for row in fields.rows("files"):
        if not isinstance(row, list) or len(row) != _COLUMNS:
            raise Unfit("a file of a checkpoint is not described by path, size, checksum, mode and time")
        entry = _entry(row[:4], verified=True)
        files.append(replace(entry, modified_ns=whole(row[4], "time", _LAST_NS)))
    if len({entry.path for entry in files}) != len(files):
        raise Unfit("a file is named twice")
    return Checkpoint(
        number=fields.count("number", MAX_FILES),
        taken_epoch=fields.epoch("at") or 0.0,
        files=tuple(files),
        trouble=fields.text("trouble", ""),
    )


def outputs(fields: Fields) -> Outputs:
    """Return what the job has made. Raises `Unfit`."""
    missing = fields.rows("missing")
    if not all(isinstance(each, str) for each in missing):
        raise Unfit("`missing` is no list of texts")
    sources = fields.texts("sources")
    if not all(path.startswith("/") and "\0" not in path for path in sources.values()):
        raise Unfit("a file is told to be at a path that is none")
    folders = fields.rows("folders") if "folders" in fields else []
    if not all(isinstance(each, str) and is_inside(each) for each in folders):
        raise Unfit("`folders` is no list of folders in the working folder")
    return Outputs(
        files=tuple(replace(each, source=sources.get(each.path, "")) for each in entries(fields, verified=True)),
        missing=tuple(str(each)[:MAX_TEXT] for each in missing),
        unreadable=fields.texts("unreadable"),
        elsewhere=fields.texts("elsewhere"),
        folders=tuple(map(str, folders)),
        trouble=fields.text("trouble", ""),
    )


def lacking(fields: Fields, announced: Collection[str]) -> frozenset[str]:
    """Return which of the announced files the machine lacks. Raises `Unfit`."""
    rows = fields.rows("lacking")
    found = frozenset(each for each in rows if isinstance(each, str))
    if len(found) != len(rows) or not found.issubset(announced):
        raise Unfit("the machine lacks files that were not announced")
    return found
