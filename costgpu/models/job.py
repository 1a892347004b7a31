"""What a job is asked to do, how it fares on the machine, and what it produces. Imports nothing of ours.

Durations are seconds, money `Decimal` US dollars. Nothing here ever holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum


class EndReason(StrEnum):
    """Why a job or run ended."""

    SUCCEEDED = "succeeded"
    JOB_FAILED = "job_failed"
    SETUP_FAILED = "setup_failed"
    CANCELLED = "cancelled"
    MAX_DURATION = "max_duration"
    DEADLINE = "deadline"  # of cost or lease
    IDLE = "idle"
    DISK_FULL = "disk_full"
    PREEMPTED = "preempted"
    UNCLAIMED = "unclaimed"  # no client came, or it went before the job started
    NO_CAPACITY = "no_capacity"
    PROVISION_FAILED = "provision_failed"
    BOOT_FAILED = "boot_failed"
    HOST_KEY_MISMATCH = "host_key_mismatch"
    MACHINE_UNUSABLE = "machine_unusable"
    SYNC_FAILED = "sync_failed"
    INSTANCE_LOST = "instance_lost"
    LEASE_EXPIRED = "lease_expired"  # ended by the reaper


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the user asked for. Environment values are not in it: they are secrets until proven otherwise.

    Attributes:
        name: Name for people: letters, digits and dashes.
        argv: Script and its arguments, or ``-m module`` and its arguments; relative to `workdir`.
        workdir: The folder on the user's machine that is sent.
        setup: Shell command that runs before the job; empty for none.
        env_names: Names of the variables that travel to the job.
        env_file: Path of the file that more of them came from; None without one.
        outputs: Patterns relative to `workdir`; empty means whatever the job created or changed.
        processes: 0 for plain Python, n for ``torchrun --nproc-per-node n``, -1 for one per GPU.
        python: Interpreter on the machine; empty for the machine's own.
        max_cost_usd: Cap on everything from the create call on; None if only time limits it.
        max_duration_seconds: Limit of the job itself, set-up excluded; None for no limit but the deadline.
        idle_seconds: Idle time after which the job is ended; None for never.
        grace_seconds: Seconds between SIGTERM and SIGKILL.
        auto_shutdown: Whether the machine is terminated when the job is over.
        bucket: ``s3://name/prefix`` for outputs and logs; empty for none.
        tags: The user's own tags.
    """

    name: str
    argv: tuple[str, ...]
    workdir: str
    setup: str = ""
    env_names: tuple[str, ...] = ()
    env_file: str | None = None
    outputs: tuple[str, ...] = ()
    processes: int = 0
    python: str = ""
    max_cost_usd: Decimal | None = None
    max_duration_seconds: float | None = None
    idle_seconds: float | None = None
    grace_seconds: float = 30.0
    auto_shutdown: bool = True
    bucket: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


class JobPhase(StrEnum):
    """Phase of the job, as the agent on the machine sees it."""

    WAITING = "waiting"  # the agent is there, no job was started
    SETUP = "setup"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What the agent has to run and to enforce; fields without a description are those of `JobSpec`.

    Attributes:
        deadline_epoch: Unix time at which the job must be over, outputs saved and the machine off.
        spot: Whether to watch for the provider's interruption notice.
        provider: Provider of the machine.
        spot_notice: Source of that notice: ``imdsv2``, ``computemetadata``; empty if there is none.
        power_off: Whether the agent may end the machine; False only with ``--no-auto-shutdown``.
    """

    argv: tuple[str, ...]
    setup: str
    outputs: tuple[str, ...]
    processes: int
    python: str
    deadline_epoch: float
    max_duration_seconds: float | None
    idle_seconds: float | None
    grace_seconds: float
    spot: bool
    provider: str
    power_off: bool
    spot_notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Status of the job, as the agent reports it.

    Attributes:
        reason: Reason of its end; None until then.
        exit_code: Exit code of the job (128 + signal if a signal ended it); None until it has ended.
        detail: A sentence for people; empty if there is nothing to add.
        started_epoch: Start of the set-up by the machine's clock; None until then.
        job_started_epoch: Start of the job itself by the same clock; None until then, or from an older agent.
        finished_epoch: End of the job by the same clock; None until then.
        stdout_bytes: Bytes written by the job so far.
        stderr_bytes: Bytes written by the job so far, set-up included.
        uploaded: Whether outputs and logs are in the bucket.
    """

    phase: JobPhase
    reason: EndReason | None = None
    exit_code: int | None = None
    detail: str = ""
    started_epoch: float | None = None
    job_started_epoch: float | None = None
    finished_epoch: float | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    uploaded: bool = False


class LogStream(StrEnum):
    """Which of the job's two streams."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a tree.

    Attributes:
        path: Relative, with forward slashes, never with ``..``.
        size: Bytes.
        sha256: Hexadecimal; empty where it has not been computed.
        mode: Permission bits.
    """

    path: str
    size: int
    sha256: str = ""
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files that a job has produced.

    Attributes:
        files: Files with checksums; paths are relative to the working folder.
        missing: Patterns of the order that match nothing.
        unreadable: Path of a file or folder that should be collected -> reason why it cannot be read there.
    """

    files: tuple[FileEntry, ...] = ()
    missing: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
