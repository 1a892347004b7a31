"""Packs the probe into the one file that runs in the user's interpreter."""

from __future__ import annotations

import zipfile
from pathlib import Path

SOURCE = Path(__file__).with_name("probe")
PACKAGE = "_costgpu_probe"  # a name that no script of the user's has
MAIN = f"from {PACKAGE}.entry import main\n\nmain()\n"


def write_probe(folder: Path) -> Path:
    """Writes the probe as ``probe.pyz`` into `folder` and returns its path."""
    target = folder / "probe.pyz"
    with zipfile.ZipFile(target, "w") as archive:
        for source in sorted(SOURCE.rglob("*.py")):
            archive.writestr(f"{PACKAGE}/{source.relative_to(SOURCE).as_posix()}", source.read_bytes())
        archive.writestr("__main__.py", MAIN)
    return target
