"""`costgpu reap` on the emulated account: orphans of every kind, look-alikes, permissions.

What is left alone, whose it is and what fails is the same for every provider: tests/job/test_reap.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costgpu.errors import InvalidRequest
from costgpu.models.instance import OrphanedResource
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_RUN
from tests.cli.here import told
from tests.emulators.create_requests import AWS
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.ec2.planted_orphans import KINDS, LOOK_ALIKE, Planted, as_user, boto3, launched, ours

cpu_offer, request = AWS.cpu_offer, AWS.request

REGIONS = ("us-east-1", "eu-west-1", "ap-southeast-2")
GONE = "gone0000000a"
NOW = datetime.now(UTC).replace(microsecond=0)
PAST, LATER = NOW - timedelta(hours=3), NOW + timedelta(hours=3)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def reap(*words: str) -> tuple[int, dict[str, Any], str]:
    code, out, err = told("reap", "--json", *words)
    return code, json.loads(out), err


def of_kind(document: dict[str, Any], what: str = "leftovers") -> Counter[tuple[str, str]]:
    return Counter((row["kind"], row["region"]) for row in document[what])


@pytest.fixture
def foreign(cloud: RunningEc2) -> Iterator[list[Planted]]:
    """Look-alikes beside everything, which are all there afterwards."""
    found = []
    for region in REGIONS:
        theirs = Planted(region)
        theirs.everything("", LOOK_ALIKE, name=f"costgpu-{GONE}-theirs")
        theirs.things["schedule"] = []
        theirs.schedule(f"costgpu-{GONE}-nightly")
        theirs.schedule(f"costgpu-{GONE}-i-0123456789abcdef1", target="arn:aws:scheduler:::aws-sdk:ec2:stopInstances")
        theirs.schedule("backup")
        boto3.client("scheduler", region_name=region).delete_schedule(Name=f"costgpu-{GONE}-theirs-i-0123456789abcdef0")
        theirs.instance(LOOK_ALIKE)
        assert set(theirs.there()) == KINDS | {"instance"}
        found.append(theirs)
    yield found
    for theirs in found:
        assert theirs.there() == theirs.things, f"something of somebody else's is gone in {theirs.region}"


def plant(*, lease: datetime | None = PAST) -> list[Planted]:
    """Everything of a run that is gone, in several regions."""
    found = []
    for region in REGIONS:
        left = Planted(region)
        left.everything(GONE, ours(GONE, lease), name=f"costgpu-{GONE}")
        found.append(left)
    return found


@pytest.fixture
def hours_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made just now is not new any more."""
    monkeypatch.setattr("costgpu.job.reap.NEW_SECONDS", -60.0)


def test_orphans_of_every_kind_in_several_regions_are_found_and_ended_and_nothing_else(
    cloud: RunningEc2, aws: AwsProvider, foreign: list[Planted], hours_later: None
) -> None:
    left = plant()
    orphan, stopped = (
        Planted(region).instance(ours(run, PAST))[0]
        for run, region in (("orphan00000a", "eu-west-1"), ("stopped0000a", "us-east-1"))
    )
    cloud.until(lambda: stopped in {row["id"] for row in cloud.instances("running")})
    boto3.client("ec2", region_name="us-east-1").stop_instances(InstanceIds=[stopped])
    fresh = launched(cloud, aws, request(cpu_offer(region="us-east-1"), run_id="fresh000000a"))

    code, document, err = reap()
    assert code == 48
    assert "costgpu reap --yes" in err
    wanted = {(kind, region) for kind in KINDS for region in REGIONS}
    assert set(of_kind(document)) == wanted
    assert {row["instance"]["ref"]["instance_id"] for row in document["orphans"]} == {orphan, stopped}
    assert [row["ref"]["instance_id"] for row in document["kept"]] == [fresh]
    assert document["unreachable"] == {}
    assert all(planted.there() == planted.things for planted in left)

    code, document, err = reap("--yes")
    assert code == 48, err
    assert {row["instance_id"] for row in document["ended"]} == {orphan, stopped}
    assert set(of_kind(document, "removed")) == wanted
    assert document["failed"] == {}
    assert [planted.there() for planted in left] == [{}] * 3
    assert {row["id"] for row in cloud.instances("running")} >= {fresh}

    code, document, err = reap()
    assert (code, document["orphans"], document["leftovers"]) == (0, [], []), err


