"""Starts a measured program at the strongest isolation that this machine gives."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from costgpu.errors import ConfigError
from costgpu.measure.footprint.watch import FileWatch
from costgpu.measure.isolation import landlock
from costgpu.measure.isolation.folder_copy import FolderCopy
from costgpu.measure.isolation.layers import KEEP_BYTES, Changes, read_changes, remove_layers
from costgpu.measure.isolation.levels import Isolation, candidates
from costgpu.measure.scratch import KEEP_SECONDS, Scratch

HERE = Path(__file__).parent
LONGEST_PLACE = 107 - len("/costgpu-12345678/pymp-12345678/listener-12345678")  # bytes; of a socket's path
TEMPORARY = "/tmp"  # noqa: S108 - the shortest path that there is
READY = b"ready"
SET_UP_SECONDS = 30.0  # to set everything up; takes some 50 ms, but not on every machine
REPORT_BYTES = 2000
OTHER_PLACES = (tempfile.gettempdir(), "/var/tmp")  # noqa: S108 - for layers, where overlays cannot use the cache


@dataclass(slots=True, kw_only=True)
class IsolatedProcess:
    """A program that was started, and what is between it and the user's files."""

    process: subprocess.Popen[bytes]
    isolation: Isolation
    layers: Path | None = None  # what it writes, at the level copy-on-write
    copy: FolderCopy | None = None  # where it runs, at the other levels
    refused: dict[Isolation, str] = field(default_factory=dict)  # stronger levels, and why they are not given

    def close(self, scratch: Scratch) -> Changes:
        """Return what the program changed, and remove what is not worth keeping."""
        if self.copy is not None:
            changes, place = self.copy.changes(), scratch.copy
        else:
            place = self.layers or scratch.folder / "layers"
            changes = read_changes(place)
            remove_layers(place / "work")
        if changes.written_bytes > KEEP_BYTES or place.parent != scratch.folder:
            remove_layers(place)
            return replace(changes, folder=None)
        return changes

    def elsewhere(self, folder: Path) -> list[Path]:
        """Return where it writes that is not in the measurement's folder."""
        return [self.layers] if self.layers is not None and self.layers.parent != folder else []


class NotGivenError(Exception):
    """This machine does not give a level; the message says what failed."""


