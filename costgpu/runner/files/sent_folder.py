"""A copy of what is sent of a working folder: a job that goes on, or that waits, does so with the files of its beginning."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from costgpu.errors import CostGpuError
from costgpu.ledger.codec import from_json, to_json
from costgpu.models.job import FileEntry
from costgpu.runner.machine.host import Selection

FILES, LIST = "files", "selection.json"


def keep_sent(selection: Selection, folder: Path) -> None:
    """Copies the files of a selection into `folder`, which is complete or not there.

    Raises:
        OSError: There is no room, or a file has gone meanwhile.
    """
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / FILES).mkdir(parents=True, mode=0o700)
    for entry in selection.files:
        target = fresh / FILES / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(selection.root / entry.path, target)
    listed = {
        "files": to_json(selection.files),
        "links": dict(selection.links),
        "folders": list(selection.folders),
    }
    (fresh / LIST).write_text(json.dumps(listed))
    os.replace(fresh, folder)  # noqa: PTH105 - a folder in the way is an error


def sent_selection(folder: Path) -> Selection | None:
    """The selection that was kept there; None if there is none."""
    try:
        listed = json.loads((folder / LIST).read_text())
        files = tuple(from_json(FileEntry, each) for each in listed["files"])
        return Selection(root=folder / FILES, files=files, links=listed["links"], folders=tuple(listed["folders"]))
    except (OSError, ValueError, KeyError, TypeError, CostGpuError):
        return None
