"""Several machines on AWS that work on one job: what they share, and that it goes when they are gone."""

from collections.abc import Callable
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import InvalidRequest, ProviderError, QuotaExceeded, RefusedHere, Unreachable
from costgpu.models.instance import CreateRequest, Instance, NodeGroup, OrphanedResource
from costgpu.models.offer import Offer
from costgpu.providers.aws import sdk
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_GROUP, TAG_RUN
from tests.emulators.create_requests import A10G, AWS
from tests.emulators.ec2.client import RunningEc2

boto3 = sdk.boto3()
GROUP, REGION, ZONE = "r7k2m9x4q1ab", "us-east-1", "us-east-1b"
RUNS = (GROUP, "k3v9x2m7q1ab")
NAME = f"costgpu-g-{GROUP}"


def node(number: int, what: Offer | None = None, *, nodes: int = 2, attempt: int = 1, **group: Any) -> CreateRequest:
    """The create call of one of the machines, in one zone as all of them."""
    shared = NodeGroup(**{"group_id": GROUP, "nodes": nodes, "node": number, "placement": True, **group})
    return AWS.request(what, run_id=RUNS[number], attempt=attempt, zone=ZONE, group=shared)


def both(aws: AwsProvider) -> list[Instance]:
    return [aws.create(node(number)) for number in (0, 1)]


def security_groups(*names: str) -> list[Any]:
    found = boto3.client("ec2").describe_security_groups()["SecurityGroups"]
    return [row for row in found if row["GroupName"] in names]


def placement_groups() -> list[Any]:
    return list(boto3.client("ec2").describe_placement_groups()["PlacementGroups"])


def ended(cloud: RunningEc2, aws: AwsProvider, instances: list[Instance]) -> None:
    for each in instances:
        aws.terminate(each.ref)
    ids = {each.ref.instance_id for each in instances}
    cloud.until(lambda: ids <= {row["id"] for row in cloud.instances("terminated")})


def test_the_machines_are_in_one_network_and_close_together(cloud: RunningEc2, aws: AwsProvider) -> None:
    made = both(aws)
    assert [each.group_id for each in made] == [GROUP, GROUP]
    assert all(each.private_address.startswith("172.31.") for each in made)
    [shared] = security_groups(NAME)
    [own, other] = security_groups(*(f"costgpu-{run}" for run in RUNS))
    for rules in (shared["IpPermissions"], shared["IpPermissionsEgress"]):
        to_itself = [rule for rule in rules if rule["UserIdGroupPairs"]]
        [rule] = to_itself
        assert rule["IpProtocol"] == "-1"
        assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == [shared["GroupId"]]
    assert [rule["IpRanges"] for rule in shared["IpPermissions"]] == [[]], "nobody else comes in"
    assert [block["CidrIp"] for rule in shared["IpPermissionsEgress"] for block in rule["IpRanges"]] == ["0.0.0.0/0"]
    [group] = placement_groups()
    assert (group["GroupName"], group["Strategy"]) == (NAME, "cluster")
    for thing in (shared, group):
        tags = {tag["Key"]: tag["Value"] for tag in thing["Tags"]}
        assert (tags[TAG_RUN], tags[TAG_GROUP]) == (GROUP, GROUP)
    rows = {row["InstanceId"]: row for row in _described()}
    for each, mine in zip(made, (own, other), strict=True):
        row = rows[each.ref.instance_id]
        assert {known["GroupId"] for known in row["NetworkInterfaces"][0]["Groups"]} == {
            mine["GroupId"],
            shared["GroupId"],
        }
        assert row["Placement"]["GroupName"] == NAME
        assert row["Placement"]["AvailabilityZone"] == ZONE
        described = aws.describe(each.ref)
        assert described is not None
        assert described.private_address == row["PrivateIpAddress"]


def _described() -> list[Any]:
    pages = boto3.client("ec2").describe_instances()["Reservations"]
    return [row for reservation in pages for row in reservation["Instances"]]


@pytest.mark.parametrize("action", ["CreateSecurityGroup", "AuthorizeSecurityGroupEgress", "CreatePlacementGroup"])
def test_a_reply_that_is_lost_on_the_way_is_no_second_one(cloud: RunningEc2, action: str) -> None:
    aws = AwsProvider(clock=SystemClock())
    cloud.fault({"action": action, "when": "after", "drop": True, "times": 3})
    with pytest.raises(Unreachable):
        aws.create(node(0))
    cloud.fault()
    assert aws.create(node(0)).ref == AwsProvider(clock=SystemClock()).create(node(0)).ref
    assert len(security_groups(NAME)) == len(placement_groups()) == len(cloud.instances()) == 1


