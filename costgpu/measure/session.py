"""One measurement: start the probe out of reach of the user's files, wait, and end everything that it started."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from costgpu.measure.footprint.gather import gather
from costgpu.measure.footprint.watch import FileWatch
from costgpu.measure.host_info import free_memory_bytes
from costgpu.measure.interpreter import Interpreter
from costgpu.measure.isolation.layers import Changes, SizeLimit
from costgpu.measure.isolation.levels import Isolation
from costgpu.measure.isolation.start import IsolatedCommand, start_isolated
from costgpu.measure.launcher import Launch
from costgpu.measure.probe.record import ProbeConfig, ProbeRecord
from costgpu.measure.process_tree import MARKER, adopting, end_everything, interruptible, own_children, uninterrupted
from costgpu.measure.ranks import ASSUMED_PER_MACHINE, gpus_of, rank_environment, world_environment
from costgpu.measure.scratch import Scratch
from costgpu.models.defaults import MEASURE_FOR_SECONDS, START_LIMIT_SECONDS
from costgpu.models.footprint import Footprint
from costgpu.portable.bundle import bundle

UNTIMED_SECONDS = 5.0  # of steps whose times are not those of a computer: only what they are made of is looked for
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
GRACE_SECONDS = 10.0  # the probe ends itself at its limits; this is for one that cannot (native code holds the lock)
TICK_SECONDS = 0.1
QUIET_TRACKERS = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug"}


def hard_limit_seconds(measure_for_seconds: float) -> float:
    """Return the longest that a program is watched after its first step, even if it has hardly stepped."""
    return max(5 * measure_for_seconds, measure_for_seconds + 60)


def child_environment(marker: str, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a measured program; everything that it starts carries the marker."""
    return {**variables, **QUIET_TRACKERS, MARKER: marker, "PYTHONUNBUFFERED": "1"}


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
    isolation: Isolation | None = None  # the only level to measure at; None for the strongest that this machine gives
    program: tuple[str, ...] = ()  # what runs as it is; empty for a Python script or module
    weights: str = "tried"  # ``real``, ``none``, or ``tried``: without them where they are too large for this machine
    change: str = ""  # what `models.memory_change.word_of` says of changes to make to it; needs ``none`` for `weights`
    variables: dict[str, str] = field(default_factory=dict)  # what stands in front of a program
    environment: dict[str, str] | None = None  # as the command's prefixes leave it; None for that of this process

    @property
    def python(self) -> str | None:
        """Return the interpreter that the command names; None if it names none."""
        return self.launch.python if self.launch is not None else None

    @property
    def assigned(self) -> dict[str, str]:
        """Return the variables that the command sets by name."""
        return self.launch.prefixes.assigned if self.launch is not None else self.variables

    @property
    def name(self) -> str:
        """For people and file names."""
        if self.program:
            of_shell = [word for word in self.program[1:] if word.endswith(".sh")]
            return Path((of_shell or self.program)[0]).name
        return self.script.name if self.script is not None else str(self.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    record: ProbeRecord | None  # the probe's result; None if it wrote none
    returncode: int  # negative for a signal
    timed_out: bool  # we had to end it
    log: Path  # the script's own output
    scratch: Path  # the measurement's own folder
    isolation: Isolation  # what kept the user's files as they are
    changes: Changes = field(default_factory=Changes)  # what the script did to files; the real ones are as they were
    too_large: int | None = None  # bytes that it may write, if it was ended because it wrote more
    programs: list[str] = field(default_factory=list)  # other programs that it started
    survivors: int = 0  # processes of it that had to be ended
    footprint: Footprint = field(default_factory=Footprint)


def run_probe(
    request: Request,
    interpreter: Interpreter,
    cache: Path,
    progress: Callable[[float, bool], None],
    *,
    saved_hooks: bool = True,
    fake_cuda: bool = False,
    launched: bool = False,
    many_gpus: bool = False,
    alone: bool = False,
    weights: str | None = None,
    every_part: bool = False,
    threads: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run the script under the probe.

    Args:
        cache: Folder under which this measurement gets its own.
        progress: Called some times a second with the seconds since the start and whether it has stepped.
        saved_hooks: Count saved tensors; off for code that does not allow it (torch.func).
        fake_cuda: What the script asks of a CUDA device lands on the CPU, where there is no such device.
        launched: With the environment of the first process of torchrun, on a machine with several GPUs.
        many_gpus: The same as `fake_cuda`, with several such devices.
        alone: As the only process, whatever number is asked for.
        weights: As in the request, which None stands for.
        every_part: Without weights, compute all micro-batches of a step, and not two of those that are equal.
        threads: Variables that tell its libraries' threads how to wait; the user's own come first.

    Raises:
        KeyboardInterrupt: Ctrl-C (or SIGTERM, SIGHUP); everything has been ended before.
        ConfigError: This machine does not give the isolation that is asked for.
    """
    scratch = Scratch.make(cache.absolute(), request.name)
    folder = scratch.folder
    log, config, result = scratch.log, folder / "config.json", scratch.open / "result.json"
    launch = request.launch
    several = many_gpus or launched
    weights = weights or request.weights
    measure_for = request.measure_for_seconds
    if weights == "none":
        measure_for = min(measure_for, UNTIMED_SECONDS)
    gpus = 1 if alone else ASSUMED_PER_MACHINE if several else gpus_of(launch)
    settings = ProbeConfig(
        script=str(request.script) if request.script else None,
        module=request.module,
        args=request.arguments,
        measure_for=measure_for,
        hard_limit=request.start_limit_seconds
        if weights == "none"
        else hard_limit_seconds(request.measure_for_seconds),
        start_limit=request.start_limit_seconds,
        steps=request.steps,
        result=str(result),
        scratch=str(scratch.open),
        saved_hooks=saved_hooks,
        fake_cuda=fake_cuda or many_gpus or weights == "none",
        weights=weights,
        every_part=every_part,
        change=request.change,
        free_memory=free_memory_bytes(),
        alone=alone,
        gpus=gpus,
        launched=launched,
        accelerate=list(launch.kept) if launch is not None and launch.config is not None else None,
    )

    def prepare(inside: Callable[[str], str]) -> None:
        script = inside(str(request.script)) if request.script else None
        config.write_text(
            json.dumps({**settings, "script": script, "args": [inside(word) for word in request.arguments]})
        )

    before, marker, probe = own_children(), uuid.uuid4().hex, folder / "probe.pyz"
    probe.write_bytes(bundle("measure.probe", "entry"))
    world = world_environment(ASSUMED_PER_MACHINE, 1) if launched else {}
    environment = {**threads, **world, **child_environment(marker, interpreter.variables)}
    if launch is not None:
        environment.update(rank_environment(launch))
    if weights == "none":
        environment.update(NO_GPU)
    if alone:
        environment.update({name: "1" for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE") if name in environment})
    limit = request.start_limit_seconds + settings["hard_limit"] + GRACE_SECONDS
    timed_out = too_large = False
    with (
        log.open("wb") as output,
        interruptible(),
        contextlib.closing(FileWatch(request.workdir, folder / "watches.json")) as watch,
        adopting(),
    ):
        command = IsolatedCommand(
            [interpreter.path, str(probe), "run", str(config)],
            request.workdir,
            environment,
            output.fileno(),
            scratch,
            named=request.arguments,
            watch=watch,
            prepare=prepare,
        )
        started = start_isolated(command, request.isolation)
        child, start = started.process, time.monotonic()
        size = SizeLimit(folder, *started.elsewhere(folder))
        try:
            while child.poll() is None:
                elapsed, stepping = time.monotonic() - start, scratch.stepping
                timed_out = elapsed > (limit if stepping else request.start_limit_seconds + GRACE_SECONDS)
                too_large = size.exceeded()
                if timed_out or too_large:
                    break
                watch.look(child.pid)
                progress(elapsed, stepping)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=TICK_SECONDS)
        finally:
            with uninterrupted():
                survivors = end_everything(child.pid, marker, before)
                child.wait()
                watch.drain()
                changes = started.close(scratch)
    return Outcome(
        record=scratch.record(),
        returncode=child.returncode,
        timed_out=timed_out,
        log=log,
        scratch=folder,
        isolation=started.isolation,
        changes=changes,
        too_large=size.limit_bytes if too_large else None,
        programs=scratch.programs(),
        survivors=survivors,
        footprint=gather(watch, scratch, changes, started.isolation),
    )
