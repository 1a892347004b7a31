"""The account: who asks, what is refused and how that is said, what is found in all regions."""

import json
from pathlib import Path
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import AuthError, InvalidRequest, ProviderError, QuotaExceeded, Throttled, Unreachable
from costgpu.models.instance import InstanceRef
from costgpu.providers.aws import instances, sdk
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_RUN
from tests.emulators.create_requests import AWS, H100
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.ec2.planted_orphans import POLICY, as_user

cpu_offer, offer, request = AWS.cpu_offer, AWS.offer, AWS.request

boto3 = sdk.boto3()

SOMETHING = InstanceRef(provider="aws", region="us-east-1", instance_id="i-0123456789abcdef0")


def fresh() -> AwsProvider:
    return AwsProvider(clock=SystemClock())


def test_the_identity_is_told_with_its_source(cloud: RunningEc2, aws: AwsProvider) -> None:
    identity = aws.identity()
    assert (identity.provider, identity.account, identity.source) == ("aws", "123456789012", "environment variables")
    assert identity.principal.startswith("arn:aws:")
    assert "AKIA" not in repr(identity)


def test_a_profile_is_honoured_and_named(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[profile research]\nregion = eu-west-1\naws_access_key_id = AKIARESEARCH\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "research")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    assert fresh().identity().source == "profile research"
    assert {(row["region"], row["access_key"]) for row in cloud.requests()} == {("eu-west-1", "AKIARESEARCH")}
    monkeypatch.setenv("AWS_PROFILE", "reserch")
    with pytest.raises(AuthError, match="reserch") as caught:
        fresh().identity()
    assert "list-profiles" in caught.value.hint


def test_no_credentials(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for question in (fresh().identity, lambda: fresh().create(request()), lambda: fresh().terminate(SOMETHING)):
        with pytest.raises(AuthError, match="No usable AWS credentials") as caught:
            question()
        assert "aws configure" in caught.value.hint
    with pytest.raises(AuthError):
        fresh().list_owned()
    assert cloud.calls() == []


def test_half_a_pair_of_keys(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthError, match="SECRET"):
        fresh().identity()


def test_expired_credentials_are_said_by_every_question(cloud: RunningEc2, aws: AwsProvider) -> None:
    instance = aws.create(request())
    cloud.expire("AKIAEMULATED")
    questions: list[Any] = [
        aws.identity,
        lambda: aws.create(request(run_id="second00000a")),
        lambda: aws.describe(instance.ref),
        lambda: aws.terminate(instance.ref),
        lambda: aws.clean_up("r7k2m9x4q1ab", "us-east-1"),
        lambda: aws.console(instance.ref),
        lambda: aws.list_owned(["us-east-1", "eu-west-1"]),
        aws.list_owned,
        lambda: aws.check(request()),
        lambda: aws.open_access(instance, "203.0.113.7/32"),
    ]
    for question in questions:
        with pytest.raises(AuthError, match="have expired") as caught:
            question()
        assert "aws sso login" in caught.value.hint


@pytest.mark.parametrize(
    "code", ["AuthFailure", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidIdentityToken"]
)
def test_keys_that_aws_does_not_accept(cloud: RunningEc2, aws: AwsProvider, code: str) -> None:
    cloud.fault({"code": code, "message": "not validated", "status": 401, "times": -1})
    with pytest.raises(AuthError, match=rf"does not accept these credentials.*{code}"):
        aws.describe(SOMETHING)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"code": "RequestLimitExceeded"}, Throttled),
        ({"code": "Throttling", "status": 400}, Throttled),
        ({"code": "InternalError"}, Unreachable),
        ({"code": "Whatever", "status": 502}, Unreachable),
        ({"drop": True}, Unreachable),
        ({"code": "SomethingNew", "message": "we made this up"}, ProviderError),
        ({"code": "InvalidParameterValue"}, InvalidRequest),
    ],
)
def test_every_failure_has_its_class(
    cloud: RunningEc2, aws: AwsProvider, fault: dict[str, Any], kind: type[ProviderError]
) -> None:
    cloud.fault({"action": "DescribeInstances", "times": -1, **fault})
    with pytest.raises(ProviderError) as caught:
        aws.describe(SOMETHING)
    assert type(caught.value) is kind
    assert SOMETHING.instance_id in caught.value.message
    assert caught.value.__cause__ is not None


