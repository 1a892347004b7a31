"""The end of machines on Google Cloud: who ended them, what stays, and that none of it is missed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costgpu.clock import SystemClock
from costgpu.errors import AuthError, InvalidRequest, Unreachable
from costgpu.models.instance import Instance, InstanceRef, InstanceState, OrphanedResource
from costgpu.providers.base import TAG_RUN
from costgpu.providers.gcp.provider import GcpProvider
from tests.emulators.compute_engine.client import RunningComputeEngine
from tests.emulators.create_requests import GCP

cpu_offer, offer, request = GCP.cpu_offer, GCP.offer, GCP.request


def running(gce: RunningComputeEngine, gcp: GcpProvider, **changes: Any) -> Instance:
    what = changes.pop("what", None) or cpu_offer()
    ref = gcp.create(request(what, **changes)).ref
    gce.until(lambda: seen(gcp, ref) is InstanceState.RUNNING)
    return shown(gcp, ref)


def shown(gcp: GcpProvider, ref: InstanceRef) -> Instance:
    """As Google shows it now."""
    found = gcp.describe(ref)
    assert found is not None
    return found


def seen(gcp: GcpProvider, ref: InstanceRef) -> InstanceState | None:
    found = gcp.describe(ref)
    return found.state if found is not None else None


def watched_to_its_end(gce: RunningComputeEngine, gcp: GcpProvider, ref: InstanceRef) -> Instance:
    states: set[InstanceState | None] = set()

    def over() -> bool:
        states.add(seen(gcp, ref))
        return not gce.alive()

    gce.until(over)
    assert states <= {InstanceState.RUNNING, InstanceState.TERMINATING, InstanceState.TERMINATED}
    return shown(gcp, ref)


def name(instance: Instance) -> str:
    return instance.ref.instance_id.partition("/")[2]


def test_a_machine_that_powers_itself_off_is_still_there(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = running(gce, gcp)
    gce.power_off(name(made))
    gce.until(lambda: seen(gcp, made.ref) is InstanceState.STOPPED)
    off = shown(gcp, made.ref)
    assert off.by_guest
    assert not off.preempted
    assert off.endpoint is None
    assert off.ended_at is not None
    assert abs((off.ended_at - datetime.now(UTC)).total_seconds()) < 60
    not_ready = {"code": "resourceNotReady", "status": 400, "message": "The resource is not ready"}
    gce.fault({"action": "instances.getSerialPortOutput", "times": 1, **not_ready})
    assert gcp.console(made.ref) == ""  # as Google answers for a machine that is off
    owned = gcp.list_owned()
    assert [each.state for each in owned.instances] == [InstanceState.STOPPED]
    assert owned.attached == {made.ref.instance_id: pytest.approx(100 * 0.10 / 730, abs=1e-5)}
    assert not [each for each in owned.leftovers if each.kind == "disk"]
    gcp.terminate(made.ref)
    gce.until(lambda: not gce.alive())
    gone = shown(gcp, made.ref)
    assert gone.state is InstanceState.TERMINATED
    assert gone.by_guest
    assert not gce.leftovers() or all(each.startswith("firewalls/") for each in gce.leftovers())


def test_google_does_not_delete_it_at_its_deadline_then(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    """Why the machine's own watchdog waits for Google's deadline."""
    made = running(gce, gcp)
    gce.power_off(name(made))
    gce.until(lambda: seen(gcp, made.ref) is InstanceState.STOPPED)
    gce.advance(86400)
    SystemClock().sleep(0.5)
    assert seen(gcp, made.ref) is InstanceState.STOPPED


def test_google_deletes_a_running_one_at_its_deadline(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = running(gce, gcp)
    gce.settings(shutdown_seconds=1.0)
    gce.advance(2 * 3600)
    last = watched_to_its_end(gce, gcp, made.ref)
    assert last.state is InstanceState.TERMINATED
    assert not last.by_guest
    assert not last.preempted


def test_preempted_is_told_apart_from_every_other_end(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = running(gce, gcp, what=cpu_offer(spot=True))
    gce.settings(shutdown_seconds=0.5)
    gce.preempt(name(made))
    last = watched_to_its_end(gce, gcp, made.ref)
    assert last.preempted
    assert last.reason == "Instance was preempted."
    assert last.state is InstanceState.TERMINATED


@pytest.mark.parametrize("by", ["us", "somebody"])
def test_deleted_is_deleted(gce: RunningComputeEngine, gcp: GcpProvider, by: str) -> None:
    made = running(gce, gcp)
    if by == "us":
        gcp.terminate(made.ref)
    else:
        gce.ask(f"zones/{made.zone}/instances/{name(made)}", method="DELETE")
    gce.until(lambda: not gce.alive())
    last = shown(gcp, made.ref)
    assert (last.state, last.preempted, last.by_guest) == (InstanceState.TERMINATED, False, False)
    assert last.reason
    assert last.ended_at is not None
    assert GcpProvider(clock=SystemClock()).describe(made.ref) == last


def test_without_the_zones_operations_the_unknown_stays_unknown(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = running(gce, gcp)
    gcp.terminate(made.ref)
    gce.until(lambda: not gce.alive())
    gce.forbid("compute.zoneOperations.list")
    assert gcp.describe(made.ref) is None


def test_a_second_deletion_during_the_first(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = running(gce, gcp)
    gce.settings(shutdown_seconds=600.0)
    gcp.terminate(made.ref)
    gce.until(lambda: seen(gcp, made.ref) is InstanceState.TERMINATING)
    gcp.terminate(made.ref)
    gce.fault({"action": "instances.delete", "code": "resourceNotReady", "message": "is not ready", "times": 1})
    gcp.terminate(made.ref)
    gce.settings(shutdown_seconds=0.05)
    gce.until(lambda: not gce.alive())


def test_an_end_that_google_does_not_accept_says_what_to_do(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = running(gce, gcp)
    gce.forbid("compute.instances.delete")
    with pytest.raises(AuthError, match=r"compute\.instances\.delete") as caught:
        gcp.terminate(made.ref)
    assert f"gcloud compute instances delete {name(made)} --zone us-central1-a" in caught.value.hint
    gce.forbid()
    gce.fault({"action": "instances.delete", "drop": True, "times": 1})
    with pytest.raises(Unreachable, match="delete"):
        gcp.terminate(made.ref)
    gcp.terminate(made.ref)
    gce.until(lambda: not gce.alive())


def leave(gce: RunningComputeEngine, run_id: str) -> None:
    """A disk, a snapshot and an address that a run's machine has left, and the like of somebody else's."""
    for who, labels in (("ours", {TAG_RUN: run_id, "costgpu-owner": "ann"}), ("theirs", {"costgpu": run_id})):
        gce.ask("zones/us-central1-b/disks", {"name": f"{who}-d", "sizeGb": "200", "labels": labels})
        gce.ask("regions/us-central1/addresses", {"name": f"{who}-a", "labels": labels})
        gce.ask("global/snapshots", {"name": f"{who}-s", "sourceDisk": "zones/us-central1-b/disks/x", "labels": labels})


def test_what_a_run_leaves_is_found_and_removed(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    leave(gce, "r1")
    gce.until(lambda: len(gce.leftovers()) == 6)
    found = {each.resource_id: each for each in gcp.list_owned().leftovers}
    assert set(found) == {"us-central1-b/ours-d", "us-central1/ours-a", "ours-s"}
    disk = found["us-central1-b/ours-d"]
    assert (disk.kind, disk.region, disk.run_id, disk.owner) == ("disk", "us-central1", "r1", "ann")
    assert disk.usd_per_hour > 0
    assert disk.created_at is not None
    assert not gcp.clean_up("r1", "us-central1")
    assert {each for each in gce.leftovers() if "ours" in each} == {"snapshots/ours-s"}  # somebody has made it
    assert gcp.remove(found["ours-s"])
    assert gcp.remove(found["ours-s"])
    assert sorted(gce.leftovers()) == ["addresses/theirs-a", "disks/theirs-d", "snapshots/theirs-s"]
    for kind, theirs in (
        ("disk", "us-central1-b/theirs-d"),
        ("address", "us-central1/theirs-a"),
        ("snapshot", "theirs-s"),
    ):
        with pytest.raises(InvalidRequest, match="not ours"):
            gcp.remove(
                OrphanedResource(provider="gcp", region="us-central1", kind=kind, resource_id=theirs, run_id="r1")
            )


def test_more_than_a_page(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    gce.page(2)
    made = {gcp.create(request(cpu_offer(), zone=f"us-central1-{letter}")).ref for letter in "abcfab"}
    owned = gcp.list_owned()
    assert {each.ref for each in owned.instances} == made
    assert len([each for each in owned.leftovers if each.kind == "firewall rule"]) == 12
    assert not owned.unreachable


@pytest.mark.parametrize("partial", [True, False])
def test_a_zone_that_is_out_hides_no_other(gce: RunningComputeEngine, gcp: GcpProvider, partial: bool) -> None:
    made = gcp.create(request(cpu_offer()))
    gce.unreachable("europe-west4-b", partial=partial)
    assert gcp.zones(cpu_offer())
    owned = gcp.list_owned()
    assert [each.ref for each in owned.instances] == [made.ref]
    assert [place for place, _ in owned.unreachable] == ["europe-west4"]
    assert not owned.all_instances_known
    assert not gcp.list_owned(["us-central1"]).unreachable
    with pytest.raises(Unreachable, match="europe-west4-b"):
        gcp.clean_up(made.run_id, "us-central1")


def test_a_kind_that_may_not_be_listed_hides_no_machine(gce: RunningComputeEngine, gcp: GcpProvider) -> None:
    made = gcp.create(request(cpu_offer()))
    gce.forbid("compute.snapshots.list")
    owned = gcp.list_owned()
    assert [each.ref for each in owned.instances] == [made.ref]
    assert [place for place, _ in owned.unreachable] == ["every region (snapshot)"]
    assert owned.all_instances_known


def test_a_wrong_clock_here_ends_nothing(gce: RunningComputeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour ahead of Google, a machine that cannot be seen for a moment is not taken to be gone."""

    class Ahead(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(hours=1)

    gcp = GcpProvider(clock=Ahead())
    made = gcp.create(request(offer(), lease_until=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)))
    gce.fault({"action": "instances.get", "code": "notFound", "status": 404, "message": "was not found", "times": 2})
    assert gcp.describe(made.ref) is None
    with pytest.raises(Unreachable):
        gcp.find(request(offer(), run_id=made.run_id, zone=made.zone))
    assert seen(gcp, made.ref) in (InstanceState.PENDING, InstanceState.RUNNING)
