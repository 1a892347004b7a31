"""The command line in processes of its own, on this machine as the machine; and what it leaves running."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from costgpu.cli.app import main
from costgpu.config import data_path
from costgpu.job.state.states import replay
from costgpu.ledger import Ledger
from costgpu.models.run import EventKind, RunEvent, RunView
from costgpu.portable.processes import arguments_of, processes, read
from tests.job.examples import START, intent
from tests.unit.providers.planted import closed

SECRETS = ("AWS_", "COSTGPU_")
XDG = ("CONFIG", "CACHE", "DATA", "STATE")
COMMAND = [sys.executable, "-m", "costgpu"]
LOCAL = ("run", "--infra", "local", "--no-estimate", "--python", sys.executable)
STEPS = (Path(__file__).parent.parent / "scripts" / "cli" / "steps.py").read_text()
"""A job that makes steps until it is asked to end, and then keeps a checkpoint."""


class Result(NamedTuple):
    """What a command has said, and its exit code."""

    code: int
    out: str
    err: str

    def check(
        self, code: int, out: str | Sequence[str] | None = None, err: str | Sequence[str] | None = None
    ) -> Result:
        """Asserts the exit code and what is said: words that must be there, or nothing at all for an empty text."""
        assert self.code == code, self
        for said, expected in ((self.out, out), (self.err, err)):
            if expected == "":
                assert said == ""
            for words in [expected] if isinstance(expected, str) else expected or ():
                assert words in said
        return self


def until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for something that other processes do."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.03)


class Screen(io.BytesIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def told(*words: str, screen: bool = False) -> Result:
    """Runs a command in this process, with nobody at the terminal; what it writes goes to programs, or to a screen."""
    kind = Screen if screen else io.BytesIO
    streams = [io.TextIOWrapper(kind(), encoding="utf-8", errors="surrogateescape") for _ in range(2)]
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv, sys.stdin, sys.stdout, sys.stderr = ["costgpu", *words], io.StringIO(), *streams
    code: object = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = before
    shown = []
    for stream in streams:
        stream.flush()
        stream.seek(0)
        shown.append(stream.read())
    return Result(code if isinstance(code, int) else 0, *shown)


@dataclass
class Here:
    """A person's computer: a project folder, a data folder, terminals.

    Attributes:
        project: Where the scripts are.
        data: Of costgpu.
        environment: Of every command.
        started: Processes that may still run.
    """

    project: Path
    data: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path) -> Here:
        """A new one in an empty folder: no credentials, no settings, no ledger."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(SECRETS)}
        environment.update({f"XDG_{name}_HOME": str(folder / name.lower()) for name in XDG})
        environment.update(HOME=str(folder), NO_COLOR="1", COLUMNS="80", AWS_EC2_METADATA_DISABLED="true")
        (folder / "project").mkdir(parents=True)
        return cls(folder / "project", folder / "data" / "costgpu", environment)

    def write(self, name: str, text: str) -> Path:
        """A file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def costgpu(self, *words: str, **environment: str) -> Result:
        """Runs a command to its end; nobody is at the terminal."""
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=self.project,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=200,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def told(self, *words: str) -> Result:
        """The same in this process: quicker, for commands that end by themselves."""
        with mock.patch.dict(os.environ, self.environment, clear=True), contextlib.chdir(self.project):
            return told(*words)

    def run(self, *words: str, **environment: str) -> Result:
        """`costgpu run` on this machine, not measured."""
        return self.costgpu(*LOCAL, *words, **environment)

    def start(self, *words: str, command: Sequence[str] = COMMAND) -> subprocess.Popen[bytes]:
        """Begins a command, in a session of its own."""
        child = subprocess.Popen(
            [*command, *words],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.started.append(child)
        return child

    def detached(self, *words: str) -> str:
        """Starts a run that goes on alone, and returns its id."""
        result = self.run("-d", *words)
        assert result.code == 0, result.err
        return result.err.partition("Detached. Run ")[2].split()[0]

    def wrote(self, said: bytes) -> None:
        """Waits until some job of this computer has written this to its stdout."""
        until(lambda: any(said in path.read_bytes() for path in (self.data / "machines").glob("local-*/stdout.log")))

    def slow_to_boot(self) -> Path:
        """From now on machines have a keeper, and run, when the returned file exists, and not before."""
        gate, patch = self.data.parent / "boot", self.data.parent / "patch"
        patch.mkdir(parents=True)
        wait = f"while [ ! -e '{gate}' ] && [ ! -e end.json ]; do sleep 0.05; done; exec \"$@\""
        (patch / "sitecustomize.py").write_text(
            "from costgpu.providers.local import provider\n"
            "real = provider.command\n"
            f"provider.command = lambda *words: ['/bin/sh', '-c', {wait!r}, 'sh', *real(*words)]\n"
        )
        self.environment["PYTHONPATH"] = f"{patch}:{self.environment.get('PYTHONPATH', patch)}"
        return gate

    def runs(self) -> list[RunView]:
        """What the ledger knows, newest first."""
        with Ledger.open(f"sqlite:///{self.data / 'ledger.sqlite'}") as ledger:
            return [replay(events) for events in ledger.events_of(ledger.recent_runs()).values()]

    def last(self) -> RunView:
        """The last run."""
        return self.runs()[0]

    @contextlib.contextmanager
    def terminal(self, *words: str) -> Iterator[Terminal]:
        """Begins a command in a terminal of its own."""
        pid, handle = pty.fork()
        if pid == 0:
            os.chdir(self.project)
            os.execve(sys.executable, [*COMMAND, *words], {**self.environment, "TERM": "xterm", "COLUMNS": "80"})
        seat = Terminal(pid, handle)
        try:
            yield seat
        finally:
            if seat.code is None:
                os.kill(pid, signal.SIGKILL)
            if seat.handle >= 0:
                os.close(handle)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def living(self) -> list[str]:
        """What runs of any instance of this computer: command lines."""
        mark = f"\0COSTGPU_HOME={self.data}".encode()
        lines = {pid: arguments_of(pid) for pid in processes()}
        machines = str(self.data / "machines")
        return [line for pid, line in lines.items() if machines in line or mark in b"\0" + read(pid, "environ")]

    def quiet(self) -> None:
        """Nothing is left running: the machine was ended, and the last process is about to be gone at most."""
        until(lambda: not self.living())

    def close(self) -> None:
        """Ends what a test has left."""
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.communicate()
        for machine in (self.data / "machines").glob("local-*"):
            if not (machine / "terminated.json").exists():
                subprocess.run([machine / "poweroff", "the test is over"], check=False, timeout=30)


class Terminal:
    """One terminal with a command in it, and somebody who types."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid, self.handle = pid, handle
        self.code: int | None = None
        self._seen = b""

    @property
    def text(self) -> str:
        """All that was shown so far."""
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def expect(self, words: str, seconds: float = 60.0) -> None:
        """Reads until it shows this."""
        end = time.monotonic() + seconds
        while words not in self.text:
            left = end - time.monotonic()
            assert left > 0, f"{words!r} was not shown: {self.text}"
            if not self._read(left):
                assert words in self.text, f"{words!r} was not shown: {self.text}"

    def type(self, text: str) -> None:
        """Keys."""
        os.write(self.handle, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.type("\x03")

    def end(self, seconds: float = 60.0) -> int:
        """Reads to the end and returns the exit code."""
        limit = time.monotonic() + seconds
        while self._read(limit - time.monotonic()):
            assert time.monotonic() < limit, f"it does not end: {self.text}"
        _, status = os.waitpid(self.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def read_more(self) -> str:
        """What it shows by now."""
        while self._read(0.05) and select.select([self.handle], [], [], 0)[0]:
            pass
        return self.text

    def close(self) -> int:
        """Shuts the terminal, as one shuts a window, and returns the process that was in it."""
        os.close(self.handle)
        self.handle = -1
        self.code = 0
        return self.pid

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.handle], [], [], max(0.0, seconds))
        if not ready:
            return True
        try:
            data = os.read(self.handle, 1 << 16)
        except OSError:  # Linux: the other side is closed
            return False
        self._seen += data
        return bool(data)


