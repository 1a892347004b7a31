"""A working folder as a tar archive, made while it is sent."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from costgpu.errors import SyncRefused
from costgpu.models.job import FileEntry
from costgpu.portable.files import open_regular

_CHUNK = 1 << 18
_BLOCK = 512


def tar_stream(
    root: Path, entries: Iterable[FileEntry], added: Mapping[str, Path] = MappingProxyType({})
) -> Iterator[bytes]:
    """Uncompressed tar of these files below `root`, in pieces of about 256 KiB.

    Args:
        added: Files that are elsewhere: path in the archive -> where they are.

    Raises:
        SyncRefused: A file is gone, or has another size than its entry says.
    """
    pending = bytearray()
    for entry in entries:
        member = tarfile.TarInfo(entry.path)
        member.size, member.mode = entry.size, entry.mode
        pending += member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        left = entry.size
        try:
            with open_regular(added.get(entry.path, root / entry.path)) as stream:
                while left and (chunk := stream.read(min(_CHUNK, left))):
                    left -= len(chunk)
                    pending += chunk
                    if len(pending) >= _CHUNK:
                        yield bytes(pending)
                        pending.clear()
        except OSError as error:
            raise SyncRefused(f"{entry.path} cannot be read: {error.strerror}.") from error
        if left:
            raise SyncRefused(
                f"{entry.path} became shorter while it was being sent.",
                hint="Run it again when nothing changes the folder.",
            )
        pending += bytes(-entry.size % _BLOCK)
    yield bytes(pending) + bytes(2 * _BLOCK)
