"""Workload profiles on disk: versioned JSON, read strictly where it matters and kindly elsewhere.

Unknown keys are ignored (a newer costgpu may have written them); a missing or mistyped value is a `ProfileError`.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from costgpu import border
from costgpu.errors import ProfileError
from costgpu.files import FileKind, read_json, write_whole
from costgpu.models.workload import WorkloadProfile

FORMAT = "costgpu.workload-profile"
VERSION = 2  # 1, of costgpu 0.1.0, named a phase's unit, and kept apart what inference makes
_MORE_THAN_NOTHING = ("cores", "gemm_gflops", "copy_gbps")
AGAIN = "Measure again: costgpu estimate SCRIPT --save profile.json"
PROFILE = FileKind(
    most_bytes=64 * 2**20,
    error=ProfileError,
    name="the profile",
    hint=AGAIN,
    write_hint="Choose another place with --save.",
)


def to_document(profile: WorkloadProfile) -> dict[str, Any]:
    """Return the profile as a JSON-ready dictionary with its format and version first."""
    return {"format": FORMAT, "version": VERSION, **asdict(profile)}


def save_profile(profile: WorkloadProfile, path: Path) -> None:
    """Write the profile, replacing the file only when all of it is on disk.

    Raises:
        ProfileError: The file cannot be written.
    """
    text = json.dumps(to_document(profile), indent=1) + "\n"
    write_whole(path, [text], PROFILE)


def load_profile(path: Path) -> WorkloadProfile:
    """Read a profile.

    Raises:
        ProfileError: Not readable, not JSON, not a profile, from a newer version, or damaged.
    """
    document = read_json(path, PROFILE)
    if document is None and not path.exists():
        raise PROFILE.unreadable(path, os.strerror(errno.ENOENT))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProfileError(f"{path} is not a costgpu workload profile.", hint=AGAIN)
    version = document.get("version")
    if version == 1 and isinstance(version, int):
        document = _with_units(document)
    elif version != VERSION:
        raise ProfileError(
            f"{path} has profile version {version!r}; this costgpu reads up to {VERSION}.",
            hint="Upgrade costgpu, or measure again.",
        )
    profile = border.read(
        WorkloadProfile, document, lambda why: ProfileError(f"{path} is damaged at {why}.", hint=AGAIN)
    )
    for name in _MORE_THAN_NOTHING:
        if getattr(profile.machine, name) <= 0:
            raise ProfileError(f"{path} is damaged at machine.{name}: every machine has some.", hint=AGAIN)
    if not profile.phases or any(phase.steps_observed < 1 for phase in profile.phases):
        raise ProfileError(f"{path} is damaged: it has no measured training phase.", hint=AGAIN)
    return profile


def _with_units(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 as one of version 2; what is damaged in it stays so."""
    phases = document.get("phases")
    if not isinstance(phases, list) or not all(isinstance(phase, dict) for phase in phases):
        return document
    changed = []
    for phase in phases:
        made = phase.get("inference")
        unit: Any = {"name": phase.get("unit", "step"), "trains": made is None}
        if isinstance(made, dict):
            unit = {**made, "items": made.get("items_per_step"), **unit}
        changed.append({**phase, "unit": unit if made is None or isinstance(made, dict) else made})
    return {**document, "phases": changed}
