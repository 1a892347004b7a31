"""The folder of one measurement: its log, what it wrote, and what the probe has noted."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from costgpu.measure.isolation.layers import remove_layers
from costgpu.measure.probe.record import ProbeRecord
from costgpu.portable.files import open_regular

KEEP_SECONDS = 6 * 3600.0
MAX_READ_BYTES = 256 << 20  # of what a program may have written in the place of the probe's record
MOST_NAME = 40  # characters of a script's name in that of a folder: file systems allow 255 bytes
KEEP_SCRATCH = 5  # measurements whose outputs and logs stay on disk


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where it is, and what is in it."""

    folder: Path

    @classmethod
    def make(cls, cache: Path, name: str) -> Scratch:
        """Return a folder of its own for one measurement; old ones are removed."""
        root = cache / "measurements"
        root.mkdir(parents=True, exist_ok=True)
        old = sorted((p for p in root.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
        old = [p for p in old if time.time() - p.stat().st_mtime > KEEP_SECONDS]  # a younger one may still be measuring
        for folder in old[: max(0, len(old) - KEEP_SCRATCH + 1)]:
            remove_layers(folder)
        folder = root / f"{time.strftime('%Y%m%d-%H%M%S')}-{name[:MOST_NAME]}-{uuid.uuid4().hex[:6]}"
        folder.mkdir(mode=0o700)
        scratch = cls(folder)
        scratch.open.mkdir()
        return scratch

    @property
    def open(self) -> Path:
        """Return what a measured program really writes; what is beside it is out of its reach."""
        return self.folder / "open"

    @property
    def copy(self) -> Path:
        """Return the root of the copy in which the program runs, where it needs one."""
        return self.folder / "copy"

    @property
    def stepping(self) -> bool:
        """Return whether the probe has seen a step."""
        return os.path.lexists(self.open / "stepping")

    @property
    def log(self) -> Path:
        """Return the program's own output."""
        return self.folder / "output.log"

    def opened(self) -> str:
        """Return what the probe has noted of files that were opened and of modules.

        See `costgpu.measure.footprint.gather`.
        """
        return self._read("opened.jsonl")

    def programs(self) -> list[str]:
        """Return the command lines of the programs that it started; what a program has written over is left out."""
        found: set[str] = set()
        for line in self._read("journal.jsonl").splitlines():
            with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
                found.add(str(json.loads(line)["program"]))
        return sorted(found)

    def record(self) -> ProbeRecord | None:
        """Return what the probe has written at its end; None if that is nothing, or no JSON object."""
        with contextlib.suppress(ValueError, RecursionError):
            written = json.loads(self._read("result.json"))
            return cast("ProbeRecord", written) if isinstance(written, dict) else None
        return None

    def _read(self, name: str) -> str:
        """Return a file that a measured program may have replaced by anything; empty if it is none, or endless."""
        try:
            with open_regular(self.open / name) as file:
                data = file.read(MAX_READ_BYTES + 1)
        except OSError:
            return ""
        text = data.decode("utf-8", "replace") if len(data) <= MAX_READ_BYTES else ""
        return text.replace(json.dumps(str(self.copy.resolve()))[1:-1], "")  # paths in the copy are the real ones
