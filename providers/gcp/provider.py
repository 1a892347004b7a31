"""The Provider protocol on Google Compute Engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError, RefusedHere, Retry, Throttled, Unreachable
from costgpu.models.instance import CreateRequest, Identity, Instance, InstanceRef, Safeguard
from costgpu.models.offer import Offer
from costgpu.providers.base import TAG_RUN, HostMaintenance
from costgpu.providers.common import date_in, machines_to_come
from costgpu.providers.gcp import launch, quotas, sdk
from costgpu.providers.gcp.facts import end_by_hand
from costgpu.providers.gcp.instances import EXISTS, SYSTEM, begun_at, history_of, instance_from, operations_on, split_id
from costgpu.providers.gcp.inventory import Inventory
from costgpu.providers.gcp.launch import Images, label_value
from costgpu.providers.gcp.network import Network, caller
from costgpu.providers.gcp.org_policies import OrgPolicies
from costgpu.providers.gcp.placement import ensure_policy
from costgpu.providers.gcp.sdk import refusal_of, refused
from costgpu.providers.gcp.session import SECONDS, Clients, endpoint, is_done, list_all_places, region_of

COMPUTE = "https://compute.googleapis.com"
CREATE_SECONDS = 120.0  # how long a create call may be undecided
POLL_SECONDS = 0.5
OF_HOST = "HostMaintenance"  # how the types of the events end that come of a maintenance


class GcpProvider(Inventory):
    """Google Compute Engine in one project.

    Args:
        project: Whose machines; None for the project of the credentials, or of gcloud.
        network: ``NETWORK`` or ``NETWORK/SUBNET`` of the machines; None for the default one.
        image: ``projects/.../global/images/...``, instead of the deep learning and Ubuntu images.
    """

    name = "gcp"

    def __init__(
        self,
        *,
        clock: Clock,
        project: str | None = None,
        network: str | None = None,
        image: str | None = None,
        credentials: Any | None = None,
    ) -> None:
        super().__init__(Clients(clock, project, credentials))
        self._clock = clock
        self._images = Images(self._clients, image)
        self._network = Network(self._clients, network)
        self._policies = OrgPolicies(self._clients)
        self._zones: dict[tuple[str, str], tuple[str, ...]] = {}

    def identity(self) -> Identity:
        """Project, principal and where the credentials came from."""
        return self._clients.identity()

    def time_now(self) -> datetime | None:
        """Google says the time with every answer, to strangers, too: a wrong clock cannot even sign in."""
        reply = sdk.unsigned(endpoint() or COMPUTE, SECONDS)
        return None if reply is None else date_in(reply.headers.get("Date", ""))

    def check(self, request: CreateRequest) -> None:
        """Region, zone, image, network, organisation and quotas, without creating anything: Google has no dry run."""
        self._clients.require(request.offer.region)
        zone = self._zone(request)
        self._body(request, zone)
        caller(request.allow_from)
        self._network.check()
        lifetime = (request.lease_until - self._clock.now()).total_seconds()
        quotas.check(self._clients, request.offer, lifetime, machines_to_come(request))
        self._policies.check(request.offer.region, self._images.find(request.offer).name)

    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        """Return what the create call arms."""
        until = request.lease_until
        limit = "Google deletes the running machine and its disk (terminationTime, DELETE)"
        watchdog = (
            "startup script, at every boot: powers the machine off if nobody comes, and a minute after that time;"
            " Google then keeps its disk, and bills it, until costgpu deletes it (run, attach, cancel, reap)"
        )
        return (
            Safeguard(name="create call", armed=True, detail=limit, deadline=until),
            Safeguard(name="watchdog", armed=True, detail=watchdog),
        )

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """Return the zones of the region that have the type, one by one."""
        self._images.check(offer)
        self._clients.require(offer.region)
        if offer.zone is not None:
            return (offer.zone,)
        return self._zones_with(offer)

    def _zones_with(self, offer: Offer) -> tuple[str, ...]:
        key = (offer.region, offer.instance_type)
        if key not in self._zones:
            machine, accelerator, _ = launch.split_type(offer.instance_type)
            fit = self._zones_that_have("MachineTypes", machine, offer.region)
            if accelerator:
                attached = launch.ATTACHED.get(accelerator, accelerator)
                fit &= self._zones_that_have("AcceleratorTypes", attached, offer.region)
            self._zones[key] = tuple(sorted(fit))
        if not self._zones[key]:
            raise InvalidRequest(f"Google Cloud has no {offer.instance_type} in {offer.region}.")
        return self._zones[key]

    def _zones_that_have(self, kind: str, name: str, region: str) -> set[str]:
        rows, silent = list_all_places(self._clients, kind, "zone", f"name = {name}")
        found = {zone for zone, row in rows if str(row.name) == name and region_of(zone) == region}
        if not found and any(region_of(zone) == region for zone in silent):
            raise Unreachable(f"Google does not say which zones of {region} have {name}.")
        return found

    def _zone(self, request: CreateRequest) -> str:
        """Return where a request goes: always the same zone for the same request."""
        zone = request.zone or request.offer.zone or self._zones_with(request.offer)[0]
        if region_of(zone) != request.offer.region:
            raise InvalidRequest(f"The zone {zone} is not in {request.offer.region}.")
        return zone

    def _body(self, request: CreateRequest, zone: str) -> dict[str, Any]:
        image = self._images.find(request.offer)
        subnet = self._network.subnet_path(request.offer.region)
        asks = "preemption_notice_duration" in sdk.compute().Scheduling.meta.fields  # not in 1.24
        notice = launch.NOTICE_SECONDS if asks else 0
        return launch.body(request, zone, image, self._network.path, subnet, notice)

    def create(self, request: CreateRequest) -> Instance:
        """Create the instance, or returns the one that this token has created.

        Google accepts a call at once and says seconds later, in its operation, that there is no capacity or quota: so
        this waits until the machine has its resources.
        """
        self._clients.require(request.offer.region)
        zone = self._zone(request)
        name = launch.name_of(request.token)
        row = self._row(zone, name)
        if row is not None and str(row.status) in EXISTS:
            return self._own(instance_from(row), request)
        if row is None:
            told = history_of(self._clients, zone, name)
            if self._is_over(zone, name, told):
                found = self.find(request)
                if found is not None:
                    return found
        return self._create(request, zone, name)

    def _create(self, request: CreateRequest, zone: str, name: str) -> Instance:
        body = self._body(request, zone)  # what cannot be asked for is found before the rules are made
        self._network.open(request)
        if request.group is not None:
            self._network.open_within(request, request.group)
            if request.group.placement:
                ensure_policy(self._clients, request, request.group)
        doing = f"create a {request.offer.instance_type} in {zone}"
        fields = {"zone": zone, "instance_resource": body, "request_id": launch.request_id(request.token)}
        try:
            operation = self._clients.write(doing, "Instances", "insert_unary", **fields)
        except ProviderError as error:
            if sdk.status_of(error.__cause__) != 409:
                raise
            operation = None  # the name is taken: by this token, and a call before this one
        until = self._clock.monotonic() + CREATE_SECONDS
        while True:
            with _accepted(doing):
                if operation is not None and not is_done(operation):
                    operation = self._clients.operation(doing, operation)
                row = self._row(zone, name)
            decided = operation is None or is_done(operation)
            if row is not None and (decided or str(row.status) in EXISTS):
                return self._own(instance_from(row), request)
            if operation is not None and decided:
                said = refusal_of(operation)
                if said is not None:
                    refusal = refused(said, doing, project=self._clients.project)
                    # the same call again would be answered with the same operation
                    raise RefusedHere(refusal.message) if refusal.retry is Retry.HERE else refusal
            if row is None and decided:
                with _accepted(doing):
                    found = self._of_token(request, zone)
                if found is not None:
                    return found
            if self._clock.monotonic() > until:
                raise Unreachable(f"Whether Google can {doing} is not known after {CREATE_SECONDS:g} s.")
            self._clock.sleep(POLL_SECONDS)

    def _own(self, instance: Instance, request: CreateRequest) -> Instance:
        """Return the instance, if it is the one that was asked for."""
        if instance.run_id != label_value(request.run_id) or instance.instance_type != request.offer.instance_type:
            project = self._clients.project
            whose = f"run {instance.run_id}" if instance.run_id else "not costgpu's"
            raise InvalidRequest(
                f"The token {request.token} belongs to {instance.ref.instance_id} ({instance.instance_type}, {whose}).",
                hint=f"If it is not wanted: {end_by_hand(instance.ref, project)}",
            )
        return instance

    def find(self, request: CreateRequest) -> Instance | None:
        """Return the instance that this request's token created."""
        self._clients.require(request.offer.region)
        return self._of_token(request, self._zone(request))

    def terminate(self, ref: InstanceRef) -> None:
        """Ask for the deletion of one of our instances, running or off."""
        zone, name = split_id(ref)
        hint = f"It may still be billing. To end it by hand: {end_by_hand(ref, self._clients.project)}"
        row = self._row(zone, name)
        if row is None:
            told = history_of(self._clients, zone, name)
            if told.created_at is not None and not (told.created or told.deleting or told.deleted_at):
                raise Unreachable(f"{ref.instance_id} is too new: Google does not show it yet.", hint=hint)
            return
        if TAG_RUN not in row.labels:
            raise InvalidRequest(
                f"{name} in {zone} was not created by costgpu: it has no label of ours.",
                hint="costgpu ends only its own instances.",
            )
        try:
            self._clients.write(f"delete {name} in {zone}", "Instances", "delete_unary", zone=zone, instance=name)
        except ProviderError as error:
            if sdk.is_missing(error.__cause__):
                return
            if isinstance(error, Throttled) and history_of(self._clients, zone, name).deleting:
                return  # not ready for a second deletion, because of the first
            raise type(error)(error.message, hint=f"{error.hint} {hint}".strip()) from error.__cause__

    def open_access(self, instance: Instance, allow_from: str) -> None:
        """Let this CIDR, and no other, reach port 22."""
        if not instance.run_id:
            raise InvalidRequest(f"{instance.ref.instance_id} has no label of ours.")
        self._network.open_only(instance.run_id, allow_from)

    def simulate_maintenance(self, ref: InstanceRef) -> None:
        """Ask for the maintenance, which takes the permission ``compute.instances.simulateMaintenanceEvent``.

        Source: Compute Engine, "Simulate a host maintenance event" (2026-11).
        """
        zone, name = split_id(ref)
        row = self._row(zone, name)
        if row is None or TAG_RUN not in row.labels:
            raise InvalidRequest(f"{name} in {zone} is no machine of costgpu.")
        doing = f"simulate the maintenance of the host of {name} in {zone}"
        self._clients.write(doing, "Instances", "simulate_maintenance_event_unary", zone=zone, instance=name)

    def maintained(self, ref: InstanceRef) -> HostMaintenance:
        """Return what its zone's operations and its own description tell."""
        zone, name = split_id(ref)
        rows = sorted(operations_on(self._clients, zone, name), key=begun_at)
        kinds = [str(row.operation_type) for row in rows if is_done(row)]
        return HostMaintenance(
            events=tuple(str(row.operation_type) for row in rows),
            over=any(kind.startswith(SYSTEM) and kind.endswith(OF_HOST) for kind in kinds),
            time_limit=_time_limit(self._row(zone, name)),
        )


@contextlib.contextmanager
def _accepted(doing: str) -> Iterator[None]:
    """Once Google has taken a create call, a question about it that fails does not mean that nothing was made."""
    try:
        yield
    except ProviderError as error:
        raise Unreachable(f"Whether Google did {doing} is not known: {error.message}", hint=error.hint) from error


def _time_limit(row: Any | None) -> datetime | None:
    """When Google will delete the machine, as long as it runs; None if it will not, or the client has no such field."""
    scheduling = getattr(getattr(row, "resource_status", None), "scheduling", None)
    text = str(getattr(scheduling, "termination_timestamp", "") or "")
    return datetime.fromisoformat(text) if text else None
