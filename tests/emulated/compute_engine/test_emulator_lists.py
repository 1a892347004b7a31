"""What the emulated Compute Engine lists and keeps besides instances, through Google's own client."""

import pytest

from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine
from tests.emulators.compute_engine.google_client import ZONE, Google, done, refused


@pytest.fixture
def google(gce: RunningComputeEngine) -> Google:
    return Google(gce)


# -- lists ---------------------------------------------------------------------------------------------------------------


def test_filters(google: Google) -> None:
    google.made(name="one", labels={"costgpu-run": "a", "team": "x"})
    google.made(name="two", labels={"costgpu-run": "b"}, zone="europe-west4-b")
    google.made(name="three", labels={})
    for expression, names in {
        "": ["one", "three", "two"],
        "labels.costgpu-run:*": ["one", "two"],
        "labels.costgpu-run=a": ["one"],
        'labels.costgpu-run = "b"': ["two"],
        "name = three": ["three"],
        "name eq t.*": ["three", "two"],
        "name ne t.*": ["one"],
        "(labels.costgpu-run:*) AND (status != RUNNING)": [],
        "labels.costgpu-run:* AND NOT labels.team=x": ["two"],
        "(name=one) OR (name=three)": ["one", "three"],
        "(name=one) (status=RUNNING)": ["one"],
        "scheduling.automaticRestart = false": ["one", "three", "two"],
    }.items():
        assert google.names(expression) == names, expression
    for wrong in ("labels.x=", "(a=b", "=", "a b c"):
        assert "filter" in refused(400, google.names, wrong).message


def test_pages(gce: RunningComputeEngine, google: Google) -> None:
    for number in range(5):
        google.insert(name=f"vm{number}", zone=ZONE if number % 2 else "us-east1-b")
    gce.until(lambda: len(gce.instances("RUNNING")) == 5)
    request = {"project": PROJECT, "max_results": 2}
    assert len(google.names()) == 5
    pages = list(google.instances.aggregated_list(request=request).pages)
    assert [sum(len(scoped.instances) for scoped in each.items.values()) for each in pages] == [2, 2, 1]
    assert (
        pages[0].items[f"zones/{ZONE}"].warning.code == "NO_RESULTS_ON_PAGE"
        or pages[0].items[f"zones/{ZONE}"].instances
    )
    gce.page(1)
    assert len(google.names()) == 5
    assert len([row for row in gce.requests() if row["action"] == "instances.aggregatedList"]) > 5
    here = list(google.instances.list(request={"project": PROJECT, "zone": ZONE, "max_results": 1}))
    assert [each.name for each in here] == ["vm1", "vm3"]
    refused(400, lambda: list(google.instances.list(request={"project": PROJECT, "zone": ZONE, "max_results": 501})))


def test_a_zone_that_does_not_answer(gce: RunningComputeEngine, google: Google) -> None:
    google.made()
    google.made(name="two", zone="us-east1-b")
    gce.unreachable(ZONE)
    answer = google.instances.aggregated_list(project=PROJECT)
    scoped = dict(answer)
    assert [each.name for each in scoped["zones/us-east1-b"].instances] == ["two"]
    assert scoped[f"zones/{ZONE}"].warning.code == "UNREACHABLE"
    assert list(next(iter(google.instances.aggregated_list(project=PROJECT).pages)).unreachables) == [f"zones/{ZONE}"]
    gce.unreachable(ZONE, partial=False)
    refused(503, google.instances.aggregated_list, project=PROJECT, retry=None)
    gce.unreachable()
    assert google.names() == ["two", "vm"]


def test_what_there_is(google: Google) -> None:
    zones = [zone.name for zone in google.zones.list(project=PROJECT)]
    assert "us-central1-f" in zones
    assert "us-central1-d" not in zones
    assert google.zones.get(project=PROJECT, zone=ZONE).region.endswith("regions/us-central1")
    assert google.regions.get(project=PROJECT, region="us-east1").zones[0].endswith("us-east1-b")
    kind = google.machine_types.get(project=PROJECT, zone=ZONE, machine_type="a2-highgpu-1g")
    assert (kind.guest_cpus, kind.memory_mb, kind.accelerators[0].guest_accelerator_type) == (
        12,
        87040,
        "nvidia-tesla-a100",
    )
    refused(404, google.machine_types.get, project=PROJECT, zone="us-south1-a", machine_type="a2-highgpu-1g")
    found = google.machine_types.aggregated_list(request={"project": PROJECT, "filter": 'name = "g2-standard-4"'})
    assert "us-central1-f" not in {each.zone for _, scoped in found for each in scoped.machine_types}
    cards = google.accelerator_types.list(project=PROJECT, zone="us-central1-c")
    assert {"nvidia-l4", "nvidia-tesla-p100"} <= {each.name for each in cards}
    image = google.images.get_from_family(project="ubuntu-os-cloud", family="ubuntu-2404-lts-amd64")
    assert (image.disk_size_gb, image.architecture) == (10, "X86_64")
    assert google.images.get(project="ubuntu-os-cloud", image=image.name).family == image.family
    assert google.images.get_from_family(
        project="deeplearning-platform-release", family="common-cu129-ubuntu-2204-nvidia-580"
    ).disk_size_gb
    refused(404, google.images.get_from_family, project="ubuntu-os-cloud", family="ubuntu-1004-lts")
    assert [each.name for each in google.networks.list(project=PROJECT)] == ["default"]


