"""The folder of one measurement: its logs, the files that were diverted into it, and the journal of both."""

from __future__ import annotations

import contextlib
import filecmp
import json
import re
import shutil
import tempfile
import time
import uuid
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is left there is not the user's output
TEMPORARY = re.compile(r"__autograph_generated_file[a-z0-9_]{8}\.py")  # TensorFlow removes them when Python ends
KEEP_SECONDS = 6 * 3600.0
KEEP_SCRATCH = 5  # measurements whose diverted outputs and logs stay on disk


def new_scratch(cache: Path, name: str) -> Path:
    """A folder of its own for one measurement; old ones are removed."""
    root = cache / "measurements"
    root.mkdir(parents=True, exist_ok=True)
    old = sorted((p for p in root.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    old = [p for p in old if time.time() - p.stat().st_mtime > KEEP_SECONDS]  # a younger one may still be measuring
    for folder in old[: max(0, len(old) - KEEP_SCRATCH + 1)]:
        shutil.rmtree(folder, ignore_errors=True)
    scratch = root / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{uuid.uuid4().hex[:6]}"
    scratch.mkdir(mode=0o700)
    return scratch


def read_journal(scratch: Path) -> dict[str, list[str]]:
    """Paths by what the file guard did with them: ``diverted``, ``created``, ``program``, ..."""
    paths: dict[str, set[str]] = {}
    for entry in _entries(scratch):
        paths.setdefault(entry["kind"], set()).add(entry["path"])
    return {kind: sorted(found) for kind, found in paths.items()}


def _entries(scratch: Path) -> list[dict[str, str]]:
    entries = []
    with contextlib.suppress(OSError):
        for line in (scratch / "journal.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
    return entries


def left_behind(path: Path, scratch: Path) -> bool:
    """Whether a file that the script made is still there; TensorFlow's temporary ones are removed."""
    if not path.is_file() or scratch in path.parents or SHARED_MEMORY in path.parents:
        return False
    if path.parent == Path(tempfile.gettempdir()).resolve() and TEMPORARY.fullmatch(path.name):
        with contextlib.suppress(OSError):
            path.unlink()
    return path.exists()


def restore(scratch: Path) -> list[str]:
    """Puts back files that were changed past the guard, and returns their paths."""
    restored = []
    for entry in _entries(scratch):
        if entry["kind"] != "backup":
            continue
        path, backup = Path(entry["path"]), Path(entry["other"])
        if not backup.exists() or (path.exists() and filecmp.cmp(path, backup, shallow=False)):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(backup, path)
        restored.append(str(path))
    return restored
