"""Several machines on Google Cloud that work on one job: what they share, and that it goes when they are gone."""

from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import AuthError, InvalidRequest, QuotaExceeded, RefusedHere, Unreachable
from costgpu.models.instance import CreateRequest, Instance, NodeGroup, OrphanedResource
from costgpu.models.offer import Offer
from costgpu.providers.base import TAG_GROUP, TAG_RUN
from costgpu.providers.gcp.launch import facts_from
from costgpu.providers.gcp.provider import GcpProvider
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.create_requests import GCP

GROUP, REGION, ZONE = "r7k2m9x4q1ab", "us-central1", "us-central1-a"
RUNS = (GROUP, "k3v9x2m7q1ab")
NAME = f"costgpu-g-{GROUP}"
SHARED = [f"firewalls/{NAME}", f"resourcePolicies/{NAME}"]


def node(number: int, what: Offer | None = None, *, nodes: int = 2, attempt: int = 1, **group: Any) -> CreateRequest:
    """The create call of one of the machines, in one zone as all of them."""
    shared = NodeGroup(**{"group_id": GROUP, "nodes": nodes, "node": number, "placement": True, **group})
    return GCP.request(what, run_id=RUNS[number], attempt=attempt, zone=ZONE, group=shared)


def both(gcp: GcpProvider) -> list[Instance]:
    return [gcp.create(node(number)) for number in (0, 1)]


def ended(gce: RunningComputeEngine, gcp: GcpProvider, instances: list[Instance]) -> None:
    names = {each.ref.instance_id.partition("/")[2] for each in instances}
    for each in instances:
        gcp.terminate(each.ref)
    gce.until(lambda: not names & {row["id"] for row in gce.alive()})


def test_the_machines_are_in_one_network_and_close_together(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = both(gcp)
    assert [each.group_id for each in made] == [GROUP, GROUP]
    for each, run in zip(made, RUNS, strict=True):
        [row] = [row["row"] for row in gce.instances() if row["tags"][TAG_RUN] == run]
        assert row["tags"]["items"] == [f"costgpu-{run}", NAME]
        assert [link.rpartition("/")[2] for link in row["resourcePolicies"]] == [NAME]
        assert row["scheduling"]["onHostMaintenance"] == "TERMINATE"
        [interface] = row["networkInterfaces"]
        assert interface["nicType"] == "GVNIC"
        described = gcp.describe(each.ref)
        assert described is not None
        assert described.private_address == interface["networkIP"]
    rules = {row["name"]: row for row in gce.ask("global/firewalls")["items"]}
    within, keeps_out = rules[NAME], rules[f"costgpu-{GROUP}-others"]
    assert within["sourceTags"] == within["targetTags"] == [NAME]
    assert "sourceRanges" not in within
    assert [entry["IPProtocol"] for entry in within["allowed"]] == ["tcp", "udp", "icmp"]
    assert within["priority"] < keeps_out["priority"]
    policy = gce.ask(f"regions/{REGION}/resourcePolicies/{NAME}")
    assert policy["groupPlacementPolicy"] == {"collocation": "COLLOCATED"}
    for thing in (within, policy):
        facts = facts_from(thing["description"])
        assert (facts[TAG_RUN], facts[TAG_GROUP]) == (GROUP, GROUP)


def test_a_machine_that_works_alone_is_made_as_before(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    gcp.create(GCP.request(GCP.cpu_offer()))
    [row] = [row["row"] for row in gce.instances()]
    assert row["networkInterfaces"][0]["nicType"] == "VIRTIO_NET"
    assert (row["resourcePolicies"], row["scheduling"]["onHostMaintenance"]) == ([], "MIGRATE")
    assert not [name for name in gce.leftovers() if "costgpu-g-" in name]


@pytest.mark.parametrize("action", ["firewalls.insert", "resourcePolicies.insert"])
def test_a_reply_that_is_lost_on_the_way_is_no_second_one(gce: RunningComputeEngine, action: str) -> None:
    gce.fault({"action": action, "when": "after", "drop": True, "times": 1})
    with pytest.raises(Unreachable):
        GcpProvider(clock=SystemClock()).create(node(0))
    first = GcpProvider(clock=SystemClock()).create(node(0))
    assert first.ref == GcpProvider(clock=SystemClock()).create(node(0)).ref
    assert len(gce.instances()) == 1


def test_what_is_not_ours_is_not_used(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    foreign = {"name": NAME, "groupPlacementPolicy": {"collocation": "COLLOCATED"}}
    gce.ask(f"regions/{REGION}/resourcePolicies", foreign)
    gce.until(lambda: f"resourcePolicies/{NAME}" in gce.leftovers())
    with pytest.raises(InvalidRequest, match="not costgpu's"):
        gcp.create(node(0))
    assert not gce.instances()
    assert gcp.clean_up(GROUP, REGION) == ()
    place = f"{REGION}/{NAME}"
    as_if = OrphanedResource(provider="gcp", region=REGION, kind="placement policy", resource_id=place, run_id=GROUP)
    with pytest.raises(InvalidRequest, match="does not carry the tag"):
        gcp.remove(as_if)
    assert gce.leftovers() == [f"resourcePolicies/{NAME}"]


def test_what_a_type_does_not_have_is_said(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    with pytest.raises(RefusedHere, match="'t2d-standard-2' is not supported by placement policy"):
        gcp.create(node(0, GCP.offer("t2d-standard-2", vcpus=2, accelerator=None)))
    assert not gce.instances()
    assert gcp.clean_up(GROUP, REGION) == ()
    assert gce.leftovers() == []
    gcp.create(node(0, GCP.cpu_offer(), placement=False))
    assert f"resourcePolicies/{NAME}" not in gce.leftovers()


def test_the_quota_must_hold_those_that_are_still_to_come(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    gce.quota(REGION, "PREEMPTIBLE_NVIDIA_L4_GPUS", 0)
    gce.quota(REGION, "NVIDIA_L4_GPUS", 2)
    gcp.check(node(0))
    with pytest.raises(QuotaExceeded, match=r"3 g2-standard-4 need 3\. At most 2 of them fit") as caught:
        gcp.check(node(0, nodes=3))
    assert "NVIDIA_L4_GPUS" in caught.value.message
    gcp.create(node(0))
    gcp.check(node(1))
    with pytest.raises(QuotaExceeded, match=r"of which 1 are used; 2 .* At most 1 of them"):
        gcp.check(node(1, nodes=3))


@pytest.mark.parametrize("verb", ["create", "use", "delete"])
def test_a_permission_that_is_missing_is_named(gce: RunningComputeEngine, gcp: GcpProvider, verb: str) -> None:
    gce.forbid(f"compute.resourcePolicies.{verb}")

    def journey() -> None:
        ended(gce, gcp, both(gcp))
        gcp.clean_up(GROUP, REGION)

    with pytest.raises(AuthError, match=rf"compute\.resourcePolicies\.{verb} is not allowed"):
        journey()


def test_a_role_of_earlier_versions_is_enough_for_single_machines(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    gce.forbid(*(f"compute.resourcePolicies.{verb}" for verb in ("create", "delete", "get", "list", "use")))
    wanted = GCP.request()
    ended(gce, gcp, [gcp.create(wanted)])
    assert gcp.clean_up(wanted.run_id, REGION) == ()
    owned = gcp.list_owned()
    assert [place for place, _ in owned.unreachable] == ["every region (placement policy)"]
    assert gce.leftovers() == []