def test_what_is_not_ours_is_not_used(cloud: RunningEc2, aws: AwsProvider) -> None:
    boto3.client("ec2").create_placement_group(GroupName=NAME, Strategy="cluster")
    with pytest.raises(InvalidRequest, match="not costgpu's"):
        aws.create(node(0))
    assert not cloud.instances()
    aws.clean_up(GROUP, REGION)
    as_if = OrphanedResource(provider="aws", region=REGION, kind="placement group", resource_id=NAME, run_id=GROUP)
    with pytest.raises(InvalidRequest, match="does not carry the tag"):
        aws.remove(as_if)
    assert [row["GroupName"] for row in placement_groups()] == [NAME]


def test_opening_the_door_to_the_user_opens_no_other(cloud: RunningEc2, aws: AwsProvider) -> None:
    first, _ = both(aws)
    aws.open_access(first, "198.51.100.9/32")
    [shared] = security_groups(NAME)
    [rule] = shared["IpPermissions"]
    assert (rule["IpProtocol"], rule["IpRanges"]) == ("-1", [])
    [own] = security_groups(f"costgpu-{GROUP}")
    assert [block["CidrIp"] for rule in own["IpPermissions"] for block in rule["IpRanges"]] == ["198.51.100.9/32"]


def test_efa_is_one_interface_with_a_public_address(cloud: RunningEc2, aws: AwsProvider) -> None:
    big = AWS.offer("g5.8xlarge", vcpus=32, accelerator=A10G)
    instance = aws.create(node(0, big, efa_interfaces=4))
    [call] = [row["params"] for row in cloud.requests() if row["name"] == "ec2:RunInstances"]
    mine = {key.partition(".1.")[2]: value for key, value in call.items() if key.startswith("NetworkInterface.")}
    assert (mine["InterfaceType"], mine["DeviceIndex"], mine["AssociatePublicIpAddress"]) == ("efa", "0", "true")
    assert not [key for key in call if key.startswith("NetworkInterface.2")]
    assert len([key for key in mine if key.startswith("SecurityGroupId.")]) == 2
    cloud.until(lambda: bool(cloud.instances("running")))
    described = aws.describe(instance.ref)
    assert described is not None
    assert described.endpoint is not None


@pytest.mark.parametrize(
    ("what", "group", "words"),
    [
        (AWS.offer("t3.large", vcpus=2, accelerator=None), {}, "not supported by the 't3.large' instance type"),
        (AWS.cpu_offer(), {"efa_interfaces": 1, "placement": False}, "EFA interfaces are not supported on c7i.large"),
    ],
)
def test_what_a_type_does_not_have_is_said(
    cloud: RunningEc2, aws: AwsProvider, what: Offer, group: dict[str, Any], words: str
) -> None:
    with pytest.raises(RefusedHere, match=words):
        aws.create(node(0, what, **group))
    assert not cloud.instances()
    assert aws.clean_up(GROUP, REGION) == ()
    assert not security_groups(NAME)


def test_no_room_close_together_is_no_capacity_and_leaves_nothing(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.shortage("g5.xlarge", ZONE)
    with pytest.raises(ProviderError, match="sufficient"):
        aws.create(node(0))
    assert aws.clean_up(GROUP, REGION) == ()
    assert not placement_groups()


def test_the_quota_must_hold_all_of_them(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.quota(REGION, "L-DB2E81BA", 15)
    aws.check(node(0, nodes=3))
    with pytest.raises(QuotaExceeded, match=r"4 g5\.xlarge need 16 .* At most 3 of them fit") as caught:
        aws.check(node(0, nodes=4))
    assert "--desired-value 31" in caught.value.hint
    assert not [name for name in cloud.calls() if "Create" in name]


@pytest.mark.parametrize(
    "without", ["ec2:CreatePlacementGroup", "ec2:AuthorizeSecurityGroupEgress", "ec2:DeletePlacementGroup"]
)
def test_a_permission_that_is_missing_is_named(cloud: RunningEc2, as_user: Callable[[str], None], without: str) -> None:
    as_user(without)
    aws = AwsProvider(clock=SystemClock())

    def journey() -> None:
        ended(cloud, aws, both(aws))
        aws.clean_up(GROUP, REGION)

    with pytest.raises(ProviderError) as caught:
        journey()
    assert without.partition(":")[2] in caught.value.message


def test_a_policy_of_earlier_versions_is_enough_for_single_machines(
    cloud: RunningEc2, as_user: Callable[[str], None]
) -> None:
    as_user("ec2:DescribePlacementGroups")
    aws = AwsProvider(clock=SystemClock())
    ended(cloud, aws, [aws.create(AWS.request())])
    assert aws.clean_up(AWS.run_id, REGION) == ()
