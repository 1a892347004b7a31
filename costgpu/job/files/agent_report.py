"""What the agent tells of a job, in an answer or in the bucket, becomes typed values: status, files, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from costgpu import border
from costgpu.job.files.paths import is_inside
from costgpu.models.job import Checkpoint, FileEntry, JobStatus, Outputs

_SHA256 = re.compile(r"([0-9a-f]{64})?")  # a log that still grows has none


class _FileRow(NamedTuple):
    path: str
    size: int
    sha256: str
    mode: int
    modified_ns: int = 0  # of a file of a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    files: tuple[_FileRow, ...]
    sources: Mapping[str, str] = field(default_factory=dict)


def status(reply: object) -> JobStatus:
    """Return how the job fares. Raises `ValueError`."""
    return border.read(JobStatus, reply, ValueError)


def entries(reply: Mapping[str, Any]) -> tuple[FileEntry, ...]:
    """Return the files of an answer, all of them inside their folder. Raises `ValueError`."""
    found = border.read(_Files, reply, ValueError)
    for row in found.files:
        if not is_inside(row.path) or not _SHA256.fullmatch(row.sha256):
            raise ValueError(f"a file is named {row.path!r}, which is not inside its folder, or its checksum is none")
    return tuple(FileEntry(**row._asdict(), source=found.sources.get(row.path, "")) for row in found.files)


def checkpoint(reply: Mapping[str, Any]) -> Checkpoint:
    """Return what was whole when it was looked for. Raises `ValueError`."""
    told = border.read(Checkpoint, {**reply, "taken_epoch": reply.get("at"), "files": []}, ValueError)
    return replace(told, files=entries(reply))


def outputs(reply: Mapping[str, Any]) -> Outputs:
    """Return what the job has made. Raises `ValueError`."""
    told = border.read(Outputs, {**reply, "files": []}, ValueError)
    if not all(map(is_inside, told.folders)):
        raise ValueError("a folder is not inside the working folder")
    return replace(told, files=entries(reply))
