"""The Provider protocol on Amazon EC2."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

from costgpu.clock import Clock
from costgpu.errors import InvalidRequest, ProviderError, QuotaExceeded, Unreachable
from costgpu.models.instance import CreateRequest, Identity, Instance, InstanceRef, Safeguard
from costgpu.models.offer import Offer
from costgpu.providers.aws import launch, quotas, sdk
from costgpu.providers.aws.facts import end_by_hand
from costgpu.providers.aws.instances import NOT_FOUND, instance_from
from costgpu.providers.aws.inventory import Inventory
from costgpu.providers.aws.launch import Images
from costgpu.providers.aws.network import Network, Placement
from costgpu.providers.aws.node_group import ensure_shared
from costgpu.providers.aws.sdk import VCPU_QUOTA, Clients
from costgpu.providers.aws.termination_schedule import Schedules

NEW_SECONDS = 300.0  # how long EC2 may take to show a new instance to everybody


class AwsProvider(Inventory):
    """Amazon EC2 in one account.

    Args:
        scheduler_role_arn: Role for the EventBridge schedule; None for no schedule.
        image: ``ami-...`` or the name of a public parameter, instead of the Deep Learning and Ubuntu images.
    """

    name = "aws"

    def __init__(
        self,
        *,
        clock: Clock,
        subnet: str | None = None,
        scheduler_role_arn: str | None = None,
        image: str | None = None,
        session: Any | None = None,
    ) -> None:
        clients = Clients(session)
        super().__init__(clients, Schedules(clients, scheduler_role_arn))
        self._clock = clock
        self._images = Images(clients, image)
        self._network = Network(clients, clock, subnet)
        self._armed: dict[str, Safeguard] = {}
        self._new: dict[InstanceRef, float] = {}

    def identity(self) -> Identity:
        """Account, principal and where the credentials came from."""
        return self._clients.identity()

    def check(self, request: CreateRequest) -> None:
        """Quota, image, subnet and permission, without creating anything (RunInstances with DryRun)."""
        offer = request.offer
        self._clients.require(offer.region)
        call = launch.parameters(request, self._images.find(offer), self._network.place(request), ())
        quotas.check(self._clients, offer, request.group.nodes if request.group is not None else 1)
        doing = f"create a {offer.instance_type} in {offer.region}"
        with self._clients.speaking(doing), sdk.Tolerate("DryRunOperation"):
            self._clients.client("ec2", offer.region).run_instances(DryRun=True, **call)

    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        """Return what the create call arms; once this process has made it, whether the schedule really is armed."""
        until = request.lease_until
        power_off = "power-off terminates the instance (InstanceInitiatedShutdownBehavior)"
        watchdog = "user data, at every boot, before anything else: powers the machine off"
        return (
            Safeguard(name="create call", armed=True, detail=power_off),
            Safeguard(name="watchdog", armed=True, detail=watchdog, deadline=until),
            self._armed.get(request.token) or self._schedules.planned(until),
        )

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        """First wherever AWS likes, then the zones that have the type, one by one."""
        self._images.check(offer)
        self._clients.require(offer.region)
        return self._network.zones(offer)

    def create(self, request: CreateRequest) -> Instance:
        """Create the instance, or returns the one that this token has created; then arms the schedule."""
        self._clients.require(request.offer.region)
        instance = self.find(request) or self._create(request)
        self._new[instance.ref] = self._clock.monotonic()
        if instance.state.alive:
            self._armed[request.token] = self._schedules.arm(instance.ref, request.run_id, request.lease_until)
        return instance

    def _create(self, request: CreateRequest) -> Instance:
        region = request.offer.region
        image, place = self._images.find(request.offer), self._network.place(request)
        launch.parameters(request, image, place, ())  # what cannot be asked for is found before the groups are made
        shared = ensure_shared(self._clients, self._network, request, place.vpc_id)
        own = self._network.ensure_group(request, place.vpc_id, launch.tags_of(request))
        call = launch.parameters(request, image, place, (own, *shared.security_groups), shared.placement_group)
        try:
            with self._clients.speaking(f"create a {request.offer.instance_type} in {_where(request, place)}"):
                reply = self._network.settled(
                    lambda: self._clients.client("ec2", region, max_attempts=1).run_instances(**call)
                )
        except Unreachable:
            raise
        except ProviderError as error:
            cause = sdk.code_of(error.__cause__)
            if cause == "IdempotentParameterMismatch":
                return self._mismatch(request, error)
            if isinstance(error, QuotaExceeded) and cause in VCPU_QUOTA:
                quota = quotas.look_up(self._clients, request.offer)
                raise quotas.exceeded(quota, request.offer, error.message) from error.__cause__
            raise
        return instance_from(reply["Instances"][0], region)

    def _mismatch(self, request: CreateRequest, error: ProviderError) -> Instance:
        """Resolve a token that is used: by this request with an image replaced meanwhile, or by another request."""
        found = self.find(request)
        if found is None:
            raise Unreachable(
                f"AWS has seen the token {request.token} before, but does not show its instance yet: {error.message}"
            ) from error.__cause__
        if found.run_id == request.run_id and found.instance_type == request.offer.instance_type:
            return found
        raise InvalidRequest(
            f"The token {request.token} belongs to {found.ref.instance_id} ({found.instance_type}, run {found.run_id}).",
            hint=f"If it is not wanted: {end_by_hand(found.ref)}",
        ) from error.__cause__

    def find(self, request: CreateRequest) -> Instance | None:
        """Return the instance that this request's token created."""
        region = request.offer.region
        self._clients.require(region)
        found = self._filtered(region, "client-token", request.token)
        return next((each for each in found if each.state.alive), found[0] if found else None)

    def terminate(self, ref: InstanceRef) -> None:
        """Ask for the end of one of our instances."""
        known = self.describe(ref)
        new = self._clock.monotonic() - self._new.get(ref, float("-inf")) < NEW_SECONDS
        if known is None and not new:
            return
        if known is not None and not known.run_id:
            raise InvalidRequest(
                f"{ref.instance_id} in {ref.region} was not created by costgpu: it has no tag of ours.",
                hint="costgpu ends only its own instances.",
            )
        hint = f"It may still be billing. To end it by hand: {end_by_hand(ref)}"
        try:
            with self._clients.speaking(f"terminate {ref.instance_id} in {ref.region}"):
                self._clients.client("ec2", ref.region).terminate_instances(InstanceIds=[ref.instance_id])
        except ProviderError as error:
            if sdk.code_of(error.__cause__) != NOT_FOUND:
                raise type(error)(error.message, hint=f"{error.hint} {hint}".strip()) from error.__cause__
            if new:
                raise Unreachable(f"{ref.instance_id} is too new: EC2 does not know it yet.", hint=hint) from error

    def open_access(self, instance: Instance, allow_from: str) -> None:
        """Let this CIDR, and no other, reach port 22."""
        if not instance.run_id:
            raise InvalidRequest(f"{instance.ref.instance_id} has no tag of ours.")
        self._clients.require(instance.ref.region)
        self._network.open_only(instance.ref.region, instance.run_id, allow_from)

    def time_now(self) -> datetime | None:
        """AWS says the time with every answer, a refusal included."""
        with self._clients.speaking("ask for the time"), contextlib.suppress(sdk.exceptions().ClientError):
            self._clients.client("sts", self._clients.home()).get_caller_identity()
        return self._clients.told_at()


def _where(request: CreateRequest, place: Placement) -> str:
    return request.zone or (f"{request.offer.region} ({place.subnet_id})" if place.subnet_id else request.offer.region)