def test_an_unknown_refusal_of_the_create_call_is_not_called_no_capacity(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.fault({"action": "RunInstances", "code": "SomethingNew", "message": "we made this up"})
    with pytest.raises(ProviderError, match="SomethingNew: we made this up") as caught:
        aws.create(request())
    assert type(caught.value) is ProviderError


def test_nobody_at_the_address(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="No answer from AWS"):
        fresh().describe(SOMETHING)


@pytest.mark.parametrize("region", ["us-esat-1", "moon-base-1", "US-EAST-1", "us east 1"])
def test_a_region_that_does_not_exist(cloud: RunningEc2, aws: AwsProvider, region: str) -> None:
    with pytest.raises(InvalidRequest, match=f"AWS has no region '{region}'") as caught:
        aws.create(request(offer(region=region)))
    assert "us-east-1" in caught.value.hint
    with pytest.raises(InvalidRequest):
        aws.terminate(InstanceRef(provider="aws", region=region, instance_id="i-0123456789abcdef0"))
    assert "ec2:RunInstances" not in cloud.calls()


def test_a_configured_region_that_does_not_exist(cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-esat-1")
    with pytest.raises(InvalidRequest, match="AWS_DEFAULT_REGION"):
        fresh().identity()


@pytest.mark.parametrize(
    ("what", "code", "limit", "name"),
    [
        (offer(), "L-DB2E81BA", 0, "Running On-Demand G and VT instances"),
        (offer(spot=True), "L-3819A6DF", 3, "Spot G and VT instances"),
        (cpu_offer(), "L-1216C47A", 1, "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        (offer("p5.48xlarge", vcpus=192, accelerator=H100), "L-417A185B", 0, "Running On-Demand P instances"),
    ],
)
def test_the_quota_is_told_with_its_value_and_where_to_ask(
    cloud: RunningEc2, aws: AwsProvider, what: Any, code: str, limit: int, name: str
) -> None:
    cloud.quota("us-east-1", code, limit)
    for question in (aws.create, aws.check):
        with pytest.raises(QuotaExceeded) as caught:
            question(request(what))
        text = f"quota for {name} ({code}) in us-east-1 is {limit} vCPUs; one {what.instance_type} needs {what.vcpus}"
        assert text in caught.value.message
        assert (
            f"https://us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"
            in caught.value.hint
        )
        assert f"--desired-value {limit + what.vcpus}" in caught.value.hint
    assert not cloud.instances()


def test_a_quota_that_other_machines_use_up_is_told_by_the_create_call(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.quota("us-east-1", "L-DB2E81BA", 6)
    aws.create(request())
    second = request(run_id="second00000a")
    aws.check(second)  # the quota is enough for one, and a dry run does not count
    with pytest.raises(QuotaExceeded, match=r"is 6 vCPUs; one g5\.xlarge needs 4 on top of what already runs"):
        aws.create(second)


def test_a_quota_that_may_not_be_read_is_no_obstacle(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.fault({"service": "servicequotas", "code": "AccessDeniedException", "times": -1})
    aws.check(request())
    cloud.quota("us-east-1", "L-DB2E81BA", 0)
    with pytest.raises(QuotaExceeded, match="is not known"):
        aws.create(request())


def test_all_pages_and_all_regions(cloud: RunningEc2, aws: AwsProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(instances.PAGES["PaginationConfig"], "PageSize", 5)
    image = boto3.client("ssm", region_name="eu-west-1").get_parameter(
        Name="/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
    )["Parameter"]["Value"]
    ec2 = boto3.client("ec2", region_name="eu-west-1")
    for number in range(7):
        tags = [{"Key": TAG_RUN, "Value": f"run{number:09d}"}]
        ec2.run_instances(
            ImageId=image,
            InstanceType="c7i.large",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
    aws.create(request(offer(region="us-west-2")))
    cloud.forget_requests()
    owned = aws.list_owned()
    assert len(owned.instances) == 8
    assert len({each.run_id for each in owned.instances}) == 8
    assert owned.unreachable == ()
    regions = [row["region"] for row in cloud.requests() if row["action"] == "DescribeInstances"]
    assert regions.count("eu-west-1") == 2
    asked = set(regions)
    assert asked == {row["RegionName"] for row in ec2.describe_regions()["Regions"]}
    assert len(asked) > 15


def test_a_region_that_fails_is_named_and_hides_nothing(cloud: RunningEc2, aws: AwsProvider) -> None:
    for number, region in enumerate(("us-east-1", "eu-west-1")):
        aws.create(request(offer(region=region), run_id=f"run00000000{number}"))
    cloud.fault(
        {"action": "DescribeInstances", "region": "eu-west-1", "drop": True, "times": -1},
        {
            "action": "DescribeVolumes",
            "region": "us-east-1",
            "code": "UnauthorizedOperation",
            "status": 403,
            "times": -1,
        },
    )
    owned = aws.list_owned(["us-east-1", "eu-west-1", "us-west-2", "us-esat-1"])
    assert [each.ref.region for each in owned.instances] == ["us-east-1"]
    assert "security group" in {each.kind for each in owned.leftovers}
    named = dict(owned.unreachable)
    assert set(named) == {"us-east-1 (disk)", "eu-west-1", "us-esat-1"}
    assert "No answer" in named["eu-west-1"]
    assert "DescribeVolumes" in named["us-east-1 (disk)"]


# -- permissions -------------------------------------------------------------------------------------------------------


def journey(cloud: RunningEc2, role: str) -> None:
    """Every call of a run, from the first question to the last sweep."""
    aws = AwsProvider(clock=SystemClock(), scheduler_role_arn=role)
    wanted = request(offer(spot=True))
    assert aws.identity().principal.endswith("user/ann")
    assert aws.zones(wanted.offer)[0] is None
    aws.check(wanted)
    instance = aws.create(wanted)
    assert aws.layers(wanted)[2].armed, aws.layers(wanted)[2].detail
    cloud.until(lambda: bool(cloud.instances("running")))
    aws.open_access(instance, "198.51.100.9/32")
    aws.console(instance.ref)
    aws.terminate(instance.ref)
    cloud.until(lambda: bool(cloud.instances("terminated")))
    aws.describe(instance.ref)
    assert aws.clean_up(wanted.run_id, "us-east-1") == ()
    owned = aws.list_owned(["us-east-1"])
    assert (owned.leftovers, owned.unreachable) == ((), ())


def test_the_shipped_policy_is_enough_for_the_whole_journey(
    cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    as_user(cloud, monkeypatch)
    journey(cloud, role)


@pytest.mark.parametrize(
    "action",
    [
        "ec2:RunInstances",
        "ec2:TerminateInstances",
        "ec2:DescribeInstances",
        "ec2:CreateSecurityGroup",
        "ec2:DeleteSecurityGroup",
        "ec2:AuthorizeSecurityGroupIngress",
        "ssm:GetParameters",
    ],
)
def test_an_action_that_is_missing_is_named(
    cloud: RunningEc2, monkeypatch: pytest.MonkeyPatch, role: str, action: str
) -> None:
    as_user(cloud, monkeypatch, without=action)
    with pytest.raises(AuthError) as caught:
        journey(cloud, role)
    assert action.partition(":")[2] in caught.value.message
    assert "policy.json" in caught.value.hint
    if action == "ec2:TerminateInstances":
        assert "aws ec2 terminate-instances" in caught.value.hint


def test_the_policy_lets_only_what_is_ours_be_ended() -> None:
    document = json.loads(POLICY.read_text())
    for statement in document["Statement"]:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert "*" not in "".join(actions)
        if any(name.partition(":")[2].startswith(("Terminate", "Delete", "Release", "Revoke")) for name in actions):
            condition = statement.get("Condition", {}).get("Null", {})
            assert condition == {"aws:ResourceTag/costgpu-run": "false"} or "costgpu-" in str(statement["Resource"])
