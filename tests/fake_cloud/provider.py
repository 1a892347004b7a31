"""A client of the fake cloud: the `Provider` protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from costgpu.errors import AuthError, InvalidRequest, NoCapacity, QuotaExceeded, Unreachable
from costgpu.models.instance import CreateRequest, Identity, Instance, InstanceRef, Safeguard
from costgpu.models.offer import Offer
from costgpu.models.run import EndedBy
from costgpu.providers.base import OUR_TAGS, TAG_GROUP, TAG_LEASE, TAG_RUN, OrphanedResource, OwnedResources
from costgpu.providers.common import machines_to_come, our_tags
from tests.fake_cloud.faults import first_with_capacity

if TYPE_CHECKING:
    from tests.fake_cloud.cloud import FakeCloud
    from tests.fake_cloud.instance import FakeInstance
    from tests.fake_cloud.resources import Resource

T = TypeVar("T")
ZONES = ("a", "b", "c")


class FakeProvider:
    """One client. It keeps nothing: whatever it knows, the cloud knows."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud

    @property
    def name(self) -> str:
        """``fake``."""
        return "fake"

    def identity(self) -> Identity:
        """The fake account."""
        mine = Identity(provider="fake", account="000000000000", principal="tester", source="memory")
        return self._call("identity", "", lambda: mine)

    def check(self, request: CreateRequest) -> None:
        """The create call's own checks; capacity is not told before."""
        self._call("check", request.token, lambda: self._check(request))

    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        """Of the create call and of the boot script in it."""
        until = request.lease_until
        own, words = "this cloud's create call has no termination time", "powers the machine off; power-off terminates"
        return (
            Safeguard(name="create call", armed=False, detail=own, deadline=None),
            Safeguard(name="watchdog", armed=True, detail=words, deadline=until),
        )

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """All three, or the offer's own."""
        if offer.region not in self.cloud.regions:
            raise InvalidRequest(f"There is no region {offer.region!r} on the fake cloud.")
        return (offer.zone,) if offer.zone else tuple(f"{offer.region}{letter}" for letter in ZONES)

    def create(self, request: CreateRequest) -> Instance:
        """Makes the machine, its tags and its access rule; the same token gets the same machine for ever."""
        return self._call("create", request.token, lambda: self._create(request))

    def find(self, request: CreateRequest) -> Instance | None:
        """By token."""

        def look() -> Instance | None:
            self._reach(request.offer.region)
            return self._visible(self.cloud.by_token.get(request.token, ""))

        return self._call("find", request.token, look)

    def describe(self, ref: InstanceRef) -> Instance | None:
        """By id."""

        def look() -> Instance | None:
            self._reach(ref.region)
            found = self._visible(ref.instance_id)
            return found if found is not None and found.ref == ref else None

        return self._call("describe", ref.instance_id, look)

    def terminate(self, ref: InstanceRef) -> None:
        """Begins the end; the id of a machine that is not known is no error."""
        self._call("terminate", ref.instance_id, lambda: self._terminate(ref))

    def open_access(self, instance: Instance, allow_from: str) -> None:
        """Replaces what the run's access rule lets in."""

        def replace() -> None:
            self._reach(instance.ref.region)
            known = self.cloud.instances.get(instance.ref.instance_id)
            rule = None if known is None else self._rule_of(known)
            if known is not None and not known.ours:
                raise _not_ours(instance.ref.instance_id)
            if known is None or rule is None:
                raise InvalidRequest(f"{instance.ref.instance_id} has no access rule of ours.")
            rule.allow_from = (allow_from,)

        self._call("open_access", instance.ref.instance_id, replace)

    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        """Access rules and disks; they are in use as long as an instance of the run is there."""

        def remove() -> tuple[OrphanedResource, ...]:
            self._reach(region)
            if not self._are_alive(TAG_RUN, run_id, region):
                self.cloud.resources.remove(run_id, region, shared=not self._are_alive(TAG_GROUP, run_id, region))
            return self.cloud.resources.of(run_id, region)

        return self._call("clean_up", run_id, remove)

    def remove(self, leftover: OrphanedResource) -> bool:
        """By id; what an instance of its run uses stays."""

        def take_away() -> bool:
            self._reach(leftover.region)
            shared = self.cloud.resources.is_shared(leftover.resource_id)
            used = self._are_alive(TAG_GROUP if shared else TAG_RUN, leftover.run_id, leftover.region)
            return self.cloud.resources.take(leftover.resource_id, leftover.region, used=used)

        return self._call("remove", leftover.resource_id, take_away)

    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        """By tag."""

        def look() -> OwnedResources:
            asked = self.cloud.regions if regions is None else tuple(regions)
            closed = [(one, why) for one, why in self.cloud.unreachable_regions.items() if one in asked]
            closed += [(one, "no such region") for one in asked if one not in self.cloud.regions]
            there = [one for one in asked if one not in dict(closed)]
            seen = (self._visible(one) for one, it in self.cloud.instances.items() if it.ours)
            return OwnedResources(
                instances=tuple(one for one in seen if one is not None and one.ref.region in there),
                leftovers=tuple(one for one in self.cloud.resources.of() if one.region in there),
                unreachable=tuple(closed),
                told_at=datetime.fromtimestamp(self.cloud.epoch(self.cloud.time()) + self.cloud.skew_seconds, UTC),
            )

        return self._call("list_owned", "", look)

    def console(self, ref: InstanceRef) -> str:
        """What the machine printed while it booted, and its last words."""

        def read() -> str:
            self._reach(ref.region)
            known = self.cloud.instances.get(ref.instance_id)
            if known is None or known.guest is None or self._visible(ref.instance_id) is None:
                return ""
            if known.off_at is not None:
                return ""  # as Google: what is off has no console any more
            lines = ["fake machine: kernel started"]
            if known.guest.machine.boots:
                lines.append(f"costgpu: watchdog armed until {known.tags.get(TAG_LEASE)}")
            if known.ended_by in (EndedBy.WATCHDOG, EndedBy.AGENT) and known.end_reason is not None:
                wall = int(self.cloud.epoch(known.terminating_at or self.cloud.time()))
                lines.append(f"costgpu: {known.ended_by} {known.end_reason}: powering off (wall {wall})")
            return "\n".join(lines) + "\n"

        return self._call("console", ref.instance_id, read)

    def _call(self, method: str, subject: str, carry_out: Callable[[], T]) -> T:
        def with_credentials() -> T:
            until = self.cloud.credentials_expire_at
            if until is not None and self.cloud.epoch(self.cloud.time()) >= until.timestamp():
                raise AuthError("The fake cloud's credentials have expired.", hint="Log in again.")
            return carry_out()

        return self.cloud.call(method, subject, with_credentials)

    def _reach(self, region: str) -> None:
        if region in self.cloud.unreachable_regions:
            raise Unreachable(f"{region} does not answer: {self.cloud.unreachable_regions[region]}")

    def _check(self, request: CreateRequest) -> None:
        self._reach(request.offer.region)
        zones = self.zones(request.offer)
        if request.zone is not None and request.zone not in zones:
            raise InvalidRequest(f"There is no zone {request.zone!r} in {request.offer.region}.")
        if taken := set(request.tags) & set(OUR_TAGS):
            raise InvalidRequest(f"The tag {min(taken)} is costgpu's own.")
        quota = self.cloud.quota_vcpus
        if quota is not None:
            live = (one.request for one in self.cloud.instances.values() if one.ours and one.state.alive)
            used = sum(one.offer.vcpus for one in live if one is not None)
            machines, kind = machines_to_come(request), request.offer.instance_type
            if used + machines * request.offer.vcpus > quota:
                needs = f"{kind} needs" if machines == 1 else f"{machines} {kind} need"
                fit = f" At most {(quota - used) // request.offer.vcpus} of them fit." if machines > 1 else ""
                raise QuotaExceeded(
                    f"The quota is {quota} vCPUs; {used} are in use, and {needs} {machines * request.offer.vcpus}.{fit}",
                    hint="Ask for more, or take a smaller type.",
                )

    def _create(self, request: CreateRequest) -> Instance:
        cloud = self.cloud
        known = cloud.instances.get(cloud.by_token.get(request.token, ""))
        if known is not None:
            if known.request != request:
                raise InvalidRequest(f"The token {request.token} was used with other parameters.")
            self._reach(request.offer.region)
            return known.describe()
        self._check(replace(request, group=None))  # a create call is about one machine
        region = request.offer.region
        self._share(request)
        rule = cloud.resources.access_rule(request.run_id, region)
        if rule is None:
            lease = request.lease_until.replace(microsecond=0)
            allowed = (request.allow_from,)
            cloud.resources.add("security group", region, request.run_id, allow_from=allowed, lease_until=lease)
        else:
            rule.allow_from = (request.allow_from,)
        zones = (request.zone,) if request.zone is not None else self.zones(request.offer)
        try:
            known_zones = [one for one in zones if one is not None]
            zone = first_with_capacity(cloud.no_capacity_rules, request, known_zones)
        except NoCapacity:
            if rule is None and not cloud.leaves_rules:
                cloud.resources.remove(request.run_id, region)
            raise
        return cloud.make(request, zone, {**request.tags, **our_tags(request)}).describe()

    def _share(self, request: CreateRequest) -> None:
        """What the machines of a group share. It stays if there is no capacity for this one: others may use it."""
        group = request.group
        if group is None:
            return
        for kind in ("group network", *(["placement group"] if group.placement else [])):
            lease = request.lease_until.replace(microsecond=0)
            facts = {"lease_until": lease, "owner": request.owner}
            self.cloud.resources.share(kind, request.offer.region, group.group_id, **facts)

    def _visible(self, instance_id: str) -> Instance | None:
        known, now = self.cloud.instances.get(instance_id), self.cloud.time()
        if known is None or now < known.visible_at:
            return None
        if known.terminated_at is not None and now > known.terminated_at + self.cloud.remembers_seconds:
            return None
        return known.describe()

    def _terminate(self, ref: InstanceRef) -> None:
        self._reach(ref.region)
        known = self.cloud.instances.get(ref.instance_id)
        if known is None or known.ref != ref:
            return
        if not known.ours:
            raise _not_ours(ref.instance_id)
        known.terminate_calls += 1
        known.begin_end(self.cloud.time(), EndedBy.CLIENT)

    def _are_alive(self, tag: str, value: str, region: str) -> bool:
        """Whether machines with that tag still are."""
        machines = (one for one in self.cloud.instances.values() if one.tags.get(tag) == value)
        return any(one.ref.region == region and one.state.alive for one in machines)

    def _rule_of(self, instance: FakeInstance) -> Resource | None:
        return self.cloud.resources.access_rule(instance.tags.get(TAG_RUN, ""), instance.ref.region)


def _not_ours(instance_id: str) -> InvalidRequest:
    return InvalidRequest(f"{instance_id} does not carry the tag {TAG_RUN}: it is not ours, and stays as it is.")
