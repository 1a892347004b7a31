"""What stays of an instance that is over: its record and logs; its outputs until they are safe, or long out of use."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from costgpu.providers.local.folder import KEPT, Folder
from costgpu.providers.local.records import EndRecord

KEEP_SECONDS = 7 * 86400.0  # so long outputs that nobody fetched are kept
_OUTPUTS = {"work", "order.json", "state.json"}


def is_safe(home: Folder) -> bool:
    """Return True if deleting the working folder loses nothing: a client has fetched it, or no job was ever started."""
    state = home.agent_record("state.json")
    if not home.has("order.json") or state.get("collected_uptime") is not None or state.get("uploaded"):
        return True
    over = home.ending("terminated.json")
    return over is not None and time.time() - over.at > KEEP_SECONDS


def clean(home: Folder) -> None:
    """Empty the folder of a terminated instance, except for what must stay."""
    kept = KEPT if is_safe(home) else KEPT | _OUTPUTS
    for path in home.path.iterdir():
        if path.name in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        else:
            path.unlink(missing_ok=True)


def forget_old(homes: Iterable[Folder]) -> None:
    """Remove the folders of instances that have been over for long."""
    for home in homes:
        over = home.ending("terminated.json")
        if over is not None and time.time() - over.at > KEEP_SECONDS:
            _remove(home.path)


def _remove(folder: Path) -> None:
    """Remove what can be removed of a folder; `shutil.rmtree` gives up where a job has nested them too deep."""
    quiet = subprocess.DEVNULL
    subprocess.run(["rm", "-rf", "--", folder], stdin=quiet, stdout=quiet, stderr=quiet, check=False)


def reason_of(home: Folder, over: EndRecord | None) -> str:
    """Return why it is over, in words."""
    words = over.reason if over is not None else "how it ended could not be written down"
    if over is not None and over.by == "instance":
        words = f"instance initiated: {words}"
    if not is_safe(home):
        words += f"; what nobody fetched is kept in {home.path / 'work'}"
    return words
