"""Ending on AWS: terminate, what the states say, what is left behind, the schedule."""

from typing import Any

import pytest

from costgpu.clock import ManualClock, SystemClock
from costgpu.errors import ProviderError, Unreachable
from costgpu.models.instance import Instance, InstanceState
from costgpu.providers.aws import sdk
from costgpu.providers.aws.provider import AwsProvider
from costgpu.providers.base import TAG_RUN
from tests.emulators.create_requests import AWS
from tests.emulators.ec2.client import RunningEc2

offer, request = AWS.offer, AWS.request

boto3 = sdk.boto3()

RUN = "r7k2m9x4q1ab"


def running(cloud: RunningEc2, aws: AwsProvider, **what: Any) -> Instance:
    instance = aws.create(request(**what))
    cloud.until(lambda: instance.ref.instance_id in {row["id"] for row in cloud.instances("running")})
    return instance


def seen(aws: AwsProvider, instance: Instance) -> Instance:
    """As AWS shows it now."""
    found = aws.describe(instance.ref)
    assert found is not None
    return found


def ended(cloud: RunningEc2, instance: Instance) -> None:
    cloud.until(lambda: instance.ref.instance_id in {row["id"] for row in cloud.instances("terminated")})


def test_an_instance_that_ec2_does_not_show_yet_is_not_taken_for_gone(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.settings(invisible_seconds=60.0)
    instance = aws.create(request())
    assert aws.describe(instance.ref) is None
    with pytest.raises(Unreachable, match="too new") as caught:
        aws.terminate(instance.ref)
    assert f"--instance-ids {instance.ref.instance_id}" in caught.value.hint
    cloud.settings(invisible_seconds=0.0)
    aws.terminate(instance.ref)
    ended(cloud, instance)


def test_after_a_while_unknown_means_gone(cloud: RunningEc2) -> None:
    clock = ManualClock()
    aws = AwsProvider(clock=clock)
    instance = aws.create(request())
    cloud.settings(invisible_seconds=100.0)
    clock.sleep(301.0)
    aws.terminate(instance.ref)
    assert len(cloud.alive()) == 1


def test_a_refused_termination_names_the_instance_and_the_command(cloud: RunningEc2, aws: AwsProvider) -> None:
    instance = running(cloud, aws)
    cloud.change(instance.ref.instance_id, disable_api_termination=True)
    with pytest.raises(ProviderError, match="may not be terminated") as caught:
        aws.terminate(instance.ref)
    command = f"aws ec2 terminate-instances --region us-east-1 --instance-ids {instance.ref.instance_id}"
    assert command in caught.value.hint
    assert "billing" in caught.value.hint


def test_a_machine_that_stops_instead_of_ending_shows_that(cloud: RunningEc2, aws: AwsProvider) -> None:
    instance = running(cloud, aws)
    cloud.change(instance.ref.instance_id, instance_initiated_shutdown_behavior="stop")
    cloud.power_off(instance.ref.instance_id)
    cloud.until(lambda: bool(cloud.instances("stopped")))
    described = seen(aws, instance)
    assert described.state is InstanceState.STOPPED


@pytest.mark.parametrize("guest_goes_first", [False, True])
def test_a_machine_that_aws_took_back_is_preempted(
    cloud: RunningEc2, aws: AwsProvider, *, guest_goes_first: bool
) -> None:
    instance = running(cloud, aws, what=offer(spot=True))
    cloud.interrupt(instance.ref.instance_id, notice_seconds=30 if guest_goes_first else 0.1)
    if guest_goes_first:
        still = seen(aws, instance)
        assert not still.preempted
        cloud.power_off(instance.ref.instance_id)
    ended(cloud, instance)
    over = seen(aws, instance)
    assert over.preempted
    assert ("Spot Instance interruption" in over.reason) is not guest_goes_first


def test_a_spot_machine_that_we_ended_is_not_preempted(cloud: RunningEc2, aws: AwsProvider) -> None:
    instance = running(cloud, aws, what=offer(spot=True))
    aws.terminate(instance.ref)
    ended(cloud, instance)
    over = seen(aws, instance)
    assert not over.preempted


def test_the_console(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.settings(pending_seconds=600.0)
    instance = aws.create(request())
    assert aws.console(instance.ref) == ""
    cloud.settings(pending_seconds=0.05)
    cloud.until(lambda: bool(cloud.instances("running")))
    cloud.until(lambda: "Linux version" in aws.console(instance.ref))
    cloud.fault({"action": "GetConsoleOutput", "code": "UnsupportedOperation", "message": "not a Nitro instance"})
    assert "Linux version" in aws.console(instance.ref)


def test_the_group_goes_when_the_machine_is_gone_and_not_before(cloud: RunningEc2, aws: AwsProvider) -> None:
    cloud.settings(shutdown_seconds=600.0)
    instance = running(cloud, aws)
    waiting = aws.clean_up(RUN, "us-east-1")
    assert {each.kind for each in waiting} == {"disk", "network interface", "security group"}
    assert {(each.run_id, each.lease_until) for each in waiting} == {(RUN, instance.lease_until)}
    aws.terminate(instance.ref)
    assert "security group" in {each.kind for each in aws.clean_up(RUN, "us-east-1")}
    cloud.settings(shutdown_seconds=0.05)
    ended(cloud, instance)
    assert aws.clean_up(RUN, "us-east-1") == ()
    assert aws.clean_up(RUN, "us-east-1") == ()
    assert aws.list_owned(["us-east-1"]).leftovers == ()


def test_open_access_leaves_one_address_only(cloud: RunningEc2, aws: AwsProvider) -> None:
    instance = running(cloud, aws)
    ec2 = boto3.client("ec2")
    [group] = ec2.describe_security_groups(Filters=[{"Name": f"tag:{TAG_RUN}", "Values": [RUN]}])["SecurityGroups"]
    ec2.authorize_security_group_ingress(
        GroupId=group["GroupId"], IpProtocol="tcp", FromPort=8888, ToPort=8888, CidrIp="0.0.0.0/0"
    )

    def rules() -> list[tuple[int, list[str], list[str]]]:
        [now] = ec2.describe_security_groups(GroupIds=[group["GroupId"]])["SecurityGroups"]
        return [
            (row["FromPort"], [r["CidrIp"] for r in row["IpRanges"]], [r["CidrIpv6"] for r in row["Ipv6Ranges"]])
            for row in now["IpPermissions"]
        ]

    aws.open_access(instance, "198.51.100.9/32")
    assert rules() == [(22, ["198.51.100.9/32"], [])]
    aws.open_access(instance, "198.51.100.9/32")
    assert rules() == [(22, ["198.51.100.9/32"], [])]
    aws.open_access(instance, "2001:db8::7/128")
    assert rules() == [(22, [], ["2001:db8::7/128"])]


def test_without_a_role_the_plan_says_that_there_is_no_schedule(cloud: RunningEc2, aws: AwsProvider) -> None:
    wanted = request()
    call, watchdog, schedule = aws.layers(wanted)
    assert (call.name, call.armed) == ("create call", True)
    assert (watchdog.name, watchdog.armed, watchdog.deadline) == ("watchdog", True, wanted.lease_until)
    assert (schedule.name, schedule.armed) == ("provider schedule", False)
    assert "scheduler_role_arn" in schedule.detail
    aws.create(wanted)
    assert not [name for name in cloud.calls() if name.startswith("scheduler:")]


def test_the_schedule_is_armed_right_after_the_create_call_and_fires(cloud: RunningEc2, role: str) -> None:
    aws = AwsProvider(clock=SystemClock(), scheduler_role_arn=role)
    wanted = request()
    assert aws.layers(wanted)[2].armed
    instance = aws.create(wanted)
    calls = cloud.calls()
    assert calls[calls.index("ec2:RunInstances") + 1 :] == ["scheduler:CreateSchedule"]
    name = f"costgpu-{RUN}-{instance.ref.instance_id}"
    layer = aws.layers(wanted)[2]
    assert (layer.armed, layer.detail, layer.deadline) == (True, f"EventBridge schedule {name}", wanted.lease_until)
    schedule = boto3.client("scheduler").get_schedule(Name=name)
    assert schedule["ScheduleExpression"] == f"at({wanted.lease_until:%Y-%m-%dT%H:%M:%S})"
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
    aws.create(wanted)  # arms again, which changes nothing
    assert aws.layers(wanted)[2].armed
    cloud.until(lambda: bool(cloud.instances("running")))
    cloud.advance(7100)
    assert len(cloud.instances("running")) == 1
    cloud.advance(200)
    ended(cloud, instance)
    assert not boto3.client("scheduler").list_schedules()["Schedules"]


def test_a_schedule_that_cannot_be_armed_is_told_and_not_fatal(cloud: RunningEc2) -> None:
    aws = AwsProvider(clock=SystemClock(), scheduler_role_arn="arn:aws:iam::123456789012:role/not-there")
    wanted = request()
    instance = aws.create(wanted)
    assert instance.ref.instance_id == cloud.instances()[0]["id"]
    layer = aws.layers(wanted)[2]
    assert not layer.armed
    assert "execution role" in layer.detail


def test_a_create_call_that_is_repeated_after_a_crash_arms_the_schedule(cloud: RunningEc2, role: str) -> None:
    wanted = request()
    AwsProvider(clock=SystemClock()).create(wanted)  # as a process that died before it came to that
    aws = AwsProvider(clock=SystemClock(), scheduler_role_arn=role)
    aws.create(wanted)
    [schedule] = boto3.client("scheduler").list_schedules()["Schedules"]
    assert schedule["Name"].startswith(f"costgpu-{RUN}-i-")
    assert len(cloud.instances()) == 1


def test_the_schedule_of_a_living_machine_stays_and_that_of_a_dead_one_goes(cloud: RunningEc2, role: str) -> None:
    aws = AwsProvider(clock=SystemClock(), scheduler_role_arn=role)
    instance = running(cloud, aws)
    assert "schedule" in {each.kind for each in aws.clean_up(RUN, "us-east-1")}
    assert "schedule" in {each.kind for each in aws.list_owned(["us-east-1"]).leftovers}
    assert len(boto3.client("scheduler").list_schedules()["Schedules"]) == 1
    aws.terminate(instance.ref)
    ended(cloud, instance)
    assert aws.clean_up(RUN, "us-east-1") == ()
    assert not boto3.client("scheduler").list_schedules()["Schedules"]


def test_schedules_of_others_are_left_alone(cloud: RunningEc2, role: str) -> None:
    client = boto3.client("scheduler")
    for name in ("costgpu-dashboard", f"costgpu-{RUN}-report"):
        client.create_schedule(
            Name=name,
            ScheduleExpression="at(2030-01-01T00:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f", "RoleArn": role},
        )
    aws = AwsProvider(clock=SystemClock(), scheduler_role_arn=role)
    assert aws.clean_up(RUN, "us-east-1") == ()
    assert aws.list_owned(["us-east-1"]).leftovers == ()
    assert len(client.list_schedules()["Schedules"]) == 2
