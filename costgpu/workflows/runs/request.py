"""What to run, as the command line and the Python interface ask for it.

One file of more than 400 lines: each option stands beside what refuses and reads it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from costgpu.errors import ScriptNotFound, UsageError
from costgpu.job.agent.end_words import SHELLS
from costgpu.job.drive.checkpoints import LATEST
from costgpu.job.plan import Limits
from costgpu.measure import Request
from costgpu.measure.launcher import Launch
from costgpu.models.defaults import MEETING_PORT
from costgpu.models.job import JobSpec, Launcher, OutputsFrom, Recovery
from costgpu.models.run import Plan
from costgpu.providers import registry
from costgpu.units import DISK_GIB, parse_duration, parse_usd
from costgpu.workflows.estimate.request import MOST_NODES, SYSTEM_FOLDERS, ScriptOptions
from costgpu.workflows.options import OptionalFlag, Real, SizeOptions, Switch, Text, Texts, WholeOrNone, Word
from costgpu.workflows.runs.patterns import output_pattern, rule_pattern
from costgpu.workflows.tags import parse_tags

DEFAULT_LEASE = "8h"
DEFAULT_GRACE = "30s"
OF_MEASURING = ("isolation", "start_limit")  # options that only `costgpu estimate` has
MOST_PROCESSES = 999
MOST_RECOVERIES = 100
FALLBACK = "on-demand"
NEXT_SIZE = "next-size"
FIRST_PORT, LAST_PORT, _PORT_DIGITS = 1024, 65535, 5

LAUNCHERS = ", ".join(Launcher)

E = TypeVar("E", bound=StrEnum)


@dataclass(kw_only=True)
class RunRequest(ScriptOptions, SizeOptions):
    """The options of `costgpu run`, as texts: amounts of US dollars."""

    spot: OptionalFlag = OptionalFlag(
        "Spot or on-demand prices; default: on-demand.", "--spot/--on-demand", "--use-spot"
    )
    max_cost: Text = Text("Highest cost of the run in USD; default: 3 times the estimate.")
    fit: Switch = Switch("Lower the highest cost to what budgets with --enforce leave.", "--fit", default=False)
    max_duration: Text = Text("Longest time of the job, e.g. 2h.")
    idle_duration: Text = Text("Idle time after which the job is ended.")
    include: Texts = Texts("Files to send whatever ignore rules say. Repeatable.", metavar="PATTERN")
    exclude: Texts = Texts("Files not to send, whatever else is said. Repeatable.", metavar="PATTERN")
    outputs: Texts = Texts("Files to download, or none; default: all that is new or changed. Repeatable.")
    setup: Text = Text("Command before the job; default when rented: installs what the project names.")
    extra: Texts = Texts("Extra of the project's pyproject.toml to install, too. Repeatable.")
    env: Texts = Texts("Variable of the job: KEY=VALUE, or KEY from here.", "-e", "--env")
    env_file: Text = Text("File with KEY=VALUE lines.")
    name: Text = Text("Name of the job; default: the script's.", "-n", "--name")
    tags: Texts = Texts("Tag for the machine, as key=value. Repeatable.", "--tag")
    auto_shutdown: Switch = Switch("Terminate the machine when the job is over, or keep it.", default=True)
    lease: Text = Text(f"Lifetime of a machine with --no-auto-shutdown; default: {DEFAULT_LEASE}.")
    nproc: Text = Text("Number of processes under torchrun, or auto.")
    nodes: WholeOrNone = WholeOrNone("Number of machines that work on the job together; default: the command's.")
    launcher: Text = Text(f"With --nodes, what starts the processes: {LAUNCHERS}.")
    outputs_from: Word = Word(
        "With --nodes: machines whose outputs to download: 0, or all into rank-N.", default=OutputsFrom.RANK_0.value
    )
    workdir: Text = Text("Folder to send and run in; default: the script's own.")
    profile: Text = Text("Saved profile to use instead of measuring.")
    estimate: Switch = Switch("Measure the script here first, or not.", default=True)
    disk_gib: WholeOrNone = WholeOrNone(
        "Root disk in GiB; default: 50, with a GPU 100, and more for weights and checkpoints.",
        "--disk",
        low=DISK_GIB.low,
        high=DISK_GIB.high,
    )
    bucket: Text = Text("Bucket for outputs and logs: s3://name/prefix.")
    subnet: Text = Text("AWS subnet; default: the default one.")
    sync_limit_mib: Real = Real("Largest folder to send in MiB; default: 500.", "--sync-limit")
    grace: Word = Word("Time between asking the job to end and killing it.", default=DEFAULT_GRACE)
    recover: WholeOrNone = WholeOrNone("With --spot: how often the job may go on after its machine is taken back.")
    checkpoint: Texts = Texts("With --recover: files it goes on from; default: all that is new or changed. Repeatable.")
    resume_args: Text = Text("With --recover: arguments for a job that goes on, e.g. '--resume {latest}'.")
    fallback: Text = Text("With --recover: on-demand, where no spot machine is free.")
    queue: Switch = Switch("Wait in costgpu queue until there is room.", "--queue", default=False)
    retry_until_up: Switch = Switch("Look for a machine until one is free.", "--retry-until-up", default=False)
    deadline: Text = Text("With --retry-until-up: how long to look, e.g. 6h.")
    on_oom: Text = Text("What to do if the job runs out of memory: next-size, begin again on a larger machine.")
    assume_price: Text = Text("Price of an hour of this machine in USD.")
    task_env: tuple[str, ...] = ()  # as `env`, from a task file

    @property
    def machines(self) -> int:
        """Number of machines, as asked for by the option or by the launcher's own."""
        return self.nodes if self.nodes is not None else self.launch.machines if self.launch is not None else 1

    @property
    def all_outputs(self) -> bool:
        """Return whether outputs of all machines are wanted."""
        return self.outputs_from == OutputsFrom.ALL.value

    @property
    def runs_once(self) -> bool:
        """Return whether the script is to run once, on machine 0, whose launcher makes the others serve it."""
        return self.launcher in list(Launcher) and Launcher(self.launcher).runs_once

    @property
    def renting(self) -> bool:
        """Return whether what is asked for cannot be this machine."""
        named = self.instance_type or self.gpus or self.cpus or self.memory
        return bool(named or self.spot or self.retry_until_up or self.on_oom)

    @property
    def goes_on(self) -> bool:
        """Return whether a machine of the job may be followed by another one, perhaps much later."""
        return bool(self.recover is not None or self.retry_until_up or self.on_oom)

    @property
    def here(self) -> bool:
        """Return whether this computer alone is asked for."""
        return bool(self.infra) and all(map(registry.is_here, self.infra))

    @property
    def may_stay_here(self) -> bool:
        """Return whether the places asked for have this computer among them, or none is."""
        return not self.infra or any(map(registry.is_here, self.infra))


