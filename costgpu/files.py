"""Files that may hold anything are read here, and files of ours are written here, whole or not at all.

Imports only `errors` and `portable`.

A file of the user, or one that something else may have changed, is opened without waiting (a pipe, a device or a socket
is refused, and never hangs), and is not read beyond the size that its kind may have. What cannot be read ends in one
error, which names the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costgpu.errors import ConfigError, CostGpuError
from costgpu.portable.files import NotRegular, open_regular, written_whole

LONGEST_NAME = 255  # bytes of one name, as common file systems have it
LONGEST_PATH = 4096  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """What a kind of file may be, and how its errors are told."""

    most_bytes: int
    error: type[CostGpuError] = ConfigError
    name: str = ""  # in front of its path, in messages
    hint: str = "Make it readable, or take it away."
    write_hint: str = "Choose another place."

    def unreadable(self, path: Path, why: str) -> CostGpuError:
        """Return the error for a file that cannot be read."""
        words = f"Cannot read {self.name} {path}" if self.name else f"{path} cannot be read"
        return self.error(f"{words}: {why}.", hint=self.hint)

    def unwritable(self, path: Path, why: str) -> CostGpuError:
        """Return the error for a file that cannot be written."""
        words = f"Cannot write {self.name} {path}" if self.name else f"{path} cannot be written"
        return self.error(f"{words}: {why}.", hint=self.write_hint)


def read_bytes(path: Path, kind: FileKind) -> bytes | None:
    """Return what a file holds; None if there is none.

    Raises:
        CostGpuError: That of the kind: it is no ordinary file, too large, or cannot be read.
    """
    try:
        with open_regular(path, follow=True) as file:
            content = file.read(kind.most_bytes + 1)
    except NotRegular as error:
        raise kind.unreadable(path, str(error.strerror)) from error
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise kind.unreadable(path, _words(error)) from error
    except ValueError as error:  # a path that no system has: a zero byte, a lone surrogate
        raise kind.unreadable(path, "it has an impossible name") from error
    if len(content) > kind.most_bytes:
        raise kind.unreadable(path, f"it has more than {kind.most_bytes:,} bytes")
    return content


def read_text(path: Path, kind: FileKind) -> str | None:
    """Return the UTF-8 text of a file, without a byte order mark; None if there is none.

    Raises:
        CostGpuError: That of the kind: as for `read_bytes`, or it is no such text.
    """
    content = read_bytes(path, kind)
    if content is None:
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise kind.error(f"{path}, line {line}: not UTF-8 text.", hint="Save the file as UTF-8.") from error
    if "\0" in text:
        raise kind.unreadable(path, "there is a zero byte in it")
    return text


def read_json(path: Path, kind: FileKind) -> Any:
    """Return the JSON value in a file; None if there is no file.

    Raises:
        CostGpuError: That of the kind: as for `read_bytes`, or it is no JSON.
    """
    content = read_bytes(path, kind)
    if content is None:
        return None
    try:
        return parse_json(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise kind.error(f"{path} is not JSON: not even UTF-8 text.", hint=kind.hint) from error
    except ValueError as error:
        raise kind.error(f"{path} is not JSON: {error}.", hint=kind.hint) from error


def parse_json(text: str | bytes) -> Any:
    """Return a JSON value of finite numbers.

    Raises:
        ValueError: It is none.
    """
    try:
        return json.loads(text, parse_constant=_not_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _not_finite(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def impossible_path(text: str) -> str:
    """Return why no file can have this path; empty if one can."""
    if not text:
        return "is empty"
    if "\0" in text:
        return "has a zero byte in it"
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:
        return "has characters in it that no file name can have"
    if len(raw) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in raw.split(b"/")):
        return f"is too long: a name has at most {LONGEST_NAME} bytes, a path {LONGEST_PATH:,}"
    return ""


def write_whole(
    path: Path, chunks: Iterable[str | bytes], kind: FileKind, *, replace: bool = True, mode: int = 0o666
) -> None:
    """Write a file, UTF-8 text or bytes. It gets its name when all of it is on the disk.

    Args:
        path: Where. What a link points to is replaced, and keeps its permissions.
        chunks: The content; what they raise leaves nothing behind.
        kind: Its error is raised if it cannot be written.
        replace: Whether a file that is there is replaced.
        mode: Permissions of a new file, before the user's mask.

    Raises:
        CostGpuError: That of the kind.
        FileExistsError: It is there already, and may not be replaced.
    """

    def take_name(draft: str, name: str) -> None:
        if replace:
            with contextlib.suppress(OSError):
                Path(draft).chmod(stat.S_IMODE(Path(name).stat().st_mode))
            Path(draft).replace(name)
        else:
            _take_new_name(Path(draft), Path(name))

    try:
        with written_whole(os.path.realpath(path), mode, take_name) as file:
            file.writelines(chunk if isinstance(chunk, bytes) else chunk.encode("utf-8", "replace") for chunk in chunks)
    except FileExistsError:
        raise
    except (OSError, UnicodeEncodeError) as exc:
        why = _words(exc) if isinstance(exc, OSError) else "it has an impossible name"
        raise kind.unwritable(path, why) from exc


def _take_new_name(draft: Path, target: Path) -> None:
    try:
        target.hardlink_to(draft)  # fails if somebody else has taken the name
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        draft.replace(target)


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Exclude other processes from such a block; where the system has no such locks, the last one wins."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:
        yield
        return
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
