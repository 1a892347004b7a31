"""One measurement: start the probe, wait, end everything that it started, and put back what must be put back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from costgpu.measure.interpreter import Interpreter
from costgpu.measure.launcher import Launch
from costgpu.measure.probe.record import ProbeConfig, ProbeRecord
from costgpu.measure.process_tree import MARKER, adopting, end_everything, interruptible, own_children, uninterrupted
from costgpu.measure.scratch import left_behind, new_scratch, read_journal, restore
from costgpu.models.defaults import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS

GRACE_SECONDS = 10.0  # the probe ends itself at its limits; this is for one that cannot (native code holds the lock)
TICK_SECONDS = 0.1
PROBE = Path(__file__).with_name("probe")
PROBE_PACKAGE = "_costgpu_probe"  # a name that no script of the user's has
LAUNCHED = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
QUIET_TRACKERS = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug"}


def hard_limit_seconds(measure_for_seconds: float) -> float:
    """The longest that a program is watched after its first step, even if it has hardly stepped."""
    return max(5 * measure_for_seconds, measure_for_seconds + 60)


def child_environment(marker: str) -> dict[str, str]:
    """The environment of a measured program; everything that it starts carries the marker."""
    return {**os.environ, **QUIET_TRACKERS, MARKER: marker, "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    script: Path | None  # absolute path; None with `module`
    module: str | None  # for ``python -m``
    arguments: list[str]
    workdir: Path  # where it runs
    measure_for_seconds: float = MEASURE_FOR_SECONDS  # after the first step
    start_limit_seconds: float = START_LIMIT_SECONDS  # to reach the first step
    steps: int | None = None  # stop after so many timed steps; None for the time limit
    launch: Launch | None = None  # how a launcher would start it; None for plain Python

    @property
    def python(self) -> str | None:
        """The interpreter that the command names; None if it names none."""
        return self.launch.python if self.launch is not None else None

    @property
    def name(self) -> str:
        """For people and file names."""
        return self.script.name if self.script is not None else str(self.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    record: ProbeRecord | None  # the probe's result; None if it wrote none
    returncode: int  # negative for a signal
    timed_out: bool  # we had to end it
    log: Path  # the script's own output
    probe: Path  # the probe that ran
    scratch: Path  # where diverted files are
    restored: list[str] = field(default_factory=list)  # files that were changed past the guard and have been put back
    # Files whose new content is in `scratch`; the originals are as they were.
    diverted: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)  # new files that the script left
    programs: list[str] = field(default_factory=list)  # other programs that it started
    survivors: int = 0  # processes of it that had to be ended


def run_probe(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    *,
    saved_hooks: bool = True,
    fake_cuda: bool = False,
    launched: bool = False,
) -> Outcome:
    """Runs the script under the probe.

    Args:
        cache: Folder under which this measurement gets its own.
        progress: Called some times a second with the seconds since the start and whether it has stepped.
        saved_hooks: Count saved tensors; off for code that does not allow it (torch.func).
        fake_cuda: What the script asks of a CUDA device lands on the CPU, where there is no such device.
        launched: With the environment of the only process that torchrun has started.

    Raises:
        KeyboardInterrupt: Ctrl-C (or SIGTERM, SIGHUP); everything has been ended and put back before.
    """
    scratch = new_scratch(cache.absolute(), request.name)
    log, config, result = scratch / "output.log", scratch / "config.json", scratch / "result.json"
    settings = ProbeConfig(
        script=str(request.script) if request.script else None,
        module=request.module,
        args=request.arguments,
        measure_for=request.measure_for_seconds,
        hard_limit=hard_limit_seconds(request.measure_for_seconds),
        start_limit=request.start_limit_seconds,
        steps=request.steps,
        result=str(result),
        scratch=str(scratch),
        saved_hooks=saved_hooks,
        fake_cuda=fake_cuda,
    )
    config.write_text(json.dumps(settings))
    before, marker, probe = own_children(), uuid.uuid4().hex, _pack_probe(scratch / "probe.pyz")
    launch = request.launch
    environment = {**(LAUNCHED if launched or (launch and launch.ranked) else {}), **child_environment(marker)}
    if launch is not None:
        environment.update(launch.environment)
    limit = request.start_limit_seconds + settings["hard_limit"] + GRACE_SECONDS
    start, timed_out, survivors = time.monotonic(), False, 0
    with log.open("wb") as output, interruptible(), adopting():
        child = subprocess.Popen(
            [interpreter.path, str(probe), "run", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=request.workdir,
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
                    child.wait(timeout=TICK_SECONDS)
        finally:
            with uninterrupted():
                survivors = end_everything(child.pid, marker, before)
                child.wait()
                restored = restore(scratch)
    journal = read_journal(scratch)
    return Outcome(
        record=_read_record(result),
        returncode=child.returncode,
        timed_out=timed_out,
        log=log,
        probe=probe,
        scratch=scratch,
        restored=restored,
        diverted=journal.get("diverted", []),
        created=[path for path in journal.get("created", []) if left_behind(Path(path), scratch)],
        programs=journal.get("program", []),
        survivors=survivors,
    )


def _pack_probe(target: Path) -> Path:
    """Packs the probe into the one file that runs in the user's interpreter."""
    with zipfile.ZipFile(target, "w") as archive:
        for source in sorted(PROBE.rglob("*.py")):
            archive.writestr(f"{PROBE_PACKAGE}/{source.relative_to(PROBE).as_posix()}", source.read_bytes())
        archive.writestr("__main__.py", f"from {PROBE_PACKAGE}.entry import main\n\nmain()\n")
    return target


def _read_record(path: Path) -> ProbeRecord | None:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return cast("ProbeRecord", record) if isinstance(record, dict) else None
