"""The Provider protocol: what every cloud and this machine must do.

The contract, which tests/contract checks on every provider:

- `create` is idempotent by token: the same request returns the same instance, for as long as it exists and, where
  the provider remembers, after it. Tags, lease and deadline are part of the one call that makes the machine bill.
  It returns as soon as the instance has an id; it waits for nothing. `Unreachable` means that nobody knows whether
  an instance exists: call again with the same request. Every other error means that none was created.
- `describe` returns None if the provider does not know the instance. Right after `create` that can happen to an
  instance that exists (eventual consistency); after a confirmed termination it is normal.
- `terminate` is idempotent, returns as soon as the provider has accepted, and never fails because the instance is
  already gone. It also works on a stopped instance. Only `describe` confirms.
- A machine that powers itself off is terminated by that; where the provider only stops it, `describe` says STOPPED, and
  whoever sees that ends it by `terminate`: its disk is billed.
- `list_owned` reports what carries our tag, and only that, in every region asked for. A region that cannot be asked is
  named in the answer and does not hide the others.
- `remove` takes away one thing that `list_owned` has named besides instances, and nothing else. What is gone already is
  no error; what something still uses stays, and the answer says so.
- The machines of a group reach each other by `private_address` on every port, and are open to nobody else by that. What
  they share for it is made once, in `create` and before the machine, and carries the tags of node 0's run. It goes with the
  `clean_up` of that run, and neither that nor `remove` takes it away while a machine of the group is left; the `clean_up` of
  another node's run neither touches nor reports it. `check` asks whether this node and those after it fit the quota.
- `terminate`, `clean_up` and `remove` refuse what does not carry our tag with `InvalidRequest`.
- SDK exceptions never leave an adapter: they are translated, ``from exc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Protocol, runtime_checkable

from costgpu.models.bill import Bill
from costgpu.models.diagnostics import Check
from costgpu.models.instance import CreateRequest, Identity, Instance, InstanceRef, OrphanedResource, Safeguard
from costgpu.models.offer import Offer
from costgpu.models.price_update import PriceUpdate

__all__ = [
    "OUR_TAGS",
    "TAG_GROUP",
    "TAG_LEASE",
    "TAG_NAME",
    "TAG_OWNER",
    "TAG_RUN",
    "Billing",
    "Bucket",
    "Diagnosable",
    "HostMaintenance",
    "MaintenanceSimulator",
    "OrphanedResource",
    "OwnedResources",
    "PriceSource",
    "Provider",
]

TAG_RUN = "costgpu-run"
TAG_NAME = "costgpu-name"
TAG_OWNER = "costgpu-owner"
TAG_GROUP = "costgpu-group"  # run id of node 0, on machines that work together
TAG_LEASE = "costgpu-lease-until"  # Unix seconds: a value that every provider's tags can hold
OUR_TAGS = (TAG_RUN, TAG_NAME, TAG_OWNER, TAG_LEASE, TAG_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedResources:
    """What a provider holds of ours."""

    instances: tuple[Instance, ...] = ()  # in any state that the provider still reports, terminated ones included
    leftovers: tuple[OrphanedResource, ...] = ()  # everything else with our tag
    # region -> why it could not be asked. Where only one kind of thing could not be listed, that stands in brackets:
    # ``us-east-1 (disk)``; instances are known then
    unreachable: tuple[tuple[str, str], ...] = ()
    # instance id -> US dollars per hour of its disks and its address, whether it runs or is stopped
    attached: Mapping[str, float] = field(default_factory=dict)
    # by the provider's own clock, when it answered: leases are held against it. None if it does not say
    told_at: datetime | None = None

    @property
    def all_instances_known(self) -> bool:
        """Return whether every region that was asked has told its instances."""
        return all(region.endswith(")") for region, _ in self.unreachable)


class Provider(Protocol):
    """One cloud. Methods raise the subclasses of `ProviderError` and nothing else."""

    @property
    def name(self) -> str:
        """As in its `ProviderSpec`."""

    def identity(self) -> Identity:
        """Return who is asking. Raises `AuthError` with what to do about it."""

    def check(self, request: CreateRequest) -> None:
        """Check whether the create call would be allowed, as far as the provider tells without creating (a dry run).

        Raises:
            AuthError, InvalidRequest, QuotaExceeded: It would not be.
        """

    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        """Return the layers of termination that this provider's `create` will arm, for the plan and the receipt."""

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """Return where in the offer's region to try, in this order. None lets the provider choose.

        Raises:
            InvalidRequest: The type is not to be had in that region.
        """

    def create(self, request: CreateRequest) -> Instance:
        """Create the instance of the request, or returns the one that this token has created."""

    def find(self, request: CreateRequest) -> Instance | None:
        """Return the instance that this request's token created, in whatever state; None if the provider knows of none."""

    def describe(self, ref: InstanceRef) -> Instance | None:
        """Return the instance now."""

    def terminate(self, ref: InstanceRef) -> None:
        """Ask for its end."""

    def open_access(self, instance: Instance, allow_from: str) -> None:
        """Let this CIDR, and no other, reach the instance's port 22."""

    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        """Remove what a run leaves besides its instance; return what is still in the way (call again later)."""

    def remove(self, leftover: OrphanedResource) -> bool:
        """Remove one of them; whether it is gone now. False: something still uses it, call again later."""

    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        """Return everything with our tag, in these regions; None means every region that the account can use."""

    def console(self, ref: InstanceRef) -> str:
        """Return the machine's boot messages; empty if there are none (yet)."""


