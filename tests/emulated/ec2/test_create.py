"""Creating on AWS: what is in the call, and that there is never a second machine.

One long file: the cases share one emulated account, and are told apart by one answer of it each.
"""

import base64
import gzip
import random
from dataclasses import replace
from typing import Any

import pytest

from costgpu.clock import ManualClock, SystemClock
from costgpu.errors import InvalidRequest, NoCapacity, ProviderError, RefusedHere, Retry, Unreachable
from costgpu.providers.aws import sdk
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN
from costgpu.retry import retry_provider_call
from tests.emulators.create_requests import AWS, T4G, V100
from tests.emulators.ec2.client import RunningEc2

cpu_offer, offer, request = AWS.cpu_offer, AWS.offer, AWS.request

boto3 = sdk.boto3()


def test_everything_that_ends_the_machine_is_in_the_one_call(cloud: RunningEc2, aws: AwsProvider) -> None:
    wanted = request(tags={"team": "vision", TAG_RUN: "forged"})
    instance = aws.create(wanted)
    [made] = cloud.instances()
    assert (instance.ref.instance_id, made["type"], made["region"]) == (made["id"], "g5.xlarge", "us-east-1")
    assert made["behaviour"] == "terminate"
    assert made["imds"] == ["required", 1]
    lease = str(int(wanted.lease_until.timestamp()))
    ours = {TAG_RUN: wanted.run_id, TAG_NAME: "train", TAG_OWNER: "ann@laptop", TAG_LEASE: lease}
    assert made["tags"] == {**ours, "Name": "costgpu-train", "team": "vision"}
    [call] = [row["params"] for row in cloud.requests() if row["action"] == "RunInstances"]
    assert (call["MinCount"], call["MaxCount"], call["ClientToken"]) == ("1", "1", wanted.token)
    disk = {key.rpartition(".")[2]: value for key, value in call.items() if key.startswith("BlockDeviceMapping.1")}
    assert disk == {
        "DeviceName": "/dev/sda1",
        "VolumeSize": "100",
        "VolumeType": "gp3",
        "Encrypted": "true",
        "DeleteOnTermination": "true",
    }
    ec2 = boto3.client("ec2")
    mine = [{"Name": f"tag:{TAG_RUN}", "Values": [wanted.run_id]}]
    [volume] = ec2.describe_volumes(Filters=mine)["Volumes"]
    assert (volume["Size"], volume["Encrypted"], volume["VolumeType"]) == (100, True, "gp3")
    [interface] = ec2.describe_network_interfaces(Filters=mine)["NetworkInterfaces"]
    assert interface["Attachment"]["InstanceId"] == made["id"]
    [group] = ec2.describe_security_groups(Filters=mine)["SecurityGroups"]
    assert group["GroupName"] == f"costgpu-{wanted.run_id}"
    [rule] = group["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"], rule["IpProtocol"]) == (22, 22, "tcp")
    assert [row["CidrIp"] for row in rule["IpRanges"]] == ["203.0.113.7/32"]
    assert [row["GroupId"] for row in interface["Groups"]] == [group["GroupId"]]


@pytest.mark.parametrize(
    ("what", "image"),
    [
        (offer(), "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)"),
        (
            offer("g5g.xlarge", accelerator=T4G, architecture="arm64"),
            "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI",
        ),
        (cpu_offer(), "ubuntu-24.04-amd64"),
        (offer("c7g.large", vcpus=2, accelerator=None, architecture="arm64"), "ubuntu-24.04-arm64"),
    ],
)
def test_the_image_fits_the_machine(cloud: RunningEc2, aws: AwsProvider, what: object, image: str) -> None:
    aws.create(request(what))  # type: ignore[arg-type]
    [made] = cloud.instances()
    [found] = boto3.client("ec2").describe_images(ImageIds=[made["image"]])["Images"]
    assert image in found["Name"]


