"""One measurement: start the probe, wait, end everything that it started, and put back what must be put back."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from costgpu.measure.interpreter import Interpreter
from costgpu.measure.probe_bundle import write_probe

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is left there is not the user's output
TEMPORARY = re.compile(r"__autograph_generated_file[a-z0-9_]{8}\.py")  # TensorFlow removes them when Python ends
GRACE_SECONDS = 10.0  # the probe ends itself at its limits; this is for one that cannot (native code holds the lock)
MARKER = "COSTGPU_MEASUREMENT"
KEEP_SECONDS = 6 * 3600.0
KEEP_SCRATCH = 5  # measurements whose diverted outputs and logs stay on disk
LAUNCHED = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
QUIET_TRACKERS = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure.

    Attributes:
        script: Absolute path; None with `module`.
        module: For ``python -m``.
        arguments: Of the script.
        workdir: Where it runs.
        measure_for_seconds: After the first step.
        start_limit_seconds: To reach the first step.
        steps: Stop after so many timed steps; None for the time limit.
    """

    script: Path | None
    module: str | None
    arguments: list[str]
    workdir: Path
    measure_for_seconds: float = 30.0
    start_limit_seconds: float = 180.0
    steps: int | None = None

    @property
    def name(self) -> str:
        """For people and file names."""
        return self.script.name if self.script is not None else str(self.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    Attributes:
        record: The probe's result; None if it wrote none.
        returncode: Of the child; negative for a signal.
        timed_out: We had to end it.
        log: The script's own output.
        probe: The probe that ran.
        scratch: Where diverted files are.
        restored: Files that were changed past the guard and have been put back.
        diverted: Files whose new content is in `scratch`; the originals are as they were.
        created: New files that the script left.
        programs: Other programs that it started.
        survivors: Processes of it that had to be ended.
    """

    record: dict[str, Any] | None
    returncode: int
    timed_out: bool
    log: Path
    probe: Path
    scratch: Path
    restored: list[str] = field(default_factory=list)
    diverted: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    survivors: int = 0


def measure(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    *,
    saved_hooks: bool = True,
    pretend: bool = False,
    launched: bool = False,
) -> Outcome:
    """Runs the script under the probe.

    Args:
        request: What to run.
        interpreter: With which Python.
        cache: Folder under which this measurement gets its own.
        progress: Called some times a second with the seconds since the start and whether it has stepped.
        saved_hooks: Count saved tensors; off for code that does not allow it (torch.func).
        pretend: What the script asks of a CUDA device lands on the CPU, where there is no such device.
        launched: With the environment of the only process that torchrun has started.

    Raises:
        KeyboardInterrupt: Ctrl-C (or SIGTERM, SIGHUP); everything has been ended and put back before.
    """
    scratch = new_scratch(cache, request.name)
    log = scratch / "output.log"
    config = scratch / "config.json"
    result = scratch / "result.json"
    config.write_text(
        json.dumps(
            {
                "script": str(request.script) if request.script else None,
                "module": request.module,
                "args": request.arguments,
                "cwd": str(request.workdir),
                "measure_for": request.measure_for_seconds,
                "start_limit": request.start_limit_seconds,
                "steps": request.steps,
                "result": str(result),
                "scratch": str(scratch),
                "saved": saved_hooks,
                "pretend": pretend,
            }
        )
    )
    before = {process.pid for process in psutil.Process().children()}
    marker, probe = uuid.uuid4().hex, write_probe(scratch)
    environment = {**os.environ, **QUIET_TRACKERS, MARKER: marker, "PYTHONUNBUFFERED": "1"}
    if launched:
        environment = {**LAUNCHED, **environment}
    limit = (
        request.start_limit_seconds
        + max(5 * request.measure_for_seconds, request.measure_for_seconds + 60)
        + GRACE_SECONDS
    )
    start, timed_out, survivors = time.monotonic(), False, 0
    with log.open("wb") as output, interruptible(), adopting():
        child = subprocess.Popen(
            [interpreter.path, str(probe), "run", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                elapsed, stepping = time.monotonic() - start, (scratch / "stepping").exists()
                if elapsed > (limit if stepping else request.start_limit_seconds + GRACE_SECONDS):
                    timed_out = True
                    break
                progress(elapsed, stepping)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=0.1)
        finally:
            with uninterrupted():
                survivors = end_everything(child.pid, marker, before)
                child.wait()
                restored = restore(scratch)
    journal = _journal(scratch)
    return Outcome(
        record=_record(result),
        returncode=child.returncode,
        timed_out=timed_out,
        log=log,
        probe=probe,
        scratch=scratch,
        restored=restored,
        diverted=sorted({e["path"] for e in journal if e["kind"] == "diverted"}),
        created=sorted(
            {e["path"] for e in journal if e["kind"] == "created" and _left_behind(Path(e["path"]), scratch)}
        ),
        programs=sorted({e["path"] for e in journal if e["kind"] == "program"}),
        survivors=survivors,
    )


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Daemons that the script leaves behind become our children (Linux), so that they are found and ended."""
    set_subreaper = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h

    def switch(on: int) -> None:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).prctl(set_subreaper, on, 0, 0, 0)

    if not sys.platform.startswith("linux"):
        yield
        return
    switch(1)
    try:
        yield
    finally:
        switch(0)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP take the way of Ctrl-C, so that the script never outlives us."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        with contextlib.suppress(ValueError):  # not the main thread
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not leave processes running or files not put back."""
    before: dict[signal.Signals, Any] = {}
    for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        with contextlib.suppress(ValueError):
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def new_scratch(cache: Path, name: str) -> Path:
    """A folder of its own for one measurement; old ones are removed."""
    root = cache / "measurements"
    root.mkdir(parents=True, exist_ok=True)
    old = sorted((p for p in root.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    old = [p for p in old if time.time() - p.stat().st_mtime > KEEP_SECONDS]  # a younger one may still be measuring
    for folder in old[: max(0, len(old) - KEEP_SCRATCH + 1)]:
        shutil.rmtree(folder, ignore_errors=True)
    scratch = root / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{uuid.uuid4().hex[:6]}"
    scratch.mkdir(mode=0o700)
    return scratch


def _left_behind(path: Path, scratch: Path) -> bool:
    """Whether a file that the script made is still there; TensorFlow's temporary ones, left by its end, go."""
    if not path.is_file() or scratch in path.parents or SHARED_MEMORY in path.parents:
        return False
    if path.parent == Path(tempfile.gettempdir()).resolve() and TEMPORARY.fullmatch(path.name):
        with contextlib.suppress(OSError):
            path.unlink()
    return path.exists()