def check(request: RunRequest) -> None:
    """Refuses what contradicts itself, before anything is measured or asked.

    Raises:
        UsageError: With the options that do not go together.
    """
    if request.module is None and not request.command:
        raise UsageError("Which script?", hint="costgpu run train.py, or costgpu run -m package")
    if not 1 <= request.machines <= MOST_NODES:
        raise UsageError(f"{request.machines} machines: a job can have 1 to {MOST_NODES}.")
    if request.program:
        _refuse(
            {"--nproc": request.nproc, "--launcher": request.launcher not in (None, Launcher.NONE)},
            f"is for a Python script, and {request.program[0]} is started as it is.",
            "Let it start its processes itself, or name the script that it starts.",
        )
    if request.runs_once:
        launch = request.launch
        _refuse(
            {
                "--nproc": request.nproc,
                "--profile": request.profile,
                "--idle-duration": request.idle_duration,  # the machines' own processes never rest
                launch.launcher if launch is not None else "": launch is not None and launch.launcher != "python",
                "--outputs-from all": request.all_outputs,
            },
            f"cannot be used with --launcher {request.launcher}.",
            "The script runs once, on machine 0, and asks for processes itself; its outputs come from there.",
        )
    elif request.machines == 1:
        _refuse(
            {"--launcher": request.launcher, "--outputs-from all": request.all_outputs},
            "is for several machines.",
            "Give --nodes 2, or leave it out: --nproc 4 starts four processes on one machine.",
        )
    literal = [f"-e {name}" for name in _valued(request.env)] + _valued(request.task_env)
    if literal and (request.queue or request.goes_on):
        name = literal[0].removeprefix("-e ")
        raise UsageError(
            f"{literal[0]}=... is stored nowhere, and whoever starts the job later could not know it.",
            hint=f"Write it into a file: --env-file job.env; or export {name}, and give -e {name}.",
        )
    if request.queue and request.fit:
        raise UsageError(
            "--fit lowers the cap to what budgets leave now, and a run of the queue begins later.",
            hint="Leave --fit out: the run waits until the budgets leave its cap.",
        )
    _check_recovery(request)
    if not request.retry_until_up:
        _refuse({"--deadline": request.deadline}, "is for --retry-until-up.", "--max-duration limits the job itself.")
    if request.on_oom not in (None, NEXT_SIZE):
        raise UsageError(f"--on-oom {request.on_oom!r} is not known.", hint=f"Write --on-oom {NEXT_SIZE}.")
    if request.on_oom is not None and not request.auto_shutdown:
        raise UsageError("--on-oom and --no-auto-shutdown do not go together.", hint="Leave one of them out.")
    if request.lease is not None and request.auto_shutdown:
        raise UsageError(
            "--lease is for --no-auto-shutdown: otherwise the machine ends with its job.",
            hint="--max-duration and --max-cost limit the job.",
        )
    if request.here:
        _refuse(
            {
                "-t": request.instance_type,
                "--gpus": request.gpus,
                "--cpus": request.cpus,
                "--memory": request.memory,
                "--spot": request.spot,
                "--disk": request.disk_gib,
                "--subnet": request.subnet,
                "--retry-until-up": request.retry_until_up,
                "--on-oom": request.on_oom,
            },
            "cannot be chosen on this machine: it is as it is.",
            "Leave it out, or rent a machine: --infra aws.",
        )


