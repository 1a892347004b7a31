"""Machines as providers describe and create them, and what they leave behind. Imports `offer`.

Times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from costgpu.errors import ProviderError
from costgpu.models.defaults import SSH_PORT
from costgpu.models.offer import Offer


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
        """Return whether anything of it can still be billed or come back."""
        return self is not InstanceState.TERMINATED


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRef:
    """Permanent identifier of one instance."""

    provider: str
    region: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a machine can be reached."""

    kind: str  # ``ssh``, ``local`` (a folder of this machine) or ``fake``
    host: str = ""  # address for ssh; empty otherwise
    port: int = SSH_PORT  # of sshd
    user: str = "root"  # login name
    folder: str = ""  # the machine's home for ``local``; empty otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine as the provider describes it."""

    ref: InstanceRef
    zone: str | None  # None where a provider has none
    instance_type: str
    state: InstanceState
    reason: str = ""  # the provider's own words for the last change of state; empty if it gives none
    preempted: bool = False  # whether the provider took it back
    launched_at: datetime  # start by the provider's clock
    # end or stop by the provider's clock; None while it runs, or if the provider does not say
    ended_at: datetime | None = None
    by_guest: bool = False  # whether its own system has switched it off
    # why the provider ended it while it was being launched, as the create call would have been refused; None if it did not
    refusal: ProviderError | None = None
    endpoint: Endpoint | None  # None as long as it has none
    run_id: str = ""  # run of its tag; empty on a machine that is not ours
    name: str = ""  # name of its tag
    owner: str = ""  # creator of its tag
    lease_until: datetime | None = None  # end of the lease of its tag; None if the tag is missing or unreadable
    spot: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    private_address: str = ""  # at which other machines of its group reach it; empty as long as it has none
    group_id: str = ""  # group of its tag; empty for a machine that works alone


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedResource:
    """Something of ours that is not an instance: a disk, an address, a security group, a schedule."""

    provider: str
    region: str
    kind: str  # ``disk``, ``snapshot``, ``address``, ``security group``, ``key pair``, ``schedule``, ...
    resource_id: str  # the provider's identifier
    run_id: str  # run of its tag or name
    usd_per_hour: float = 0.0  # price while it is there; 0 for what is free
    # end of the lease of its tag: until then a run that is being launched may need it. None without one
    lease_until: datetime | None = None
    created_at: datetime | None = None  # creation by the provider's clock; None where it does not say
    owner: str = ""  # creator of its tag; empty without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The account that pays, and the principal, as the provider names them; never a key."""

    provider: str
    account: str
    principal: str
    source: str = ""  # such as "profile research"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Machines that work on one job, of which this is one."""

    group_id: str  # run id of node 0
    nodes: int  # number of machines
    node: int  # this one's number; the others meet at node 0
    placement: bool = False  # whether they are to be placed close together
    efa_interfaces: int = 0  # AWS: network interfaces with EFA of each; 0 for plain ones


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """Values of a create call; the same token always goes with the same values."""

    run_id: str  # tag ``costgpu-run``
    token: str  # idempotency token, at most 64 ASCII characters
    name: str  # tag ``costgpu-name`` and the provider's display name
    owner: str  # tag ``costgpu-owner``
    offer: Offer  # instance type and place
    zone: str | None  # None lets the provider choose within the offer's region
    disk_gib: int  # size of the root disk
    lease_until: datetime  # tag ``costgpu-lease-until``; the provider's own deadline where it has one
    # POSIX shell, run as root first thing at every boot. It holds the one-run host key: never printed
    boot_script: str = field(repr=False)
    allow_from: str  # CIDR that may reach port 22
    tags: Mapping[str, str] = field(default_factory=dict)  # the user's own tags
    # machines that it works with: a private network between them, and only them, is part of the call. None alone
    group: NodeGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Safeguard:
    """One layer of guaranteed termination."""

    name: str  # ``create call``, ``provider schedule``, ``watchdog``, ``agent``, ``client``, ``reap``
    armed: bool  # whether it is in force
    detail: str  # a sentence: what it does, or why it is not armed
    deadline: datetime | None = None  # latest time at which it acts; None if it acts on events