def _record(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _journal(scratch: Path) -> list[dict[str, str]]:
    entries = []
    with contextlib.suppress(OSError):
        for line in (scratch / "journal.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
    return entries


def end_everything(pid: int, marker: str, before: set[int]) -> int:
    """Kills the child, its descendants and whatever else carries our marker, until none is left.

    Args:
        pid: Of the child.
        marker: In the environment of everything that it started.
        before: Our own children from before; every other child of ours is one that the script left behind, with all
            that it has started.

    Returns:
        How many processes besides the child were ended.
    """
    ended: set[int] = set()
    for _ in range(20):
        living = _ours(pid, marker, before)
        if not living:
            break
        for process in living:
            with contextlib.suppress(psutil.Error):
                process.kill()
                ended.add(process.pid)
        psutil.wait_procs([p for p in living if p.pid != pid], timeout=0.5)
    return len(ended - {pid})


def _ours(pid: int, marker: str, before: set[int]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            found[process.pid] = process
    with contextlib.suppress(psutil.Error):
        for orphan in psutil.Process().children():
            if orphan.pid not in before:  # what those from before start meanwhile is none of the script's
                for process in [orphan, *orphan.children(recursive=True)]:
                    found[process.pid] = process
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARKER) == marker:
                found[process.pid] = process
    alive = []
    for process in found.values():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def restore(scratch: Path) -> list[str]:
    """Puts back files that were changed past the guard.

    Returns:
        Their paths.
    """
    restored = []
    for entry in _journal(scratch):
        if entry["kind"] != "backup":
            continue
        path, backup = Path(entry["path"]), Path(entry["other"])
        if not backup.exists() or (path.exists() and _same(path, backup)):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(backup, path)
        restored.append(str(path))
    return restored


def _same(left: Path, right: Path) -> bool:
    if left.stat().st_size != right.stat().st_size:
        return False
    with left.open("rb") as one, right.open("rb") as two:
        while True:
            block = one.read(1 << 20)
            if block != two.read(1 << 20):
                return False
            if not block:
                return True
