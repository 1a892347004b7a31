"""A copy of what is sent of a working folder: a job that goes on, or that waits, does so with the files of its beginning."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from costgpu.errors import CostGpuError, RunError
from costgpu.job.files.selection import FileSelection
from costgpu.ledger.codec import from_json, to_json
from costgpu.models.job import FileEntry
from costgpu.models.run import RunView

FILES, LIST = "files", "selection.json"


def sent_folder(folder: Path, view: RunView) -> Path:
    """Return where the files are kept that the job of a run was begun with.

    Args:
        folder: Private folder of all runs.
    """
    return folder / view.job_id / "sent"


def forget_sent(folder: Path, view: RunView) -> None:
    """Remove them: the job is over."""
    shutil.rmtree(sent_folder(folder, view), ignore_errors=True)


def keep_sent(selection: FileSelection, folder: Path) -> None:
    """Copy the files of a selection into `folder`, which is complete or not there.

    Raises:
        RunError: There is no room, or a file has gone meanwhile.
    """
    fresh = folder.with_name(folder.name + ".new")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        (fresh / FILES).mkdir(parents=True, mode=0o700)
        for entry in selection.files:
            target = fresh / FILES / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(selection.added.get(entry.path, selection.root / entry.path), target)
        listed = {
            "files": to_json(selection.files),
            "links": dict(selection.links),
            "folders": list(selection.folders),
        }
        (fresh / LIST).write_text(json.dumps(listed))
        os.replace(fresh, folder)  # noqa: PTH105 - a folder in the way is an error
    except OSError as error:
        raise RunError(
            f"The files of the job cannot be kept for later: {error.strerror or error}.",
            hint="Make room, or run it at once and without --recover.",
        ) from error


def sent_selection(folder: Path) -> FileSelection | None:
    """Return the selection that was kept there; None if there is none."""
    try:
        listed = json.loads((folder / LIST).read_text())
        files = from_json(tuple[FileEntry, ...], listed["files"])
        return FileSelection(root=folder / FILES, files=files, links=listed["links"], folders=tuple(listed["folders"]))
    except (OSError, ValueError, KeyError, TypeError, CostGpuError):
        return None
