"""Files that commands write: whole or not at all, and never over another one unless told to."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from costgpu.errors import UsageError


def check_target(path: Path, *, force: bool) -> None:
    """An error before the work, for what cannot or must not be written.

    Raises:
        UsageError: It is there already, is no ordinary file, or its folder is not there.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", hint="Name a file in it.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no ordinary file.", hint="- is stdout.")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} exists already.", hint="--force overwrites it.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {path.parent}.", hint="Make it first.")


def write_file(path: Path, chunks: Iterable[str], *, force: bool) -> None:
    """Writes UTF-8 text. The file gets its name when all of it is on the disk.

    Args:
        path: Where. What a link points to is replaced, and keeps its permissions.
        chunks: The text; what they raise leaves nothing behind.
        force: Over a file that is there.

    Raises:
        UsageError: It came to be meanwhile, or cannot be written.
    """
    check_target(path, force=force)
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666),
            "w",
            encoding="utf-8",
            errors="replace",
            newline="",
        ) as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if force:
            with contextlib.suppress(OSError):
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            draft.replace(target)
        else:
            _take_name(draft, target)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already.", hint="--force overwrites it.") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {os.strerror(error.errno or 0)}.", hint="Nothing was left there."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _take_name(draft: Path, target: Path) -> None:
    try:
        target.hardlink_to(draft)  # fails if somebody else has taken the name
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        draft.replace(target)
