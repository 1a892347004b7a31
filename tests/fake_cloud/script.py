"""What a test writes down before: how a machine boots, and what its job does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costgpu.errors import ProviderError

NEVER = float("inf")
PROGRESS = "progress"  # file of a checkpoint


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """What a job does, in simulated time."""

    setup_seconds: float = 0.0  # how long the set-up takes (0 also where the order has none)
    setup_exit_code: int = 0  # above 0 the job is not started
    seconds: float = 60.0  # how long the job runs if nobody ends it; `NEVER` for ever
    exit_code: int = 0  # its own, at its natural end
    stdout: Sequence[tuple[float, bytes]] = ()  # (seconds since the job's start, bytes), in order of time
    stderr: Sequence[tuple[float, bytes]] = ()  # likewise
    # path relative to the working folder -> content, once the job has ended by itself
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    # what of the working folder cannot be read there, and why
    unreadable: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Mapping[str, bytes] = field(default_factory=dict)  # what is there instead if it was ended early
    # seconds between two checkpoints, from which it goes on: each says in `PROGRESS` how many seconds of the job are done
    saves: float | None = None
    resumes: bool = True  # whether it can go on from a checkpoint; else it fails as soon as it has one
    idles_after: float | None = None  # seconds of the job after which it does nothing any more; None for never
    fills_after: float | None = None  # seconds of the job after which the disk is full; None for never
    out_of_memory: str = ""  # what it has run out of where it fails; empty for nothing
    # how long it takes to leave after SIGTERM; `NEVER` ignores it and is killed after the grace
    sigterm_seconds: float = 1.0
    sigterm_exit_code: int = 143  # its own after SIGTERM; 0 for one that saves a checkpoint and calls that a success


@dataclass(frozen=True, kw_only=True)
class MachineScript:
    """How a machine comes up, and what is wrong with it."""

    pending_seconds: float = 5.0  # from the create call until the provider calls it running
    boot_seconds: float = 20.0  # from then until SSH answers; the boot script runs first thing, at its beginning
    refusal: ProviderError | None = None  # why the provider ends it instead of calling it running; None if it does not
    boots: bool = True  # whether the boot script runs at all; a machine that hangs before it has no watchdog and no SSH
    ssh: bool = True  # whether SSH ever answers
    python: bool = True  # whether the image has a Python for the agent
    driver_seconds: float = 0.0  # from its boot until the driver of its GPUs answers; `NEVER` for one that does not fit
    host_key_matches: bool = True  # whether it identifies itself with the injected host key
    image_key_seconds: float = 0.0  # how long it shows the key of its image, because its boot script runs after sshd
