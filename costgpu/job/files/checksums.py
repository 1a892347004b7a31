"""Reads each file that travels once, for its size and checksum, and for what its content says of it."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from costgpu.errors import SyncRefused
from costgpu.job.files import secret_files
from costgpu.job.files.paths import printable_path
from costgpu.models.job import FileEntry
from costgpu.portable.files import NotRegular, open_regular

_UNREADABLE = "files that cannot be read"
_READ_BYTES = 1024 * 1024
_TRIES = 3


def with_checksums(root: Path, files: list[tuple[str, int]], stays: dict[str, str]) -> Iterable[FileEntry]:
    """Read every file once, several at a time: hashing lets the interpreter go on."""
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        found = list(pool.map(lambda file: _read(os.fspath(root), file[0]), files))
    chosen = []
    for (path, _), entry in zip(files, found, strict=True):
        if isinstance(entry, str):
            stays[path] = entry
        elif entry is not None:
            chosen.append(entry)
    return sorted(chosen, key=lambda entry: entry.path)


def _read(top: str, path: str) -> FileEntry | str | None:
    """Return the file's entry, or why it stays here, or None if it is gone."""
    for _ in range(_TRIES):
        digest, size, head = hashlib.sha256(), 0, b""
        try:
            with open_regular(f"{top}/{path}") as file:
                before = os.fstat(file.fileno())
                while size <= before.st_size and (piece := os.read(file.fileno(), _READ_BYTES)):  # it may grow for ever
                    head = head or piece[: secret_files.HEAD_BYTES]
                    digest.update(piece)
                    size += len(piece)
                after = os.fstat(file.fileno())
        except (FileNotFoundError, NotRegular):
            return None
        except OSError:
            return _UNREADABLE
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and size == after.st_size:
            reason = secret_files.by_content(head, size)
            mode = stat.S_IMODE(after.st_mode) & 0o777
            return reason or FileEntry(path=path, size=size, sha256=digest.hexdigest(), mode=mode)
    raise SyncRefused(
        f"{printable_path(path)} keeps changing while it is read.",
        hint=f"Wait until nothing writes to it, or leave it out: --exclude {shlex.quote(path)}",
    )
