"""What a test writes down before: how a machine boots, what its job does, by which rules its agent acts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NEVER = float("inf")


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """What a job does, in simulated time.

    Attributes:
        setup_seconds: How long the set-up takes (0 also where the order has none).
        setup_exit_code: Above 0 the job is not started.
        setup_output: On the job's stderr, at the start of the set-up.
        seconds: How long the job runs if nobody ends it; `NEVER` for ever.
        exit_code: Its own, at its natural end.
        stdout: (seconds since the job's start, bytes), in order of time.
        stderr: Likewise.
        outputs: Path relative to the working folder -> content, once the job has ended by itself.
        unreadable: What of the working folder cannot be read there, and why.
        checkpoint: What is there instead if it was ended early.
        idle_after: Seconds since the job's start from which on it does nothing; None if it is always busy.
        disk_full_after: Seconds since the job's start; None for never.
        sigterm_seconds: How long it takes to leave after SIGTERM; `NEVER` ignores it and is killed after the grace.
        sigterm_exit_code: Its exit code then.
    """

    setup_seconds: float = 0.0
    setup_exit_code: int = 0
    setup_output: bytes = b""
    seconds: float = 60.0
    exit_code: int = 0
    stdout: Sequence[tuple[float, bytes]] = ()
    stderr: Sequence[tuple[float, bytes]] = ()
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Mapping[str, bytes] = field(default_factory=dict)
    idle_after: float | None = None
    disk_full_after: float | None = None
    sigterm_seconds: float = 1.0
    sigterm_exit_code: int = 143


@dataclass(frozen=True, kw_only=True)
class MachineScript:
    """How a machine comes up, and what is wrong with it.

    Attributes:
        pending_seconds: From the create call until the provider calls it running.
        boot_seconds: From then until SSH answers; the boot script runs first thing, at its beginning.
        boots: Whether the boot script runs at all; a machine that hangs before it has no watchdog and no SSH.
        ssh: Whether SSH ever answers.
        python: Whether the image has a Python for the agent.
        host_key_matches: Whether it identifies itself with the injected host key.
        agent_dies_at: Seconds after the agent's start at which it dies; None for never.
        agent_back_after: Seconds until something restarts a dead agent; None: only `install` does.
        clock_skew_seconds: The machine's wall clock minus the true one.
        preempted_at: Seconds after the create call at which the provider takes it back; None for never.
        preemption_notice_seconds: How long before that the machine is told.
    """

    pending_seconds: float = 5.0
    boot_seconds: float = 20.0
    boots: bool = True
    ssh: bool = True
    python: bool = True
    host_key_matches: bool = True
    agent_dies_at: float | None = None
    agent_back_after: float | None = None
    clock_skew_seconds: float = 0.0
    preempted_at: float | None = None
    preemption_notice_seconds: float = 120.0


@dataclass(frozen=True, kw_only=True)
class AgentRules:
    """The limits that the agent applies besides those of its order, in seconds.

    Attributes:
        unclaimed_seconds: Without any client before a job was started, until power-off.
        linger_seconds: Without a word of a client, once outputs are safe, until power-off.
        patience_seconds: Once outputs are safe, until power-off even if a client looks on.
        collect_seconds: Kept free, besides the job's grace, between the job's end and the deadline.
        short_lease_share: Never more than this share of the whole time is kept free.
        last_seconds: How long before the deadline the agent switches off, ahead of the watchdog.
        upload_seconds: What an upload takes.
    """

    unclaimed_seconds: float = 900.0
    linger_seconds: float = 120.0
    patience_seconds: float = 900.0
    collect_seconds: float = 60.0
    short_lease_share: float = 0.2
    last_seconds: float = 2.0
    upload_seconds: float = 2.0
