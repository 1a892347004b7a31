"""What the adapters share: our tags, the same words for the same mistakes, and the same examinations."""

from __future__ import annotations

import contextlib
import difflib
import functools
import ipaddress
import os
import threading
import tomllib
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError
from costgpu.models import diagnostics
from costgpu.models.diagnostics import Check
from costgpu.models.instance import CreateRequest, Endpoint, InstanceState, NodeGroup, OrphanedResource
from costgpu.models.offer import Offer
from costgpu.providers.base import TAG_GROUP, TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN, Provider, TimeSource

BOOTHOOK = "#cloud-boothook\n"
"""Makes cloud-init run the script at every boot, before the network's own modules and before any other user data.
Source: cloud-init documentation, "User data formats" (2026-11)."""
LOGIN = "root"  # the boot script lets the run's key in as root
MOST_NUMBER = 1e18
NOBODY = "192.0.2.1/32"  # RFC 5737: an address that is nobody's


def our_tags(request: CreateRequest) -> dict[str, str]:
    """Return the tags of a run's resources, exactly: four, and that of its group if it has one."""
    return {
        TAG_RUN: request.run_id,
        TAG_NAME: request.name,
        TAG_OWNER: request.owner,
        TAG_LEASE: str(int(request.lease_until.timestamp())),
        **({TAG_GROUP: request.group.group_id} if request.group is not None else {}),
    }


def of_group(request: CreateRequest, group: NodeGroup) -> CreateRequest:
    """Return the request as node 0's: what its machines share carries the tags of that run."""
    return replace(request, run_id=group.group_id)


def run_name(run_id: str) -> str:
    """Return the name of what lets the user reach a run's machine."""
    return f"costgpu-{run_id}"


def group_name(group_id: str) -> str:
    """Return the name of everything that the machines of a group share."""
    return f"costgpu-g-{group_id}"


def machines_to_come(request: CreateRequest) -> int:
    """Return how many machines a quota must hold from this one on: nodes are created in their order."""
    return request.group.nodes - request.group.node if request.group is not None else 1


def number_in(text: str) -> float | None:
    """Return the finite number that a text is; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MOST_NUMBER else None


def part(document: object, *keys: str) -> Mapping[str, Any]:
    """Return the object at some keys of somebody's JSON; empty if there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def another_address(variable: str, *, private: bool = False) -> str:
    """Return the address that an environment variable says to ask instead of the public one; empty for that.

    Args:
        private: Whether an address of a private network may be asked without encryption, too.

    Raises:
        InvalidRequest: It is not encrypted, and not on this machine.
    """
    url = os.environ.get(variable, "").rstrip("/")
    split = urlsplit(url)
    near = split.hostname == "localhost"
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(split.hostname or "")
        near = address.is_loopback or (private and address.is_private)
    if url and split.scheme != "https" and not (split.scheme == "http" and near):
        where = "this machine or of a private network" if private else "this machine"
        raise InvalidRequest(
            f"{variable} is {url}: without https only an address of {where} is asked.",
            hint=f"Write {variable}=https://..., or unset it.",
        )
    return url


