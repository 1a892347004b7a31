"""Variables that travel to a job."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from costgpu.errors import UsageError
from costgpu.files import FileKind, read_text
from costgpu.models.job import JobSpec

ENV_FILE = FileKind(most_bytes=2**20, error=UsageError, name="--env-file", hint="")


def job_environment(names: Sequence[str], env_file: str | None) -> dict[str, str]:
    """Return the variables that travel to the job.

    Args:
        names: ``KEY=VALUE``, or ``KEY`` to take it from this process.
        env_file: File with lines of ``KEY=VALUE``; ``#`` begins a comment, quotes around a value are removed.

    Raises:
        UsageError: One is not set here, not a variable name, or the file cannot be read.
    """
    found: dict[str, str] = {}
    if env_file is not None:
        content = read_text(Path(env_file), ENV_FILE)
        if content is None:
            raise ENV_FILE.unreadable(Path(env_file), os.strerror(errno.ENOENT))
        for number, line in enumerate(content.split("\n"), 1):
            text = line.strip().removeprefix("export ").strip()
            if not text or text.startswith("#"):
                continue
            key, sign, value = text.partition("=")
            if not sign:
                raise UsageError(f"{env_file}, line {number}, is not KEY=VALUE.", hint="# begins a comment.")
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            found[_variable(key.strip())] = _value(key, value)
    for name in names:
        key, sign, value = name.partition("=")
        _variable(key)
        if not sign:
            if key not in os.environ:
                raise UsageError(f"-e {key}: there is no such variable here.", hint=f"Give a value: -e {key}=...")
            value = os.environ[key]
        found[key] = _value(key, value)
    return found


def environment_again(spec: JobSpec) -> dict[str, str] | None:
    """Return the environment of a job that was started before, from this process; None if a variable is missing."""
    found: dict[str, str] = {}
    if spec.env_file is not None:
        with contextlib.suppress(UsageError):
            found = job_environment([], spec.env_file)
    for name in spec.env_names:
        if name not in found:
            if name not in os.environ:
                return None
            found[name] = os.environ[name]
    return found


def _value(name: str, value: str) -> str:
    if "\0" in value:
        raise UsageError(f"The value of {name.strip()} has a zero byte in it.", hint="No system allows that.")
    return value


def _variable(name: str) -> str:
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"{name!r} is not the name of an environment variable.", hint="Write -e KEY=VALUE, or -e KEY.")
    return name
