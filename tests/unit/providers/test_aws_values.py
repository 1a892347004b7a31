"""The AWS adapter's pure parts: user data, tags, images, quotas, names, descriptions, access rules."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import Unreachable
from costgpu.models.instance import InstanceState
from costgpu.providers.aws import inventory, launch, quotas, sdk
from costgpu.providers.aws.instances import instance_from
from costgpu.providers.aws.network import _permission, single_sources
from costgpu.providers.aws.termination_schedule import Schedules, run_of, schedule_name
from costgpu.providers.caller_address import caller_address
from tests.emulators.create_requests import AWS

request = AWS.request
RUN_IDS = st.from_regex(r"[a-z][a-z0-9]{11}", fullmatch=True)


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=400), max_size=5))
def test_the_users_tags_never_replace_ours(tags: dict[str, str]) -> None:
    wanted = request(tags={**tags, "costgpu-run": "x", "costgpu-lease-until": "0", "costgpu-group": "y"})
    made = launch.tags_of(wanted)
    assert made["costgpu-run"] == wanted.run_id
    assert "costgpu-group" not in made
    assert made["costgpu-lease-until"] == str(int(wanted.lease_until.timestamp()))
    assert all(len(value) <= 256 for value in made.values())


@pytest.mark.parametrize(
    ("instance_types", "codes"),
    [
        ("c7i.large m7g.large t3.micro im4gn.large", ("L-1216C47A", "L-34B43A08")),
        ("g5.xlarge gr6.4xlarge", ("L-DB2E81BA", "L-3819A6DF")),
        ("p4d.24xlarge", ("L-417A185B", "L-7212CCBC")),
        ("p5en.48xlarge", ("L-417A185B", "L-C4BD4855")),
        ("p6-b200.48xlarge", ("L-417A185B", "")),
        ("x2idn.16xlarge", ("L-7295265B", "L-E3A00192")),
        ("inf2.xlarge trn1.2xlarge mac2.metal hpc7a.96xlarge u-6tb1.metal", None),  # a quota of their own
    ],
)
def test_which_quota_counts(instance_types: str, codes: tuple[str, str] | None) -> None:
    for instance_type in instance_types.split():
        bucket = quotas.bucket_of(instance_type)
        assert (bucket and (bucket.on_demand, bucket.spot)) == codes
    assert quotas.bucket_of("") is None


@given(RUN_IDS, st.from_regex(r"i-[0-9a-f]{17}", fullmatch=True))
def test_a_schedules_name_tells_its_run_and_fits(run_id: str, instance_id: str) -> None:
    name = schedule_name(run_id, instance_id)
    assert len(name) <= 64
    assert run_of(name) == run_id


@given(st.text(max_size=60))
def test_other_names_are_of_no_run(name: str) -> None:
    if not name.startswith("costgpu-") or "-i-" not in name:
        assert run_of(name) == ""


ROW: dict[str, Any] = {
    "InstanceId": "i-1",
    "InstanceType": "g5.xlarge",
    "LaunchTime": datetime(2026, 11, 21, tzinfo=UTC),
    "State": {"Name": "running"},
    "Placement": {"AvailabilityZone": "us-east-1a"},
}


def test_a_state_that_is_not_known_is_alive() -> None:
    assert instance_from({**ROW, "State": {"Name": "a state of 2027"}}, "us-east-1").state is InstanceState.PENDING


SHUTDOWN = {
    "Code": "Client.InstanceInitiatedShutdown",
    "Message": "Client.InstanceInitiatedShutdown: Instance initiated shutdown",
}
USER = {"Code": "Client.UserInitiatedShutdown", "Message": "Client.UserInitiatedShutdown: User initiated shutdown"}


@pytest.mark.parametrize(("reason", "by_guest"), [(SHUTDOWN, True), (USER, False), (None, False)])
@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_a_shutdown_from_within_is_told_whatever_the_console_says(
    reason: dict[str, str] | None, state: str, *, by_guest: bool
) -> None:
    made = instance_from({**ROW, "State": {"Name": state}, "StateReason": reason}, "us-east-1")
    assert made.by_guest is by_guest
    assert not made.preempted


@pytest.mark.parametrize(
    ("code", "words", "preempted", "ended_at"),
    [
        ("instance-terminated-no-capacity", "", True, 10),
        ("marked-for-termination", "", True, None),  # that is when the notice came
        ("instance-terminated-by-user", "", False, None),
        ("instance-terminated-no-capacity", "Server initiated (2026-11-21 00:05:00 GMT)", True, 5),
    ],
)
def test_the_best_known_moment_of_an_interruption(
    code: str, words: str, ended_at: int | None, *, preempted: bool
) -> None:
    row = {**ROW, "State": {"Name": "terminated"}, "StateTransitionReason": words}
    request = {"Code": code, "UpdateTime": datetime(2026, 11, 21, 0, 10, tzinfo=UTC)}
    made = instance_from(row, "us-east-1", request)
    assert made.preempted is preempted
    assert made.ended_at == (None if ended_at is None else datetime(2026, 11, 21, 0, ended_at, tzinfo=UTC))


CIDRS = st.sampled_from(["203.0.113.7/32", "198.51.100.0/24", "0.0.0.0/0"])
RULES = st.fixed_dictionaries(
    {"IpProtocol": st.just("tcp"), "FromPort": st.sampled_from([22, 80]), "ToPort": st.sampled_from([22, 80])},
    optional={
        "IpRanges": st.lists(CIDRS, max_size=3, unique=True).map(lambda rows: [{"CidrIp": row} for row in rows]),
        "Ipv6Ranges": st.lists(st.just("::/0"), max_size=1).map(lambda rows: [{"CidrIpv6": row} for row in rows]),
        "UserIdGroupPairs": st.just([{"GroupId": "sg-1"}]),
    },
)


@given(RULES, st.sampled_from(["203.0.113.7/32", "198.51.100.0/24"]))
def test_what_is_revoked_is_everything_but_the_one_address(rule: dict[str, Any], allowed: str) -> None:
    wanted = single_sources([_permission(allowed, "r7k2m9x4q1ab")])
    stale = [each for each in single_sources([rule]) if each not in wanted]
    gone = {row["CidrIp"] for each in stale for row in each.get("IpRanges", [])}
    had = {row["CidrIp"] for row in rule.get("IpRanges", [])}
    ours = (rule["FromPort"], rule["ToPort"]) == (22, 22)
    assert had - gone == (had & {allowed} if ours else set())
    for kind in ("Ipv6Ranges", "UserIdGroupPairs"):
        assert [row for each in stale for row in each.get(kind, [])] == rule.get(kind, [])


@pytest.mark.parametrize("code", ["DependencyViolation", "InvalidGroup.InUse"])
def test_a_group_that_another_one_names_waits(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    class Ec2:
        def delete_security_group(self, **_: str) -> None:
            raise sdk.exceptions().ClientError({"Error": {"Code": code}}, "DeleteSecurityGroup")

    monkeypatch.setattr(sdk.Clients, "client", lambda *_: Ec2())
    clients = sdk.Clients()
    (kind,) = (each for each in inventory.KINDS if each.name == "security group")
    assert not inventory.Inventory(clients, Schedules(clients, None))._remove("us-east-1", kind, {"GroupId": "sg-1"})


@pytest.mark.parametrize(("said", "cidr"), [("203.0.113.7%0A", "203.0.113.7/32"), ("2001:db8::1", "2001:db8::1/128")])
def test_the_callers_address(said: str, cidr: str) -> None:
    assert caller_address(f"data:text/plain,{said}") == cidr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        *(
            (f"data:text/plain,{said}", "no address")
            for said in ("", "<html>log in</html>", "203.0.113", "203.0.113.7, 10.0.0.1")
        ),
        ("file:///nonexistent/address", "does not tell"),
    ],
)
def test_an_answer_that_is_no_address(url: str, words: str) -> None:
    with pytest.raises(Unreachable, match=words) as caught:
        caller_address(url)
    assert "caller_address" in caught.value.hint
