"""The AWS adapter with a real boto3, on the emulated account."""

import functools
from collections.abc import Sequence
from typing import Any

import boto3
import botocore.loaders  # type: ignore[import-untyped]

from costgpu.clock import SystemClock
from costgpu.models.instance import Instance, InstanceRef
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_RUN, OwnedResources, Provider
from tests.contract.harness import Harness
from tests.emulators.ec2.client import RunningEc2


class _InTwoRegions(AwsProvider):
    """Asks no more than it has to."""

    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        return super().list_owned(("us-east-1", "us-west-2") if regions is None else regions)


class AwsHarness(Harness):
    """EC2 as emulated: without guests, so that nobody carries out the boot script."""

    name, region, other_region = "aws", "us-east-1", "us-west-2"
    instance_type, other_type = "c7i.large", "c7i.xlarge"
    consistency_seconds, end_seconds = 0.3, 15.0

    def __init__(self, cloud: RunningEc2) -> None:
        self.clock = SystemClock()
        self.cloud = cloud
        cloud.settings(pending_seconds=0.1, shutdown_seconds=0.2, invisible_seconds=self.consistency_seconds)
        self._session = boto3.Session(region_name=self.region)
        self._session._session.register_component("data_loader", _loader())
        self._foreign: dict[str, str] = {}

    def client(self) -> Provider:
        """Nothing is shared but boto3's parsed models, which take half a second to read."""
        return _InTwoRegions(clock=self.clock, session=self._session)

    def unknown(self) -> InstanceRef:
        return InstanceRef(provider="aws", region=self.region, instance_id="i-0123456789abcdef0")

    def foreign(self) -> Instance:
        ec2 = self._ec2()
        image = ec2.describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "costgpu-look-alike"}]}]
        made = ec2.run_instances(
            ImageId=image, InstanceType="c7i.large", MinCount=1, MaxCount=1, TagSpecifications=tags
        )["Instances"][0]
        ref = InstanceRef(provider="aws", region=self.region, instance_id=made["InstanceId"])
        assert self.until(lambda: self.client().describe(ref) is not None, 5)
        found = self.client().describe(ref)
        assert found is not None
        self._foreign[ref.instance_id] = "instance"
        return found

    def foreign_is_well(self) -> bool:
        there = {row["id"] for row in self.cloud.instances("pending", "running")}
        groups = {row["GroupId"] for row in self._ec2().describe_security_groups()["SecurityGroups"]}
        volumes = {row["VolumeId"] for row in self._ec2().describe_volumes()["Volumes"]}
        places = {"instance": there, "group": groups, "volume": volumes}
        return all(one in places[kind] for one, kind in self._foreign.items())

    def foreign_resource(self, run_id: str) -> bool:
        ec2 = self._ec2()
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        group = ec2.create_security_group(GroupName=f"costgpu-{run_id}", Description="somebody's", VpcId=vpc)
        self._foreign[group["GroupId"]] = "group"
        return True

    def leave_behind(self, run_id: str, *, tagged: bool = True) -> str | None:
        tags = [
            {"Key": TAG_RUN if tagged else f"{TAG_RUN}X", "Value": run_id},
            {"Key": "Name", "Value": "costgpu-train"},
        ]
        made = self._ec2().create_volume(
            AvailabilityZone=f"{self.region}a", Size=8, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
        )
        if not tagged:
            self._foreign[made["VolumeId"]] = "volume"
        return str(made["VolumeId"])

    def power_off(self, ref: InstanceRef) -> None:
        self.cloud.power_off(ref.instance_id)

    def stop(self, ref: InstanceRef) -> bool:
        self._ec2().stop_instances(InstanceIds=[ref.instance_id])
        return True

    def let_in(self, instance: Instance) -> set[str] | None:
        mine = [{"Name": f"tag:{TAG_RUN}", "Values": [instance.run_id]}]
        groups = self._ec2().describe_security_groups(Filters=mine)["SecurityGroups"]
        rules = [rule for group in groups for rule in group["IpPermissions"]]
        return {block["CidrIp"] for rule in rules for block in rule["IpRanges"]}

    def lose_next_reply(self) -> bool:
        self.cloud.fault({"action": "RunInstances", "when": "after", "drop": True, "times": 1})
        return True

    def break_off(self, requests: int) -> bool:
        self.cloud.fault({"skip": requests, "drop": True, "times": -1})
        return True

    def heal(self) -> None:
        self.cloud.fault()

    def limit_machines(self, machines: int) -> bool:
        self.cloud.quota(self.region, "L-1216C47A", 2 * machines)
        return True

    def silence(self, region: str) -> bool:
        self.cloud.fault({"region": region, "drop": True, "times": -1})
        return True

    def cut_off(self) -> None:
        self.cloud.fault({"drop": True, "times": -1})

    def enforces_the_lease(self) -> bool:
        return False

    def _ec2(self) -> Any:
        return self._session.client("ec2")


@functools.cache
def _loader() -> Any:
    """Reads botocore's models once for all tests."""
    return botocore.loaders.create_loader()
