"""The frozen values of a run: the job, its events, the machine, what ended it. Imports `models`.

Longer than a module should be, because these values name each other and most rooms need most of them.

Times are aware UTC, durations seconds, money `Decimal` US dollars. Nothing here ever holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from costgpu.models.offer import Offer


class RunState(StrEnum):
    """Where a run is. The order is that of a run without failures."""

    INTENT = "intent"  # recorded; nothing was asked of the provider yet
    PROVISIONING = "provisioning"  # a create call may have been made
    BOOTING = "booting"  # the instance has an id
    SYNCING = "syncing"  # the machine answers; agent and files are on their way
    RUNNING = "running"  # set-up or job
    COLLECTING = "collecting"  # the job is over, its outputs are on their way home
    TERMINATING = "terminating"
    CLOSED = "closed"  # confirmed by the provider, or nothing was ever created


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


class EndedBy(StrEnum):
    """Who ended the machine."""

    CLIENT = "client"
    AGENT = "agent"  # on the instance
    WATCHDOG = "watchdog"  # on the instance, armed in the create call
    PROVIDER = "provider"  # preemption, or the provider's own deadline
    REAPER = "reaper"
    SOMEBODY_ELSE = "somebody_else"
    NOTHING_CREATED = "nothing_created"


class EventKind(StrEnum):
    """What happened to a run."""

    INTENDED = "intended"
    ATTEMPTED = "attempted"  # written before the create call
    REFUSED = "refused"  # the provider has certainly not created anything
    CREATED = "created"
    REACHED = "reached"
    SYNCED = "synced"
    STARTED = "started"
    FINISHED = "finished"
    COLLECTED = "collected"
    ENDING = "ending"  # written before the terminate call
    CONFIRMED = "confirmed"
    CLOSED = "closed"
    DETACHED = "detached"
    ADOPTED = "adopted"  # another process took over
    NOTED = "noted"  # anything worth keeping that changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One row of the ledger; never changed.

    Attributes:
        run_id: Of the run.
        sequence: 0, 1, 2, ... within the run, without gaps.
        at: When it was written.
        kind: What happened.
        data: Facts, as JSON values; money and times as strings.
    """

    run_id: str
    sequence: int
    at: datetime
    kind: EventKind
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the user asked for. Environment values are not in it: they are secrets until proven otherwise.

    Attributes:
        name: Of the job, for people; letters, digits and dashes.
        argv: Script and its arguments, or ``-m module`` and its arguments; relative to `workdir`.
        workdir: The folder on the user's machine that is sent.
        setup: Shell command to run before the job; empty for none.
        env_names: Names of the variables that travel to the job.
        env_file: Path of the file that more of them came from; None without one.
        outputs: Patterns relative to `workdir`; empty means whatever the job created or changed.
        processes: 0 for plain Python, n for ``torchrun --nproc-per-node n``, -1 for one per GPU.
        python: Interpreter on the machine; empty for the machine's own.
        max_cost_usd: The cap on everything from the create call on; None if only time limits it.
        max_duration_seconds: Of the job itself, set-up excluded; None for no limit but the deadline.
        idle_seconds: The job is ended when nothing happened for so long; None for never.
        grace_seconds: Between SIGTERM and SIGKILL.
        auto_shutdown: Terminate when the job is over.
        bucket: ``s3://name/prefix`` for outputs and logs; empty for none.
        tags: The user's own.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How long an instance may live, counted from its create call.

    Attributes:
        lifetime_seconds: From the create call to power-off.
        worst_cost_usd: What that costs at most: machine at its on-demand price, disk and address.
        usd_per_hour: The rate that the two were computed with.
        limited_by: ``--max-cost``, ``--max-duration``, ``--lease`` or ``the estimate``.
    """

    lifetime_seconds: float
    worst_cost_usd: Decimal
    usd_per_hour: Decimal
    limited_by: str


class InstanceState(StrEnum):
    """The provider's states, reduced to what matters for money."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # its disks are still billed
    TERMINATING = "terminating"
    TERMINATED = "terminated"

    @property
    def alive(self) -> bool:
        """Whether anything of it can still be billed or come back."""
        return self is not InstanceState.TERMINATED


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRef:
    """What names one instance for ever."""

    provider: str
    region: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a machine can be reached.

    Attributes:
        kind: ``ssh``, ``local`` (a folder of this machine) or ``fake``.
        host: Address for ssh; empty otherwise.
        port: Of sshd.
        user: To log in as.
        folder: The machine's home for ``local``; empty otherwise.
    """

    kind: str
    host: str = ""
    port: int = 22
    user: str = "root"
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine as the provider describes it.

    Attributes:
        ref: Its name.
        zone: None where a provider has none.
        instance_type: Such as ``g5.xlarge``.
        state: Now.
        reason: The provider's own words for the last change of state; empty if it gives none.
        preempted: Whether the provider took it back.
        launched_at: By the provider's clock.
        ended_at: When it was terminated, or stopped, by the provider's clock; None while it runs, or if the provider does
            not say.
        by_guest: Whether its own system has switched it off.
        endpoint: None as long as it has no address.
        run_id: From its tag; empty on a machine that is not ours.
        name: From its tag.
        owner: From its tag: who created it.
        lease_until: From its tag; None if the tag is missing or unreadable.
        spot: How it is paid for.
        tags: All of them.
    """

    ref: InstanceRef
    zone: str | None
    instance_type: str
    state: InstanceState
    reason: str = ""
    preempted: bool = False
    launched_at: datetime
    ended_at: datetime | None = None
    by_guest: bool = False
    endpoint: Endpoint | None
    run_id: str = ""
    name: str = ""
    owner: str = ""
    lease_until: datetime | None = None
    spot: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedResource:
    """Something of ours that is not an instance: a disk, an address, a security group, a schedule.

    Attributes:
        provider: Whose.
        region: Where.
        kind: ``disk``, ``snapshot``, ``address``, ``security group``, ``key pair``, ``schedule``, ...
        resource_id: As the provider names it.
        run_id: From its tag or name.
        usd_per_hour: What it costs while it is there; 0 for what is free.
        lease_until: From its tag: until then a run that is being launched may need it. None if it has no such tag.
        created_at: By the provider's clock; None where it does not say.
        owner: From its tag: who created it; empty if it has no such tag.
    """

    provider: str
    region: str
    kind: str
    resource_id: str
    run_id: str
    usd_per_hour: float = 0.0
    lease_until: datetime | None = None
    created_at: datetime | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose money it is: account and principal as the provider names them, never a key."""

    provider: str
    account: str
    principal: str
    source: str = ""  # such as "profile research"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """Everything about a create call. The same token always goes with the same values.

    Attributes:
        run_id: Tag ``costgpu-run``.
        token: Idempotency token, at most 64 ASCII characters.
        name: Tag ``costgpu-name`` and the provider's display name.
        owner: Tag ``costgpu-owner``.
        offer: What to create, and where.
        zone: None lets the provider choose within the offer's region.
        disk_gib: Of the root disk.
        lease_until: Tag ``costgpu-lease-until``; the provider's own deadline where it has one.
        boot_script: POSIX shell, run as root first thing at every boot. It holds the one-run host key: never printed.
        allow_from: CIDR that may reach port 22.
        tags: The user's own.
    """

    run_id: str
    token: str
    name: str
    owner: str
    offer: Offer
    zone: str | None
    disk_gib: int
    lease_until: datetime
    boot_script: str = field(repr=False)
    allow_from: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Safeguard:
    """One layer of guaranteed termination.

    Attributes:
        name: ``create call``, ``provider schedule``, ``watchdog``, ``agent``, ``client``, ``reap``.
        armed: Whether it is in force.
        detail: In words: what it does, or why it is not armed.
        deadline: When it acts at the latest; None if it acts on events.
    """

    name: str
    armed: bool
    detail: str
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof of the end of a run.

    Attributes:
        run_id: Of the run.
        instance: None if nothing was ever created.
        instance_type: Empty if nothing was ever created.
        layers: All of them, armed or not.
        reason: Why it ended.
        ended_by: Who ended the machine.
        requested_at: When its end was asked for; None if it ended itself.
        confirmed_state: What the provider said; empty as long as it has not.
        confirmed_at: When it said so.
        provider_reason: The provider's own words.
        left_behind: What could not be removed: access rules and the like.
        metered_seconds: From the create call to confirmation, as we saw it.
        metered_cost_usd: Those seconds at the offer's price, disk and address included.
        metered_at_most: Whether the machine ended by itself, at an unknown time before: both figures are upper bounds.
    """

    run_id: str
    instance: InstanceRef | None
    instance_type: str
    layers: tuple[Safeguard, ...]
    reason: EndReason
    ended_by: EndedBy
    requested_at: datetime | None
    confirmed_state: str
    confirmed_at: datetime | None
    provider_reason: str
    left_behind: tuple[str, ...]
    metered_seconds: float
    metered_cost_usd: Decimal
    metered_at_most: bool = False