def lease_in(tags: Mapping[str, str]) -> datetime | None:
    """Return the end of the lease; None if the tag is missing or no Unix time."""
    try:
        return datetime.fromtimestamp(int(tags.get(TAG_LEASE, "")), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def date_in(header: str) -> datetime | None:
    """Return the time of an HTTP ``Date``; None if it is none."""
    try:
        found = parsedate_to_datetime(header)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None


def facts_in(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of an `Instance` that its tags tell."""
    return {
        "run_id": tags.get(TAG_RUN, ""),
        "name": tags.get(TAG_NAME, ""),
        "owner": tags.get(TAG_OWNER, ""),
        "lease_until": lease_in(tags),
        "group_id": tags.get(TAG_GROUP, ""),
        "tags": dict(tags),
    }


@functools.cache
def error_codes(path: Path) -> dict[str, frozenset[str]]:
    """Return a provider's own names of errors by what they mean, from a file."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return {meaning: frozenset(names) for meaning, names in document.items() if meaning != "hints"}


@functools.cache
def error_hints(path: Path) -> dict[str, str]:
    """Return what to do about an error, by the provider's own name of it, from the same file."""
    hints: dict[str, str] = tomllib.loads(path.read_text(encoding="utf-8"))["hints"]
    return hints


def ssh_endpoint(address: str | None, state: InstanceState) -> Endpoint | None:
    """Return how a machine with that public address is reached; None as long as it does not run."""
    return Endpoint(kind="ssh", host=address, user=LOGIN) if address and state is InstanceState.RUNNING else None


def leftover_from(
    provider: str,
    region: str,
    kind: str,
    resource_id: str,
    tags: Mapping[str, str],
    usd_per_hour: float = 0.0,
    created_at: datetime | None = None,
) -> OrphanedResource:
    """Return what is left of a run, and whose it is by its tags."""
    return OrphanedResource(
        provider=provider,
        region=region,
        kind=kind,
        resource_id=resource_id,
        run_id=tags.get(TAG_RUN, ""),
        usd_per_hour=usd_per_hour,
        lease_until=lease_in(tags),
        owner=tags.get(TAG_OWNER, ""),
        created_at=created_at.astimezone(UTC) if created_at is not None else None,
    )


def not_ours(leftover: OrphanedResource) -> InvalidRequest:
    """Return the error for a resource that costgpu must not touch."""
    return InvalidRequest(
        f"The {leftover.kind} {leftover.resource_id} in {leftover.region} does not carry the tag {TAG_RUN}: it is not"
        " ours, and stays as it is."
    )


def unknown_region(cloud: str, region: str, known: Collection[str], usual: Collection[str]) -> InvalidRequest:
    """Return the error for a region that does not exist, with near names.

    Args:
        usual: The ones to name if none is near.
    """
    near = difflib.get_close_matches(region, sorted(known), n=3, cutoff=0.5) or [
        name for name in usual if name in known
    ]
    return InvalidRequest(
        f"{cloud} has no region {region!r}.", hint=f"Did you mean {' or '.join(near)}?" if near else ""
    )


def network_of(allow_from: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return the addresses that are let in.

    Raises:
        InvalidRequest: It is no such range.
    """
    try:
        return ipaddress.ip_network(allow_from, strict=False)
    except ValueError as exc:
        raise InvalidRequest(f"{allow_from!r} is not an address range such as 203.0.113.7/32.") from exc


def boot_script_of(request: CreateRequest) -> str:
    """Return the boot script, with an interpreter in its first line."""
    return request.boot_script if request.boot_script.startswith("#!") else f"#!/bin/sh\n{request.boot_script}"


def example_request(offer: Offer, now: datetime) -> CreateRequest:
    """Return a request that is like that of a run, for questions that create nothing."""
    return CreateRequest(
        run_id="doctor",
        token="doctor",  # noqa: S106 - names a request, is no secret
        name="doctor",
        owner="doctor",
        offer=offer,
        zone=offer.zone,
        disk_gib=100,
        lease_until=now + timedelta(hours=1),
        boot_script="#!/bin/sh\n",
        allow_from=NOBODY,
    )


def compare_clocks(cloud: str, provider: TimeSource, clock: Clock) -> Check:
    """Return whether the clock of this computer is that of a provider."""
    before = clock.now()
    try:
        theirs = provider.time_now()
    except ProviderError as error:
        return diagnostics.unknown("clock", f"could not be compared: {error.message}")
    if theirs is None:
        return diagnostics.unknown("clock", f"{cloud} did not say the time")
    return diagnostics.clock_check(cloud, theirs, before + (clock.now() - before) / 2)


def find_zones(provider: Provider, offer: Offer) -> Check:
    """Return in which zones an offer's machine is to be had."""
    zones = ", ".join(zone for zone in provider.zones(offer) if zone) or offer.region
    return diagnostics.ok(
        "machine", f"{offer.instance_type} is offered in {zones} (whether one is free now, only a run tells)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a machine boots."""

    name: str  # what the provider knows this very image by: an id, a path
    root_gib: int  # least size of the boot disk
    architecture: str  # ``x86_64`` or ``arm64``
    root_device: str = ""  # name of the boot disk, such as ``/dev/sda1``; empty where it has none
    network_driver: str = ""  # the faster virtual network card that it has a driver for; empty if none is known

    def check_disk(self, disk_gib: int) -> None:
        """Raise `InvalidRequest` if a disk of that size is too small."""
        if disk_gib < self.root_gib:
            raise InvalidRequest(
                f"A disk of {disk_gib} GiB is too small: the image {self.name} needs {self.root_gib} GiB.",
                hint=f"Ask for a disk of at least {self.root_gib} GiB.",
            )


class ImageCache:
    """Images that were looked up, once each; used from several threads."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Image] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, offer: Offer, look_up: Callable[[], Image]) -> Image:
        """Return the image of an offer.

        Raises:
            InvalidRequest: It is for another architecture.
        """
        with self._lock:
            if key not in self._found:
                self._found[key] = look_up()
            found = self._found[key]
        if found.architecture != offer.architecture:
            name = found.name.rsplit("/", 1)[-1]
            raise InvalidRequest(
                f"The image {name} is for {found.architecture}, but {offer.instance_type} is {offer.architecture}."
            )
        return found