def plant(here: Here, cost: str, run_id: str = "a1", **more: object) -> None:
    """A run of an hour that has just ended."""
    with Ledger.open(folder=here.data) as ledger:
        closed(ledger, run_id, datetime.now(UTC) - timedelta(hours=1, seconds=5), 1, cost, **more)  # type: ignore[arg-type]


@contextlib.contextmanager
def side_by_side(
    jobs: Mapping[str, tuple[Mapping[str, str], Sequence[str]]], folder: Path, at_once: int, **environment: str
) -> Iterator[dict[str, tuple[Here, Result]]]:
    """Runs all of these at the same time, each with its files and words on a computer of its own."""

    def carry_out(name: str) -> tuple[Here, Result]:
        files, words = jobs[name]
        place = Here.make(folder / name)
        for path, text in files.items():
            place.write(path, text)
        return place, place.run(*words, **environment)

    with ThreadPoolExecutor(at_once) as pool:
        found = dict(zip(jobs, pool.map(carry_out, jobs), strict=True))
    yield found
    for place, _ in found.values():
        place.close()


def record(run_id: str, *happened: tuple[EventKind, dict[str, Any]], **intended: Any) -> None:
    """Writes a run into the user's ledger, and what has happened to it."""
    with Ledger.open(folder=data_path()) as ledger:
        ledger.append(intent(run_id, **intended))
        for number, (kind, data) in enumerate(happened, 1):
            at = START + timedelta(seconds=number)
            ledger.append(RunEvent(run_id=run_id, sequence=number, at=at, kind=kind, data=data))


def words(result: Result) -> str:
    """Its stdout without line ends: what is said, however it is wrapped."""
    return " ".join(result.out.split())


def budgeted(here: Here, cost: str) -> None:
    """A budget of $200 for all time, and a run that has cost so much."""
    here.told("budget", "set", "all", "--total", "200")
    plant(here, cost)


def shown(here: Here, name: str = "") -> dict[str, object]:
    document = json.loads(here.told("budget", "show", *([name] if name else []), "--json").out)
    assert (document["schema"], document["version"]) == ("costgpu.budgets", 1)
    found: dict[str, object] = document["budgets"][0]
    return found
