"""Checkpoints go to the bucket while the job runs: to two places in turn, so that the last whole one is always there.

What is in which place is told by a list of its own, which is replaced when an upload is complete.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ..clock import Clock
from ..state_files import Home, setting
from .checkpoints import STORE, take_checkpoint
from .upload import UploadFailed, upload_archive

LIST, SLOTS = "checkpoint", ("checkpoint-0", "checkpoint-1")  # names of the addresses
UPLOADED = "checkpoint-uploaded.json"  # what is in the bucket: as `take_checkpoint` tells it, and the place
SECONDS = 60.0  # between the end of one upload and the next look


class CheckpointUploads(threading.Thread):
    """Looks for a new checkpoint again and again, beside the daemon's own work, and uploads it."""

    def __init__(self, home: Home, order: Mapping[str, Any], uploads: Mapping[str, str], clock: Clock) -> None:
        super().__init__(daemon=True)
        self.home, self.order, self.uploads, self.clock = home, order, uploads, clock
        self._stop_it = threading.Event()

    def run(self) -> None:
        """Until the job is over."""
        while not self._stop_it.wait(setting("CHECKPOINT_SECONDS", SECONDS)):
            try:
                upload_checkpoint(self.home, self.order, self.uploads, self._stop_it.is_set, self.clock)
            except Exception:
                traceback.print_exc()

    def stop(self) -> None:
        """Ends it, and what it is uploading: what the job has left at its end is more."""
        self._stop_it.set()
        if self.is_alive():
            self.join()


def upload_checkpoint(
    home: Home,
    order: Mapping[str, Any],
    uploads: Mapping[str, str],
    give_up: Callable[[], bool],
    clock: Clock,
    everything: bool = False,
) -> str:
    """Uploads what is whole now, if it is news; returns why that was not possible, or nothing."""
    there = uploaded(home)
    taken = take_checkpoint(home, order, clock, everything)
    if taken["number"] <= there["number"] or not taken["files"]:
        home.write(UPLOADED, {**there, "trouble": taken["trouble"]})
        return str(taken["trouble"])
    slot = SLOTS[1 - SLOTS.index(there["slot"])]
    contents = {row[2]: (row[2], home.file(STORE + "/" + row[2]), row[1], 0o644) for row in taken["files"]}
    try:
        upload_archive(uploads[slot], list(contents.values()), give_up, clock)
        home.write(LIST + ".json", {**taken, "slot": slot})
        rows = [(LIST + ".json", home.file(LIST + ".json"), home.size(LIST + ".json"), 0o644)]
        upload_archive(uploads[LIST], rows, give_up, clock)
    except UploadFailed as error:
        trouble = "The bucket did not take a checkpoint (%s)." % error
        home.write(UPLOADED, {**there, "trouble": trouble})
        return trouble
    home.write(UPLOADED, {**taken, "slot": slot})
    return str(taken["trouble"])


def uploaded(home: Home) -> dict[str, Any]:
    """What is in the bucket, as far as this machine has brought it there."""
    found = home.read(UPLOADED) or {}
    number, slot, files = found.get("number"), found.get("slot"), found.get("files")
    at, trouble = found.get("at"), found.get("trouble")
    return {
        "number": number if isinstance(number, int) else 0,
        "at": at if isinstance(at, (int, float)) else 0.0,
        "files": files if isinstance(files, list) else [],
        "trouble": trouble if isinstance(trouble, str) else "",
        "slot": slot if slot in SLOTS else SLOTS[1],
    }
