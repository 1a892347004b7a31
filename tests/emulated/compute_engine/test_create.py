"""Creating on Google Cloud: what is in the call, what Google's refusals become, and that there is never a second machine."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import (
    AuthError,
    InvalidRequest,
    NoCapacity,
    ProviderError,
    QuotaExceeded,
    RefusedHere,
    Throttled,
    Unreachable,
)
from costgpu.providers.base import TAG_LEASE, TAG_NAME, TAG_OWNER, TAG_RUN
from costgpu.providers.gcp import network
from costgpu.providers.gcp.provider import GcpProvider
from tests.emulators.compute_engine.api import _VERBS
from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine
from tests.emulators.create_requests import GCP, SLICE, T4, V100

cpu_offer, offer, request = GCP.cpu_offer, GCP.offer, GCP.request


def rules(gce: RunningComputeEngine, run_id: str) -> list[dict[str, Any]]:
    """The firewall rules that a run's machine falls under, the decisive one first."""
    rows = gce.ask("global/firewalls")["items"]
    mine = [row for row in rows if f"costgpu-{run_id}" in row.get("targetTags", ())]
    return sorted(mine, key=lambda row: int(row["priority"]))


def test_everything_that_ends_the_machine_is_in_the_one_call(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    wanted = request(tags={"team": "vision", "Cost Center": "Ä 12", TAG_RUN: "forged"})
    instance = gcp.create(wanted)
    [made] = gce.instances()
    row = made["row"]
    assert instance.ref.instance_id == f"us-central1-a/costgpu-{wanted.token}"
    limit = row["scheduling"]
    assert datetime.fromisoformat(limit["terminationTime"]) == wanted.lease_until
    assert limit["instanceTerminationAction"] == "DELETE"
    assert (limit["automaticRestart"], limit["onHostMaintenance"], limit["provisioningModel"]) == (
        False,
        "TERMINATE",
        "STANDARD",
    )
    lease = str(int(wanted.lease_until.timestamp()))
    labels = {TAG_RUN: wanted.run_id, TAG_NAME: "train", TAG_OWNER: "ann-laptop", TAG_LEASE: lease, "team": "vision"}
    assert row["labels"] == labels
    [disk] = row["disks"]
    assert (disk["boot"], disk["autoDelete"], disk["diskSizeGb"]) == (True, True, "100")
    [volume] = gce.ask("zones/us-central1-a/disks")["items"]
    assert volume["labels"] == labels
    assert volume["type"].endswith("/pd-balanced")
    assert not row.get("serviceAccounts")
    items = {item["key"]: item["value"] for item in row["metadata"]["items"]}
    assert (items["block-project-ssh-keys"], items["enable-oslogin"]) == ("TRUE", "FALSE")
    assert items["startup-script"] == wanted.boot_script
    assert items["user-data"] == f"#cloud-boothook\n{wanted.boot_script}"
    exact = {**wanted.tags, TAG_RUN: wanted.run_id, TAG_NAME: "train", TAG_OWNER: "ann@laptop", TAG_LEASE: lease}
    assert json.loads(items["costgpu-tags"]) == exact
    assert dict(instance.tags) == exact
    [insert] = [each for each in gce.requests() if each["action"] == "instances.insert"]
    assert insert["params"]["requestId"]


def test_no_machine_is_made_before_its_rules_are_in_force(
    gce: RunningComputeEngine, gcp: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the default network lets everybody reach it."""
    monkeypatch.setattr(network, "RULE_SECONDS", 0.1)
    gce.settings(pending_seconds=3600)
    for _ in range(2):
        with pytest.raises(Throttled, match="not in force"):
            gcp.create(request(cpu_offer()))
    assert not gce.instances()


def test_nobody_else_gets_in(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    wanted = request(cpu_offer())
    instance = gcp.create(wanted)
    allow, deny = rules(gce, wanted.run_id)
    assert allow["priority"] < deny["priority"] < 1000
    assert (allow["sourceRanges"], allow["allowed"]) == (["203.0.113.7/32"], [{"IPProtocol": "tcp", "ports": ["22"]}])
    assert (deny["sourceRanges"], deny["denied"]) == (["0.0.0.0/0"], [{"IPProtocol": "all"}])
    assert gce.instances()[0]["row"]["tags"]["items"] == [f"costgpu-{wanted.run_id}"]
    facts = dict(word.split("=") for word in allow["description"].split())
    assert facts[TAG_RUN] == wanted.run_id
    assert facts[TAG_LEASE] == str(int(wanted.lease_until.timestamp()))
    [left, _] = sorted(gcp.list_owned().leftovers, key=lambda each: each.resource_id)
    assert (left.kind, left.region, left.run_id) == ("firewall rule", "us-central1", wanted.run_id)
    assert left.lease_until == wanted.lease_until
    gcp.open_access(instance, "198.51.100.0/24")
    assert rules(gce, wanted.run_id)[0]["sourceRanges"] == ["198.51.100.0/24"]
    with pytest.raises(InvalidRequest, match="IPv6"):
        gcp.check(request(cpu_offer(), allow_from="2001:db8::/64"))


@pytest.mark.parametrize(
    ("what", "zone", "family"),
    [
        (offer(), "us-central1-a", "common-cu129-ubuntu-2204-nvidia-580"),
        (offer("n1-standard-8+T4:2", vcpus=8, accelerator=T4), "us-central1-a", "common-cu129-ubuntu-2204-nvidia-580"),
        (cpu_offer(), "us-central1-a", "ubuntu-2404-lts-amd64"),
        (offer("c4a-standard-4", accelerator=None, architecture="arm64"), "us-central1-a", "ubuntu-2404-lts-arm64"),
    ],
)
def test_the_image_has_what_the_machine_needs(
    gce: RunningComputeEngine, gcp: GcpProvider, what: Any, zone: str, family: str
) -> None:
    instance = gcp.create(request(what, zone=zone))
    assert (instance.instance_type, instance.zone) == (what.instance_type, zone)
    [disk] = gce.ask(f"zones/{zone}/disks")["items"]
    image = disk["sourceImage"].partition("/projects/")[2]
    project, _, name = image.partition("/global/images/")
    assert gce.ask(f"global/images/{name}", project=project)["family"] == family
    attached = gce.instances()[0]["row"].get("guestAccelerators", [])
    if "+" in what.instance_type:
        assert attached[0]["acceleratorType"].endswith("/nvidia-tesla-t4")
        assert attached[0]["acceleratorCount"] == 2


def test_an_image_of_ones_own(gce: RunningComputeEngine) -> None:
    mine = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
    provider = GcpProvider(clock=SystemClock(), image=mine)
    provider.create(request(offer()))
    with pytest.raises(InvalidRequest, match="arm64"):
        provider.check(request(offer("c4a-standard-4", accelerator=None, architecture="arm64")))
    nowhere = GcpProvider(clock=SystemClock(), image="projects/ubuntu-os-cloud/global/images/no-such")
    with pytest.raises(InvalidRequest, match="no image"):
        nowhere.check(request(cpu_offer()))


def test_spot(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    instance = gcp.create(request(cpu_offer(spot=True)))
    assert instance.spot
    limit = gce.instances()[0]["row"]["scheduling"]
    assert (limit["provisioningModel"], limit["onHostMaintenance"]) == ("SPOT", "TERMINATE")
    assert limit["instanceTerminationAction"] == "DELETE"


def test_no_capacity_is_told_seconds_later_and_leaves_nothing(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    zones = gcp.zones(offer())
    assert zones == ("us-central1-a", "us-central1-b", "us-central1-c")
    gce.shortage("g2-standard-4", "us-central1-a")
    gce.settings(pending_seconds=0.5)
    first = request(offer(), zone=zones[0])
    with pytest.raises(NoCapacity, match="does not have enough resources") as caught:
        gcp.create(first)
    assert "us-central1-a" in caught.value.message
    assert gcp.find(first) is None
    made = gcp.create(request(offer(), run_id=first.run_id, attempt=2, zone=zones[1]))
    assert made.zone == "us-central1-b"
    assert [row["zone"] for row in gce.alive()] == ["us-central1-b"]


def test_an_operation_that_was_throttled_is_over(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    """The same call again gets the same operation: another place is asked."""
    gce.fail("g2-standard-4", "RESOURCE_OPERATION_RATE_EXCEEDED", "Too many operations.", 429)
    with pytest.raises(RefusedHere, match="Too many operations"):
        gcp.create(request(offer()))
    assert gce.alive() == []


@pytest.mark.parametrize("early", [False, True])
def test_over_the_quota(gce: RunningComputeEngine, gcp: GcpProvider, early: bool) -> None:
    gce.early_quotas(on=early)
    gce.quota("us-central1", "NVIDIA_L4_GPUS", 0)
    gce.quota("us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS", 0)
    wanted = request(offer())
    with pytest.raises(QuotaExceeded, match="NVIDIA_L4_GPUS") as caught:
        gcp.create(wanted)
    assert f"quotas?project={PROJECT}" in caught.value.hint
    assert not gce.alive()
    with pytest.raises(QuotaExceeded, match="NVIDIA_L4_GPUS") as before:
        gcp.check(wanted)
    assert "us-central1" in before.value.message
    assert "g2-standard-4 needs 1" in before.value.message


def test_the_quota_of_all_regions(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    gce.quota("global", "GPUS_ALL_REGIONS", 0)
    with pytest.raises(QuotaExceeded, match="GPUS_ALL_REGIONS") as caught:
        gcp.check(request(offer()))
    assert "all regions" in caught.value.message
    gcp.check(request(cpu_offer()))


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("api-disabled", AuthError, "gcloud services enable compute.googleapis.com"),
        ("billing-disabled", AuthError, "https://console.cloud.google.com/billing"),
        ("unauthenticated", AuthError, "gcloud auth application-default login"),
        ("rate-limited", Throttled, ""),
    ],
)
@pytest.mark.parametrize("action", ["regions.list", "instances.insert"])
def test_what_a_person_can_mend(
    gce: RunningComputeEngine, gcp: GcpProvider, action: str, code: str, kind: type[ProviderError], says: str
) -> None:
    gce.fault({"action": action, "code": code, "times": -1})
    with pytest.raises(kind) as caught:
        gcp.create(request(cpu_offer()))
    assert says in caught.value.hint
    gce.fault()
    assert not gce.alive()


def test_a_missing_permission_has_a_name(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    gce.forbid("compute.instances.create")
    with pytest.raises(AuthError, match=r"compute\.instances\.create is not allowed") as caught:
        gcp.create(request(cpu_offer()))
    assert "role.yaml" in caught.value.hint


def test_the_role_that_is_shipped_allows_all_of_it(gce: RunningComputeEngine, gcp: GcpProvider, root: Path) -> None:
    lines = (root / "providers" / "gcp" / "role.yaml").read_text().splitlines()
    allowed = {line.removeprefix("- ") for line in lines if line.startswith("- ")}
    wanted = request(offer(spot=True))
    gcp.check(wanted)
    instance = gcp.create(wanted)
    gcp.describe(instance.ref)
    gcp.console(instance.ref)
    gcp.open_access(instance, "198.51.100.9/32")
    for leftover in gcp.list_owned().leftovers:
        assert leftover.run_id == wanted.run_id
    gcp.terminate(instance.ref)
    gce.until(lambda: not gce.alive())
    assert not gcp.clean_up(wanted.run_id, "us-central1")
    assert gcp.describe(instance.ref) is not None
    asked = set()
    for call in set(gce.calls()) - {"projects.getEffectiveOrgPolicy"}:  # optional, and of Resource Manager
        collection, _, verb = call.partition(".")
        asked.add(f"compute.{collection}.{_VERBS.get(verb, verb)}")
    assert asked - {"compute.images.create"} <= allowed
    assert len(asked) > 15


def test_an_operation_that_cannot_be_followed(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    wanted = request(cpu_offer())
    gce.settings(insert_seconds=1.0)
    gce.fault({"action": "zoneOperations.get", "code": "backendError", "times": 2})
    assert gcp.create(wanted).run_id == wanted.run_id
    assert len(gce.instances()) == 1


@pytest.mark.parametrize(
    ("action", "skip", "code", "status"),
    [
        ("zoneOperations.get", 0, "forbidden", 403),
        ("zoneOperations.get", 0, "notFound", 404),
        ("zoneOperations.get", 0, "rate-limited", None),
        ("zoneOperations.get", 0, "unauthenticated", None),
        ("instances.get", 1, "forbidden", 403),
    ],
)
def test_after_the_call_is_accepted_no_error_means_that_nothing_was_made(
    gce: RunningComputeEngine, gcp: GcpProvider, action: str, skip: int, code: str, status: int | None
) -> None:
    wanted = request(cpu_offer())
    gce.settings(insert_seconds=1.0)
    gce.fault({"action": action, "skip": skip, "code": code, "status": status, "times": -1})
    with pytest.raises(Unreachable, match="is not known"):
        gcp.create(wanted)
    gce.fault()
    assert gcp.create(wanted).run_id == wanted.run_id
    assert len(gce.instances()) == 1


def test_a_later_attempt_brings_its_rules_up_to_date(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    first = request(cpu_offer())
    gcp.create(first)
    later = first.lease_until + timedelta(hours=3)
    gcp.create(request(cpu_offer(), run_id=first.run_id, attempt=2, lease_until=later))
    found = rules(gce, first.run_id)
    assert len(found) == 2
    for rule in found:
        assert f"{TAG_LEASE}={int(later.timestamp())} " in f"{rule['description']} "


def test_what_google_does_not_have(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    with pytest.raises(InvalidRequest, match="no region 'us-central'") as caught:
        gcp.zones(cpu_offer(region="us-central"))
    assert "us-central1" in caught.value.hint
    with pytest.raises(InvalidRequest, match="z9-standard-2"):
        gcp.zones(offer("z9-standard-2", accelerator=None))
    with pytest.raises(InvalidRequest, match="not in us-central1"):
        gcp.create(request(cpu_offer(), zone="us-east1-b"))
    with pytest.raises(InvalidRequest, match="driver"):
        gcp.zones(offer("g4-standard-24", accelerator=SLICE))
    lab = GcpProvider(clock=SystemClock(), network="lab")
    with pytest.raises(InvalidRequest, match="no network 'lab'"):
        lab.check(request(cpu_offer()))
    with pytest.raises(InvalidRequest, match="lab") as missing:
        lab.create(request(cpu_offer()))
    assert "gcp_network" in missing.value.hint
    assert not gce.instances()


def test_a_disk_too_small_for_its_image(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    with pytest.raises(InvalidRequest, match=r"needs \d+ GiB") as caught:
        gcp.check(request(offer(), disk_gib=10))
    least = int(caught.value.message.rsplit("needs ", 1)[1].split()[0])
    gcp.check(request(offer(), disk_gib=least))


def test_older_accelerators_keep_a_driver_that_knows_them(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    instance = gcp.create(request(offer("n1-standard-8+V100:1", vcpus=8, accelerator=V100)))
    assert instance.instance_type == "n1-standard-8+V100:1"