@runtime_checkable
class TimeSource(Protocol):
    """A provider with a clock of its own, which leases can be held against."""

    def time_now(self) -> datetime | None:
        """Return what its clock says, from the date of an answer; None if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMaintenance:
    """What has happened to a machine whose host is maintained."""

    events: tuple[str, ...] = ()  # the provider's names of all that has happened to the machine, oldest first
    over: bool = False  # whether a maintenance is among them, and finished
    time_limit: datetime | None = None  # the provider's own deadline for the machine, as it stands; None without one


@runtime_checkable
class MaintenanceSimulator(Protocol):
    """A provider that maintains a machine's host on demand, to show what the machine has to stand."""

    def simulate_maintenance(self, ref: InstanceRef) -> None:
        """Ask for the maintenance of one of our machines; return as soon as the provider has accepted."""

    def maintained(self, ref: InstanceRef) -> HostMaintenance:
        """Return what has come of it so far."""


class Billing(Protocol):
    """What a provider has billed. Asked only on a person's word: some providers charge for the answer."""

    @property
    def name(self) -> str:
        """Name of the provider."""

    @property
    def usd_per_request(self) -> Decimal:
        """Return what one request costs; 0 if nothing."""

    def kept(self, start: datetime, end: datetime) -> Bill | None:
        """Return an answer that was paid for a few hours ago, if there is one. Costs nothing."""

    def billed(self, start: datetime, end: datetime, *, fresh: bool = False) -> Bill:
        """Return the figures for whole UTC days.

        Args:
            start: The first day.
            end: The day after the last one.
            fresh: Ask again, even if an answer is kept that is a few hours old.

        Raises:
            ProviderError: They cannot be had; says what is missing.
        """


class Diagnosable(Protocol):
    """A provider that can be examined: whether a run on it would work, without creating or paying for anything."""

    def examine(self, offer: Offer | None) -> Sequence[Check]:
        """Check credentials, identity, clock, permissions, quotas, and whether the machine is to be had.

        Never raises; each check has a time limit.

        Args:
            offer: The machine that is wanted; None for what can be checked without one.
        """


class PriceSource(Protocol):
    """A provider's own price list. Asking is free of charge."""

    @property
    def by_region(self) -> bool:
        """Return whether each region is asked by itself, and may be one without a known price; else one list has all."""

    @property
    def note(self) -> str:
        """Return what to know about asking, such as that it takes long; empty if nothing."""

    def read(self, regions: Sequence[str], known: Sequence[Offer], now: datetime) -> PriceUpdate:
        """Return new prices of the known offers in these regions, and of their types where they are new.

        Raises:
            ProviderError: The list cannot be had.
        """


class Bucket(Protocol):
    """One bucket and prefix of an object store."""

    def credentials_expire_at(self) -> datetime | None:
        """When the addresses end whatever they were made for; None if never."""

    def presign_put(self, name: str, seconds: float) -> str:
        """Return an address that takes one upload without credentials."""

    def exists(self, name: str) -> bool:
        """Return whether there is such an object."""

    def download(self, name: str, path: Path) -> None:
        """Bring it here."""
