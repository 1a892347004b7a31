"""Files that commands write: never over another one unless told to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from costgpu.errors import UsageError
from costgpu.files import FileKind, impossible_path, write_whole
from costgpu.units import shortened

WRITTEN = FileKind(most_bytes=0, error=UsageError, write_hint="Nothing was left there.")


def check_target(path: Path, *, force: bool) -> None:
    """Raise an error before the work, for a file that cannot or must not be written.

    Raises:
        UsageError: It is there already, is no ordinary file, cannot be looked at, or its folder is not there.
    """
    if why := impossible_path(str(path)):
        raise UsageError(f"The path {shortened(str(path))} {why}.", hint="Choose another name.")
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder.", hint="Name a file in it.")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no ordinary file.", hint="- is stdout.")
        if os.path.lexists(path) and not force:
            raise UsageError(f"{path} exists already.", hint="--force overwrites it.")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {path.parent}.", hint="Make it first.")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {os.strerror(error.errno or 0)}.", hint="Choose another place."
        ) from error


def write_file(path: Path, chunks: Iterable[str], *, force: bool) -> None:
    """Write UTF-8 text. The file gets its name when all of it is on the disk.

    Args:
        path: Where. What a link points to is replaced, and keeps its permissions.
        chunks: The text; what they raise leaves nothing behind.
        force: Over a file that is there.

    Raises:
        UsageError: It came to be meanwhile, or cannot be written.
    """
    check_target(path, force=force)
    try:
        write_whole(path, chunks, WRITTEN, replace=force)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already.", hint="--force overwrites it.") from error
