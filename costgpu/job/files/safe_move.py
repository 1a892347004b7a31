"""Moves of files that lose nothing: no name is taken twice, and a copy is on disk before its source goes."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from costgpu.models.job import FileEntry
from costgpu.portable.files import file_sha256

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EINVAL}


def put_new(source: Path, target: Path) -> None:
    """Give the file a second name; as a copy where that is impossible, or moved where there is but one name to a file.

    Raises:
        FileExistsError: The name is taken, by whatever.
    """
    try:
        os.link(source, target)
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            with _copied(source, target) as draft:
                put_new(draft, target)
        elif exc.errno in _NO_LINKS:
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from exc
            source.rename(target)
        else:
            raise


def move_across(source: Path, target: Path) -> None:
    """Move to another file system; the source goes last."""
    with _copied(source, target) as draft:
        draft.rename(target)
    source.unlink()


@contextlib.contextmanager
def _copied(source: Path, target: Path) -> Iterator[Path]:
    """Yield a copy beside the target, written to disk; a link stays a link."""
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        shutil.copy2(source, draft, follow_symlinks=False)
        if not draft.is_symlink():
            to_disk([draft])
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def has_size(path: Path, size: int) -> bool:
    """Return whether a regular file of this size is there."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def has_content(path: Path, entry: FileEntry) -> bool:
    """Return whether the regular file is there with this very content."""
    try:
        return has_size(path, entry.size) and file_sha256(path) == entry.sha256
    except OSError:
        return False


def to_disk(paths: Iterable[Path]) -> None:
    """Make sure that the files outlive a loss of power: the machine that has the originals is about to end."""

    def sync(path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    with ThreadPoolExecutor(8) as pool:  # together, the file system writes its journal once for many
        list(pool.map(sync, paths))
