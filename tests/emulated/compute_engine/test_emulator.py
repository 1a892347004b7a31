"""The emulated Compute Engine is as strict as Google: what costgpu must not send is refused."""

import copy
import json
import subprocess
import sys
import urllib.error
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costgpu.portable.processes import process
from tests.emulators.compute_engine import schema
from tests.emulators.compute_engine.client import RunningComputeEngine, plain
from tests.emulators.emulator_client import ROOT
from tests.until import until


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


SPOT: Mapping[str, Any] = {"provisioningModel": "SPOT", "automaticRestart": False}
TERMINATE: Mapping[str, Any] = {"onHostMaintenance": "TERMINATE"}


def changed(body: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Another body; a change is at a path such as ``disks.0.boot``, and None takes the field away."""
    new = copy.deepcopy(dict(body))
    for path, value in changes.items():
        *way, last = path.split(".")
        node: Any = new
        for step in way:
            node = node[int(step) if step.isdigit() else step]
        node[last] = value
        if value is None:
            del node[last]
    return new


def disk_type(name: str, zone: str = "us-central1-a") -> dict[str, Any]:
    return {"disks.0.initializeParams.diskType": f"zones/{zone}/diskTypes/{name}"}


def on_spot(kind: str, disk: str, zone: str = "us-central1-b") -> dict[str, Any]:
    return plain(kind, zone, disk, {**SPOT, **TERMINATE})


ON_DEMAND = {"scheduling.provisioningModel": "STANDARD"}
LIMITED = {"terminationTime": soon(3600), "instanceTerminationAction": "DELETE"}
UNTIL = "scheduling.terminationTime"
ACTION = "scheduling.instanceTerminationAction"
IMAGE = "disks.0.initializeParams.sourceImage"


def with_gpus(count: int) -> dict[str, Any]:
    card = {"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": count}
    return {"guestAccelerators": [card], "scheduling.onHostMaintenance": "TERMINATE"}


def of_type(kind: str, zone: str = "us-central1-a") -> dict[str, Any]:
    return {"machineType": f"zones/{zone}/machineTypes/{kind}"}


@pytest.mark.parametrize(
    ("good", "changes", "words"),
    [
        (plain(), {"name": "Upper"}, "resource.name"),
        (plain(), {"name": "x" * 64}, "resource.name"),
        (plain(), of_type("n9-standard-1"), "does not exist in zone"),
        (plain(zone="us-central1-f"), of_type("a3-highgpu-8g", "us-central1-f"), "does not exist in zone"),
        (plain(), {"labels": {"Owner": "x"}}, "Label key 'Owner' violates"),
        (plain(), {"labels": {"owner": "ann@laptop"}}, "Label value 'ann@laptop' violates"),
        (plain(), {"labels": {f"k{n}": "" for n in range(65)}}, "number of labels"),
        (plain(), {"tags": {"items": ["-no"]}}, "resource.tags"),
        (plain(scheduling=LIMITED), {UNTIL: soon(-5)}, "at least 30 seconds"),
        (plain(scheduling=LIMITED), {UNTIL: soon(20)}, "at least 30 seconds"),
        (plain(scheduling=LIMITED), {UNTIL: soon(121 * 86400)}, "at most 120 days"),
        (plain(scheduling=LIMITED), {UNTIL: "tomorrow"}, "RFC 3339"),
        (plain(scheduling=LIMITED), {ACTION: None}, "termination action"),
        (plain(), {ACTION: "DELETE"}, "can only be set"),
        (
            plain("g2-standard-4", scheduling=TERMINATE),
            {"scheduling.onHostMaintenance": "MIGRATE"},
            "do not support live migration",
        ),
        (plain(), with_gpus(1), "not compatible"),
        (plain("n1-standard-4"), with_gpus(3), "must be one of"),
        (plain(scheduling={**SPOT, **TERMINATE}), {"scheduling.automaticRestart": True}, "AutomaticRestart"),
        (plain(), {"metadata": {"items": [{"key": "startup-script", "value": "x" * 300_000}]}}, "262144"),
        (plain(), {IMAGE: "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"}, "architecture"),
        (plain(), {IMAGE: "debian"}, "malformed"),
        (plain(), {"disks": []}, "boot disk"),
        (plain(), {"flavour": "large"}, "Unknown name \"flavour\" at 'resource': Cannot find field."),
        (plain(), {"scheduling.provisioningModel": "FOO"}, "resource.scheduling.provisioningModel': 'FOO'"),
        (plain(), {"scheduling.onHostMaintenance": "STOP"}, "resource.scheduling.onHostMaintenance': 'STOP'"),
        (plain(), {"networkInterfaces.0.stackType": "V4"}, "resource.networkInterfaces[0].stackType': 'V4'"),
        (plain(), {"networkInterfaces.0.nicType": "FAST"}, "resource.networkInterfaces[0].nicType': 'FAST'"),
        (plain(), {"networkInterfaces.0.accessConfigs.0.type": "NAT"}, "accessConfigs[0].type': 'NAT'"),
        (plain(), {"disks.0.boot": "yes"}, "resource.disks[0].boot"),
        (plain(), {"disks.0.initializeParams.diskSizeGb": "ten"}, "initializeParams.diskSizeGb"),
        (plain(), {"name": None}, "Required field 'resource.name' not specified"),
        (
            plain(),
            {"scheduling.onHostMaintenance": "TERMINATE"},
            "e2 instances do not support onHostMaintenance=TERMINATE unless they are preemptible.",
        ),
        *((on_spot(f"a3-highgpu-{n}g", "pd-ssd"), ON_DEMAND, "this provisioning model") for n in (1, 2, 4)),
        (on_spot("a3-ultragpu-8g", "hyperdisk-balanced"), ON_DEMAND, "this provisioning model"),
        (on_spot("a4-highgpu-8g", "hyperdisk-balanced"), ON_DEMAND, "this provisioning model"),
        (plain(), disk_type("pd-balanced", "us-central1-b"), "diskType"),
        (plain(), disk_type("hyperdisk-balanced"), "[e2-standard-2, hyperdisk-balanced] features are not compatible"),
        (plain("g2-standard-4", scheduling=TERMINATE), disk_type("pd-extreme"), "pd-extreme] features"),
        (plain("c3-standard-4"), disk_type("pd-standard"), "pd-standard] features are not compatible"),
        (plain("c3d-standard-4"), disk_type("pd-standard"), "pd-standard] features are not compatible"),
        (plain(), {"networkInterfaces": None}, "At least one network interface"),
    ],
)
def test_what_google_refuses_of_a_body_that_it_takes(
    gce: RunningComputeEngine, good: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    zone = str(good["machineType"]).split("/")[1]
    with pytest.raises(urllib.error.HTTPError) as caught:
        gce.ask(f"zones/{zone}/instances", changed(good, changes))
    error = json.load(caught.value)["error"]
    assert (error["code"], words in error["message"]) == (400, True), error
    assert gce.ask(f"zones/{zone}/instances", good)["kind"] == "compute#operation"


def test_a_parameter_that_the_method_does_not_have(gce: RunningComputeEngine) -> None:
    assert gce.ask("zones/us-central1-a/instances?maxResults=10&prettyPrint=true")["kind"] == "compute#instanceList"
    for query, words in (("limit=10", "Field 'limit' could not be found"), ("maxResults=ten", "maxResults")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            gce.ask(f"zones/us-central1-a/instances?{query}")
        assert words in json.load(caught.value)["error"]["message"]


def test_the_answers_are_as_google_describes_them(gce: RunningComputeEngine) -> None:
    made = gce.ask("zones/us-central1-a/instances", plain(scheduling=LIMITED))
    schema.check_answer("instances.insert", made)
    gce.until(lambda: gce.instances("RUNNING"))
    zone = "zones/us-central1-a"
    for action, path in {
        "projects.get": "",
        "regions.list": "regions",
        "zones.list": "zones",
        "instances.list": f"{zone}/instances",
        "instances.aggregatedList": "aggregated/instances",
        "disks.list": f"{zone}/disks",
        "machineTypes.list": f"{zone}/machineTypes",
        "acceleratorTypes.list": f"{zone}/acceleratorTypes",
        "firewalls.list": "global/firewalls",
        "networks.list": "global/networks",
        "zoneOperations.list": f"{zone}/operations",
        "operations.aggregatedList": "aggregated/operations",
        "instances.getSerialPortOutput": f"{zone}/instances/vm/serialPort",
    }.items():
        schema.check_answer(action, gce.ask(path))
    images = gce.ask("global/images", project="debian-cloud")
    schema.check_answer("images.list", images)


def test_an_emulator_ends_with_its_starter() -> None:
    script = (
        "from tests.emulators.compute_engine.client import RunningComputeEngine; import os\n"
        "print(RunningComputeEngine.launch()._process.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    until(lambda: process(int(done.stdout)) is None)