# -- the rest of a life --------------------------------------------------------------------------------------------------


def test_the_serial_port_is_read_in_pieces(google: Google) -> None:
    google.made()
    where = {"project": PROJECT, "zone": ZONE, "instance": "vm"}
    first = google.instances.get_serial_port_output(**where)
    assert first.contents.startswith("[    0.000000] Linux")
    rest = google.instances.get_serial_port_output(request={**where, "start": first.next_})
    assert (rest.contents, rest.start) == ("", first.next_)


def test_firewalls(gce: RunningComputeEngine, google: Google) -> None:
    assert [each.name for each in google.firewalls.list(project=PROJECT)] == [
        "default-allow-icmp",
        "default-allow-internal",
        "default-allow-rdp",
        "default-allow-ssh",
    ]
    rule = {
        "name": "ours",
        "network": "global/networks/default",
        "source_ranges": ["203.0.113.7/32"],
        "priority": 900,
        "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}],
        "target_tags": ["t"],
        "description": "costgpu-run=a",
    }
    done(google.wait(google.firewalls.insert_unary(project=PROJECT, firewall_resource=rule)))
    refused(409, google.firewalls.insert_unary, project=PROJECT, firewall_resource=rule)
    refused(400, google.firewalls.insert_unary, project=PROJECT, firewall_resource={**rule, "name": "B"})
    refused(
        400,
        google.firewalls.insert_unary,
        project=PROJECT,
        firewall_resource={**rule, "name": "b", "denied": [{"I_p_protocol": "tcp"}]},
    )
    refused(
        400,
        google.firewalls.insert_unary,
        project=PROJECT,
        firewall_resource={**rule, "name": "b", "source_ranges": ["laptop"]},
    )
    found = list(google.firewalls.list(request={"project": PROJECT, "filter": "name eq ours.*"}))
    assert [(each.priority, list(each.target_tags), each.description) for each in found] == [
        (900, ["t"], "costgpu-run=a")
    ]
    new = {"source_ranges": ["203.0.113.8/32"]}
    done(google.wait(google.firewalls.patch_unary(project=PROJECT, firewall="ours", firewall_resource=new)))
    assert list(google.firewalls.get(project=PROJECT, firewall="ours").source_ranges) == ["203.0.113.8/32"]
    assert gce.leftovers() == ["firewalls/ours"]
    done(google.wait(google.firewalls.delete_unary(project=PROJECT, firewall="ours")))
    refused(404, google.firewalls.delete_unary, project=PROJECT, firewall="ours")


def test_addresses_and_snapshots_can_be_left_behind(gce: RunningComputeEngine, google: Google) -> None:
    labels = {"labels": {"costgpu-run": "a"}}
    google.addresses.insert_unary(project=PROJECT, region="us-east1", address_resource={"name": "ip", **labels})
    google.snapshots.insert_unary(project=PROJECT, snapshot_resource={"name": "snap", **labels})
    gce.until(lambda: gce.leftovers() == ["addresses/ip", "snapshots/snap"])
    request = {"project": PROJECT, "filter": "labels.costgpu-run:*"}
    found = [each for _, scoped in google.addresses.aggregated_list(request=request) for each in scoped.addresses]
    assert [(each.name, each.status, each.region.rpartition("/")[2]) for each in found] == [
        ("ip", "RESERVED", "us-east1")
    ]
    assert [each.name for each in google.snapshots.list(request=request)] == ["snap"]
    operation = google.addresses.delete_unary(project=PROJECT, region="us-east1", address="ip")
    done(google.region_operations.wait(project=PROJECT, region="us-east1", operation=operation.name))
    done(google.wait(google.snapshots.delete_unary(project=PROJECT, snapshot="snap")))
    assert gce.leftovers() == []
