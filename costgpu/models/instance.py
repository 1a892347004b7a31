"""Machines as providers describe and create them, and what they leave behind. Imports `offer`.

Times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from costgpu.models.offer import Offer

SSH_PORT = 22


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
    """Permanent identifier of one instance."""

    provider: str
    region: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a machine can be reached.

    Attributes:
        kind: ``ssh``, ``local`` (a folder of this machine) or ``fake``.
        host: Address for ssh; empty otherwise.
        port: Port of sshd.
        user: Login name.
        folder: The machine's home for ``local``; empty otherwise.
    """

    kind: str
    host: str = ""
    port: int = SSH_PORT
    user: str = "root"
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine as the provider describes it.

    Attributes:
        zone: Zone; None where a provider has none.
        reason: The provider's own words for the last change of state; empty if it gives none.
        preempted: Whether the provider took it back.
        launched_at: Start by the provider's clock.
        ended_at: End or stop by the provider's clock; None while it runs, or if the provider does not say.
        by_guest: Whether its own system has switched it off.
        endpoint: Address; None as long as it has none.
        run_id: Run of its tag; empty on a machine that is not ours.
        name: Name of its tag.
        owner: Creator of its tag.
        lease_until: End of the lease of its tag; None if the tag is missing or unreadable.
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
        kind: ``disk``, ``snapshot``, ``address``, ``security group``, ``key pair``, ``schedule``, ...
        resource_id: The provider's identifier.
        run_id: Run of its tag or name.
        usd_per_hour: Price while it is there; 0 for what is free.
        lease_until: End of the lease of its tag: until then a run that is being launched may need it. None without one.
        created_at: Creation by the provider's clock; None where it does not say.
        owner: Creator of its tag; empty without one.
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
    """The account that pays, and the principal, as the provider names them; never a key."""

    provider: str
    account: str
    principal: str
    source: str = ""  # such as "profile research"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """Values of a create call; the same token always goes with the same values.

    Attributes:
        run_id: Tag ``costgpu-run``.
        token: Idempotency token, at most 64 ASCII characters.
        name: Tag ``costgpu-name`` and the provider's display name.
        owner: Tag ``costgpu-owner``.
        offer: Instance type and place.
        zone: Zone; None lets the provider choose within the offer's region.
        disk_gib: Size of the root disk.
        lease_until: Tag ``costgpu-lease-until``; the provider's own deadline where it has one.
        boot_script: POSIX shell, run as root first thing at every boot. It holds the one-run host key: never printed.
        allow_from: CIDR that may reach port 22.
        tags: The user's own tags.
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
        detail: A sentence: what it does, or why it is not armed.
        deadline: Latest time at which it acts; None if it acts on events.
    """

    name: str
    armed: bool
    detail: str
    deadline: datetime | None = None
