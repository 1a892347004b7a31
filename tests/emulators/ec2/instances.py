"""EC2 as it behaves: tokens, pending before running, capacity, quotas, guests that end by themselves, spot.

moto's backend methods are replaced, not its HTTP layer, so permissions and dry runs are decided first, as in AWS.
"""

import base64
import copy
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceState, Reservation, StateReason
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.responses.general import General
from moto.ec2.utils import filter_dict_attribute_mapping, random_spot_request_id

from tests.emulators.ec2.account import ACCOUNT, AccountState, replace
from tests.emulators.ec2.packet_filter import PacketFilter
from tests.emulators.ec2.placement_groups import PlacementGroups
from tests.emulators.machines import GuestSpec, Machines
from tests.emulators.phases import later

NO_TOKEN = "ABCDE"  # what moto puts where the request has none
USER_DATA_LIMIT = 16384
STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
BY_GUEST = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
BY_USER = ("Client.UserInitiatedShutdown", "User initiated shutdown")
BY_SPOT = ("Server.SpotInstanceTermination", "Instance terminated due to Spot Instance interruption")


def quota_code(instance_type: str, *, spot: bool) -> str:
    family = instance_type.rstrip("0123456789.").split(".")[0]
    letters = "".join(letter for letter in family[:3] if letter.isalpha())
    if letters.startswith(("g", "vt")):
        return "L-3819A6DF" if spot else "L-DB2E81BA"
    if family.startswith(("p5", "p6")) and spot:
        return "L-C4BD4855"
    if letters.startswith("p"):
        return "L-7212CCBC" if spot else "L-417A185B"
    return "L-34B43A08" if spot else "L-1216C47A"


def vcpus(instance_type: str) -> int:
    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])


