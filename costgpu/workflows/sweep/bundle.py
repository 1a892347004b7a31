"""The tuner and what it is to do, on this computer: kept until they are sent with the user's files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from costgpu.config import data_folder
from costgpu.errors import SyncRefused
from costgpu.job.files.selection import FileSelection
from costgpu.models.job import FileEntry
from costgpu.portable.bundle import bundle
from costgpu.sweep.bundle import PROGRAM, SPEC, sweep_of


def bundle_folder(name: str) -> Path:
    """Return the private folder with the files of a sweep; it need not exist."""
    return data_folder() / "sweeps" / name


def write_bundle(name: str, spec: dict[str, Any]) -> None:
    """Put the two files into their place on this computer, from which they are sent."""
    folder = bundle_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / Path(PROGRAM).name).write_bytes(bundle("sweep.tuner", "main"))
    (folder / Path(SPEC).name).write_text(json.dumps(spec), encoding="utf-8")


def forget_bundle(argv: Sequence[str]) -> None:
    """Remove the files of a sweep that is over and whose results are home."""
    name = sweep_of(argv)
    if name is not None:
        shutil.rmtree(bundle_folder(name), ignore_errors=True)


def read_spec(argv: Sequence[str]) -> dict[str, Any] | None:
    """Return what the tuner of a run was told; None for a run that is no sweep, or one of another computer."""
    name = sweep_of(argv)
    if name is None:
        return None
    try:
        spec: dict[str, Any] = json.loads((bundle_folder(name) / Path(SPEC).name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return spec


def with_bundle(selection: FileSelection, argv: Sequence[str]) -> FileSelection:
    """Return what a run sends; of a sweep with the tuner and what it is to do.

    Raises:
        SyncRefused: They are not here (any more).
    """
    name = sweep_of(argv)
    if name is None:
        return selection
    added: dict[str, Path] = {}
    entries: list[FileEntry] = []
    for path in (PROGRAM, SPEC):
        source = bundle_folder(name) / Path(path).name
        try:
            data = source.read_bytes()
        except OSError as error:
            raise SyncRefused(f"{source} cannot be read: {error.strerror}.", hint="Start the sweep again.") from error
        entries.append(FileEntry(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest()))
        added[path] = source
    files = tuple(sorted((*selection.files, *entries), key=lambda entry: entry.path))
    return replace(selection, files=files, added=added)