def test_the_older_ubuntu_where_the_newer_is_not_published(
    cloud: RunningEc2, aws: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_older = "/aws/service/canonical/ubuntu/server/{release}/stable/current/{arch}/hvm/ebs-gp2/ami-id"
    monkeypatch.setattr("costgpu.providers.aws.launch.UBUNTU", only_older)
    aws.create(request(cpu_offer()))
    [found] = boto3.client("ec2").describe_images(ImageIds=[cloud.instances()[0]["image"]])["Images"]
    assert "22.04" in found["Name"]


def test_an_image_of_ones_own(cloud: RunningEc2) -> None:
    name = "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id"
    AwsProvider(clock=SystemClock(), image=name).create(request())
    made = cloud.instances()[0]["image"]
    AwsProvider(clock=SystemClock(), image=made).create(request(run_id="second00000a"))
    assert [row["image"] for row in cloud.instances()] == [made, made]


def test_no_public_image_has_a_driver_for_old_accelerators(cloud: RunningEc2, aws: AwsProvider) -> None:
    with pytest.raises(InvalidRequest, match=r"no image with a driver for p3\.2xlarge \(V100\)"):
        aws.create(request(offer("p3.2xlarge", accelerator=V100)))
    assert not [name for name in cloud.calls() if "Create" in name or "Run" in name]


def test_user_data_is_a_boothook_as_given(cloud: RunningEc2, aws: AwsProvider) -> None:
    aws.create(request(boot_script="#!/bin/sh\necho ünï\n"))
    aws.create(request(run_id="second00000a", boot_script="echo no shebang\n"))
    first, second = (base64.b64decode(row["user_data"]).decode() for row in cloud.instances())
    assert first == "#cloud-boothook\n#!/bin/sh\necho ünï\n"
    assert second == "#cloud-boothook\n#!/bin/sh\necho no shebang\n"


def test_long_user_data_is_compressed_and_too_long_is_refused(cloud: RunningEc2, aws: AwsProvider) -> None:
    script = "#!/bin/sh\n" + "echo the same line again\n" * 2000
    aws.create(request(boot_script=script))
    data = base64.b64decode(cloud.instances()[0]["user_data"])
    assert len(data) <= 16384
    assert gzip.decompress(data).decode() == "#cloud-boothook\n" + script
    noise = "#!/bin/sh\n#" + base64.b64encode(random.Random(1).randbytes(40000)).decode()
    with pytest.raises(InvalidRequest, match="boot script is too long"):
        aws.create(request(run_id="second00000a", boot_script=noise))
    assert len(cloud.instances()) == 1
    groups = boto3.client("ec2").describe_security_groups()["SecurityGroups"]
    assert not [group for group in groups if group["GroupName"] == "costgpu-second00000a"]


def test_a_lost_reply_before_ec2_shows_the_instance_is_one_instance(cloud: RunningEc2) -> None:
    cloud.settings(invisible_seconds=60.0)
    cloud.fault({"action": "RunInstances", "when": "after", "drop": True, "times": 2})
    clock, wanted = SystemClock(), request()
    aws = AwsProvider(clock=clock)
    instance = retry_provider_call(clock, lambda: aws.create(wanted), limit_seconds=20)
    assert [row["id"] for row in cloud.instances()] == [instance.ref.instance_id]
    assert cloud.calls().count("ec2:RunInstances") == 3


def test_a_reply_that_takes_too_long_is_uncertain(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costgpu.providers.aws.sdk.READ_SECONDS", 2.0)
    aws, wanted = AwsProvider(clock=SystemClock()), request()
    cloud.fault({"action": "RunInstances", "hang_seconds": 5.0})
    with pytest.raises(Unreachable, match="No answer from AWS"):
        aws.create(wanted)
    cloud.until(lambda: len(cloud.instances()) == 1)
    assert aws.create(wanted).ref.instance_id == cloud.instances()[0]["id"]


def test_the_create_call_is_made_once_for_each_decision_of_the_caller(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.fault({"action": "RunInstances", "code": "InternalError", "times": -1})
    with pytest.raises(Unreachable):
        aws.create(request())
    assert cloud.calls().count("ec2:RunInstances") == 1


def test_other_calls_are_repeated_a_few_times(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.fault({"action": "DescribeInstances", "code": "RequestLimitExceeded", "times": 2})
    instance = aws.create(request())
    assert cloud.calls().count("ec2:DescribeInstances") == 3
    assert instance.ref.instance_id == cloud.instances()[0]["id"]


def test_a_token_whose_instance_does_not_show_yet_stays_uncertain(cloud: RunningEc2, aws: AwsProvider) -> None:
    first = aws.create(request())
    cloud.settings(invisible_seconds=30.0)
    changed = replace(request(), disk_gib=120)
    with pytest.raises(Unreachable, match="has seen the token"):
        aws.create(changed)
    cloud.settings(invisible_seconds=0.0)
    assert aws.create(changed).ref == first.ref


def test_an_image_that_was_replaced_meanwhile_makes_no_second_machine(cloud: RunningEc2) -> None:
    names = [
        f"/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-{release}/latest/ami-id"
        for release in ("22.04", "24.04")
    ]
    wanted = request()
    first = AwsProvider(clock=SystemClock(), image=names[0]).create(wanted)
    cloud.settings(invisible_seconds=0.6)
    clock, later = SystemClock(), AwsProvider(clock=SystemClock(), image=names[1])
    assert retry_provider_call(clock, lambda: later.create(wanted), limit_seconds=20).ref == first.ref
    assert len(cloud.instances()) == 1


def test_aws_chooses_the_zone_where_there_is_capacity(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.shortage("g5.xlarge", "us-east-1a")
    instance = aws.create(request())
    assert instance.zone is not None
    assert instance.zone != "us-east-1a"


def test_where_to_try(cloud: RunningEc2, aws: AwsProvider) -> None:
    first, *others = aws.zones(offer())
    assert first is None
    assert others == sorted(others, key=str)
    assert "us-east-1b" in others
    assert "us-east-1e" not in others  # it has no G5
    assert aws.zones(replace(offer(), zone="us-east-1c")) == ("us-east-1c",)
    with pytest.raises(InvalidRequest, match=r"no g5\.xlarge in us-west-1"):
        aws.zones(offer(region="us-west-1"))
    subnet = boto3.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    assert AwsProvider(clock=SystemClock(), subnet=subnet).zones(offer()) == (None,)
    ec2 = boto3.client("ec2")
    for row in ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1b"]}])["Subnets"]:
        ec2.delete_subnet(SubnetId=row["SubnetId"])
    assert "us-east-1b" not in AwsProvider(clock=SystemClock()).zones(offer())


def test_a_zone_that_was_named_is_used(cloud: RunningEc2, aws: AwsProvider) -> None:
    assert aws.create(request(zone="us-east-1b")).zone == "us-east-1b"
    cloud.until(lambda: bool(cloud.instances("running")))
    assert cloud.instances()[0]["public_ip"].startswith("54.")


@pytest.mark.parametrize(
    ("shortage", "zone", "kind", "said"),
    [
        (("g5.xlarge", "*"), None, NoCapacity, "sufficient g5.xlarge capacity"),
        (
            ("g5.xlarge", "us-east-1b"),
            "us-east-1b",
            NoCapacity,
            r"in us-east-1b: .*capacity in the Availability Zone you requested",
        ),
        (None, "us-east-1e", RefusedHere, "not supported in your requested Availability Zone"),
    ],
)
def test_what_may_be_had_elsewhere_leaves_nothing_and_is_said_at_once(
    cloud: RunningEc2,
    aws: AwsProvider,
    shortage: tuple[str, str] | None,
    zone: str | None,
    kind: type[ProviderError],
    said: str,
) -> None:
    if shortage:
        cloud.shortage(*shortage)
    with pytest.raises(kind, match=said) as caught:
        aws.create(request(zone=zone))
    assert caught.value.retry is Retry.ELSEWHERE
    assert cloud.calls().count("ec2:RunInstances") == 1
    assert not cloud.instances()
    assert aws.clean_up("r7k2m9x4q1ab", "us-east-1") == ()
    groups = [row["GroupName"] for row in boto3.client("ec2").describe_security_groups()["SecurityGroups"]]
    assert "costgpu-r7k2m9x4q1ab" not in groups


@pytest.mark.parametrize("code", ["InsufficientHostCapacity", "SpotMaxPriceTooLow", "UnfulfillableCapacity"])
def test_other_words_for_no_capacity(cloud: RunningEc2, aws: AwsProvider, code: str) -> None:
    cloud.fault({"action": "RunInstances", "code": code, "message": "none free"})
    with pytest.raises(NoCapacity, match="none free"):
        aws.create(request())


def test_a_subnet_of_ones_own(cloud: RunningEc2) -> None:
    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.1.0/24", AvailabilityZone="us-east-1b")["Subnet"]["SubnetId"]
    aws = AwsProvider(clock=SystemClock(), subnet=subnet)
    instance = aws.create(request())
    assert instance.zone == "us-east-1b"
    mine = [{"Name": "group-name", "Values": ["costgpu-r7k2m9x4q1ab"]}]
    [group] = ec2.describe_security_groups(Filters=mine)["SecurityGroups"]
    assert group["VpcId"] == vpc
    cloud.until(lambda: bool(cloud.instances("running")))
    described = aws.describe(instance.ref)
    assert described is not None
    assert described.endpoint is not None
    with pytest.raises(InvalidRequest, match="is in us-east-1b, not in us-east-1a"):
        aws.create(request(run_id="second00000a", zone="us-east-1a"))
    with pytest.raises(InvalidRequest, match="subnet-0000000"):
        AwsProvider(clock=SystemClock(), subnet="subnet-0000000").create(request(run_id="third000000a"))


def test_default_subnets_that_give_no_address_are_named_in_the_call(cloud: RunningEc2, aws: AwsProvider) -> None:
    ec2 = boto3.client("ec2")
    for row in ec2.describe_subnets()["Subnets"]:
        ec2.modify_subnet_attribute(SubnetId=row["SubnetId"], MapPublicIpOnLaunch={"Value": False})
    instance = aws.create(request())
    cloud.until(lambda: bool(cloud.instances("running")))
    described = aws.describe(instance.ref)
    assert described is not None
    assert described.endpoint is not None


def test_no_default_vpc_is_said_with_the_remedy(cloud: RunningEc2, aws: AwsProvider) -> None:
    ec2 = boto3.client("ec2")
    for row in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=row["SubnetId"])
    with pytest.raises(InvalidRequest, match="no default VPC") as caught:
        aws.create(request())
    assert "create-default-vpc --region us-east-1" in caught.value.hint


@pytest.mark.parametrize(
    ("wanted", "kind", "said"),
    [
        ({"disk_gib": 20}, InvalidRequest, r"A disk of 20 GiB is too small: the image ami-[0-9a-f]+ needs 60 GiB"),
        ({"what": offer("c99.huge", accelerator=None)}, RefusedHere, r"Invalid value 'c99\.huge' for InstanceType"),
        ({"allow_from": "my laptop"}, InvalidRequest, "not an address range"),
    ],
)
def test_what_cannot_be_is_refused(
    cloud: RunningEc2, aws: AwsProvider, wanted: dict[str, Any], kind: type[ProviderError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        aws.create(request(**wanted))
    assert not cloud.instances()


def test_spot_is_one_time_and_tagged(cloud: RunningEc2, aws: AwsProvider) -> None:
    instance = aws.create(request(offer(spot=True)))
    assert instance.spot
    [call] = [row["params"] for row in cloud.requests() if row["action"] == "RunInstances"]
    assert call["InstanceMarketOptions.MarketType"] == "spot"
    assert call["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert call["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    [spot] = boto3.client("ec2").describe_spot_instance_requests()["SpotInstanceRequests"]
    assert {"Key": TAG_RUN, "Value": "r7k2m9x4q1ab"} in spot["Tags"]


def test_a_group_that_ec2_does_not_know_everywhere_yet(cloud: RunningEc2) -> None:
    clock = ManualClock()
    not_yet = {"code": "InvalidGroup.NotFound", "message": "The security group does not exist", "times": 2}
    cloud.fault({"action": "AuthorizeSecurityGroupIngress", **not_yet}, {"action": "RunInstances", **not_yet})
    AwsProvider(clock=clock).create(request())
    assert len(cloud.instances()) == 1
    assert clock.monotonic() == pytest.approx(2.0)


def test_a_second_attempt_of_a_run_uses_the_same_group(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.fault({"action": "RunInstances", "when": "before", "drop": True})
    with pytest.raises(Unreachable):
        aws.create(request())
    aws.create(request(attempt=2))
    groups = [row["GroupName"] for row in boto3.client("ec2").describe_security_groups()["SecurityGroups"]]
    assert groups.count("costgpu-r7k2m9x4q1ab") == 1
    assert len(cloud.instances()) == 1


def test_a_group_of_somebody_else_with_that_name_is_left_alone(cloud: RunningEc2, aws: AwsProvider) -> None:
    boto3.client("ec2").create_security_group(GroupName="costgpu-r7k2m9x4q1ab", Description="theirs")
    with pytest.raises(InvalidRequest, match="is not costgpu's"):
        aws.create(request())
    assert not cloud.instances()