class Ec2Instances:
    """The instances of all regions, over the machines that carry them."""

    def __init__(
        self, world: AccountState, machines: Machines, placement: PlacementGroups, firewall: PacketFilter
    ) -> None:
        self.world = world
        self.machines = machines
        self.placement = placement
        self.firewall = firewall
        self._tokens: dict[tuple[str, str], tuple[str, Reservation]] = {}
        self._created: dict[str, float] = {}
        self._interrupted: set[str] = set()
        # instance type -> code and message of StateReason for the next launches, each of which ends at once
        self.failing: dict[str, list[tuple[str, str]]] = {}

    def install(self) -> None:
        """Puts itself into moto, for the life of the process."""
        run, reservations, delete = (
            EC2Backend.run_instances,
            EC2Backend.all_reservations,
            EC2Backend.delete_security_group,
        )
        replaced: dict[str, Callable[..., Any]] = {
            "run_instances": lambda backend, *args, **kw: self.run(backend, run, *args, **kw),
            "all_reservations": lambda backend, filters=None: self.visible(reservations(backend, filters)),
            "delete_security_group": lambda backend, name=None, group_id=None: self.delete_group(
                backend, delete, name, group_id
            ),
            "terminate_instances": lambda backend, ids: self.terminate(backend, ids),  # noqa: PLW0108 - binds the backend
            "stop_instances": lambda backend, ids: self.stop(backend, ids),  # noqa: PLW0108
        }
        for name, method in replaced.items():
            replace(EC2Backend, name, method)
        replace(General, "get_console_output", lambda response: self.console(response))  # noqa: PLW0108
        filter_dict_attribute_mapping["client-token"] = "client_token"

    def reset(self) -> None:
        self.machines.close()
        self.placement.reset()
        self._tokens.clear()
        self._created.clear()
        self._interrupted.clear()
        self.failing.clear()

    # -- create ------------------------------------------------------------------------------------------------------

    def run(
        self,
        backend: Any,
        really: Callable[..., Reservation],
        image_id: str,
        count: int,
        user_data: Any,
        security_group_names: list[str],
        **kwargs: Any,
    ) -> Reservation:
        """RunInstances, after permissions and DryRun."""
        token, region = kwargs.get("client_token", NO_TOKEN), backend.region_name
        words = [image_id, count, str(user_data), security_group_names, kwargs, self.placement.request_key()]
        said = json.dumps(words, default=str, sort_keys=True)
        with self.world.lock:
            if (region, token) in self._tokens:
                before, reservation = self._tokens[region, token]
                if before != said:
                    raise EC2ClientError(
                        "IdempotentParameterMismatch",
                        "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                    )
                return reservation
            kind, spot = kwargs["instance_type"], bool(kwargs.get("instance_market_options"))
            self._validate(backend, image_id, user_data, kwargs)
            kwargs["placement"] = self._zone(backend, kind, kwargs)
            self._count_against_quota(region, kind, count, spot=spot)
            reservation = really(backend, image_id, count, user_data, security_group_names, **dict(kwargs))
            for instance in reservation.instances:
                self._adopt(backend, instance, kwargs.get("tags", {}))
            if token != NO_TOKEN:
                self._tokens[region, token] = (said, reservation)
        for instance in reservation.instances:
            self.world.after("pending_seconds", self._power_on, backend, instance)
        return reservation

    @staticmethod
    def _validate(backend: Any, image_id: str, user_data: Any, kwargs: dict[str, Any]) -> None:
        kind = kwargs["instance_type"]
        if kind not in INSTANCE_TYPES:
            raise EC2ClientError("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
        image = backend.describe_images(ami_ids=[image_id])[0]
        kinds = INSTANCE_TYPES[kind]["ProcessorInfo"]["SupportedArchitectures"]
        if image.architecture not in kinds:
            raise EC2ClientError(
                "InvalidParameterValue",
                f"The architecture '{','.join(kinds)}' of the specified instance type does not match the architecture "
                f"'{image.architecture}' of the specified AMI. Specify an instance type and an AMI that have matching "
                "architectures, and try again.",
            )
        if user_data is not None and len(base64.b64decode(str(user_data))) > USER_DATA_LIMIT:
            raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")
        for mapping in kwargs.get("block_device_mappings", []):
            needed = image.block_device_mappings[0]["Ebs"]["VolumeSize"]
            if mapping["DeviceName"] == image.root_device_name and int(mapping["Ebs"]["VolumeSize"]) < needed:
                raise EC2ClientError(
                    "InvalidBlockDeviceMapping",
                    f"Volume of size {mapping['Ebs']['VolumeSize']}GB is smaller than snapshot "
                    f"'{image.ebs_snapshot.id}', expect size >= {needed}GB",
                )

    def _zone(self, backend: Any, kind: str, kwargs: dict[str, Any]) -> str:
        offers = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, [])
        zones = sorted({offer["Location"] for offer in offers if offer["InstanceType"] == kind})
        subnet = kwargs.get("subnet_id") or next((nic["SubnetId"] for nic in kwargs["nics"] if "SubnetId" in nic), None)
        wanted = backend.get_subnet(subnet).availability_zone if subnet else kwargs.get("placement")
        where = f" in the Availability Zone you requested ({wanted})" if wanted else ""
        if wanted and wanted not in zones:
            raise EC2ClientError(
                "Unsupported",
                f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({wanted}). "
                f"Please retry your request by not specifying an Availability Zone or choosing {', '.join(zones)}.",
            )
        if not zones:
            raise EC2ClientError("Unsupported", "The requested configuration is currently not supported.")
        free = [zone for zone in zones if wanted in (None, zone) and not self.world.short_of(kind, zone)]
        if not free:
            raise EC2ClientError(
                "InsufficientInstanceCapacity", f"We currently do not have sufficient {kind} capacity{where}."
            )
        return str(free[0])

    def _count_against_quota(self, region: str, kind: str, count: int, *, spot: bool) -> None:
        code = quota_code(kind, spot=spot)
        used = sum(
            vcpus(other.instance_type)
            for other in all_instances()
            if other.region_name == region
            and other.state in ("pending", "running")
            and (other.lifecycle == "spot") is spot
            and quota_code(other.instance_type, spot=spot) == code
        )
        limit = self.world.quota(region, code)
        if used + count * vcpus(kind) <= limit:
            return
        if spot:
            raise EC2ClientError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise EC2ClientError(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} allows for the instance "
            "bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        )

    def _adopt(self, backend: Any, instance: Instance, tags: dict[str, dict[str, str]]) -> None:
        nic = instance.nics[0]
        nic.delete_on_termination = True
        nic.add_tags(tags.get("network-interface", {}))
        nic.private_ip_address = self.world.private_ip()
        nic.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": nic.private_ip_address}]
        nic.public_ip = None
        self.placement.join(instance)
        self._created[instance.id] = time.monotonic()
        _enter(instance, "pending")
        if instance.lifecycle == "spot":
            request = _SpotRequest(instance)
            request.add_tags(tags.get("spot-instances-request", {}))
            backend.spot_instance_requests[request.id] = request
            instance.spot_instance_request_id = request.id  # type: ignore[attr-defined]

    def _power_on(self, backend: Any, instance: Instance) -> None:
        with self.world.lock:
            if instance.state != "pending":
                return
            failure = self.failing.get(instance.instance_type, [])
            if failure:
                reason = failure.pop(0)
                _enter(instance, "shutting-down", reason)
                later(0, self._end, instance, reason)
                return
            nic = instance.nics[0]
            if nic.public_ip_auto_assign:
                nic.public_ip = self.world.public_ip()
            spec = GuestSpec(
                instance_id=instance.id,
                private_ip=str(instance.private_ip),
                public_ip=str(instance.public_ip or ""),
                user_data=base64.b64decode(str(instance.user_data or "")),
                instance_type=instance.instance_type,
                region=backend.region_name,
                zone=str(instance.placement.zone),
                spot=instance.lifecycle == "spot",
            )
            _enter(instance, "running")
            self.firewall.apply(backend.region_name)
        self.machines.boot(spec, lambda by_us: None if by_us else self._guest_ended(instance))

    # -- end ---------------------------------------------------------------------------------------------------------

    def terminate(self, backend: Any, instance_ids: list[str]) -> list[tuple[Instance, InstanceState]]:
        answer = []
        with self.world.lock:
            instances = backend.get_multi_instances_by_id(instance_ids)
            for instance in instances:
                if instance.disable_api_termination:
                    raise EC2ClientError(
                        "OperationNotPermitted",
                        f"The instance '{instance.id}' may not be terminated. Modify its 'disableApiTermination' "
                        "instance attribute and try again.",
                    )
            for instance in instances:
                answer.append((instance, copy.copy(instance._state)))
                if instance.state not in ("shutting-down", "terminated"):
                    _enter(instance, "shutting-down", BY_USER)
                    later(0, self._end, instance, BY_USER)
        return answer

    def stop(self, backend: Any, instance_ids: list[str]) -> list[tuple[Instance, InstanceState]]:
        answer = []
        for instance in backend.get_multi_instances_by_id(instance_ids):
            answer.append((instance, copy.copy(instance._state)))
            _enter(instance, "stopping", BY_USER)
            later(0, self._halt, instance)
        return answer

    def interrupt(self, instance_id: str, notice_seconds: float) -> None:
        """AWS takes a spot instance back after a notice."""
        instance = next(each for each in all_instances() if each.id == instance_id)
        self._interrupted.add(instance_id)
        _spot_status(instance, "marked-for-termination")
        self.machines.interrupt(instance_id, self.world.now() + timedelta(seconds=notice_seconds))
        later(notice_seconds, self._take_back, instance)

    def _take_back(self, instance: Instance) -> None:
        with self.world.lock:
            if instance.state in ("shutting-down", "terminated"):
                return
            _enter(instance, "shutting-down", BY_SPOT)
        self._end(instance, BY_SPOT)

    def _guest_ended(self, instance: Instance) -> None:
        with self.world.lock:
            if instance.state not in ("running", "pending"):
                return
            for_good = instance.instance_initiated_shutdown_behavior == "terminate" or instance.lifecycle == "spot"
            _enter(instance, "shutting-down" if for_good else "stopping", BY_GUEST)
        if for_good:
            self._end(instance, BY_GUEST)
        else:
            self._halt(instance)

    def _halt(self, instance: Instance) -> None:
        self.machines.stop(instance.id)
        with self.world.lock:
            reason = instance.state_reason
            instance.stop()
            instance.nics[0].public_ip = None
            instance.state_reason = reason

    def _end(self, instance: Instance, reason: tuple[str, str]) -> None:
        self.machines.stop(instance.id)
        self.world.dwell("shutdown_seconds")
        with self.world.lock:
            if instance.state == "terminated":
                return
            instance.terminate()
            _enter(instance, "terminated", reason)
            code = "instance-terminated-no-capacity" if reason is BY_SPOT else "instance-terminated-by-user"
            _spot_status(
                instance, "marked-for-termination" if instance.id in self._interrupted and reason is BY_GUEST else code
            )

    # -- the rest ----------------------------------------------------------------------------------------------------

    def visible(self, reservations: list[Reservation]) -> list[Reservation]:
        """Without those that are too new to be seen."""
        horizon = time.monotonic() - self.world.invisible_seconds
        for reservation in reservations:
            reservation.instances = [i for i in reservation.instances if self._created.get(i.id, 0.0) <= horizon]
        return [reservation for reservation in reservations if reservation.instances]

    @staticmethod
    def delete_group(backend: Any, really: Callable[..., None], name: str | None, group_id: str | None) -> None:
        """DeleteSecurityGroup: refused while an interface is in it."""
        for nic in backend.enis.values():
            if group_id in {group.id for group in nic.group_set}:
                raise EC2ClientError("DependencyViolation", f"resource {group_id} has a dependent object")
        really(backend, name, group_id)

    def console(self, response: Any) -> Any:
        from moto.core.responses import ActionResult

        instance = response.ec2_backend.get_instance(response._get_param("InstanceId"))
        text = base64.b64encode(self.machines.console(instance.id)[-65536:]).decode()
        output = {"InstanceId": instance.id, "Timestamp": utcnow()}
        return ActionResult({**output, "Output": Base64EncodedString(text)} if text else output)


class _SpotRequest(SpotInstanceRequest):
    """The request that RunInstances makes for a spot instance; moto's own would create a second one."""

    def __init__(self, instance: Instance) -> None:
        super(SpotInstanceRequest, self).__init__()
        self.ec2_backend = instance.ec2_backend
        self.id = random_spot_request_id()
        self.instance = instance
        self.state, self._status_code, self.status_message = "active", "fulfilled", ""
        self.type, self.price = "one-time", ""
        self.valid_from = self.valid_until = self.launch_group = None
        self.instance_interruption_behaviour = "terminate"


def all_instances() -> list[Instance]:
    """Of every region, straight from the store: what really exists."""
    return [
        instance
        for backend in list(ec2_backends[ACCOUNT].values())
        for reservation in list(backend.reservations.values())
        for instance in reservation.instances
    ]


def _spot_status(instance: Instance, code: str) -> None:
    request_id = getattr(instance, "spot_instance_request_id", None)
    request = instance.ec2_backend.spot_instance_requests.get(request_id)
    if request is not None:
        request._status_code = code
        request.state = "closed" if instance.state == "terminated" else request.state


def _enter(instance: Instance, state: str, reason: tuple[str, str] = ("", "")) -> None:
    instance._state.name, instance._state.code = state, STATES[state]
    code, message = reason
    instance.state_reason = StateReason(f"{code}: {message}" if code else "", code)
    instance._reason = f"User initiated ({utcnow():%Y-%m-%d %H:%M:%S} GMT)" if reason is BY_USER else ""
