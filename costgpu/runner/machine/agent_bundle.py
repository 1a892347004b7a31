"""Packs the agent into the one file that travels to a machine."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "agent"
PACKAGE = "_costgpu_agent"
MAIN = f"from {PACKAGE}.main import main\n\nmain()\n"
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same bytes every time: their hash tells whether a machine has this agent


@cache
def agent_file() -> bytes:
    """A zip archive that Python runs."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for source in sorted(SOURCE.rglob("*.py")):
            archive.writestr(
                zipfile.ZipInfo(f"{PACKAGE}/{source.relative_to(SOURCE).as_posix()}", _WHEN), source.read_bytes()
            )
        archive.writestr(zipfile.ZipInfo("__main__.py", _WHEN), MAIN)
    return target.getvalue()


@cache
def agent_sha256() -> str:
    """The hexadecimal checksum of that file."""
    return hashlib.sha256(agent_file()).hexdigest()
