"""The keeper of a local instance: a program of its own, in its own session, that outlives every client.

It ends everything of the instance when the lease is over by either clock, when somebody has asked for the end, when no
agent came, or when the instance's record is gone; and only then it writes that the instance is terminated. The shell
that starts it starts it again if it is killed.

    python -c ... keeper keep FOLDER
    python -c ... keeper end FOLDER REASON     the power-off button
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from costgpu import version
from costgpu.providers.local import processes
from costgpu.providers.local.folder import Folder, locked
from costgpu.providers.local.records import DamagedDocument

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from costgpu.providers.local.keeper import main; main()"
_ROOT = Path(version.__file__).absolute().parents[1]
_WAKE_SECONDS = 1.0
_NOTE_WAKES = 5  # so often it looks for all that belongs to the instance
_UNCLAIMED_SECONDS = 900.0  # as on a rented machine
_WRITE_TRIES = 30  # then a keeper whose folder cannot be written leaves: all that ran in it is ended
_LOCK_SECONDS = 10.0  # somebody may be looking whether there is a keeper
_BUTTON_SECONDS = 10.0


def command(verb: str, home: Path) -> list[str]:
    """Return the program; -P and -E keep the current folder and the user's variables out of its imports."""
    return [sys.executable, "-P", "-E", "-c", _PROGRAM, str(_ROOT), verb, str(home)]


def button(home: Path) -> str:
    """Return the power-off button, as a shell script; where this Python is gone, the keeper does it, if it still lives."""
    end = shlex.quote(str(home / "end.json"))
    return f"""#!/bin/sh
# Powers this local instance off: everything that runs in it is ended. The argument is the reason, for the record.
reason=${{1:-power-off}}
{shlex.join(command("end", home))} "$reason" && exit 0
[ -e {end} ] || printf '{{"by": "instance", "reason": "%s", "at": %s}}' "$reason" "$(date +%s)" >{end}
exit 1
"""


def keep(folder: Folder) -> None:
    """Watch over the instance until its end.

    Nothing keeps it from ending the instance: not a full disk, not a folder that cannot be written.
    """
    lease, lifetime, began = time.time(), 0.0, time.monotonic()
    folder.reserve()
    with contextlib.suppress(OSError):
        folder.write_once("keeper.json", {"monotonic": began})
    with contextlib.suppress(
        DamagedDocument, TypeError, ValueError
    ):  # of a record that cannot be read the lease is over
        facts, first = folder.facts(), folder.agent_record("keeper.json").get("monotonic", began)
        if facts is not None:
            lease, lifetime, began = float(facts.lease_epoch), float(facts.lifetime_seconds), float(str(first))
    folder.say(f"kept until {lease:.0f}, and for {lifetime:.0f} s at most")
    noted: list[tuple[int, str]] = []
    ending: dict[str, Any] | None = None
    unwritten = 0  # how often its end could not be written
    for wake in itertools.count():
        if wake % _NOTE_WAKES == 0:
            noted = _note(folder, noted)
        lived = time.monotonic() - began
        left = min(lease - time.time(), lifetime - lived)
        if not folder.has("instance.json"):
            lost = {"by": "lost", "reason": "its record was removed", "at": time.time()}
            with contextlib.suppress(OSError):
                folder.write_once("terminated.json", lost)  # believed when nothing runs any more
            processes.end_all(folder.path, noted)
            return
        if ending is None and left <= 0:
            ending = {"by": "provider", "reason": "lease expired", "at": time.time()}
        elif ending is None and lived >= _UNCLAIMED_SECONDS and not folder.has("claimed"):
            ending = {"by": "provider", "reason": "unclaimed", "at": time.time()}
        if ending is not None or folder.has("end.json"):
            try:
                if finish(folder, ending):
                    return
            except OSError:
                unwritten += 1
                if unwritten >= _WRITE_TRIES and not folder.members():
                    return
        time.sleep(min(_WAKE_SECONDS, left) if left > 0 else _WAKE_SECONDS)


def _note(folder: Folder, noted: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Write down what belongs to the instance: should its guards be killed, all of it is found, mark or not."""
    found = processes.members(folder.path, noted)
    seen = [(one.pid, one.started) for one in found]
    if seen != noted:
        with contextlib.suppress(OSError):
            folder.write("noted.json", {"processes": seen})
    return seen


def finish(folder: Folder, ending: dict[str, Any] | None = None) -> bool:
    """End what runs and write it down; False if something could not be ended.

    Args:
        ending: Why, unless ``end.json`` says it already.

    Raises:
        OSError: Nothing runs any more, and that could not be written down.
    """
    if ending is not None:
        with contextlib.suppress(OSError):  # on a full disk it is ended all the same
            folder.write_once("end.json", ending)
    left = folder.end_all()
    if left:
        folder.say(f"{len(left)} processes cannot be ended, such as {left[0].pid}")
        return False
    asked = folder.ending("end.json")
    why = (
        {"by": asked.by, "reason": asked.reason} if asked is not None else ending or {"by": "lost", "reason": "unknown"}
    )
    folder.write_once("terminated.json", {**why, "at": time.time()})
    return True


def power_off(folder: Folder, reason: str) -> bool:
    """Be the button; return whether nothing of the instance runs any more but this process.

    Whoever presses it belongs to the instance: two that freeze each other would never end, so one waits for the other.
    """
    folder.say(f"{reason}: powering off")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # on a full disk there may be no lock file
            stack.enter_context(locked(folder.path / "end.lock", _BUTTON_SECONDS))
        try:
            return finish(folder, {"by": "instance", "reason": reason, "at": time.time()})
        except OSError:
            return not folder.members()  # all that could not be done is to write it down


def main() -> None:
    """Run the program."""
    verb, folder = sys.argv[1], Folder(Path(sys.argv[2]))
    if verb == "end":
        sys.exit(0 if power_off(folder, sys.argv[3]) else 1)
    with locked(folder.path / "keeper.lock", _LOCK_SECONDS) as alone:
        if alone and not folder.has("terminated.json"):  # else there is one, which is enough
            keep(folder)