def check_detached(plan: Plan) -> None:
    """Refuse to leave a job whose checkpoints only this client would save.

    Raises:
        UsageError: It goes on after interruptions, and has no bucket.
    """
    if plan.spec.needs_client:
        raise UsageError(
            "--recover with --detach or --queue needs a bucket: without this client nobody saves the checkpoints.",
            hint="Add --bucket s3://name/prefix, or stay: leave --detach and --queue out.",
        )


def _refuse(options: Mapping[str, object], why: str, hint: str) -> None:
    """Refuse those of the options that are given."""
    if given := [name for name, value in options.items() if value]:
        why = why.replace("is ", "are ", 1) if len(given) > 1 and why.startswith("is ") else why
        raise UsageError(f"{' and '.join(given)} {why}", hint=hint)


def check_program(program: Sequence[str], workdir: Path, *, rented: bool) -> None:
    """Refuses a program, or a file that a shell is told to run, that the machine cannot have.

    Raises:
        UsageError: It is not in the folder that is sent, and in no place that every machine has.
    """
    files = [word for word in program[:1] if os.sep in word and not word.startswith(SYSTEM_FOLDERS)]
    if Path(*program[:1]).name in SHELLS and "-c" not in program:
        files += [word for word in program[1:] if not word.startswith("-")][:1]
    for word in files:
        path = Path(os.path.normpath(workdir / word))
        if not path.is_file():
            raise ScriptNotFound(f"There is no program {path}.", hint="Its path counts from the folder that is sent.")
        outside = not path.is_relative_to(workdir)
        if outside and (rented or not Path(word).is_absolute()):
            raise UsageError(
                f"{word} is not in the folder that is sent, {workdir}: the machine will not have it.",
                hint="Put it there (--workdir chooses another folder), or install it with --setup and give its name alone.",
            )


