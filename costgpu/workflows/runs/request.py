"""What to run, as the command line and the Python interface ask for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costgpu.errors import UsageError
from costgpu.measure import Request
from costgpu.measure.launcher import Launch
from costgpu.models.job import JobSpec
from costgpu.runner.plan import Limits
from costgpu.units import parse_duration, parse_usd
from costgpu.workflows.estimate.request import ScriptOptions
from costgpu.workflows.tags import parse_tags

DEFAULT_LEASE = "8h"
DEFAULT_GRACE = "30s"
MOST_PROCESSES = 999


@dataclass(frozen=True, kw_only=True)
class RunRequest(ScriptOptions):
    """The options of `costgpu run`, as texts: amounts of US dollars."""

    infra: tuple[str, ...] = ()
    instance_type: str | None = None
    gpus: str | None = None
    spot: bool = False
    max_cost: str | None = None
    max_duration: str | None = None
    idle_duration: str | None = None
    outputs: tuple[str, ...] = ()
    setup: str | None = None
    env: tuple[str, ...] = ()  # ``KEY=VALUE``, or ``KEY`` from this process
    env_file: str | None = None
    name: str | None = None
    tags: tuple[str, ...] = ()
    auto_shutdown: bool = True
    lease: str | None = None
    nproc: str | None = None  # number of processes under torchrun, or ``auto``
    profile: str | None = None
    estimate: bool = True
    disk_gib: int | None = None
    bucket: str | None = None
    subnet: str | None = None
    sync_limit_mib: float | None = None
    grace: str = DEFAULT_GRACE
    assume_price: str | None = None

    @property
    def renting(self) -> bool:
        """Whether what is asked for cannot be this machine."""
        return bool(self.instance_type or self.gpus or self.spot)


def check(request: RunRequest) -> None:
    """Refuses what contradicts itself, before anything is measured or asked.

    Raises:
        UsageError: With the options that do not go together.
    """
    if request.module is None and not request.command:
        raise UsageError("Which script?", hint="costgpu run train.py, or costgpu run -m package")
    if request.lease is not None and request.auto_shutdown:
        raise UsageError(
            "--lease is for --no-auto-shutdown: otherwise the machine ends with its job.",
            hint="--max-duration and --max-cost limit the job.",
        )
    if request.infra == ("local",):
        options = {
            "-t": request.instance_type,
            "--gpus": request.gpus,
            "--spot": request.spot,
            "--disk": request.disk_gib,
            "--subnet": request.subnet,
        }
        given = [name for name, value in options.items() if value]
        if given:
            raise UsageError(
                f"{' and '.join(given)} cannot be chosen on this machine: it is as it is.",
                hint="Leave it out, or rent a machine: --infra aws.",
            )


def limits_of(request: RunRequest, *, longest_hours: float) -> Limits:
    """What the user allows."""
    lease = None if request.auto_shutdown else request.lease or DEFAULT_LEASE
    return Limits(
        max_cost_usd=None if request.max_cost is None else parse_usd(request.max_cost, "--max-cost"),
        max_duration_seconds=None
        if request.max_duration is None
        else parse_duration(request.max_duration, "--max-duration"),
        lease_seconds=None if lease is None else parse_duration(lease, "--lease"),
        longest_seconds=longest_hours * 3600,
        disk_gib=request.disk_gib,
    )


def job_spec(
    request: RunRequest, script: Request, limits: Limits, environment: Iterable[str], *, bucket: str | None
) -> JobSpec:
    """The job as asked for.

    Raises:
        UsageError: A path leaves the folder, or a number or tag is not one.
    """
    from costgpu.runner.launch import job_name

    for pattern in request.outputs:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise UsageError(f"--outputs {pattern} leaves the working folder.", hint="Patterns are relative to it.")
    return JobSpec(
        name=job_name(request.name or (script.script.stem if script.script else str(script.module))),
        argv=_argv(script),
        workdir=str(script.workdir.resolve()),
        env_names=tuple(sorted(environment)),
        env_file=str(Path(request.env_file).resolve()) if request.env_file else None,
        outputs=request.outputs,
        processes=_processes(request.nproc, script.launch),
        max_cost_usd=limits.max_cost_usd,
        max_duration_seconds=limits.max_duration_seconds,
        idle_seconds=None
        if request.idle_duration is None
        else parse_duration(request.idle_duration, "--idle-duration"),
        grace_seconds=parse_duration(request.grace, "--grace"),
        auto_shutdown=request.auto_shutdown,
        bucket=bucket or "",
        tags=parse_tags(request.tags),
    )


def _argv(script: Request) -> tuple[str, ...]:
    launch = script.launch
    arguments = launch.arguments if launch is not None else script.arguments  # the rank is the launcher's to tell
    if launch is not None and launch.runner:
        return ("-m", launch.runner, *launch.kept, _program(script), *arguments)
    if script.script is None:
        return ("-m", _program(script), *arguments)
    return (_program(script), *arguments)


def _program(script: Request) -> str:
    """The module, or the script as it is called in the folder that is sent."""
    if script.script is None:
        return str(script.module)
    try:
        name = script.script.relative_to(script.workdir.resolve()).as_posix()
        return f"./{name}" if name.startswith("-") else name  # an interpreter would take it for an option
    except ValueError:
        raise UsageError(
            f"{script.script} is not in the folder that is sent, {script.workdir}.", hint="Choose another --workdir."
        ) from None


def _processes(nproc: str | None, launch: Launch | None) -> int:
    """Number of processes; 0 without torchrun, -1 for as many as there are GPUs."""
    if nproc is None:
        return -1 if launch is not None and launch.ranked and not launch.runner else 0
    if launch is not None and launch.launcher != "python":
        raise UsageError(
            f"--nproc is for a script, and the command is {launch.launcher}.", hint="Leave one of them out."
        )
    if nproc == "auto":
        return -1
    if not (nproc.isascii() and nproc.isdigit() and len(nproc) < 4 and 0 < int(nproc) <= MOST_PROCESSES):
        raise UsageError(f"--nproc {nproc!r} is not a number of processes.", hint="Write --nproc 4 or --nproc auto.")
    return int(nproc)
