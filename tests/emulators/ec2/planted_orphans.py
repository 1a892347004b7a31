"""Plants what runs can leave behind, and what only looks as if a run had left it, through the plain API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from costgpu.models.instance import CreateRequest
from costgpu.providers import aws as package
from costgpu.providers.aws import sdk
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN
from tests.emulators.ec2.client import RunningEc2

boto3 = sdk.boto3()
POLICY = Path(str(package.__file__)).parent / "policy.json"
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
KINDS = {"disk", "snapshot", "address", "network interface", "security group", "key pair", "schedule"}
LOOK_ALIKE = {"Name": "costgpu-train", "costgpu-runX": "a", "Costgpu-Run": "b", "costgpu": "run"}
"""Everything but our tag."""


def ours(run_id: str, lease: datetime | None = None, owner: str = "ann@laptop") -> dict[str, str]:
    tags = {TAG_RUN: run_id, TAG_NAME: "train", TAG_OWNER: owner, "Name": "costgpu-train"}
    return {**tags, TAG_LEASE: str(int(lease.timestamp()))} if lease is not None else tags


def scheduler_role() -> str:
    """The ARN of a role for schedules, which is made if it is not there."""
    iam, document = boto3.client("iam"), json.dumps({"Version": "2012-10-17", "Statement": []})
    if "costgpu-scheduler" not in [role["RoleName"] for role in iam.list_roles()["Roles"]]:
        iam.create_role(RoleName="costgpu-scheduler", AssumeRolePolicyDocument=document)
    return str(iam.get_role(RoleName="costgpu-scheduler")["Role"]["Arn"])


def become_user(monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]) -> None:
    """From here on this process is a user with that policy."""
    iam = boto3.client("iam")
    iam.create_user(UserName="ann")
    iam.put_user_policy(UserName="ann", PolicyName="costgpu", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])


def narrowed(document: dict[str, Any], without: str = "") -> dict[str, Any]:
    """The policy as far as the emulator can judge: actions, without resources and conditions."""
    actions = {
        action
        for statement in document["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    } - {without}
    allowed = {"Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [allowed]}


def as_user(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, without: str = "") -> None:
    """From here on this process is a user who has the shipped policy, less one action."""
    become_user(monkeypatch, narrowed(json.loads(POLICY.read_text()), without))
    cloud.enforce_permissions()


@dataclass
class Planted:
    """What is there in one region, by kind: ids."""

    region: str
    things: dict[str, list[str]] = field(default_factory=dict)  # kind -> ids; instances are the kind instance

    def ec2(self) -> Any:
        return boto3.client("ec2", region_name=self.region)

    def add(self, kind: str, resource_id: str) -> str:
        self.things.setdefault(kind, []).append(resource_id)
        return resource_id

    def everything(self, run_id: str, tags: Mapping[str, str], *, name: str) -> None:
        """One of each kind, with these tags; security group, key pair and schedule under such a name."""
        ec2 = self.ec2()

        def tagged(kind: str) -> list[dict[str, Any]]:
            rows = [{"Key": key, "Value": value} for key, value in tags.items()]
            return [{"ResourceType": kind, "Tags": rows}]

        zone = f"{self.region}a"
        volume = ec2.create_volume(
            AvailabilityZone=zone, Size=100, VolumeType="gp3", TagSpecifications=tagged("volume")
        )["VolumeId"]
        self.add("disk", volume)
        snapshot = ec2.create_snapshot(VolumeId=volume, TagSpecifications=tagged("snapshot"))["SnapshotId"]
        self.add("snapshot", snapshot)
        address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
        self.add("address", address["AllocationId"])
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        group = ec2.create_security_group(
            GroupName=name, Description="port 22", VpcId=vpc, TagSpecifications=tagged("security-group")
        )["GroupId"]
        self.add("security group", group)
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        interface = ec2.create_network_interface(
            SubnetId=subnet, Groups=[group], TagSpecifications=tagged("network-interface")
        )
        self.add("network interface", interface["NetworkInterface"]["NetworkInterfaceId"])
        pair = ec2.create_key_pair(KeyName=name, KeyType="ed25519", TagSpecifications=tagged("key-pair"))
        self.add("key pair", pair["KeyPairId"])
        self.schedule(f"{name}-i-0123456789abcdef0")

    def schedule(self, name: str, target: str = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances") -> None:
        """One that fires in a distant year."""
        boto3.client("scheduler", region_name=self.region).create_schedule(
            Name=name,
            ScheduleExpression="at(2037-01-01T00:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": target, "RoleArn": scheduler_role(), "Input": "{}"},
        )
        self.add("schedule", name)

    def instance(self, tags: Mapping[str, str], *, count: int = 1, instance_type: str = "c7i.large") -> list[str]:
        image = boto3.client("ssm", region_name=self.region).get_parameter(Name=UBUNTU)["Parameter"]["Value"]
        rows = [{"Key": key, "Value": value} for key, value in tags.items()]
        made = self.ec2().run_instances(
            ImageId=image,
            InstanceType=instance_type,
            MinCount=count,
            MaxCount=count,
            TagSpecifications=[{"ResourceType": kind, "Tags": rows} for kind in ("instance", "volume")],
        )
        return [self.add("instance", row["InstanceId"]) for row in made["Instances"]]

    def there(self) -> dict[str, list[str]]:
        """Those of them that still are there."""
        ec2 = self.ec2()
        rows = {
            "disk": [row["VolumeId"] for row in ec2.describe_volumes()["Volumes"]],
            "snapshot": [row["SnapshotId"] for row in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]],
            "address": [row["AllocationId"] for row in ec2.describe_addresses()["Addresses"]],
            "network interface": [
                row["NetworkInterfaceId"] for row in ec2.describe_network_interfaces()["NetworkInterfaces"]
            ],
            "security group": [row["GroupId"] for row in ec2.describe_security_groups()["SecurityGroups"]],
            "key pair": [row["KeyPairId"] for row in ec2.describe_key_pairs()["KeyPairs"]],
            "schedule": [
                row["Name"] for row in boto3.client("scheduler", region_name=self.region).list_schedules()["Schedules"]
            ],
            "instance": [
                row["InstanceId"]
                for page in ec2.get_paginator("describe_instances").paginate()
                for reservation in page["Reservations"]
                for row in reservation["Instances"]
                if row["State"]["Name"] not in ("terminated", "shutting-down")
            ],
        }
        found = {kind: [one for one in ids if one in rows[kind]] for kind, ids in self.things.items()}
        return {kind: ids for kind, ids in found.items() if ids}


def launched(cloud: RunningEc2, aws: AwsProvider, request: CreateRequest) -> str:
    instance_id = aws.create(request).ref.instance_id
    cloud.until(lambda: instance_id in {row["id"] for row in cloud.instances("running")})
    return instance_id
