"""The world that a measured script is told of: how many ranks a launch starts, and what it sets for rank 0. Pure."""

from __future__ import annotations

from costgpu.measure.launcher import Launch
from costgpu.models.defaults import MEETING_PORT

ASSUMED_PER_MACHINE = 8  # GPUs, where a launcher is to start one process on each: what the largest machines have
MOST_RANKS = 1024  # a larger world is measured as one of this size


def ranks_of(launch: Launch) -> int:
    """Return the ranks that the script is told of."""
    asked = launch.processes if launch.processes is not None else ASSUMED_PER_MACHINE * launch.machines
    return min(asked, MOST_RANKS)


def gpus_of(launch: Launch | None) -> int:
    """GPUs that a script sees on its machine, where it has one for each rank."""
    return max(1, ranks_of(launch) // launch.machines) if launch is not None else 1


def rank_environment(launch: Launch) -> dict[str, str]:
    """Return what the launcher sets for its first process; empty for plain Python."""
    if launch.launcher == "python":
        return {}
    ranks = ranks_of(launch)
    if ranks == 1 and not launch.ranked:
        return {}
    return world_environment(ranks, launch.machines, elastic=launch.torchrun)


def world_environment(ranks: int, machines: int, *, elastic: bool = False) -> dict[str, str]:
    """Return the variables of rank 0. `elastic` adds those that only torchrun sets."""
    local = max(1, ranks // machines)
    found = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(local),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(MEETING_PORT),
    }
    if elastic:
        found |= {
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": str(machines),
            "ROLE_RANK": "0",
            "ROLE_WORLD_SIZE": str(ranks),
            "ROLE_NAME": "default",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
        }
    return found
