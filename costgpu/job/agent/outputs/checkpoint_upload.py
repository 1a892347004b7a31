"""Checkpoints go to the bucket while the job runs: to two places in turn, so that the last whole one is always there.

A list tells what is in both places. Before a place is overwritten, the bucket has acknowledged a list without it; so a
list never names what is not there, whichever answers are lost.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ....portable.clock import Clock
from ..state_files import Home, setting
from .checkpoints import STORE, take_checkpoint
from .find_outputs import find_outputs
from .upload import UploadFailed, upload_archive

LIST, SLOTS = "checkpoint", ("checkpoint-0", "checkpoint-1")  # names of the addresses
LISTED = "checkpoint-list.json"  # the list as it was sent
UPLOADED = "checkpoint-uploaded.json"  # what is in the bucket, and whether its list says so
SECONDS = 60.0  # between the end of one upload and the next look
_STOP_SECONDS = 2.0  # for an upload that is to end; one that waits for an answer does not notice


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
    clock: Clock,
    everything: bool = False,
) -> bool:
    """Upload what is whole now, if it is news; return whether anything was uploaded."""
    there = _there(home)
    taken = take_checkpoint(home, order, clock, everything)
    newest, target = there["places"][there["newest"]], SLOTS[1 - SLOTS.index(there["newest"])]
    is_news = taken["number"] and taken["files"] and (newest is None or newest["files"] != taken["files"])
    contents = {row[2]: (row[2], home.file(STORE + "/" + row[2]), row[1], 0o644) for row in taken["files"]}

    def tell(**changes: Any) -> None:
        """Bring the list in the bucket to what is there now."""
        there.update(changes, told=False)  # it may arrive although no answer says so
        _note(home, there, give_up)
        _upload_list(home, there, uploads, give_up, clock)
        there["told"] = True

    try:
        if is_news and there["places"][target] is not None:
            tell(places={**there["places"], target: None})
        elif not there["told"]:
            tell()
        if is_news:
            upload_archive(uploads[target], list(contents.values()), give_up, clock)
            tell(places={**there["places"], target: taken}, newest=target)
    except UploadFailed as error:
        _note(home, there, give_up, "The bucket did not take a checkpoint (%s)." % error)
        return False
    _note(home, there, give_up, taken["trouble"])
    return bool(is_news)


def upload_last_checkpoint(
    home: Home,
    order: Mapping[str, Any],
    uploads: Mapping[str, str],
    give_up: Callable[[], bool],
    clock: Clock,
    alone: bool = True,
) -> dict[str, str]:
    """For a machine that is taken back: uploads what the job goes on from, and after that all else that it has made.

    Args:
        alone: Whether nothing is on its way to the bucket that may arrive later. Otherwise one upload is all: the
            checkpoint before is not overwritten, too.

    Returns:
        The addresses for what is still to be uploaded: without ``outputs`` if the checkpoint has them all.
    """
    was_new = upload_checkpoint(home, order, uploads, give_up, clock)
    if alone or not was_new:
        upload_checkpoint(home, order, uploads, give_up, clock, everything=True)
    there = {(row[0], row[1], row[4]) for row in uploaded(home)["files"]}
    found = find_outputs(home, order["outputs"])
    if found.unreadable or any((each.path, each.size, each.mtime_ns) not in there for each in found.outputs):
        return dict(uploads)
    return {name: url for name, url in uploads.items() if name != "outputs"}


def uploaded(home: Home) -> dict[str, Any]:
    """Return the newest checkpoint that the bucket's list is known to name; number 0 for none."""
    there = _there(home)
    newest = there["places"][there["newest"]] if there["told"] else None
    return {**(newest or {"number": 0, "at": 0.0, "files": []}), "trouble": there["trouble"]}


def _upload_list(
    home: Home, there: Mapping[str, Any], uploads: Mapping[str, str], give_up: Callable[[], bool], clock: Clock
) -> None:
    """Upload the list of what is in both places, the newest one first."""
    places = sorted(SLOTS, key=lambda slot: slot != there["newest"])
    home.write(LISTED, {"places": [{"slot": slot, "checkpoint": there["places"][slot]} for slot in places]})
    member = (LIST + ".json", home.file(LISTED), home.size(LISTED), 0o644)
    upload_archive(uploads[LIST], [member], give_up, clock)


def _there(home: Home) -> dict[str, Any]:
    """Return what is in each place, which is the newest, and whether the list in the bucket is known to say just that."""
    nothing = {"places": dict.fromkeys(SLOTS), "newest": SLOTS[1], "told": not home.exists(UPLOADED), "trouble": ""}
    return home.read(UPLOADED) or nothing


def _note(home: Home, there: Mapping[str, Any], give_up: Callable[[], bool], trouble: str = "") -> None:
    """Whoever has to give up notes nothing any more: another one goes on in its place."""
    if not give_up():
        home.write(UPLOADED, {**there, "trouble": trouble})
