"""Paths and patterns of the command line that are about files of the working folder."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from costgpu.errors import UsageError
from costgpu.job.files.select import EXCLUDED, undecided
from costgpu.models.job import JobSpec

_SPECIAL = re.compile(r"([\\*?\[])")
_BY_NAME = re.compile(r"[^/\\*?\[!#]([^/\\*?\[]*[^/\\*?\[ ])?")  # a name like any other, in whatever folder it is


def output_pattern(option: str, text: str, workdir: Path) -> str:
    """Return a pattern of outputs relative to the working folder.

    Raises:
        UsageError: It leaves the folder.
    """
    _check_text(option, text)
    inside = below(text, workdir) if os.path.isabs(text) else None  # noqa: PTH117 - a pattern is no path
    if inside is not None:
        return f"{inside or '.'}/" if text.endswith("/") else inside or "."
    if PurePosixPath(text).is_absolute() or ".." in Path(text).parts:
        raise UsageError(f"{option} {text} leaves the working folder.", hint="Patterns are relative to it.")
    return text


def rule_pattern(option: str, text: str, workdir: Path) -> str:
    """Return a pattern of `--include` or `--exclude` in the syntax of ``.gitignore``, relative to the working folder.

    A path as the shell gives it stands for itself: from the current folder, absolute, or with wildcards in its name.

    Raises:
        UsageError: It leaves the folder, or takes back another one.
    """
    _check_text(option, text)
    name = text.rstrip("/") or text
    slash = "/" if text != name and not os.path.islink(f"{workdir}/{name}") else ""  # noqa: PTH114 - and any text is allowed
    outside = ".." in name.split("/")
    for path in (f"{workdir}/{name}", os.path.join(Path.cwd(), name)):  # noqa: PTH118 - first as .gitignore means it
        if os.path.lexists(path):
            inside = below(path, workdir)
            if inside is not None:
                return "*" if not inside else (name if _BY_NAME.fullmatch(name) else literal_pattern(inside)) + slash
            outside = True
    if os.path.isabs(name) and (inside := below(name, workdir)) is not None:  # noqa: PTH117 - a pattern is no path
        return f"/{inside}{slash}"
    if outside:
        raise UsageError(
            f"{option} {text} leaves the working folder, {workdir}.",
            hint="Only what is in it travels; --workdir chooses a folder further up.",
        )
    if name.startswith("!"):
        raise UsageError(
            f"{option} {text} begins with a !.", hint="Each of --include and --exclude takes back the other."
        )
    return re.sub("/{2,}", "/", re.sub(r"^\./+", "/", name)) + slash


def _check_text(option: str, text: str) -> None:
    """Refuse what no file can be called.

    Raises:
        UsageError: It is empty, or has characters that no name has.
    """
    try:
        possible = bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise UsageError(f"{option} {text!r} is no path and no pattern.", hint=f"Write {option} data, or '*.pt'.")


def literal_pattern(path: str) -> str:
    """Return the pattern that matches this path of the working folder only."""
    escaped = _SPECIAL.sub(r"\\\1", path)
    return "/" + (escaped[:-1] + "\\ " if escaped.endswith(" ") else escaped)


def below(text: str, workdir: Path) -> str | None:
    """Return a path or pattern relative to the working folder, whatever links lead there; None if it is not in it."""
    path = PurePosixPath(os.path.normpath(os.path.join(Path.cwd(), text)))  # noqa: PTH118 - a pattern is no path
    top = os.path.realpath(workdir)
    found = next((one for one in (path, *path.parents) if os.path.realpath(one) == top), None)
    return None if found is None else "" if found == path else path.relative_to(found).as_posix()


def check_rules(spec: JobSpec) -> None:
    """Refuse patterns of `--include` and `--exclude` that decide nothing.

    Raises:
        UsageError: One matches nothing, or only what never travels, or what another one contradicts.
    """
    if not spec.include and not spec.exclude:
        return
    for pattern in spec.include:
        if pattern in spec.exclude:
            raise UsageError(f"{pattern} is named by --include and by --exclude.", hint="Leave one of them out.")
    for option, rule, why in undecided(Path(spec.workdir), spec.include, spec.exclude):
        pattern = rule.lstrip("/")
        if why == EXCLUDED:
            raise UsageError(f"{option} {pattern} names only what --exclude leaves out.", hint="Leave one of them out.")
        if why:
            raise UsageError(
                f"{option} {pattern} names only what never travels: {why}.",
                hint="Variables and secrets reach the job with -e NAME or --env-file FILE.",
            )
        raise UsageError(
            f"{option} {pattern} matches nothing in {spec.workdir}.",
            hint="Patterns are those of .gitignore, relative to the working folder; --workdir chooses another one.",
        )
