"""Workload profiles on disk: versioned JSON, read strictly where it matters and kindly elsewhere.

Unknown keys are ignored (a newer costgpu may have written them); a missing or mistyped value is a `ProfileError`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from costgpu.errors import ProfileError
from costgpu.models.workload import WorkloadProfile

FORMAT = "costgpu.workload-profile"
VERSION = 1


def to_document(profile: WorkloadProfile) -> dict[str, Any]:
    """The profile as a JSON-ready dictionary with its format and version first."""
    return {"format": FORMAT, "version": VERSION, **asdict(profile)}


def save_profile(profile: WorkloadProfile, path: Path) -> None:
    """Writes the profile, replacing the file only when all of it is on disk.

    Raises:
        ProfileError: The file cannot be written.
    """
    part = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(json.dumps(to_document(profile), indent=1) + "\n")
        os.replace(part, path)  # noqa: PTH105 - the pair of calls is the point
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise ProfileError(
            f"Cannot write the profile {path}: {error.strerror}.", hint="Choose another place with --save."
        ) from error


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def load_profile(path: Path) -> WorkloadProfile:
    """Reads a profile.

    Raises:
        ProfileError: Not readable, not JSON, not a profile, from a newer version, or damaged.
    """
    again = "Measure again: costgpu estimate SCRIPT --save profile.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise ProfileError(f"Cannot read the profile {path}: {error.strerror}.", hint=again) from error
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path} is not JSON: {error}.", hint=again) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProfileError(f"{path} is not a costgpu workload profile.", hint=again)
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION or version < 1:
        raise ProfileError(
            f"{path} has profile version {version!r}; this costgpu reads up to {VERSION}.",
            hint="Upgrade costgpu, or measure again.",
        )
    try:
        profile = TypeAdapter(WorkloadProfile).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProfileError(f"{path} is damaged at {where}: {first['msg']}.", hint=again) from error
    if not profile.phases or any(phase.steps_observed < 1 for phase in profile.phases):
        raise ProfileError(f"{path} is damaged: it has no measured training phase.", hint=again)
    return profile
