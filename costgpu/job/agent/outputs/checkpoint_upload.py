"""Checkpoints go to the bucket while the job runs, each as one archive in the place of the one before.

An object of the bucket is replaced as a whole or not at all, and the archive begins with the list of what is in it: so
the last whole one is always there, whichever answers are lost.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ....portable.clock import MachineClock
from ..state_files import Home, setting
from .checkpoints import STORE, take_checkpoint
from .find_outputs import find_outputs
from .upload import UploadFailed, upload_archive

ARCHIVE = "checkpoint"  # name of the address
LIST = "list.json"  # first in the archive: what `take_checkpoint` returns
LISTED = "checkpoint-list.json"  # the list as it was sent
UPLOADED = "checkpoint-uploaded.json"  # the newest that the bucket has acknowledged
SECONDS = 60.0  # between the end of one upload and the next look
_STOP_SECONDS = 2.0  # for an upload that is to end; one that waits for an answer does not notice


class CheckpointUploads(threading.Thread):
    """Looks for a new checkpoint again and again, beside the daemon's own work, and uploads it."""

    def __init__(self, home: Home, order: Mapping[str, Any], uploads: Mapping[str, str], clock: MachineClock) -> None:
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

    def stop(self) -> bool:
        """End it, and what it is uploading: what the job has left at its end is more.

        Returns:
            Whether it has ended; if not, what it has sent already may still arrive.
        """
        self._stop_it.set()
        if self.is_alive():
            self.join(_STOP_SECONDS)
        return not self.is_alive()


def upload_checkpoint(
    home: Home,
    order: Mapping[str, Any],
    uploads: Mapping[str, str],
    give_up: Callable[[], bool],
    clock: MachineClock,
    everything: bool = False,
) -> bool:
    """Upload what is whole now, if it is news; return whether anything was uploaded.

    Whoever has to give up notes nothing any more: another one goes on in its place.
    """
    there = uploaded(home)
    taken = take_checkpoint(home, order, clock, everything)
    is_news = bool(taken["number"] and taken["files"] and there["files"] != taken["files"])
    trouble = taken["trouble"]
    if is_news:
        contents = {row[2]: (row[2], home.file(STORE + "/" + row[2]), row[1], 0o644) for row in taken["files"]}
        try:
            home.write(LISTED, taken)
            listed = (LIST, home.file(LISTED), home.size(LISTED), 0o644)
            upload_archive(uploads[ARCHIVE], [listed, *contents.values()], give_up, clock)
            there = taken
        except UploadFailed as error:
            is_news, trouble = False, "The bucket did not take a checkpoint (%s)." % error
    if not give_up():
        home.write(UPLOADED, {**there, "trouble": trouble})
    return is_news


def upload_last_checkpoint(
    home: Home,
    order: Mapping[str, Any],
    uploads: Mapping[str, str],
    give_up: Callable[[], bool],
    clock: MachineClock,
    alone: bool = True,
) -> dict[str, str]:
    """For a machine that is taken back: uploads what the job goes on from, and after that all else that it has made.

    Args:
        alone: Whether nothing is on its way to the bucket. Otherwise that may arrive last, and take the place of what is
            uploaded here.

    Returns:
        The addresses for what is still to be uploaded: without ``outputs`` if the checkpoint has them all.
    """
    upload_checkpoint(home, order, uploads, give_up, clock)
    upload_checkpoint(home, order, uploads, give_up, clock, everything=True)
    there = {(row[0], row[1], row[4]) for row in uploaded(home)["files"]}
    found = find_outputs(home, order["outputs"])
    lacking = found.unreadable or any((each.path, each.size, each.mtime_ns) not in there for each in found.outputs)
    return {name: url for name, url in uploads.items() if lacking or not alone or name != "outputs"}


def uploaded(home: Home) -> dict[str, Any]:
    """Return the newest checkpoint that the bucket is known to have; number 0 for none."""
    return home.read(UPLOADED) or {"number": 0, "at": 0.0, "files": [], "trouble": ""}
