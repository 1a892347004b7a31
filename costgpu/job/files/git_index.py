"""What git knows of a folder: which files it tracks, and which it ignores. Imports nothing of ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

_LONGEST_SECONDS = 60


def tracked_files(folder: Path) -> set[str]:
    """Return the files that the folder's repository tracks in it, and with a slash at its end each folder around one.

    Nothing where there is no git, or it refuses. A submodule is one path; its own files are those of its own folder.
    """
    files = _listed(folder, "ls-files", "-z") or set()
    return files | _folders_around(files)


def ignored_paths(folder: Path) -> set[str] | None:
    """Return the paths in the folder that git ignores, and does not track, a folder with a slash at its end.

    None where there is no git, or it refuses; and in a folder that it ignores itself: that its user is there says more.
    """
    if not (folder / ".git").exists() and _listed(folder, "check-ignore", "--no-index", ".", ends=1) is None:
        return None
    paths = _listed(folder, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    # a folder in which all is ignored is listed, too, with what is in it: the rules are not about the folder
    return None if paths is None else paths - _folders_around(paths)


def _listed(folder: Path, *arguments: str, ends: int = 0) -> set[str] | None:
    """Return the paths that git prints; None if it does not end with this code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        found = subprocess.run(
            ("git", "-c", "core.fsmonitor=false", *arguments),  # a hook of the repository is not run for us
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_LONGEST_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {os.fsdecode(path) for path in found.stdout.split(b"\0") if path} if found.returncode == ends else None


def _folders_around(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while (cut := path.rfind("/", 0, -1)) >= 0 and (path := path[: cut + 1]) not in found:
            found.add(path)
    return found
