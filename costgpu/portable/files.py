"""Files that may be anything are opened here, and files that must be whole are written here."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader, BufferedWriter

_CHUNK = 1 << 20


class NotRegular(OSError):
    """What is there is a folder, a pipe, a device or a socket."""


def open_regular(path: str | os.PathLike[str], *, follow: bool = False) -> BufferedReader:
    """Open a regular file for reading; never wait.

    Args:
        path: Where.
        follow: Whether a link at the end of the path may lead there.

    Raises:
        NotRegular: Something else is there.
        OSError: There is none, or a link, or one that cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "Is a directory" if stat.S_ISDIR(mode) else "it is not an ordinary file"
        raise NotRegular(errno.EINVAL, what, os.fspath(path))
    return open(descriptor, "rb")


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Return the checksum in hexadecimal; the file must be a regular one, not a link."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        left = os.fstat(stream.fileno()).st_size  # it may grow for ever
        while left > 0:
            chunk = stream.read(min(_CHUNK, left))
            if not chunk:
                break
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def written_whole(
    path: str, mode: int = 0o666, take_name: Callable[[str, str], object] = os.replace
) -> Iterator[BufferedWriter]:
    """Yield a file to write to. It gets its name when the block has ended and all of it is on the disk.

    Args:
        path: Its name. What has that name is replaced.
        mode: Permissions, before the user's mask.
        take_name: Called with the draft's path and the name, in place of `os.replace`.
    """
    folder, name = os.path.split(path)
    draft = os.path.join(folder, ".%s.%s" % (os.fsdecode(os.fsencode(name)[:200]), os.urandom(4).hex()))
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        take_name(draft, path)
    finally:
        try:
            os.unlink(draft)
        except OSError:
            pass
