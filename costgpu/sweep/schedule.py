"""How many trials run at once, on what share of a machine, and how long all of them take. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costgpu.errors import UsageError
from costgpu.estimator.feasibility import HOST_RESERVE_GIB
from costgpu.estimator.memory import GIB, need_gib
from costgpu.estimator.spot import with_run
from costgpu.models.prediction import Prediction, Range
from costgpu.models.workload import WorkloadProfile
from costgpu.sweep.asha import Asha, least_share

RAY_SECONDS = 10.0  # Ray's start and end. Source: own measurement, Ray 2.60 on 2 cores, 2026-11-24: 9 s
TRIAL_SECONDS = 2.0  # between two trials at the same place: a process of Ray's, a folder. Source: the same, 1 to 2.5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the machines of a sweep have."""

    nodes: int = 1
    computers: int = 1  # different ones: several places of this machine are one
    gpus: int = 0  # of one computer
    memory_gib: float = 0.0  # of one machine
    gpu_memory_gib: float = 0.0  # that programs get of one GPU; 0 if it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Who gets what."""

    concurrent: int  # trials at once, on all machines together
    gpus_per_trial: float  # 0 without GPUs, 1/k where k trials share one
    alone: int  # trials at once that need not share anything: one for each GPU, or for each machine without
    notes: tuple[str, ...] = ()


def share_out(asked: int | None, trials: int, machines: Resources, profile: WorkloadProfile | None) -> Shares:
    """Return the number of trials at once, and what each of them gets.

    Args:
        asked: ``--concurrent``; None for one on each GPU, or on each machine without GPUs.
        profile: The measured script; None if it was not measured, and nothing is known of its memory.

    Raises:
        UsageError: `asked` is no number of trials.
    """
    if asked is not None and asked < 1:
        raise UsageError(f"--concurrent {asked} is not a number of trials.")
    alone = machines.computers * max(1, machines.gpus)
    wanted = min(asked or max(alone, machines.nodes), trials)
    slots = math.ceil(wanted / machines.computers)
    notes: list[str] = []
    most = _that_fit(machines, profile)
    if most is not None and slots > most:
        notes.append(
            f"{slots} trials at once do not fit into the memory of a machine; {most} of them do, by the measured script."
        )
        slots = most
        wanted = min(wanted, slots * machines.computers)
    elif most is None and slots > 1:
        notes.append("Whether so many trials fit into memory at once is not known: the script was not measured.")
    gpus = 0.0
    if machines.gpus:
        sharing = math.ceil(slots / machines.gpus)
        gpus = 1.0 if sharing == 1 else math.floor(1e4 / sharing) / 1e4
    return Shares(concurrent=wanted, gpus_per_trial=gpus, alone=alone, notes=tuple(notes))


def _that_fit(machines: Resources, profile: WorkloadProfile | None) -> int | None:
    """Return how many trials fit into one machine at once, at least 1; None if it is not known."""
    if profile is None:
        return None
    found: list[int] = []
    if machines.memory_gib and profile.peak_rss_bytes:
        room = (machines.memory_gib - HOST_RESERVE_GIB) * GIB
        found.append(int(room // profile.peak_rss_bytes))
    if machines.gpus and machines.gpu_memory_gib:
        found.append(machines.gpus * int(machines.gpu_memory_gib // need_gib(profile)))
    return max(1, min(found)) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTime:
    """How long all trials take."""

    trial_seconds: Range  # of one trial, with the machine for itself
    rounds: int  # trials one after another at each place
    seconds: Range  # of all of them; ASHA's saving is in the lower end
    sharing: bool  # whether trials share a GPU or CPU cores: then the interval holds what that may cost
    least_share: float | None = None  # of the work where ASHA chooses perfectly; None without it, or if it is not known


def sweep_time(
    trial: Range, trials: int, shares: Shares, asha: Asha | None, reports: float | None, once: float = 0.0
) -> SweepTime:
    """From the time of one trial to that of the sweep.

    Where trials share a CPU or GPU, they may get through as if each had it for itself, or not a bit faster than one after
    another: the interval reaches from one to the other, and its middle is their geometric mean.

    Args:
        reports: How often a full trial prints the metric; None if it is not known.
        once: Seconds that only the first trials take, which download what all others find there.
    """
    rounds = math.ceil(trials / shares.concurrent)
    slowest = math.ceil(trials / min(shares.concurrent, shares.alone))
    share = None if asha is None or reports is None else least_share(asha, reports)
    fixed = RAY_SECONDS + TRIAL_SECONDS * rounds + once
    seconds = Range(
        value=trial.value * math.sqrt(rounds * slowest) + fixed,
        low=max(trial.low, trial.low * rounds * (1.0 if share is None else share)) + fixed,
        high=trial.high * slowest + fixed,
    )
    return SweepTime(
        trial_seconds=trial,
        rounds=rounds,
        seconds=seconds,
        sharing=shares.concurrent > shares.alone,
        least_share=share,
    )


def of_the_sweep(prediction: Prediction, time: SweepTime, nodes: int) -> Prediction:
    """Return the prediction of one trial on one machine, as that of the whole sweep on all of them."""
    whole = with_run(prediction, time.seconds)
    return replace(whole, cost_usd=whole.cost_usd.times(nodes))