def test_what_it_costs_is_said_and_summed(cloud: RunningEc2) -> None:
    region = Planted("us-east-1")
    region.everything(GONE, ours(GONE, PAST), name=f"costgpu-{GONE}")
    region.ec2().create_volume(
        AvailabilityZone="us-east-1a",
        Size=50,
        VolumeType="io1",
        Iops=1000,
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [{"Key": TAG_RUN, "Value": GONE}, {"Key": "costgpu-lease-until", "Value": "1"}],
            }
        ],
    )
    running, stopped = (region.instance(ours(run, PAST), instance_type="g5.xlarge")[0] for run in ("aaaa", "bbbb"))
    cloud.until(lambda: {running, stopped} <= {row["id"] for row in cloud.instances("running")})
    region.ec2().stop_instances(InstanceIds=[stopped])
    cloud.until(lambda: stopped in {row["id"] for row in cloud.instances("stopped")})
    volumes = region.ec2().describe_volumes(Filters=[{"Name": "tag:costgpu-run", "Values": ["aaaa"]}])["Volumes"]
    disk = sum(row["Size"] for row in volumes) * {"gp2": 0.10, "gp3": 0.08}[volumes[0]["VolumeType"]] / 730
    assert disk > 0
    _, document, _ = reap("--infra", "aws/us-east-1")
    prices = {row["kind"]: row["usd_per_hour"] for row in document["leftovers"] if row["usd_per_hour"] < 0.02}
    assert prices == {
        "disk": pytest.approx(100 * 0.08 / 730, abs=1e-6),
        "snapshot": pytest.approx(100 * 0.05 / 730, abs=1e-6),
        "address": 0.005,
        "network interface": 0,
        "security group": 0,
        "key pair": 0,
    }
    [fast] = [row["usd_per_hour"] for row in document["leftovers"] if row["usd_per_hour"] > 0.02]
    assert fast == pytest.approx((50 * 0.125 + 1000 * 0.065) / 730, abs=1e-6)
    machines = {row["instance"]["ref"]["instance_id"]: float(row["usd_per_hour"]) for row in document["orphans"]}
    assert machines == {running: pytest.approx(1.006 + disk + 0.005, abs=1e-5), stopped: pytest.approx(disk, abs=1e-5)}
    total = sum(machines.values()) + sum(row["usd_per_hour"] for row in document["leftovers"])
    assert float(document["usd_per_hour"]) == pytest.approx(total)
    assert float(document["usd_per_month"]) == pytest.approx(total * 730)
    assert document["prices_known"] is True


def test_a_kind_that_may_not_be_listed_is_not_asked_and_hides_no_other(cloud: RunningEc2) -> None:
    plant()
    denied = {"code": "UnauthorizedOperation", "message": "You are not authorized", "status": 403, "times": -1}
    action, kind = "DescribeKeyPairs", "key pair"
    cloud.fault({"action": action, **denied})
    code, document, _ = reap()
    assert code == 48
    assert {each for each, _ in of_kind(document)} == KINDS - {kind, "schedule"}
    [(place, why)] = document["unreachable"].items()
    assert place == f"aws/every region ({kind})"
    assert f"ec2:{action}" in why or action in why
    cloud.fault({"action": action, "region": "us-east-1", **denied})
    _, document, _ = reap()
    assert list(document["unreachable"]) == [f"aws/us-east-1 ({kind})"]


def test_a_thing_that_cannot_be_removed_is_told(cloud: RunningEc2) -> None:
    [left, *_] = plant()
    cloud.fault({"action": "DeleteSnapshot", "code": "UnauthorizedOperation", "status": 403, "times": -1})
    code, document, err = reap("--yes", "--infra", "aws/us-east-1")
    assert code == 48
    assert "1 could not be removed" in err
    assert list(document["failed"]) == left.things["snapshot"]
    assert set(left.there()) == {"snapshot", "schedule"}


