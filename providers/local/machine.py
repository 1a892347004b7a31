"""The host process of a local instance: a program of its own, in its own session, that outlives every client.

It runs the boot script, adopts what is orphaned in the instance (on Linux), ends everything when it is asked to or
when the lease is over by either clock, and only then writes that the instance is terminated.

    python -c ... machine host FOLDER
    python -c ... machine poweroff FOLDER REASON     the button, where no host lives any more
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from costgpu.portable.supervise import adopt_orphans, reap
from costgpu.providers.local import processes
from costgpu.providers.local.folder import Folder
from costgpu.providers.local.records import Damaged

_WAKE_SECONDS = 2.0
_LOOK_SECONDS = 5.0
_WRITE_TRIES = 30  # then a host whose folder cannot be written leaves: all that ran in it is ended
_LOCK_SECONDS = 3.0  # somebody may be looking whether the lock is free
KEPT_VARIABLES = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "XDG_RUNTIME_DIR",
    "DYLD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
}
"""Nothing else of the client's environment gets into an instance."""


class Host:
    """The process behind one instance."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._boot = 0
        self._noted: list[tuple[int, str]] = []
        self._members: set[tuple[int, str]] = set()
        self._look_at = 0.0  # monotonic; from then on it is looked for what does not descend from here
        self._unwritten = 0  # how often its end could not be written
        wall, lifetime = time.time(), 0.0
        with contextlib.suppress(Damaged):
            facts = folder.facts()
            if facts is not None:
                wall, lifetime = facts.lease_epoch, facts.lifetime_seconds
        self._ending: dict[str, Any] | None = None  # why it ends, once that is so
        self._deadline, self._ends_at = wall, time.monotonic() + lifetime

    def run(self) -> None:
        """From the boot script to the end."""
        adopt_orphans()
        bell, ringer = os.pipe()
        os.set_blocking(ringer, False)
        signal.set_wakeup_fd(ringer)
        asked: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: asked.append(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        me = processes.process(os.getpid())
        started = me.started if me is not None else ""
        self._folder.reserve()
        self._folder.write_once("host.json", {"pid": os.getpid(), "started": started, "boot_id": processes.boot_id()})
        if not self._folder.has("end.json"):
            self._start_boot_script()
        while True:
            self._note()  # before it is said that the boot script has ended
            self._reap()
            left = min(self._deadline - time.time(), self._ends_at - time.monotonic())
            if not self._folder.has("instance.json"):
                me = processes.process(os.getpid())  # the folder was removed, or what says what it is
                ending = {"by": "lost", "reason": "its record was removed", "at": time.time()}
                with contextlib.suppress(OSError):
                    self._folder.write_once("terminated.json", ending)  # believed when nothing runs any more
                processes.end_all(self._folder.path, processes.Belonging(host=me, noted=self._noted))
                return
            if self._ending is None and left <= 0:
                self._ending = {"by": "provider", "reason": "lease expired", "at": time.time()}
            elif self._ending is None and asked:
                self._ending = {"by": "signal", "reason": f"signal {asked[0]}", "at": time.time()}
            if (self._ending is not None or self._folder.has("end.json")) and self._end():
                return
            ready, _, _ = select.select([bell], [], [], max(0.0, min(_WAKE_SECONDS, left if left > 0 else 1.0)))
            if ready:
                os.read(bell, 4096)

    def _end(self) -> bool:
        """End what runs, and write that down as well as the disk allows; whether this process is done.

        Nothing keeps it from ending the instance: not a full disk, not a folder that cannot be written.
        """
        if self._ending is not None:
            with contextlib.suppress(OSError):
                self._folder.write_once("end.json", self._ending)
        try:
            return finish(self._folder, self._ending)
        except OSError:
            self._unwritten += 1
            return self._unwritten >= _WRITE_TRIES and not self._folder.members()

    def _start_boot_script(self) -> None:
        path = self._folder.path
        with (path / "console.log").open("ab") as console:
            started = subprocess.Popen(
                ["/bin/sh", str(path / "boot.sh")],
                cwd=path,
                env={**environment(), processes.MARK: str(path)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._boot = started.pid
        started.returncode = 0  # reaped below, together with the orphans

    def _reap(self) -> None:
        status = reap().get(self._boot)
        if status is not None:
            with contextlib.suppress(OSError):
                self._folder.write_once("booted", {"status": os.waitstatus_to_exitcode(status)})

    def _note(self) -> None:
        """Write down what belongs to the instance: should its guards be killed, all of it is found, mark or not."""
        table = processes.processes()
        mine = {(one.pid, one.started) for one in processes.descendants(os.getpid(), table)}
        if (now := time.monotonic()) >= self._look_at:  # the job's own tree descends from a client
            self._look_at, me = now + _LOOK_SECONDS, table.get(os.getpid())
            found = processes.members(self._folder.path, processes.Belonging(host=me, noted=self._noted))
            self._members = {(one.pid, one.started) for one in found}
        seen = sorted(mine | self._members)
        if seen != self._noted:
            with contextlib.suppress(OSError):
                self._folder.write("noted.json", {"processes": seen})
            self._noted = seen


def finish(folder: Folder, ending: dict[str, Any] | None = None) -> bool:
    """End what runs and write it down; False if something could not be ended.

    Args:
        ending: Why, if ``end.json`` does not say it.

    Raises:
        OSError: Nothing runs any more, and that could not be written down.
    """
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


def environment() -> dict[str, str]:
    """Return what an instance gets of this process's environment."""
    return {key: value for key, value in os.environ.items() if key in KEPT_VARIABLES or key.startswith("LC_")}


def power_off(folder: Folder, reason: str) -> int:
    """Return the button. The host does it, if there is one; else this process."""
    ending = {"by": "instance", "reason": reason, "at": time.time()}
    with contextlib.suppress(OSError):  # on a full disk it is ended all the same
        if folder.write_once("end.json", ending):
            folder.say(f"{reason}: powering off")
    until = time.monotonic() + _LOCK_SECONDS
    while not folder.has("terminated.json"):
        host = folder.host()
        if host is not None:
            processes.send(host, signal.SIGTERM)
            if time.monotonic() > until:
                processes.send(host, signal.SIGCONT)
                processes.send(host, signal.SIGKILL)
        else:
            with contextlib.suppress(OSError), folder.holding() as alone:
                if alone and finish(folder, ending):
                    return 0
            if not folder.members():
                return 0  # all that could not be done is to write it down
        time.sleep(0.1)
    return 0


def main() -> None:
    """Run the program."""
    verb, folder = sys.argv[1], Folder(Path(sys.argv[2]))
    if verb == "poweroff":
        sys.exit(power_off(folder, sys.argv[3]))
    with contextlib.suppress(OSError):
        os.setsid()
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        with folder.holding() as alone:
            if alone:
                if not folder.has("terminated.json"):
                    Host(folder).run()
                return
        if time.monotonic() > until and folder.host() is not None:
            return  # one is enough
        time.sleep(0.05)
