"""A machine in a temporary folder, with real processes; and the smallest Transport there can be."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from costgpu.job.files.selection import FileSelection
from costgpu.job.machine.agent_client import AgentHost
from costgpu.job.machine.host import Completed, LogPosition
from costgpu.job.machine.transport.local import LocalTransport
from costgpu.models.job import FileEntry, JobOrder, JobStatus, Launcher, LogStream, Rendezvous
from costgpu.portable.processes import processes, read

LISTENS = """
import signal, sys, time
def save(*_):
    open('checkpoint', 'w').write('saved')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open('up', 'w').close()
time.sleep(300)
"""


class ShellTransport(LocalTransport):
    """Commands with an environment of the test's. `cut` makes the next stream end after so many bytes."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        super().__init__(home)
        self.environment = dict(environment)
        self.cut: int | None = None
        self.commands: list[list[str]] = []

    def run(
        self, argv: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", timeout_seconds: float = 60
    ) -> Completed:
        self.commands.append(list(argv))
        return super().run([*self._environment(), *argv], stdin=stdin, timeout_seconds=timeout_seconds)

    @contextlib.contextmanager
    def stream(self, argv: Sequence[str], *, silence_seconds: float) -> Iterator[Iterator[bytes]]:
        with super().stream([*self._environment(), *argv], silence_seconds=silence_seconds) as pieces:
            yield self._cut(pieces)

    def _environment(self) -> list[str]:
        return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in self.environment.items())]

    def _cut(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        left = self.cut
        for piece in pieces:
            if left is not None and left <= 0:
                return
            yield piece if left is None else piece[:left]
            left = None if left is None else left - len(piece)


def selection(root: Path, links: Mapping[str, str] | None = None) -> FileSelection:
    """All regular files below `root`."""
    files = [
        FileEntry(
            path=path.relative_to(root).as_posix(),
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            mode=path.stat().st_mode & 0o777,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    return FileSelection(root=root, files=tuple(files), links=dict(links or {}))


class Machine:
    """One home folder, its host, and everything that runs there."""

    def __init__(self, folder: Path, **settings: float | str) -> None:
        self.home = folder / "home of it"
        self.home.mkdir(parents=True)
        self.source = folder / "source"
        self.source.mkdir()
        off = self.home / "poweroff"
        off.write_text('#!/bin/sh\nprintf "%s\\n" "$1" >>"${0%/*}/off"\n')
        off.chmod(0o755)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "COSTGPU_AGENT_TICK_SECONDS": "0.05"}
        environment["COSTGPU_AGENT_KEEPALIVE_SECONDS"] = "1"
        environment |= {f"COSTGPU_AGENT_{name.upper()}": str(value) for name, value in settings.items()}
        self.transport = ShellTransport(self.home, environment)
        self.host = AgentHost(self.transport, python=os.environ.get("AGENT_PYTHON", sys.executable))
        self.stdout, self.stderr = bytearray(), bytearray()

    def run(
        self,
        script: str,
        *arguments: str,
        secrets: Mapping[str, str] | None = None,
        uploads: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> None:
        """Installs, sends and starts a script."""
        (self.source / "train.py").write_text(script, encoding="utf-8")
        self.host.install()
        self.host.send(selection(self.source))
        self.host.start(order("train.py", *arguments, **changes), secrets or {}, uploads or {})

    def follow(self, position: LogPosition | None = None) -> JobStatus:
        """To the end; output is in `stdout` and `stderr`."""

        def sink(stream: LogStream, data: bytes) -> None:
            (self.stdout if stream is LogStream.STDOUT else self.stderr).extend(data)

        return self.host.follow(position or LogPosition(), sink)

    def put_on_path(self, more: str = "", **programs: str) -> None:
        """These shell scripts and /bin/sh are all that is on the path, besides the folders of `more`."""
        folder = self.home.parent / "bin"
        folder.mkdir()
        (folder / "sh").symlink_to("/bin/sh")
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        self.transport.environment["PATH"] = f"{folder}:{more}".rstrip(":")

    def read(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.home / name).read_text())
        return value

    def daemon(self) -> int:
        """Its process number."""
        answer = subprocess.run(
            ["/bin/sh", str(self.home / "agent"), "call"], input=b'{"method": "ping"}', capture_output=True, check=True
        )
        return int(json.loads(answer.stdout.decode().removeprefix("costgpu-reply "))["pid"])

    def ended_by(self) -> str:
        return (self.home / "ended_by").read_text().strip() if (self.home / "ended_by").exists() else ""

    def off(self) -> str:
        """What the power-off command was called with."""
        return (self.home / "off").read_text() if (self.home / "off").exists() else ""

    def ours(self) -> list[int]:
        """Processes that belong to this machine: by argument, or by environment."""
        mark = os.fsencode(self.home)
        return [
            pid for pid in processes() if mark in read(pid, "cmdline") + read(pid, "environ") and pid != os.getpid()
        ]

    def destroy(self) -> None:
        """As a power cut would."""
        while members := self.ours():
            for pid in members:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def order(*argv: str, **changes: Any) -> JobOrder:
    """With an hour to go, on this machine, and short grace."""
    values: dict[str, Any] = {
        "argv": argv,
        "setup": "",
        "outputs": (),
        "processes": 0,
        "python": sys.executable,
        "deadline_epoch": time.time() + 3600,
        "max_duration_seconds": None,
        "idle_seconds": None,
        "grace_seconds": 1.0,
        "spot": False,
        "power_off": True,
    }
    return JobOrder(**(values | changes))


def rendezvous(node: int, port: int, **changes: Any) -> Rendezvous:
    """Of one machine of a job on two that starts its own ranks."""
    values: dict[str, Any] = {
        "nodes": 2,
        "node": node,
        "address": "127.0.0.1",
        "port": port,
        "own_address": "127.0.0.1",
        "launcher": Launcher.NONE,
        "launcher_options": (),
        "min_nodes": 0,
        "max_restarts": 0,
    }
    return Rendezvous(**(values | changes))


def in_thread(call: Callable[[], Any]) -> threading.Thread:
    """Runs it beside."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread
