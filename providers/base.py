"""The Provider protocol: what every cloud, this machine and the fake must do. Imports `job` and `errors` only.

The contract, which tests/contract checks on every provider:

- `create` is idempotent by token: the same request returns the same instance, for as long as it exists and, where
  the provider remembers, after it. Tags, lease and deadline are part of the one call that makes the machine bill.
  It returns as soon as the instance has an id; it waits for nothing. `Unreachable` means that nobody knows whether
  an instance exists: call again with the same request. Every other error means that none was created.
- `describe` returns None if the provider does not know the instance. Right after `create` that can happen to an
  instance that exists (eventual consistency); after a confirmed termination it is normal.
- `terminate` is idempotent, returns as soon as the provider has accepted, and never fails because the instance is
  already gone. It also works on a stopped instance. Only `describe` confirms.
- `list_owned` reports what carries our tag, and only that, in every region asked for. A region that cannot be asked is
  named in the answer and does not hide the others.
- `terminate` and `clean_up` refuse what does not carry our tag with `InvalidRequest`.
- SDK exceptions never leave an adapter: they are translated, ``from exc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from costgpu.job import CreateRequest, Identity, Instance, InstanceRef, Layer, Leftover
from costgpu.models import Offer

__all__ = ["OUR_TAGS", "TAG_LEASE", "TAG_NAME", "TAG_OWNER", "TAG_RUN", "Leftover", "Owned", "Provider"]

TAG_RUN = "costgpu-run"
TAG_NAME = "costgpu-name"
TAG_OWNER = "costgpu-owner"
TAG_LEASE = "costgpu-lease-until"  # Unix seconds: a value that every provider's tags can hold
OUR_TAGS = (TAG_RUN, TAG_NAME, TAG_OWNER, TAG_LEASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What a provider holds of ours.

    Attributes:
        instances: In any state that the provider still reports, terminated ones included.
        leftovers: Everything else with our tag.
        unreachable: Region -> why it could not be asked.
    """

    instances: tuple[Instance, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unreachable: tuple[tuple[str, str], ...] = ()


class Provider(Protocol):
    """One cloud. Methods raise the subclasses of `ProviderError` and nothing else."""

    @property
    def name(self) -> str:
        """``aws``, ``gcp``, ``local``, ``fake``."""

    def identity(self) -> Identity:
        """Who is asking. Raises `AuthError` with what to do about it."""

    def check(self, request: CreateRequest) -> None:
        """Whether the create call would be allowed, as far as the provider tells without creating (a dry run).

        Raises:
            AuthError, InvalidRequest, QuotaExceeded: It would not be.
        """

    def layers(self, request: CreateRequest) -> tuple[Layer, ...]:
        """The layers of termination that this provider's `create` will arm, for the plan and the receipt."""

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """Where in the offer's region to try, in this order. None lets the provider choose.

        Raises:
            InvalidRequest: The type is not to be had in that region.
        """

    def create(self, request: CreateRequest) -> Instance:
        """Creates the instance of the request, or returns the one that this token has created."""

    def find(self, request: CreateRequest) -> Instance | None:
        """The instance that this request's token created, in whatever state; None if the provider knows of none."""

    def describe(self, ref: InstanceRef) -> Instance | None:
        """The instance now."""

    def terminate(self, ref: InstanceRef) -> None:
        """Asks for its end."""

    def open_access(self, instance: Instance, allow_from: str) -> None:
        """Lets this CIDR, and no other, reach the instance's port 22."""

    def clean_up(self, run_id: str, region: str) -> tuple[Leftover, ...]:
        """Removes what a run leaves besides its instance; returns what is still in the way (call again later)."""

    def list_owned(self, regions: Sequence[str] | None = None) -> Owned:
        """Everything with our tag, in these regions; None means every region that the account can use."""

    def console(self, ref: InstanceRef) -> str:
        """The machine's boot messages; empty if there are none (yet)."""
