"""The adapter of Google Cloud, its pure parts: the insert call, labels, descriptions, histories."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud import compute_v1
from hypothesis import given
from hypothesis import strategies as st

from costgpu.errors import InvalidRequest
from costgpu.models.instance import CreateRequest, InstanceRef, InstanceState
from costgpu.pricing import snapshot
from costgpu.providers.base import OUR_TAGS
from costgpu.providers.common import Image
from costgpu.providers.gcp import launch
from costgpu.providers.gcp.instances import GUEST, PREEMPTED, history_from, instance_from, split_id
from costgpu.providers.gcp.launch import (
    facts_from,
    facts_of,
    families_for,
    label_value,
    labels_of,
    metadata_value,
    tags_from,
)
from tests.emulators.create_requests import GCP, T4

offer, request = GCP.offer, GCP.request

IMAGE = Image(name="projects/ubuntu-os-cloud/global/images/ubuntu-1", root_gib=10, architecture="x86_64")
LABEL_KEY, LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60)


def body_of(wanted: CreateRequest, zone: str = "us-central1-a") -> dict[str, Any]:
    """As it goes over the wire."""
    made = launch.body(wanted, zone, IMAGE, "global/networks/default")
    text = compute_v1.Instance.to_json(compute_v1.Instance(made), always_print_fields_with_no_presence=False)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("spot", [True, False])
def test_a_spot_machine_hears_two_minutes_ahead_that_it_is_taken_back(*, spot: bool) -> None:
    wanted = request(offer(spot=spot))
    told = launch.body(wanted, "us-central1-a", IMAGE, "global/networks/default", notice_seconds=120)["scheduling"]
    assert told.get("preemption_notice_duration") == ({"seconds": 120} if spot else None)
    assert "preemptionNoticeDuration" not in body_of(wanted)["scheduling"]  # for a client that does not know it


def described(wanted: CreateRequest, status: str = "RUNNING", **changes: Any) -> Any:
    """The machine that a request has made, as the client returns it."""
    made = launch.body(wanted, "us-central1-a", IMAGE, "global/networks/default")
    made |= {
        "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a",
        "status": status,
        "creation_timestamp": "2026-11-21T02:00:00.000-08:00",
        **changes,
    }
    row = compute_v1.Instance(made)
    row.network_interfaces[0].access_configs[0].nat_i_p = "34.68.0.10"
    return row


def operation(kind: str, minute: int, *, status: str = "DONE", words: str = "", user: str = "", error: str = "") -> Any:
    at = f"2026-11-21T10:{minute:02d}:00.000+00:00"
    made = compute_v1.Operation(
        name=f"o{minute}",
        operation_type=kind,
        status=status,
        insert_time=at,
        end_time=at,
        status_message=words,
        user=user,
    )
    if error:
        made.error = compute_v1.Error({"errors": [{"code": error, "message": "no"}]})
    return made


def minute(number: int) -> datetime:
    return datetime(2026, 11, 21, 10, number, tzinfo=UTC)


# -- the insert call --------------------------------------------------------------------------------------------------


def test_nothing_on_the_machine_can_act_on_the_account() -> None:
    made = body_of(request())
    assert "serviceAccounts" not in made
    outside = [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]
    only = {"network": "global/networks/default", "stackType": "IPV4_ONLY", "accessConfigs": outside}
    assert made["networkInterfaces"] == [only]


def test_attached_and_bundled_accelerators() -> None:
    attached = body_of(request(offer("n1-standard-8+T4:2", accelerator=T4)))
    assert attached["machineType"].endswith("/machineTypes/n1-standard-8")
    path = "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4"
    assert attached["guestAccelerators"] == [{"acceleratorType": path, "acceleratorCount": 2}]
    assert "guestAccelerators" not in body_of(request(offer()))
    with pytest.raises(InvalidRequest, match="attaches no K80"):
        body_of(request(offer("n1-standard-8+K80:1", accelerator=T4)))


@pytest.mark.parametrize(
    ("kind", "machines"),
    [
        ("pd-balanced", "e2-standard-2 g2-standard-4 a2-highgpu-1g a3-highgpu-8g n1-standard-4 c3-standard-4"),
        ("hyperdisk-balanced", "c4-standard-4 c4a-standard-4 g4-standard-48 a3-ultragpu-8g a4-highgpu-8g"),
    ],
)
def test_disks_that_the_machine_takes(kind: str, machines: str) -> None:
    assert {launch.disk_type(machine) for machine in machines.split()} == {kind}


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(InvalidRequest, match="needs 10 GiB"):
        body_of(request(disk_gib=9))
    with pytest.raises(InvalidRequest, match="too long"):
        body_of(request(boot_script="#!/bin/sh\n" + "x" * 300_000))
    assert "SECRET" not in repr(request(boot_script="SECRET"))


@given(st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True), st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True))
def test_names_are_valid_and_never_shared(one: str, other: str) -> None:
    assert launch.NAME.fullmatch(launch.name_of(one))
    assert (launch.name_of(one) == launch.name_of(other)) is (one == other)


@given(st.sampled_from(sorted(launch.ATTACHED)), st.integers(1, 8), st.sampled_from(["n1-standard-8", "n1-highmem-96"]))
def test_types_of_the_catalog_and_back(accelerator: str, count: int, machine: str) -> None:
    name = f"{machine}+{accelerator}:{count}"
    assert launch.split_type(name) == (machine, accelerator, count)
    assert launch.join_type(machine, [(launch.ATTACHED[accelerator], count)]) == name
    assert launch.join_type("g2-standard-4", [("nvidia-l4", 1)]) == "g2-standard-4"


def test_every_offer_of_the_catalog_can_be_asked_for_or_is_a_clear_no() -> None:
    refused, kinds = set(), set()
    for each in snapshot.read_offers(snapshot.newest()):
        if each.provider != "gcp":
            continue
        try:
            kinds.add(families_for(each)[1][0])
        except InvalidRequest:
            refused.add((each.family, each.accelerator.count if each.accelerator else 0))
            continue
        made = launch.body(request(each, disk_gib=100), f"{each.region}-a", IMAGE, "global/networks/default")
        machine, accelerator, _ = launch.split_type(each.instance_type)
        assert made["machine_type"].endswith(f"/{machine}")
        assert bool(accelerator) is ("guest_accelerators" in made)
    assert refused == {("g4", 0.125), ("g4", 0.25), ("g4", 0.5)}
    assert kinds == {"common-cu129-ubuntu-2204-nvidia-580", "ubuntu-2404-lts-amd64", "ubuntu-2404-lts-arm64"}


# -- labels -----------------------------------------------------------------------------------------------------------


@given(PLAIN.filter(bool), PLAIN.filter(bool), st.dictionaries(PLAIN.filter(bool), PLAIN, max_size=30))
def test_tags_come_back_as_they_were_written(owner: str, name: str, tags: dict[str, str]) -> None:
    wanted = request(tags={key: value for key, value in tags.items() if key not in OUR_TAGS}, owner=owner, name=name)
    labels = labels_of(wanted)
    assert len(labels) <= 64
    assert all(LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value) for key, value in labels.items())
    found = instance_from(described(wanted))
    facts = (found.run_id, found.name, found.owner, found.lease_until)
    assert facts == (wanted.run_id, name, owner, wanted.lease_until)
    assert {key: value for key, value in found.tags.items() if key not in OUR_TAGS} == wanted.tags


def test_a_label_that_was_changed_later_counts() -> None:
    wanted = request(tags={"team": "vision", "Cost": "A 1"})
    labels = {**labels_of(wanted), "costgpu-owner": "bob", "team": "speech"}
    found = tags_from(labels, metadata_value(wanted))
    assert (found["costgpu-owner"], found["team"], found["Cost"]) == ("bob", "speech", "A 1")
    assert "costgpu-run" not in tags_from({}, metadata_value(wanted))
    for damaged in ("", "{", "[]", "1", '{"costgpu-owner": 5}'):
        assert tags_from(labels, damaged)["costgpu-owner"] == "bob"


@given(PLAIN)
def test_facts_in_a_description_come_back(owner: str) -> None:
    wanted = request(owner=owner)
    found = facts_from(facts_of(wanted))
    assert found["costgpu-run"] == wanted.run_id
    assert found["costgpu-lease-until"] == str(int(wanted.lease_until.timestamp()))
    assert found["costgpu-region"] == "us-central1"
    assert found.get("costgpu-owner", "") == label_value(owner)
    assert facts_from("somebody's rule") == {}


# -- what Google describes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "statuses"),
    [
        (InstanceState.PENDING, "PROVISIONING STAGING NEVER_HEARD_OF"),
        (InstanceState.RUNNING, "RUNNING REPAIRING"),
        (InstanceState.STOPPING, "STOPPING"),
        (InstanceState.STOPPED, "SUSPENDED TERMINATED"),
        (InstanceState.TERMINATING, "DEPROVISIONING"),
    ],
)
def test_states(state: InstanceState, statuses: str) -> None:
    for status in statuses.split():
        found = instance_from(described(request(), status))
        assert found.state is state
        assert (found.endpoint is not None) is (state is InstanceState.RUNNING)
        assert found.launched_at == datetime(2026, 11, 21, 10, tzinfo=UTC)
        assert found.instance_type == "g2-standard-4"
        assert (found.ref.region, found.zone) == ("us-central1", "us-central1-a")


@pytest.mark.parametrize("text", ["i-0123", "us-central1-a", "us-central1-a/", "europe-west4-a/x"])
def test_ids_of_somewhere_else(text: str) -> None:
    with pytest.raises(InvalidRequest):
        split_id(InstanceRef(provider="gcp", region="us-central1", instance_id=text))


def test_histories() -> None:
    made = operation("insert", 1)
    told = history_from([operation("delete", 9, user="ann@example.org"), made])
    assert (told.created_at, told.deleted_at, told.reason) == (minute(1), minute(9), "delete by ann@example.org")
    assert not told.interrupted
    told = history_from([made, operation(PREEMPTED, 5, words="Instance was preempted."), operation("delete", 6)])
    assert (told.interrupted, told.reason) == (PREEMPTED, "Instance was preempted.")
    told = history_from([made, operation(GUEST, 5, words="Instance terminated by guest OS shutdown.")])
    assert (told.by_guest, told.stopped_at, told.deleted_at) == (True, minute(5), None)
    told = history_from([made, operation(GUEST, 5), operation("delete", 6)])
    assert (told.by_guest, told.stopped_at, told.deleted_at) == (True, minute(5), minute(6))
    told = history_from([made, operation(GUEST, 5), operation("start", 6), operation("stop", 7, user="ann")])
    assert (told.by_guest, told.stopped_at) == (False, minute(7))
    told = history_from([made, operation(GUEST, 5, status="RUNNING")])
    assert (told.by_guest, told.stopped_at) == (True, None)
    assert history_from([made, operation("delete", 2, status="RUNNING")]).deleting
    assert history_from([operation("insert", 1, error="ZONE_RESOURCE_POOL_EXHAUSTED")]).created_at is None
    assert history_from([made, operation("delete", 2, error="RESOURCE_NOT_READY")]).deleted_at is None
    assert not history_from([operation("insert", 1, status="RUNNING")]).created
    assert history_from([]).created_at is None


@pytest.mark.parametrize(
    "kind",
    [
        "hostError",
        "terminateOnHostMaintenance",
        "baremetalCaretakerPreempted",
        "stoppedDueToPdDoubleServe",
        "preempted",
    ],
)
def test_what_google_ends_is_the_providers_interruption(kind: str) -> None:
    made, ended = operation("insert", 1), operation(f"compute.instances.{kind}", 5)
    told = history_from([made, ended])
    assert (told.interrupted, told.stopped_at) == (f"compute.instances.{kind}", minute(5))
    assert kind in told.reason
    off = instance_from(described(request(), "TERMINATED"), told)
    assert (off.state, off.preempted, off.by_guest) == (InstanceState.STOPPED, True, False)
    # its own system switches it off because of that; costgpu deletes it afterwards
    assert history_from([made, ended, operation(GUEST, 6), operation("delete", 7)]).interrupted == told.interrupted
    # it was started again since, and the last that stopped it is what counts
    for again in ("start", "compute.instances.automaticRestart"):
        told = history_from([made, ended, operation(again, 6), operation(GUEST, 9)])
        assert (told.interrupted, told.by_guest, told.stopped_at) == ("", True, minute(9))


def test_an_interruption_long_before_is_not_why_a_machine_switches_itself_off() -> None:
    made, notice = operation("insert", 1), operation("compute.instances.somethingNew", 10)
    told = history_from([made, notice, operation(GUEST, 50)])
    assert (told.interrupted, told.by_guest, told.stopped_at) == ("", True, minute(50))


@pytest.mark.parametrize("kind", ["migrateOnHostMaintenance", "automaticRestart", "upcomingMaintenance"])
def test_what_only_moves_a_machine_ends_nothing(kind: str) -> None:
    made, moved = operation("insert", 1), operation(f"compute.instances.{kind}", 3)
    told = history_from([made, moved])
    assert (told.interrupted, told.reason, told.stopped_at) == ("", "", None)
    assert instance_from(described(request(), "STOPPING"), told).state is InstanceState.TERMINATING  # by its time limit
    told = history_from([made, moved, operation(PREEMPTED, 5, words="Instance was preempted.")])
    assert (told.interrupted, told.reason) == (PREEMPTED, "Instance was preempted.")
    assert history_from([made, moved, operation("stop", 5, user="ann")]).reason == "stop by ann"


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([GUEST], InstanceState.STOPPING),
        (["stop"], InstanceState.STOPPING),
        ([PREEMPTED], InstanceState.TERMINATING),
        (["delete"], InstanceState.TERMINATING),  # over by the time that the operations were read
    ],
)
def test_whose_end_a_stopping_machine_meets(events: list[str], state: InstanceState) -> None:
    told = history_from([operation("insert", 1), *(operation(kind, 2) for kind in events)])
    assert instance_from(described(request(), "STOPPING"), told).state is state


def test_a_machine_that_stops_for_no_recorded_reason_is_being_deleted() -> None:
    """By its time limit; by the clock here that cannot be told. Who waits for the end of one that is off ends it."""
    told = history_from([operation("insert", 1)])
    assert instance_from(described(request(), "STOPPING"), told).state is InstanceState.TERMINATING
    assert instance_from(described(request(), "TERMINATED"), told).state is InstanceState.STOPPED
    forever = described(request(), "STOPPING", scheduling={"provisioning_model": "STANDARD"})
    assert instance_from(forever, told).state is InstanceState.STOPPING
    assert instance_from(described(request(), "STOPPING")).state is InstanceState.STOPPING
