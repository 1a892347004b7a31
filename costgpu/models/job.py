"""What a job is asked to do, how it fares on the machine, and what it produces. Imports `defaults` and `errors`.

Durations are seconds, money `Decimal` US dollars. Nothing here ever holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Self

from costgpu.errors import (
    CostGpuError,
    DiskFull,
    InstanceLost,
    LimitReached,
    NodesApart,
    Preempted,
    RunCancelled,
    RunError,
    SetupFailed,
)
from costgpu.models.defaults import MEETING_PORT


class CostOutcome(StrEnum):
    """What the money of a run was for."""

    SUCCEEDED = "succeeded"
    OVERHEAD = "boot, set-up and transfers of those"
    CANCELLED = "cancelled"
    LIMITED = "ended by a limit"
    OPEN = "still running"
    FAILED = "failed"
    IDLE = "idle"
    SPOT = "spot machine taken back"
    CONTINUED = "interrupted, and gone on elsewhere"
    LOST = "machine lost or forgotten"
    NEVER = "never started its job"
    OTHER = "other"

    @property
    def wasted(self) -> bool:
        """Return True if the run ended without what it was paid for: not by a limit of the user, nor by a cancellation."""
        return self in (self.FAILED, self.IDLE, self.SPOT, self.LOST, self.NEVER)


_LIMITED = CostOutcome.LIMITED, LimitReached
_NEVER = CostOutcome.NEVER, RunError


class EndReason(StrEnum):
    """Why a job or run ended: with what that means for its cost and for whoever waits, and its words."""

    outcome: CostOutcome
    error: type[CostGpuError] | None  # None for a job that ended by itself, well or not
    word: str  # in a column of a table
    phrase: str  # what the job has done, as receipts say it
    limit: str  # the limit that was reached; empty without one
    happened: str  # what has become of the machine, as the others of its job are told

    def __new__(
        cls,
        value: str,
        outcome: CostOutcome = CostOutcome.OTHER,
        error: type[CostGpuError] | None = RunError,
        word: str = "",
        phrase: str = "",
        limit: str = "",
        happened: str = "",
    ) -> Self:
        """Make a member that has its facts as attributes."""
        made = str.__new__(cls, value)
        made._value_, made.outcome, made.error, made.word, made.limit = value, outcome, error, word or value, limit
        made.phrase, made.happened = phrase or made.words, happened or f"is ended ({made.words})"
        return made

    @property
    def words(self) -> str:
        """Return the reason as a text."""
        return str.__str__(self).replace("_", " ")

    @property
    def interrupted(self) -> bool:
        """Return whether the provider has taken the machine back."""
        return self.error is Preempted

    SUCCEEDED = "succeeded", CostOutcome.SUCCEEDED, None, "ok"
    CANCELLED = "cancelled", CostOutcome.CANCELLED, RunCancelled  # somebody decided so; what there was came home
    MAX_DURATION = "max_duration", *_LIMITED, "limit", "ended by --max-duration", "its --max-duration"
    DEADLINE = "deadline", *_LIMITED, "", "ended by the deadline", "the deadline that its cost cap or lease sets"
    JOB_FAILED = "job_failed", CostOutcome.FAILED, None, "failed", "failed"
    SETUP_FAILED = "setup_failed", CostOutcome.FAILED, SetupFailed, "set-up", "not started, its set-up failed"
    DISK_FULL = "disk_full", CostOutcome.FAILED, DiskFull, "disk", "ended, the disk was nearly full"
    IDLE = (  # the whole run: how much of it was idle is not recorded
        *("idle", CostOutcome.IDLE, LimitReached),
        *("", "ended by --idle-duration", "its --idle-duration: nothing happened for so long"),
    )
    PREEMPTED = (
        *("preempted", CostOutcome.SPOT, Preempted),
        *("", "lost, the machine was taken back", "", "was taken back by the provider"),
    )
    # the same, and the job goes on on another machine; what had to be done again is in the receipts
    INTERRUPTED = "interrupted", CostOutcome.CONTINUED, Preempted, "", "interrupted, and gone on with elsewhere"
    INSTANCE_LOST = "instance_lost", CostOutcome.LOST, InstanceLost, "lost", "lost with its machine", "", "is gone"
    LEASE_EXPIRED = "lease_expired", CostOutcome.LOST, LimitReached, "reaped", "ended by the deadline", "its lease"
    UNCLAIMED = "unclaimed", *_NEVER, "", "not started, no client was there"  # or it went before the job started
    NO_CAPACITY = "no_capacity", *_NEVER, "no place"
    PROVISION_FAILED = "provision_failed", *_NEVER, "refused"
    BOOT_FAILED = "boot_failed", *_NEVER, "no boot", "not started, the machine did not come up", "", "did not come up"
    HOST_KEY_MISMATCH = "host_key_mismatch", *_NEVER, "host key", "not started, another machine answered"
    MACHINE_UNUSABLE = "machine_unusable", *_NEVER, "unusable", "not started, the machine cannot be used"
    DRIVER_FAILED = (
        *("driver_failed", *_NEVER, "driver"),
        *("not started, the GPU or its driver did not answer", "", "has GPUs that do not answer"),
    )
    SYNC_FAILED = (
        *("sync_failed", *_NEVER, "not sent"),
        *("not started, its files could not be sent", "", "could not be sent the files"),
    )
    NODES_APART = "nodes_apart", CostOutcome.NEVER, NodesApart, "", "not started, its machines cannot work together"
    # another machine of the job was not to be had, or is gone
    NODE_LOST = "node_lost", CostOutcome.NEVER, NodesApart, "", "ended, another machine of it was missing"


class Launcher(StrEnum):
    """What starts the ranks of a job on several machines."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    NONE = "none"  # the command itself, once on every machine, with the variables that tell it its rank
    RAY = "ray"  # the command itself, once, on the head of a Ray cluster of all machines

    @property
    def runs_once(self) -> bool:
        """Return whether the script runs once, on machine 0, and not as ranks; the others serve it."""
        return self is Launcher.RAY