@dataclass(frozen=True, slots=True)
class IsolatedCommand:
    """What is to be started."""

    argv: Sequence[str]  # absolute path of the program, and its arguments
    folder: Path  # where it runs
    environment: Mapping[str, str]  # all of it
    output: int  # file descriptor of its standard output and error
    scratch: Scratch  # the measurement's own folder
    named: Sequence[str] = ()  # arguments of the program that may be paths of what it writes
    watch: FileWatch | None = None  # told where to look before the command starts
    # called at each level that is tried, with what makes a path that of the program
    prepare: Callable[[Callable[[str], str]], None] = lambda _: None

    def popen(self, launcher: Sequence[str] = (), descriptors: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        """Start it, perhaps through a launcher that gets these descriptors."""
        return subprocess.Popen(
            [*launcher, *self.argv],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=dict(self.environment),
            cwd=self.folder,
            start_new_session=True,
            pass_fds=descriptors,
        )

    def places(self) -> tuple[list[str], list[str]]:
        """Folders that it must be able to write, and those that it may want to."""
        needed = [self.folder, Path(os.path.expanduser("~")), Path(tempfile.gettempdir())]  # noqa: PTH111 - may not be known
        wanted = [Path("/var/tmp")]  # noqa: S108
        for word in [*self.named, *self.environment.values()]:
            path = self.folder / word.split("=", 1)[-1]
            with contextlib.suppress(OSError, ValueError):
                wanted.extend(place for place in (path, path.parent) if place.is_dir())
        return _real(needed), _real(wanted)


def _real(paths: Sequence[Path]) -> list[str]:
    return sorted({str(path.resolve()) for path in paths if path.is_dir()})


_refused: dict[Isolation, str] = {}  # in this process so far: what a machine does not give is asked for once


def start_isolated(command: IsolatedCommand, wanted: Isolation | None = None) -> IsolatedProcess:
    """Start a command in a session of its own.

    Args:
        wanted: The only level to try; None for the strongest that there is.

    Raises:
        ConfigError: This machine does not give the level that is wanted.
        OSError: The system cannot start the program at all.
    """
    refused: dict[Isolation, str] = {}
    for level in candidates(wanted):
        if wanted is None and level in _refused:
            refused[level] = _refused[level]
            continue
        try:
            started = _START[level](command)
        except NotGivenError as error:
            refused[level] = _refused[level] = str(error)
            continue
        started.refused = refused
        return started
    why = "; ".join(refused.values())
    raise ConfigError(
        f"This machine does not give the isolation {wanted}: {why}", hint="costgpu doctor says which it gives."
    )


def _write_protected(command: IsolatedCommand) -> IsolatedProcess:
    def start(inside: IsolatedCommand, writable: list[str]) -> subprocess.Popen[bytes]:
        process, said = _launch("landlock.py", inside, **landlock.specification(writable))
        if said != READY.decode():
            raise NotGivenError(said)
        return process

    if not landlock.supported():
        raise NotGivenError("no Landlock")
    return _in_copy(command, Isolation.WRITE_PROTECTED, start)


def _copied(command: IsolatedCommand) -> IsolatedProcess:
    return _in_copy(command, Isolation.COPY, lambda inside, _: inside.popen())


def _in_copy(
    command: IsolatedCommand, level: Isolation, start: Callable[[IsolatedCommand, list[str]], subprocess.Popen[bytes]]
) -> IsolatedProcess:
    """Start the command in a copy of its folder, with a temporary folder that goes when the process object does."""
    scratch = command.scratch
    try:
        copy = FolderCopy.make(scratch.copy, command.folder, scratch.folder.parent.parent)
    except OSError as error:
        remove_layers(scratch.copy)
        raise NotGivenError(f"copy: {error}") from None
    if command.watch is not None:
        command.watch.begin_copy(copy.root)
    command.prepare(copy.inside)
    beside = str(scratch.folder.parent)  # where the next measurements remove what is left of a killed one
    short = [
        place for place in (beside, TEMPORARY) if len(os.fsencode(place)) <= LONGEST_PLACE and os.access(place, os.W_OK)
    ]
    temporary = Path(tempfile.mkdtemp(prefix="costgpu-", dir=short[0] if short else None))
    inside = replace(
        command,
        argv=[copy.inside(word) for word in command.argv],
        folder=Path(copy.root + copy.folder),
        environment={
            **command.environment,
            **copy.environment(command.environment),
            **landlock.environment(str(temporary)),
        },
    )
    try:
        log = str(scratch.log)  # is /dev/stdout, too, for what opens that
        process = start(inside, [str(scratch.open), copy.root, str(temporary), log])
    except BaseException:
        for folder in (temporary, scratch.copy):
            remove_layers(folder)
        raise
    weakref.finalize(process, remove_layers, temporary)
    return IsolatedProcess(process=process, isolation=level, copy=copy)


def _copy_on_write(command: IsolatedCommand) -> IsolatedProcess:
    """In namespaces, with what it writes in the scratch folder, or where overlays can be written."""
    command.prepare(lambda path: path)
    needed, wanted = command.places()
    own_processes, places = True, [command.scratch.folder / "layers", *other_places()]
    failed: list[str] = []
    while True:
        layers = places[0]
        layers.mkdir(mode=0o700)
        process, said = _launch(
            "namespace.py",
            command,
            layers=str(layers),
            open=[str(command.scratch.open)],
            needed=needed,
            wanted=wanted,
            own_processes=own_processes,
            watch=command.watch.begin() if command.watch is not None else None,
        )
        if said == READY.decode():
            return IsolatedProcess(process=process, isolation=Isolation.COPY_ON_WRITE, layers=layers)
        remove_layers(layers)
        failed.append(said)
        stage = said.partition(":")[0]
        if stage == "processes" and own_processes:
            own_processes = False
        elif stage == "overlays" and len(places) > 1:
            places.pop(0)
        else:
            raise NotGivenError("; ".join(dict.fromkeys(failed)))


def other_places() -> list[Path]:
    """Folders that may be made for the layers, where file systems differ from that of the cache."""
    prefix = f"costgpu-layers-{os.getuid()}-"
    places = [Path(place) for place in dict.fromkeys(OTHER_PLACES) if os.access(place, os.W_OK)]
    for left in (folder for place in places for folder in place.glob(f"{prefix}*")):  # by a costgpu that was killed
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > KEEP_SECONDS:
                remove_layers(left)
    return [place / f"{prefix}{uuid.uuid4().hex[:8]}" for place in places]


def _launch(launcher: str, command: IsolatedCommand, **spec: object) -> tuple[subprocess.Popen[bytes], str]:
    """Start the command through a launcher; return what that reports."""
    reader, writer = os.pipe()
    try:
        path = command.scratch.folder / "isolation.json"
        path.write_text(json.dumps({**spec, "report": writer, "parent": os.getpid()}))
        watch = spec.get("watch")
        descriptors = (writer, watch["descriptor"]) if isinstance(watch, dict) else (writer,)
        process = command.popen([sys.executable, "-I", "-S", str(HERE / launcher), str(path)], descriptors)
        os.close(writer)
        writer = -1
        said = _heard(reader)
    finally:
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)
    if said != READY.decode():
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
    return process, said


def _heard(reader: int) -> str:
    """Return what the launcher reports before it hands over; why not, if it says nothing."""
    ready, _, _ = select.select([reader], [], [], SET_UP_SECONDS)
    if not ready:
        return f"namespaces: not set up within {SET_UP_SECONDS:.0f} s"
    return os.read(reader, REPORT_BYTES).decode("utf-8", "replace") or "namespaces: ended without a word"


_START = {
    Isolation.COPY_ON_WRITE: _copy_on_write,
    Isolation.WRITE_PROTECTED: _write_protected,
    Isolation.COPY: _copied,
}


def examine_isolation(cache: Path) -> tuple[Isolation, dict[Isolation, str]]:
    """Find the strongest level that this machine gives, and why not a stronger one, with a program that does nothing.

    Raises:
        OSError: The cache cannot be written.
    """
    scratch = Scratch.make(cache.absolute(), "doctor")
    try:
        with scratch.log.open("wb") as output:
            argv = [shutil.which("true") or sys.executable, "--version"]
            started = start_isolated(IsolatedCommand(argv, scratch.folder, os.environ, output.fileno(), scratch))
            started.process.wait()
        return started.isolation, started.refused
    finally:
        remove_layers(scratch.folder)
