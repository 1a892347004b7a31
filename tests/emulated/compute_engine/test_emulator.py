"""The emulated Compute Engine itself, through Google's own client: that it refuses, remembers and loses as Google does."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine
from tests.emulators.compute_engine.google_client import ZONE, Google, done, is_done, reason, refused, soon


@pytest.fixture
def google(gce: RunningComputeEngine) -> Google:
    return Google(gce)


# -- a life --------------------------------------------------------------------------------------------------------------


def test_an_operation_goes_its_way_and_the_instance_with_it(gce: RunningComputeEngine, google: Google) -> None:
    gce.settings(pending_seconds=600.0, insert_seconds=1200.0)
    operation = google.insert()
    assert operation.status.name == "PENDING"
    refused(404, google.get)
    gce.settings(pending_seconds=0.02)
    gce.until(lambda: google.names() == ["vm"])
    assert google.get().status == "PROVISIONING"
    gce.settings(insert_seconds=30.0)  # half of it as PROVISIONING, half of it as STAGING
    gce.until(lambda: google.get().status == "STAGING", 15 + 10)
    assert google.zone_operations.get(project=PROJECT, zone=ZONE, operation=operation.name).status.name == "RUNNING"
    gce.settings(insert_seconds=0.1)
    gce.until(lambda: is_done(google.zone_operations.get(project=PROJECT, zone=ZONE, operation=operation.name)))
    vm = google.get()
    assert (vm.status, vm.zone.rpartition("/")[2], vm.labels) == ("RUNNING", ZONE, {"costgpu-run": "vm"})
    assert vm.network_interfaces[0].access_configs[0].nat_i_p.startswith("34.")
    assert vm.disks[0].auto_delete
    assert vm.resource_status.scheduling.termination_timestamp
    assert gce.leftovers() == ["disks/vm"]
    done(google.delete())
    refused(404, google.get)
    assert gce.leftovers() == []
    assert reason(refused(404, google.delete)) == "notFound"


def test_a_disk_that_is_not_deleted_with_its_instance_is_left(gce: RunningComputeEngine, google: Google) -> None:
    google.made(auto_delete=False)
    error = refused(400, google.disks.delete_unary, project=PROJECT, zone=ZONE, disk="vm")
    assert reason(error) == "resourceInUseByAnotherResource"
    done(google.delete())
    assert gce.leftovers() == ["disks/vm"]
    found = [disk for _, scoped in google.disks.aggregated_list(project=PROJECT) for disk in scoped.disks]
    assert [(disk.name, disk.labels, list(disk.users)) for disk in found] == [("vm", {"costgpu-run": "vm"}, [])]
    done(google.wait(google.disks.delete_unary(project=PROJECT, zone=ZONE, disk="vm")))
    assert gce.leftovers() == []


def test_a_spot_instance_is_preempted(gce: RunningComputeEngine, google: Google) -> None:
    stop = {"provisioning_model": "SPOT", "instance_termination_action": "STOP", "on_host_maintenance": "TERMINATE"}
    google.made(spot=True)
    google.made(name="stays", scheduling={**stop, "automatic_restart": False})
    gce.preempt("vm")
    gce.preempt("stays")
    gce.until(lambda: google.names("status = TERMINATED") == ["stays"] and google.names() == ["stays"])
    gce.until(lambda: gce.leftovers() == ["disks/stays"])
    wanted = 'operationType="compute.instances.preempted"'
    rows = list(google.zone_operations.list(request={"project": PROJECT, "zone": ZONE, "filter": wanted}))
    assert {row.target_link.rpartition("/")[2] for row in rows} == {"vm", "stays"}
    assert {row.user for row in rows} == {"system"}
    google.made(name="plain")
    with pytest.raises(AssertionError, match="no running spot"):
        gce.preempt("plain")
    google.made(
        name="told", scheduling={**stop, "automatic_restart": False, "preemption_notice_duration": {"seconds": 1}}
    )
    told_at = datetime.now(UTC)
    gce.preempt("told")
    gce.until(lambda: google.get("told").status == "TERMINATED")
    rows = list(google.zone_operations.list(request={"project": PROJECT, "zone": ZONE, "filter": wanted}))
    (taken,) = (row for row in rows if row.target_link.endswith("/told"))
    assert datetime.fromisoformat(taken.insert_time) - told_at > timedelta(seconds=0.99)  # the stamp has milliseconds


def test_stop_and_start(google: Google) -> None:
    google.made()
    done(google.wait(google.instances.stop_unary(project=PROJECT, zone=ZONE, instance="vm")))
    assert google.get().status == "TERMINATED"
    done(google.wait(google.instances.start_unary(project=PROJECT, zone=ZONE, instance="vm")))
    assert google.get().status == "RUNNING"


def test_deleted_while_it_is_made(gce: RunningComputeEngine, google: Google) -> None:
    gce.settings(insert_seconds=600.0)
    operation = google.insert()
    gce.until(lambda: google.names() == ["vm"])
    done(google.delete())
    gce.settings(insert_seconds=0.1)
    assert is_done(google.wait(operation))
    assert (google.names(), gce.leftovers()) == ([], [])
    assert gce.instances("RUNNING") == []


# -- once, and not twice -------------------------------------------------------------------------------------------------


def test_a_request_id_makes_one_instance(gce: RunningComputeEngine, google: Google) -> None:
    token = str(uuid.uuid4())
    until: dict[str, Any] = {"scheduling": {"termination_time": soon(900), "instance_termination_action": "DELETE"}}
    first = google.insert(request_id=token, **until)
    again = google.insert(request_id=token, **until)
    assert (first.name, first.client_operation_id) == (again.name, token)
    error = refused(400, google.insert, request_id=token, name="other", **until)
    assert "already used" in error.message
    refused(400, google.insert, request_id="none", **until)
    refused(400, google.insert, request_id=str(uuid.UUID(int=0)), name="other", **until)
    done(google.wait(first))
    assert reason(refused(409, google.insert, request_id=str(uuid.uuid4()))) == "alreadyExists"
    assert google.insert(request_id=token, **until).name == first.name, "even when it is over"
    assert len(gce.instances()) == 1
    done(google.delete())
    assert google.wait(google.insert(request_id=token, **until)).name == first.name
    assert google.names() == []


def test_a_refused_request_does_not_use_its_id_up(google: Google) -> None:
    token = str(uuid.uuid4())
    refused(400, google.insert, request_id=token, name="Wrong")
    done(google.wait(google.insert(request_id=token)))


def test_two_inserts_of_one_name_at_once(gce: RunningComputeEngine, google: Google) -> None:
    gce.settings(pending_seconds=600.0)
    both = [google.insert(), google.insert()]
    gce.settings(pending_seconds=0.02)
    ended = [google.wait(each) for each in both]
    codes = sorted(each.error.errors[0].code if each.error.errors else "" for each in ended)
    assert codes == ["", "RESOURCE_ALREADY_EXISTS"]


# -- no ------------------------------------------------------------------------------------------------------------------


def test_no_capacity_comes_in_the_operation(gce: RunningComputeEngine, google: Google) -> None:
    gce.shortage("nvidia-tesla-t4", ZONE)
    operation = google.wait(google.insert(kind="n1-standard-4", gpu="nvidia-tesla-t4"))
    [error] = operation.error.errors
    assert (error.code, operation.http_error_status_code) == ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503)
    assert f"zones/{ZONE}' does not have enough resources available to fulfill the request" in error.message
    facts = next(each.error_info for each in error.error_details if each.error_info.reason)
    assert facts.reason == "resource_availability"
    assert dict(facts.metadatas) == {
        "vmType": "n1-standard-4",
        "attachment": "nvidia-tesla-t4:1",
        "zone": ZONE,
        "zonesAvailable": "us-central1-b,us-central1-c,us-central1-f",
    }
    assert (google.names(), gce.leftovers()) == ([], [])
    google.made(zone="us-central1-b", kind="n1-standard-4", gpu="nvidia-tesla-t4")
    gce.shortage("e2-standard-2")
    [plain] = google.wait(google.insert(name="plain")).error.errors
    assert plain.code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert next(e.error_info for e in plain.error_details if e.error_info.reason).metadatas["zonesAvailable"] == ""


def test_quotas_count_what_runs(gce: RunningComputeEngine, google: Google) -> None:
    gce.quota("us-central1", "NVIDIA_T4_GPUS", 1)
    gce.quota("us-central1", "PREEMPTIBLE_NVIDIA_T4_GPUS", 0)
    t4 = {"kind": "n1-standard-4", "gpu": "nvidia-tesla-t4"}
    google.made(**t4)
    operation = google.wait(google.insert(name="second", **t4))
    [error] = operation.error.errors
    assert (error.code, operation.http_error_status_code) == ("QUOTA_EXCEEDED", 403)
    assert error.message == "Quota 'NVIDIA_T4_GPUS' exceeded.  Limit: 1.0 in region us-central1."
    facts = error.error_details[0].quota_info
    assert (facts.metric_name, facts.limit, facts.limit_name, dict(facts.dimensions)) == (
        "compute.googleapis.com/nvidia_t4_gpus",
        1.0,
        "NVIDIA-T4-GPUS-per-project-region",
        {"region": "us-central1"},
    )
    region = google.regions.get(project=PROJECT, region="us-central1")
    assert [(q.limit, q.usage) for q in region.quotas if q.metric == "NVIDIA_T4_GPUS"] == [(1.0, 1.0)]
    gce.quota("us-central1", "PREEMPTIBLE_NVIDIA_T4_GPUS", 1)
    google.made(name="third", **t4)
    assert google.names() == ["third", "vm"], "one that is deleted within days may use preemptible quota"


def test_gpus_of_all_regions_and_quotas_in_the_request(gce: RunningComputeEngine, google: Google) -> None:
    gce.quota("global", "GPUS_ALL_REGIONS", 0)
    [error] = google.wait(google.insert(kind="g2-standard-4", scheduling=_ends())).error.errors
    assert error.message == "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally."
    assert error.error_details[0].quota_info.limit_name == "GPUS-ALL-REGIONS-per-project"
    project = google.projects.get(project=PROJECT)
    assert [q.limit for q in project.quotas if q.metric == "GPUS_ALL_REGIONS"] == [0.0]
    gce.early_quotas()
    assert reason(refused(403, google.insert, kind="g2-standard-4", scheduling=_ends())) == "quotaExceeded"


def _ends(seconds: float = 600, **more: Any) -> dict[str, Any]:
    base = {"termination_time": soon(seconds), "instance_termination_action": "DELETE"}
    return {**base, "on_host_maintenance": "TERMINATE", "automatic_restart": False, **more}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "Upper"}, "resource.name"),
        ({"name": "x" * 64}, "resource.name"),
        ({"kind": "n9-standard-1"}, "does not exist in zone"),
        ({"kind": "a3-highgpu-8g", "zone": "us-central1-f"}, "does not exist in zone"),
        ({"labels": {"Owner": "x"}}, "Label key 'Owner' violates"),
        ({"labels": {"owner": "ann@laptop"}}, "Label value 'ann@laptop' violates"),
        ({"labels": {f"k{n}": "" for n in range(65)}}, "number of labels"),
        ({"tags": {"items": ["-no"]}}, "resource.tags"),
        ({"scheduling": _ends(-5)}, "at least 30 seconds"),
        ({"scheduling": _ends(20)}, "at least 30 seconds"),
        ({"scheduling": _ends(121 * 86400)}, "at most 120 days"),
        ({"scheduling": _ends(termination_time="tomorrow")}, "RFC 3339"),
        ({"scheduling": {"termination_time": soon(600)}}, "termination action"),
        ({"scheduling": {"instance_termination_action": "DELETE"}}, "can only be set"),
        ({"kind": "g2-standard-4"}, "do not support live migration"),
        ({"kind": "e2-standard-4", "gpu": "nvidia-tesla-t4"}, "not compatible"),
        ({"kind": "n1-standard-4", "gpu": "nvidia-tesla-t4", "gpus": 3}, "must be one of"),
        ({"spot": True, "scheduling": {"provisioning_model": "SPOT", "automatic_restart": True}}, "AutomaticRestart"),
        ({"script": "x" * 300_000}, "262144"),
        ({"zone": "us-central9-a"}, "Unknown zone"),
        ({"image": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"}, "architecture"),
        ({"image": "debian"}, "malformed"),
        ({"disks": []}, "boot disk"),
    ],
)
def test_wrong_values_are_refused_at_once(
    gce: RunningComputeEngine, google: Google, fields: dict[str, Any], words: str
) -> None:
    error = refused(400, google.insert, **fields)
    assert words in error.message
    assert gce.instances() == []


def test_what_is_named_must_be_there(google: Google) -> None:
    refused(404, google.insert, image="projects/debian-cloud/global/images/family/debian-1")
    refused(404, google.insert, network_interfaces=[{"network": "global/networks/other"}])
    refused(404, google.insert, kind="n1-standard-4", gpu="nvidia-tesla-t5")
    refused(404, google.instances.get, project="somebody-elses", zone=ZONE, instance="vm")
    disk = {
        "boot": True,
        "initialize_params": {
            "disk_size_gb": 5,
            "source_image": "projects/debian-cloud/global/images/family/debian-12",
        },
    }
    assert "smaller than the image" in refused(400, google.insert, disks=[disk]).message


# -- requests ------------------------------------------------------------------------------------------------------------


def test_secrets_are_not_recorded(gce: RunningComputeEngine, google: Google) -> None:
    google.made(script="#!/bin/sh\n# secret\n")
    assert "secret" not in str([row["params"] for row in gce.requests()])


def test_methods_that_are_not_emulated_say_so(google: Google) -> None:
    error = refused(404, google.instances.reset_unary, project=PROJECT, zone=ZONE, instance="vm")
    assert "not emulated" in error.message


def test_two_callers_are_told_apart(gce: RunningComputeEngine) -> None:
    """By the address that they ask: on one machine, nothing else differs."""
    Google(gce).names()
    Google(gce, "localhost").names()
    assert [row["access_key"] for row in gce.requests()] == ["127.0.0.1", "localhost"]
