"""The emulated cloud itself: that it refuses, remembers, loses and kills as it says it does."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.providers.aws import sdk
from costgpu.providers.aws.provider import AwsProvider
from tests.emulators.ec2.client import RunningEc2
from tests.emulators.ec2.create_requests import request
from tests.emulators.emulator_client import ROOT
from tests.emulators.faults import lives

boto3 = sdk.boto3()
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"

CLIENT = """
import sys
from datetime import UTC, datetime, timedelta
from costgpu.clock import SystemClock
from costgpu.providers.aws.provider import AwsProvider
from tests.emulators.ec2.create_requests import request
sys.stdin.readline()
AwsProvider(clock=SystemClock()).create(request(lease_until=datetime(2027, 1, 1, tzinfo=UTC)))
print("created", flush=True)
"""


def launch(token: str = "", **more: Any) -> str:
    image = boto3.client("ssm").get_parameter(Name=UBUNTU)["Parameter"]["Value"]
    call = {"ImageId": image, "InstanceType": "c7i.large", "MinCount": 1, "MaxCount": 1, **more}
    if token:
        call["ClientToken"] = token
    return str(boto3.client("ec2").run_instances(**call)["Instances"][0]["InstanceId"])


def start_client(cloud: RunningEc2) -> subprocess.Popen[str]:
    environment = {**os.environ, **cloud.environment()}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLIENT)],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate("go\n", timeout=60)
    return process.returncode, out


def test_tokens(cloud: RunningEc2) -> None:
    first = launch("a")
    assert launch("a") == first
    assert launch("b") != first
    assert launch() != launch()
    with pytest.raises(sdk.exceptions().ClientError, match="IdempotentParameterMismatch"):
        launch("a", InstanceType="c7i.xlarge")
    found = boto3.client("ec2").describe_instances(Filters=[{"Name": "client-token", "Values": ["a"]}])
    assert [each["InstanceId"] for row in found["Reservations"] for each in row["Instances"]] == [first]


def test_a_refused_call_does_not_use_its_token_up(cloud: RunningEc2) -> None:
    cloud.quota("us-east-1", "L-1216C47A", 0)
    with pytest.raises(sdk.exceptions().ClientError, match="VcpuLimitExceeded"):
        launch("a")
    cloud.quota("us-east-1", "L-1216C47A", 8)
    assert launch("a", InstanceType="c7i.xlarge")


def test_faults_are_counted_skipped_and_matched(cloud: RunningEc2) -> None:
    ec2 = boto3.client("ec2", config=sdk.config(retries={"total_max_attempts": 1}))
    cloud.fault({"action": "DescribeRegions", "code": "Boo", "times": 2, "skip": 1})
    outcomes = []
    for _ in range(5):
        try:
            ec2.describe_regions()
        except sdk.exceptions().ClientError as error:
            outcomes.append(sdk.code_of(error))
        else:
            outcomes.append("")
    assert outcomes == ["", "Boo", "Boo", "", ""]
    cloud.fault({"action": "RunInstances", "where": {"InstanceType": "g5.xlarge"}, "code": "Boo"})
    assert launch()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_before_executes_nothing_and_one_after_does(cloud: RunningEc2, when: str) -> None:
    cloud.fault({"action": "CreateSecurityGroup", "code": "Boo", "when": when})
    with pytest.raises(sdk.exceptions().ClientError, match="Boo"):
        boto3.client("ec2").create_security_group(GroupName="x", Description="x")
    names = [row["GroupName"] for row in boto3.client("ec2").describe_security_groups()["SecurityGroups"]]
    assert ("x" in names) is (when == "after")


def test_what_moto_does_not_have_is_refused_in_the_protocols_own_form(cloud: RunningEc2) -> None:
    with pytest.raises(sdk.exceptions().ClientError, match="UnsupportedOperation"):
        boto3.client("ec2").get_spot_placement_scores(InstanceTypes=["g5.xlarge"], TargetCapacity=1)
    with pytest.raises(sdk.exceptions().ClientError) as caught:
        boto3.client("scheduler").get_schedule(Name="nothing")
    assert sdk.code_of(caught.value) == "ResourceNotFoundException"


def test_a_client_is_killed_before_and_after_each_of_its_calls(cloud: RunningEc2) -> None:
    """Counts the calls of a create, kills at each, and repeats the create: always exactly one instance."""
    wanted = request(lease_until=datetime(2027, 1, 1, tzinfo=UTC))
    assert finish(start_client(cloud)) == (0, "created\n")
    calls = cloud.calls()
    assert calls[-1] == "ec2:RunInstances"
    survived = 0
    for when in ("before", "after"):
        for at in range(1, len(calls) + 1):
            cloud.reset()
            victim = start_client(cloud)
            cloud.kill(victim.pid, at, when)
            assert finish(victim) == (-signal.SIGKILL, "")
            assert cloud.calls() == calls[:at]
            made = [row["id"] for row in cloud.instances()]
            assert len(made) == (1 if (at, when) == (len(calls), "after") else 0)
            survived += len(made)
            instance = AwsProvider(clock=SystemClock()).create(wanted)
            assert [row["id"] for row in cloud.instances()] == [instance.ref.instance_id]
            assert made in ([], [instance.ref.instance_id])
    assert survived == 1
    print(f"killed {2 * len(calls)} clients at {len(calls)} calls")


def test_the_cloud_ends_with_its_starter() -> None:
    script = (
        "from tests.emulators.ec2.client import RunningEc2; c = RunningEc2.launch();"
        " print(c._process.pid, flush=True); import os; os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not lives(pid):
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the cloud outlives the process that started it")