def _check_recovery(request: RunRequest) -> None:
    if request.recover is None:
        options = {
            "--checkpoint": request.checkpoint,
            "--resume-args": request.resume_args,
            "--fallback": request.fallback,
        }
        _refuse(options, "is for --recover.", "Add --recover 5, or leave it out.")
        return
    if not 1 <= request.recover <= MOST_RECOVERIES:
        raise UsageError(f"--recover {request.recover}: a job can go on 1 to {MOST_RECOVERIES} times.")
    if not request.spot:
        raise UsageError(
            "--recover is for spot machines: others end only with their host.",
            hint="Add --spot, or leave --recover out.",
        )
    if not request.auto_shutdown:
        raise UsageError("--recover and --no-auto-shutdown do not go together.", hint="Leave one of them out.")
    if request.fallback not in (None, FALLBACK):
        raise UsageError(f"--fallback {request.fallback!r} is not known.", hint=f"Write --fallback {FALLBACK}.")
    if LATEST in (request.resume_args or "") and not request.checkpoint:
        raise UsageError(
            f"--resume-args names {LATEST}, and nothing says what the checkpoints are.",
            hint="Name them: --checkpoint 'checkpoints/**'",
        )


def _valued(variables: tuple[str, ...]) -> list[str]:
    """Return the names of variables whose values are given, sorted."""
    return sorted(each.partition("=")[0] for each in variables if "=" in each)


def _recovery(request: RunRequest, workdir: Path) -> Recovery | None:
    """Return how the job goes on; None if it is not to."""
    if request.recover is None:
        return None
    try:
        resume = tuple(shlex.split(request.resume_args or ""))
    except ValueError as error:
        raise UsageError(f"--resume-args {request.resume_args!r} cannot be read: {error}.") from None
    checkpoints = tuple(output_pattern("--checkpoint", each, workdir) for each in request.checkpoint)
    return Recovery(most=request.recover, checkpoints=checkpoints, resume_args=resume)


def limits_of(request: RunRequest, *, longest_hours: float) -> Limits:
    """Return what the user allows."""
    lease = None if request.auto_shutdown else request.lease or DEFAULT_LEASE
    return Limits(
        max_cost_usd=None if request.max_cost is None else parse_usd(request.max_cost, "--max-cost"),
        max_duration_seconds=None
        if request.max_duration is None
        else parse_duration(request.max_duration, "--max-duration"),
        lease_seconds=None if lease is None else parse_duration(lease, "--lease"),
        longest_seconds=longest_hours * 3600,
        disk_gib=request.disk_gib,
        nodes=request.machines,
    )


