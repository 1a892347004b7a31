"""The other services: Service Quotas that know vCPUs, and an EventBridge Scheduler that fires."""

import json
import re
import sys
import threading
from datetime import UTC, datetime
from typing import Any

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.responses.elastic_block_store import ElasticBlockStore
from moto.ec2.responses.key_pairs import KeyPairs
from moto.iam.access_control import IAMRequestBase
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.scheduler.exceptions import ValidationException
from moto.scheduler.models import EventBridgeSchedulerBackend, Schedule, scheduler_backends
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from tests.emulators.ec2.account import ACCOUNT, DEFAULT_QUOTAS, AccountState, replace

_ONCE = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
TERMINATE = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"


def install_signatures() -> None:
    """moto computes the signature of a GET with a query wrongly; permissions are still checked."""
    check = IAMRequestBase.check_signature

    def check_signature(request: Any) -> None:
        if request._service != "scheduler":
            check(request)

    replace(IAMRequestBase, "check_signature", check_signature)


def install_quotas(world: AccountState) -> None:
    """GetServiceQuota answers for the vCPU quotas."""

    def get_service_quota(backend: Any, service_code: str, quota_code: str) -> dict[str, Any]:
        if service_code != "ec2" or quota_code not in DEFAULT_QUOTAS:
            raise NoSuchResource
        name = DEFAULT_QUOTAS[quota_code][0]
        return {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaCode": quota_code,
            "QuotaName": name,
            "Value": world.quota(backend.region_name, quota_code),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }

    replace(ServiceQuotasBackend, "get_service_quota", get_service_quota)


def install_regions() -> None:
    """DescribeRegions tells those that an account of the standard partition has from the beginning."""
    describe = EC2Backend.describe_regions

    def describe_regions(backend: Any, region_names: Any = None) -> list[Any]:
        return [
            region
            for region in describe(backend, region_names)
            if region.opt_in_status == "opt-in-not-required"
            and not region.name.startswith(("cn-", "us-gov-", "us-iso"))
        ]

    replace(EC2Backend, "describe_regions", describe_regions)


def install_disk_keys() -> None:
    """GetEbsDefaultKmsKeyId answers: with AWS's own key, until ModifyEbsDefaultKmsKeyId has named another one."""

    def get_ebs_default_kms_key_id(response: Any) -> ActionResult:
        response.error_on_dryrun()
        return ActionResult({"KmsKeyId": response.ec2_backend.default_kms_key_id or "alias/aws/ebs"})

    setattr(ElasticBlockStore, "get_ebs_default_kms_key_id", get_ebs_default_kms_key_id)  # noqa: B010 - moto has none


def install_key_pairs() -> None:
    """DeleteKeyPair by the id of the pair, and not only by its name."""

    def delete_key_pair(response: Any) -> ActionResult:
        wanted = {"key_name": response._get_param("KeyName"), "id": response._get_param("KeyPairId")}
        response.error_on_dryrun()
        backend = response.ec2_backend
        found = next(
            (
                pair
                for pair in backend.key_pairs.values()
                if any(getattr(pair, name) == value for name, value in wanted.items() if value)
            ),
            None,
        )
        if found is not None:
            backend.delete_key_pair(found.key_name)
        return ActionResult({"Return": True, "KeyPairId": found.id if found else None})

    replace(KeyPairs, "delete_key_pair", delete_key_pair)


class Scheduler:
    """Fires one-shot schedules whose target is ec2:TerminateInstances, by the world's clock."""

    def __init__(self, world: AccountState) -> None:
        self._world = world
        self.fired: list[str] = []

    def install(self) -> None:
        """Roles must exist, and a thread looks at the clock."""
        create = EventBridgeSchedulerBackend.create_schedule

        def create_schedule(backend: Any, *args: Any, **kwargs: Any) -> Schedule:
            try:
                iam_backends[ACCOUNT]["aws"].get_role_by_arn(kwargs["target"]["RoleArn"])
            except NotFoundException:
                raise ValidationException(
                    message="The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
                ) from None
            return create(backend, *args, **kwargs)

        replace(EventBridgeSchedulerBackend, "create_schedule", create_schedule)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(0.1):
            self.fire_due()

    def fire_due(self) -> None:
        for region, backend in list(scheduler_backends[ACCOUNT].items()):
            for group in list(backend.schedule_groups.values()):
                for schedule in list(group.schedules.values()):
                    moment = _ONCE.fullmatch(schedule.schedule_expression)
                    if moment is None or schedule.state != "ENABLED" or schedule.name in self.fired:
                        continue
                    if datetime.fromisoformat(moment.group(1)).replace(tzinfo=UTC) <= self._world.now():
                        self._fire(region, group, schedule)

    def _fire(self, region: str, group: Any, schedule: Schedule) -> None:
        self.fired.append(schedule.name)
        if schedule.target["Arn"] == TERMINATE:
            ids = json.loads(schedule.target["Input"])["InstanceIds"]
            try:
                ec2_backends[ACCOUNT][region].terminate_instances(ids)
            except ServiceException as error:  # the schedule does not see what becomes of its call
                print(f"schedule {schedule.name}: {error}", file=sys.stderr, flush=True)
        if schedule.action_after_completion == "DELETE":
            group.schedules.pop(schedule.name, None)
