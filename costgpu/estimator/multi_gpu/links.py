"""What the links between the GPUs of a candidate carry, and how well that is known. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from costgpu.models.offer import Interconnect

GB = 1e9
UNUSABLE = "none"


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
        known = [rate for rate in (self.local, self.network) if rate is not None]
        return min(known)


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