def job_spec(
    request: RunRequest, script: Request, limits: Limits, environment: Mapping[str, str], *, bucket: str | None
) -> JobSpec:
    """Return the job as asked for.

    Raises:
        UsageError: A path leaves the folder, or a number or tag is not one.
    """
    from costgpu.job.launch import job_name

    workdir = script.workdir.resolve()
    if len(request.outputs) > 1 and "none" in request.outputs:
        raise UsageError(
            "--outputs none says that no outputs are expected, and others are named.",
            hint="A file of that name is ./none.",
        )
    launch, several = script.launch, request.machines > 1
    launcher = _launcher(request.launcher, launch)
    if script.program:
        launcher = Launcher.NONE  # it finds its rank in its variables, and starts what it starts
    return JobSpec(
        name=job_name(request.name or (Path(script.name).stem if script.script or script.program else script.name)),
        argv=script.program or _argv(script, several=several),
        program=bool(script.program),
        workdir=str(workdir),
        include=tuple(rule_pattern("--include", each, workdir) for each in request.include),
        exclude=tuple(rule_pattern("--exclude", each, workdir) for each in request.exclude),
        env_names=tuple(sorted(environment)),
        env_file=str(Path(request.env_file).resolve()) if request.env_file else None,
        outputs=tuple(output_pattern("--outputs", each, workdir) for each in request.outputs),
        processes=0 if launcher.runs_once or script.program else _processes(request.nproc, launch, several=several),
        max_cost_usd=limits.max_cost_usd,
        max_duration_seconds=limits.max_duration_seconds,
        idle_seconds=None
        if request.idle_duration is None
        else parse_duration(request.idle_duration, "--idle-duration"),
        grace_seconds=parse_duration(request.grace, "--grace"),
        auto_shutdown=request.auto_shutdown,
        bucket=bucket or "",
        tags=parse_tags(request.tags),
        nodes=request.machines,
        launcher=launcher,
        launcher_options=launch.kept if launch is not None and (launch.torchrun or several) else (),
        min_nodes=launch.least_machines
        if several and launch is not None and launch.least_machines < request.machines
        else 0,
        max_restarts=launch.max_restarts if several and launch is not None else 0,
        outputs_from=_one_of(OutputsFrom, request.outputs_from, "--outputs-from"),
        port=_port(environment.get("MASTER_PORT")),
        recovery=_recovery(request, workdir),
        retry_until_up=request.retry_until_up,
        search_seconds=None if request.deadline is None else parse_duration(request.deadline, "--deadline"),
        on_oom_next_size=request.on_oom is not None,
    )


def _launcher(asked: str | None, launch: Launch | None) -> Launcher:
    """Return what starts the ranks on several machines: what the command says, else what was asked for, else torchrun."""
    named = Launcher.TORCHRUN if asked is None else _one_of(Launcher, asked, "--launcher")
    if launch is None or launch.launcher == "python":
        return named
    first = launch.launcher.partition(" ")[0]
    found = Launcher(first) if first in list(Launcher) else Launcher.TORCHRUN
    if asked is not None and found is not named:
        raise UsageError(f"--launcher {asked}, and the command is {launch.launcher}.", hint="Leave one of them out.")
    return found


def _one_of(kind: type[E], text: str, option: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text!r} is none of {', '.join(kind)}.") from None


def _port(text: str | None) -> int:
    """Return where machines meet: what the job's environment says, as launchers read it."""
    if text is None:
        return MEETING_PORT
    if not (text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS and FIRST_PORT <= int(text) <= LAST_PORT):
        raise UsageError(f"MASTER_PORT={text!r} is not a port from {FIRST_PORT} to {LAST_PORT}.")
    return int(text)


def _argv(script: Request, *, several: bool) -> tuple[str, ...]:
    launch = script.launch
    arguments = launch.arguments if launch is not None else script.arguments  # the rank is the launcher's to tell
    name = str(script.module)
    if script.script is not None:
        try:
            name = script.script.relative_to(script.workdir.resolve()).as_posix()
        except ValueError:
            raise UsageError(
                f"{script.script} is not in the folder that is sent, {script.workdir}.",
                hint="Choose another --workdir.",
            ) from None
        name = f"./{name}" if name.startswith("-") else name  # an interpreter would take it for an option
    if launch is not None and launch.runner and not several:
        return ("-m", launch.runner, *launch.kept, name, *arguments)
    return ("-m", name, *arguments) if script.script is None else (name, *arguments)


def _processes(nproc: str | None, launch: Launch | None, *, several: bool) -> int:
    """Return the number of processes; 0 without torchrun, -1 for as many as there are GPUs."""
    if nproc is None and several:
        return -1
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
