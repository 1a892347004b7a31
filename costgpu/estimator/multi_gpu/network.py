"""What the GPUs of a training exchange in a step, and how long their links take for it. Pure.

Bytes that each GPU contributes to the collectives of one optimizer step:

    DDP, ZeRO-1, ZeRO-2           2 g P_t, for each reduction of a step (ZeRO-2: the first half at every micro-batch)
    FSDP, ZeRO-3                  (2 p P_a + r P_t) x micro-batches
    FSDP without resharding       (p P_a + r P_t) x micro-batches
    HSDP                          FSDP within a machine, and 2 r P_t between machines, once

P_t trained and P_a all parameters; g, p, r bytes per gradient, gathered parameter and reduced gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.models.offer import Interconnect
from costgpu.models.parallelism import Parallelism, Scheme

GB = 1e9
UNUSABLE = "none"
# Bytes of whole tensors that a collective moves, over those that each GPU sends: a ring's all-reduce goes round twice.
TRIPS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "broadcast": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Effective bandwidths while training, bytes per second, and how well they are known."""

    local: float | None  # between the GPUs of one machine; None with one GPU in each
    network: float | None  # of one machine to the others; None with one machine
    basis: str = "fitted"  # of `local`: ``fitted``, ``extrapolated`` or ``assumed``
    network_kind: str = ""  # ``tcp``, ``efa``, ...; empty with one machine
    name: str = ""  # key of the link within a machine; empty with one GPU in each

    @property
    def slowest(self) -> float:
        """Return the bandwidth that a collective of all GPUs runs at."""
        return min(rate for rate in (self.local, self.network) if rate is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The GPUs of a training and what lies between them."""

    gpus: int  # over all machines
    nodes: int
    links: Links | None  # None with one GPU

    @property
    def each(self) -> int:
        """Return the GPUs of one machine."""
        return self.gpus // self.nodes


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes of one optimizer step."""

    all_ranks: float  # in the group of all ranks; of HSDP, in that of one machine
    between: float = 0.0  # between the machines alone


def links_between(interconnect: Interconnect | None, gpus: int, nodes: int) -> Links | str:
    """Return the links between so many GPUs in each of so many machines; or the reason why they cannot be told.

    Args:
        interconnect: Links of the machine; None if they are not known.
        gpus: GPUs that work in each machine.
        nodes: Machines; with one of them, there must be two GPUs or more.
    """
    if interconnect is None:
        return "the links between its GPUs are not known: measure it there"
    if interconnect.link == UNUSABLE:
        return "its GPUs cannot train together"
    local = interconnect.link_gbps if gpus > 1 else None
    if gpus > 1 and local is None:
        return "the link between its GPUs is not known: measure it there"
    network = interconnect.network_gbps if nodes > 1 else None
    if nodes > 1 and network is None:
        return "the network between such machines is not known: measure it there"
    return Links(
        local=None if local is None else local * GB,
        network=None if network is None else network * GB,
        basis=interconnect.basis if gpus > 1 else "fitted",
        network_kind=interconnect.network if nodes > 1 else "",
        name=interconnect.link if gpus > 1 else "",
    )


def bytes_per_step(parallelism: Parallelism, micro_batches: float) -> Volume | None:
    """Return what each GPU contributes to the collectives of a step; None if it is not known.

    Args:
        micro_batches: Forward and backward passes of one optimizer step.
    """
    trained, every = parallelism.trained_parameters, max(parallelism.parameters, parallelism.trained_parameters)
    if not every:
        moved = sum(TRIPS.get(one.op, 0.0) * one.bytes_per_step for one in parallelism.collectives)
        return Volume(moved) if moved > 0 else None
    micro = max(1.0, micro_batches)
    scheme = parallelism.scheme
    gathered = (parallelism.gathered_bytes or parallelism.gradient_bytes) * every
    reduced = (parallelism.reduced_bytes or parallelism.gradient_bytes) * trained
    whole = 2 * parallelism.gradient_bytes * trained
    if scheme in (Scheme.FSDP, Scheme.ZERO3):
        return Volume((2 * gathered + reduced) * micro)
    if scheme is Scheme.FSDP_GRAD_OP:
        return Volume((gathered + reduced) * micro)
    if scheme is Scheme.HSDP:
        return Volume((2 * gathered + reduced) * micro, 2 * reduced)
    if scheme is Scheme.ZERO2:
        return Volume(whole / 2 * (1 + micro))
    return Volume(whole * max(1.0, parallelism.reductions_per_step))


def communication_seconds(volume: Volume, group: Group) -> float:
    """Return the seconds of the collectives of a step if nothing hid them."""
    links = group.links
    if group.gpus <= 1 or links is None:
        return 0.0
    if not volume.between or group.nodes <= 1:
        return (group.gpus - 1) / group.gpus * volume.all_ranks / links.slowest
    each = group.gpus / group.nodes
    within = 0.0 if links.local is None else (each - 1) / each * volume.all_ranks / links.local
    network = links.network or links.slowest
    return within + (group.nodes - 1) / group.nodes * volume.between / network
