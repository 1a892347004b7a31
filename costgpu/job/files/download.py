"""Files come home: to temporary names, verified, then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from costgpu.errors import OutputsDamaged
from costgpu.job.files.safe_move import has_content
from costgpu.models.job import FileEntry
from costgpu.portable.files import file_sha256

_BATCH = 256


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on the machine, and where it goes to here."""

    path: str  # absolute
    target: Path
    size: int  # bytes as announced: no more than these are taken, whatever is there now


class OutputSource(Protocol):
    """Whatever outputs can be fetched from."""

    def fetch(self, entries: Sequence[FileEntry], folder: Path) -> None:
        """Bring outputs into `folder`, each verified before it gets its name."""


def fetch_verified(
    download: Callable[[Sequence[RemoteFile]], object],
    source: str,
    entries: Sequence[FileEntry],
    folder: Path,
    announce: Callable[[int], None] | None = None,
) -> None:
    """Copy `entries` below the remote folder `source` into `folder`. What is there with the same checksum stays.

    An entry without a checksum (a log that still grows) must only be at least as long as announced.

    `announce` is told how many bytes come next, before each batch.

    Raises:
        OutputsDamaged: A link leads out of `folder`, or what arrived is not what was announced.
    """
    targets = [(entry, _target(folder, entry.path)) for entry in entries]  # all are looked at before anything is done
    lacking = [(entry, target) for entry, target in targets if not has_content(target, entry)]
    first = {entry.sha256 or str(target): target for entry, target in reversed(lacking)}
    coming = [(entry, target) for entry, target in lacking if first[entry.sha256 or str(target)] == target]
    for start in range(0, len(coming), _BATCH):
        batch = coming[start : start + _BATCH]
        if announce is not None:
            announce(sum(entry.size for entry, _ in batch))
        _fetch_batch(download, source, batch)
    for entry, target in lacking:  # a link to the newest checkpoint need not travel twice
        if (original := first[entry.sha256 or str(target)]) != target:
            _fetch_batch(copy_files, "", [(replace(entry, source=str(original)), target)])


def copy_files(files: Sequence[RemoteFile]) -> None:
    """Copy files that are on this computer, as a machine's are downloaded."""
    for file in files:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # the caller sees that it did not arrive
            shutil.copyfile(file.path, file.target)


def _fetch_batch(
    download: Callable[[Sequence[RemoteFile]], object], source: str, batch: Sequence[tuple[FileEntry, Path]]
) -> None:
    token = secrets.token_hex(4)
    partial = {target: target.with_name(f".{token}-{number}.part") for number, (_, target) in enumerate(batch)}
    try:
        for _, target in batch:
            target.parent.mkdir(parents=True, exist_ok=True)
        download(
            [
                RemoteFile(entry.source or f"{source}/{entry.path}", partial[target], entry.size)
                for entry, target in batch
            ]
        )
        for entry, target in batch:
            try:
                size = os.lstat(partial[target]).st_size
            except FileNotFoundError:
                raise OutputsDamaged(f"{entry.path} did not arrive.") from None
            if size != entry.size if entry.sha256 else size < entry.size:
                raise OutputsDamaged(f"{entry.path} arrived with {size} bytes instead of {entry.size}.")
            if entry.sha256 and file_sha256(partial[target]) != entry.sha256:
                raise OutputsDamaged(
                    f"{entry.path} arrived with another checksum than it was announced with.",
                    hint="Fetch it again: it is still where it was.",
                )
        for entry, target in batch:
            if entry.modified_ns:
                os.utime(partial[target], ns=(entry.modified_ns, entry.modified_ns))
            partial[target].chmod(stat.S_IMODE(entry.mode) & 0o777 | stat.S_IRUSR)  # its owner here reads it
            if target.is_dir() and not target.is_symlink():
                raise OutputsDamaged(
                    f"{target} is a folder here, and a file on the machine.", hint="Fetch into another folder."
                )
            partial[target].replace(target)
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def _target(folder: Path, path: str) -> Path:
    """Return where a path of the machine belongs; refuses a link that leaves `folder`."""
    parts = path.split("/")
    current = folder
    for part in parts[:-1]:
        current = current / part
        if current.is_symlink() or (current.exists() and not current.is_dir()):
            raise OutputsDamaged(
                f"{current} is not a real folder: {path!r} is not fetched through it.",
                hint="Fetch into another folder.",
            )
    return folder.joinpath(*parts)