class JobPhase(StrEnum):
    """Where the job is, as the agent on the machine sees it."""

    WAITING = "waiting"  # the agent is there, no job was started
    SETUP = "setup"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What the agent is asked to run and to enforce.

    Attributes:
        argv: As in `JobSpec`.
        setup: As in `JobSpec`.
        outputs: As in `JobSpec`.
        processes: As in `JobSpec`.
        python: As in `JobSpec`.
        deadline_epoch: Unix time at which the job must be over, outputs saved and the machine off.
        max_duration_seconds: As in `JobSpec`.
        idle_seconds: As in `JobSpec`.
        grace_seconds: As in `JobSpec`.
        spot: Whether to watch for the provider's interruption notice.
        provider: ``aws``, ``gcp``, ``local``, ...: where that notice is read.
        power_off: Whether the machine may be ended by the agent; False only with ``--no-auto-shutdown``.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The agent's answer.

    Attributes:
        phase: Now.
        reason: Why it ended; None until it has.
        exit_code: The job's (128 + signal if a signal ended it); None until it has ended.
        detail: A sentence for people; empty if there is nothing to add.
        started_epoch: When the set-up began, by the machine's clock; None until then.
        job_started_epoch: When the job itself began, by the same clock; None until then, or from an older agent.
        finished_epoch: None until it has.
        stdout_bytes: Written by the job so far.
        stderr_bytes: Written by the job so far, set-up included.
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
    """What a job has made.

    Attributes:
        files: With checksums; paths are relative to the working folder.
        missing: Patterns of the order that match nothing.
        unreadable: Path of a file or folder that should come home -> why it cannot be read there.
    """

    files: tuple[FileEntry, ...] = ()
    missing: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