class OutputsFrom(StrEnum):
    """Which machines of a job on several bring outputs home."""

    RANK_0 = "0"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    """Which machine of a job on several a run is for."""

    node: int  # number of the machine, from 0
    run_ids: tuple[str, ...]  # runs of all machines, by number

    @property
    def group_id(self) -> str:
        """Run id of machine 0, by which the whole job is called."""
        return self.run_ids[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How a job goes on when its spot machine is taken back."""

    most: int  # further machines, at most
    checkpoints: tuple[
        str, ...
    ] = ()  # patterns relative to `workdir`; empty means whatever the job has made or changed
    resume_args: tuple[str, ...] = ()  # arguments for a job that goes on; ``{latest}`` in them is its newest checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Which attempt at its job a run is for."""

    job_id: str  # run id of the first machine of the first attempt, by which the job is called
    index: int  # number among the attempts, from 0
    number: int  # the same without those that found no machines, from 1
    failed_resumes: int = 0  # how many in a row before this have failed as soon as they went on
    searches: int = 0  # how many in a row before this have found no machines


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the user asked for. Environment values are not in it: they are secrets until proven otherwise."""

    name: str  # name for people: letters, digits and dashes
    # script and its arguments, or ``-m module`` and its arguments, or a program and its; relative to `workdir`
    argv: tuple[str, ...]
    workdir: str  # the folder on the user's machine that is sent
    program: bool = False  # whether `argv` is a command line of its own, and nothing for Python
    setup: str = ""  # shell command that runs before the job; empty for none
    env_names: tuple[str, ...] = ()  # names of the variables that travel to the job
    env_file: str | None = None  # path of the file that more of them came from; None without one
    # patterns, in the syntax of .gitignore relative to `workdir`, of what travels and what stays whatever other rules say
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()  # patterns relative to `workdir`; empty means whatever the job created or changed
    processes: int = 0  # 0 for plain Python, n for ``torchrun --nproc-per-node n``, -1 for one per GPU
    python: str = ""  # interpreter on the machine; empty for the machine's own
    max_cost_usd: Decimal | None = None  # cap on everything from the create call on; None if only time limits it
    # limit of the job itself, set-up excluded; None for no limit but the deadline
    max_duration_seconds: float | None = None
    idle_seconds: float | None = None  # idle time after which the job is ended; None for never
    grace_seconds: float = 30.0  # seconds between SIGTERM and SIGKILL
    auto_shutdown: bool = True  # whether the machine is terminated when the job is over
    bucket: str = ""  # ``s3://name/prefix`` for outputs and logs; empty for none
    tags: Mapping[str, str] = field(default_factory=dict)  # the user's own tags
    nodes: int = 1  # number of machines
    node: JobNode | None = None  # which of them this is; None for a job on one machine
    launcher: Launcher = Launcher.TORCHRUN  # what starts the ranks on several machines
    launcher_options: tuple[str, ...] = ()  # its own options, without those about the number and place of ranks
    min_nodes: int = 0  # number of machines with which torchrun may go on; 0 for all of them
    max_restarts: int = 0  # how often torchrun starts the ranks anew
    outputs_from: OutputsFrom = OutputsFrom.RANK_0
    port: int = MEETING_PORT  # at which the machines meet
    recovery: Recovery | None = None  # None for a job that ends with its machine
    attempt: Attempt | None = None  # None for a job without recovery
    queued: bool = False  # whether it waits until there is room for it
    retry_until_up: bool = False  # whether machines are looked for until there are some
    search_seconds: float | None = None  # how long they are looked for; None for as long as it takes
    on_oom_next_size: bool = False  # whether a job that runs out of memory begins again on a larger machine

    @property
    def goes_on(self) -> bool:
        """Return whether a run of the job may be followed by one on other machines, perhaps much later."""
        return self.recovery is not None or self.retry_until_up or self.on_oom_next_size

    @property
    def needs_client(self) -> bool:
        """Return whether a client has to be there while the job runs, because nobody else saves its checkpoints."""
        return self.recovery is not None and not self.bucket


class JobPhase(StrEnum):
    """Phase of the job, as the agent on the machine sees it."""

    WAITING = "waiting"  # the agent is there, no job was started
    SETUP = "setup"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """How one machine of a job finds the others; fields without a description are those of `JobSpec`.

    A launcher that runs the script once has one on a single machine, too.
    """

    nodes: int
    node: int  # number of this machine; ranks are numbered in this order
    address: str  # private address of machine 0, where all meet
    port: int
    own_address: str  # private address of this machine
    launcher: Launcher
    launcher_options: tuple[str, ...]
    min_nodes: int
    max_restarts: int
    token: str = field(default="", repr=False)  # what only the machines of the job know


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What the agent has to run and to enforce; fields without a description are those of `JobSpec`."""

    argv: tuple[str, ...]
    setup: str
    outputs: tuple[str, ...]
    processes: int
    python: str
    deadline_epoch: float  # Unix time at which the job must be over, outputs saved and the machine off
    max_duration_seconds: float | None
    idle_seconds: float | None
    grace_seconds: float
    spot: bool  # whether to watch for the provider's interruption notice
    power_off: bool  # whether the agent may end the machine; False only with ``--no-auto-shutdown``
    spot_notice: str = ""  # source of that notice: ``imdsv2``, ``computemetadata``; empty if there is none
    rendezvous: Rendezvous | None = None  # None for a job on one machine, unless its launcher runs it once
    keep_outputs: bool = True  # whether the machine has to stay until outputs and logs are fetched
    checkpoints: tuple[str, ...] | None = None  # patterns of `Recovery`; None for a job without recovery
    program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Status of the job, as the agent reports it."""

    phase: JobPhase
    reason: EndReason | None = None  # reason of its end; None until then
    exit_code: int | None = None  # exit code of the job (128 + signal if a signal ended it); None until it has ended
    detail: str = ""  # a sentence for people; empty if there is nothing to add
    started_epoch: float | None = None  # start of the set-up by the machine's clock; None until then
    # start of the job itself by the same clock; None until then, or from an older agent
    job_started_epoch: float | None = None
    finished_epoch: float | None = None  # end of the job by the same clock; None until then
    stdout_bytes: int = 0  # bytes written by the job so far
    stderr_bytes: int = 0  # bytes written by the job so far, set-up included
    uploaded: bool = False  # whether outputs and logs are in the bucket
    # what the job has run out of, as far as is known: ``gpu``, ``memory``; empty if nothing
    out_of_memory: str = ""

    @property
    def ended_well(self) -> bool:
        """Return True if the job ended by itself with exit code 0: one that was told to stop may exit with 0, too."""
        return self.exit_code == 0 and self.reason in (None, EndReason.SUCCEEDED)

    @property
    def obeyed_signal(self) -> bool:
        """Return whether a request to stop that was not the agent's ended the job, which then called that a success."""
        return self.exit_code == 0 and self.reason is EndReason.JOB_FAILED


class LogStream(StrEnum):
    """Which of the job's two streams."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a tree."""

    path: str  # relative, with forward slashes, never with ``..``
    size: int  # bytes
    sha256: str = ""  # hexadecimal; empty where it has not been computed
    mode: int = 0o644  # permission bits
    modified_ns: int = 0  # time of the last change, in nanoseconds since 1970; 0 where it does not matter
    source: str = ""  # absolute path on the machine; empty if it lies there at `path` in the working folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files that a job has produced."""

    files: tuple[FileEntry, ...] = ()  # files with checksums; paths are relative to the working folder
    missing: tuple[str, ...] = ()  # patterns of the order that match nothing
    # path of a file or folder that should be collected -> reason why it cannot be read there
    unreadable: Mapping[str, str] = field(default_factory=dict)
    # path of a link -> where it leads, and why that does not come home
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()  # folders of the working folder in which nothing is
    trouble: str = ""  # why the machine is not to be given up although there is nothing to bring


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Files of a job that were whole at one moment."""

    number: int  # grows with each one that a machine takes; 0 for nothing
    taken_epoch: float  # time by the machine's clock
    files: tuple[FileEntry, ...]  # with checksums and times of change; paths are relative to the working folder
    trouble: str = ""  # why something is not in it; empty if nothing is missing

    @property
    def contents(self) -> tuple[FileEntry, ...]:
        """Return what is in its files, named by checksums, each once."""
        found = {each.sha256: replace(each, path=each.sha256, mode=0o644, modified_ns=0) for each in self.files}
        return tuple(found.values())

    @property
    def total_bytes(self) -> int:
        """Return the size of all files."""
        return sum(entry.size for entry in self.files)
