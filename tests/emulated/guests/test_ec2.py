"""The API and the guests together: what an instance does is what the API says, and the other way round."""

from pathlib import Path
from typing import Any

import pytest

from tests.emulators.ec2.client import RunningEc2
from tests.emulators.guests import guest_control
from tests.emulators.guests.guest_control import InGuest
from tests.emulators.guests.login import OneRunKeys

pytestmark = pytest.mark.emulator


@pytest.fixture
def keys(tmp_path: Path) -> OneRunKeys:
    return OneRunKeys.make(tmp_path)


@pytest.fixture
def ec2(guest_cloud: RunningEc2) -> Any:
    import boto3

    return boto3.client("ec2")


def launch(ec2: Any, keys: OneRunKeys, extra: str = "true", **more: Any) -> str:
    image = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"][
        0
    ]
    answer = ec2.run_instances(
        ImageId=image["ImageId"],
        InstanceType="t3.micro",
        MinCount=1,
        MaxCount=1,
        UserData=keys.boothook(extra).decode(),
        InstanceInitiatedShutdownBehavior="terminate",
        **more,
    )
    return str(answer["Instances"][0]["InstanceId"])


def described(ec2: Any, instance_id: str) -> dict[str, Any]:
    found: dict[str, Any] = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    return found


def wait_for_state(ec2: Any, instance_id: str, state: str) -> dict[str, Any]:
    guest_control.until(lambda: described(ec2, instance_id)["State"]["Name"] == state, 30, f"{instance_id} is {state}")
    return described(ec2, instance_id)


def address_of(ec2: Any, keys: OneRunKeys, instance_id: str) -> str:
    address = str(wait_for_state(ec2, instance_id, "running")["PublicIpAddress"])
    guest_control.until(lambda: keys.ssh(address, "true").returncode == 0, 30, f"ssh to {instance_id}")
    return address


def test_a_stopped_instance_keeps_its_disk(ec2: Any, keys: OneRunKeys) -> None:
    instance_id = launch(ec2, keys)
    keys.ssh(address_of(ec2, keys, instance_id), "touch /root/kept")
    ec2.stop_instances(InstanceIds=[instance_id])
    wait_for_state(ec2, instance_id, "stopped")
    assert guest_control.running() == []
    ec2.start_instances(InstanceIds=[instance_id])
    assert keys.ssh(address_of(ec2, keys, instance_id), "ls /root").stdout == "kept\n"


def test_a_new_account_has_no_guests(guest_cloud: RunningEc2, ec2: Any, keys: OneRunKeys) -> None:
    instance_id = launch(ec2, keys)
    guest_control.until(lambda: InGuest(instance_id).leader)
    guest_cloud.reset()
    assert (guest_control.running(), guest_control.consoles()) == ([], {})
