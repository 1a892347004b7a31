"""What git tracks in a folder: such files travel whatever the ignore rules say. Imports nothing of ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_LIST = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z")  # a hook of the repository is not run for us
_LONGEST_SECONDS = 60


def tracked_files(folder: Path) -> set[str]:
    """Return the paths in the folder that its repository tracks; nothing where there is no git, or it refuses.

    A submodule is one path; its own files are those of its own folder.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        found = subprocess.run(
            _LIST,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_LONGEST_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return set()
    return {os.fsdecode(path) for path in found.stdout.split(b"\0") if path}