def test_a_tag_that_was_taken_away_in_between_saves_the_thing(cloud: RunningEc2, aws: AwsProvider) -> None:
    [left, *_] = plant()
    found = {each.kind: each for each in aws.list_owned(["us-east-1"]).leftovers}
    assert set(found) == KINDS
    every = [one for kind, ids in left.things.items() if kind != "schedule" for one in ids]
    left.ec2().delete_tags(Resources=every, Tags=[{"Key": TAG_RUN}])
    for each in found.values():
        if each.kind != "schedule":
            with pytest.raises(InvalidRequest, match="does not carry the tag"):
                aws.remove(each)
    made_up = OrphanedResource(provider="aws", region="us-east-1", kind="schedule", resource_id="backup", run_id="")
    with pytest.raises(InvalidRequest, match="does not carry the tag"):
        aws.remove(made_up)
    with pytest.raises(InvalidRequest, match="what a balloon is"):
        aws.remove(OrphanedResource(provider="aws", region="us-east-1", kind="balloon", resource_id="b-1", run_id="a"))
    assert left.there() == left.things


def test_what_is_part_of_something_is_not_left_over(cloud: RunningEc2) -> None:
    """A disk of ours on somebody's machine, and an address of ours on it: in use, and not ours to take away."""
    region = Planted("us-east-1")
    theirs = region.instance({"Name": "somebodys"})[0]
    cloud.until(lambda: theirs in {row["id"] for row in cloud.instances("running")})
    region.everything(GONE, ours(GONE, PAST), name=f"costgpu-{GONE}")
    ec2 = region.ec2()
    ec2.attach_volume(VolumeId=region.things["disk"][0], InstanceId=theirs, Device="/dev/sdf")
    ec2.associate_address(AllocationId=region.things["address"][0], InstanceId=theirs)
    _, document, _ = reap("--yes", "--infra", "aws/us-east-1")
    assert document["failed"] == {}
    assert set(region.there()) == {"disk", "address", "instance", "schedule"}


def test_many_machines_take_as_many_calls_as_one(cloud: RunningEc2) -> None:
    region, made = Planted("us-east-1"), []
    for count in (1, 19):
        region.instance(ours("aaaa", LATER), count=count)
        cloud.forget_requests()
        code, document, err = reap("--infra", "aws/us-east-1")
        assert code == 0, err
        made.append(Counter(row["name"] for row in cloud.requests()))
    assert len(document["kept"]) == 20
    assert made[0] == made[1]
    assert set(made[0].values()) == {1}
    pages = {row["params"].get("MaxResults") for row in cloud.requests() if row["action"] == "DescribeInstances"}
    assert pages == {"1000"}  # the most that EC2 allows: a thousand machines are one page


def test_the_shipped_policy_is_enough_to_find_and_remove_everything(
    cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, hours_later: None
) -> None:
    left = plant()
    Planted("us-east-1").instance(ours("orphan00000a", PAST))
    as_user(cloud, monkeypatch)
    code, document, err = reap("--yes")
    assert (code, document["failed"], document["unreachable"]) == (48, {}, {}), err
    assert len(document["ended"]) == 1
    monkeypatch.undo()
    cloud.enforce_permissions(on=False)
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    assert [planted.there() for planted in left] == [{}, {}, {}]


@pytest.mark.parametrize("action", ["ec2:DeleteSnapshot", "ec2:DeleteKeyPair", "ec2:DescribeSnapshots"])
def test_a_permission_that_is_missing_is_named(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    plant()
    as_user(cloud, monkeypatch, without=action)
    _, document, _ = reap("--yes", "--infra", "aws/us-east-1")
    said = " ".join([*document["failed"].values(), *document["unreachable"].values()])
    assert action.partition(":")[2] in said
    assert "is not allowed" in said
