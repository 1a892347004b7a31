"""Around Google's machines: images, quotas, prices of what is left, addresses, credentials. Pure."""

from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud import compute_v1
from hypothesis import given
from hypothesis import strategies as st

from costgpu.clock import ManualClock
from costgpu.errors import AuthError, InvalidRequest, TerminationUnconfirmed, Unreachable
from costgpu.job.end_instance import end_by_hand, request_termination
from costgpu.job.reap import label_form
from costgpu.models.instance import InstanceRef
from costgpu.models.offer import Accelerator, Offer
from costgpu.providers.base import TAG_RUN
from costgpu.providers.gcp import instances, inventory, quotas
from costgpu.providers.gcp.launch import Images, label_value
from costgpu.providers.gcp.network import caller
from costgpu.providers.gcp.provider import GcpProvider
from costgpu.providers.gcp.session import Clients, endpoint
from tests.emulators.compute_engine import schema
from tests.emulators.create_requests import GCP, H100, SLICE, T4, V100

cpu_offer, offer = GCP.cpu_offer, GCP.offer

# -- images -----------------------------------------------------------------------------------------------------------


class Listed:
    """Clients that know no preferred family, but a list of others."""

    def __init__(self, *families: str) -> None:
        shared = {"status": "READY", "disk_size_gb": 50, "architecture": "X86_64"}
        folder = "https://www.googleapis.com/compute/v1/projects/d/global/images"
        self._rows = [
            compute_v1.Image({**shared, "name": f"{name}-v1", "family": name, "self_link": f"{folder}/{name}-v1"})
            for name in families
        ]

    def maybe(self, *_: Any, **__: Any) -> None:
        return None

    def rows(self, *_: Any, **__: Any) -> list[Any]:
        return self._rows


def test_newer_families_are_found_by_themselves() -> None:
    clients: Any = Listed(
        "common-cu128-ubuntu-2204-nvidia-570",
        "common-cu130-ubuntu-2404-nvidia-590",
        "common-cu129-ubuntu-2404-nvidia-580",
    )
    images = Images(clients)
    assert images.find(offer()).name == "projects/d/global/images/common-cu130-ubuntu-2404-nvidia-590-v1"
    old = images.find(offer("n1-standard-8+V100:1", accelerator=V100))
    assert old.name == "projects/d/global/images/common-cu129-ubuntu-2404-nvidia-580-v1"
    none: Any = Listed()
    with pytest.raises(InvalidRequest, match="none of the families"):
        Images(none).find(offer())


# -- what a run leaves ----------------------------------------------------------------------------------------------------


def test_a_clean_up_that_has_not_seen_every_disk_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that nothing was left."""

    def listed(_: Any, kind: str, *__: str) -> tuple[list[Any], dict[str, str]]:
        return [], {"us-central1-a": "no answer"} if kind == "Disks" else {}

    for module in (instances, inventory):
        monkeypatch.setattr(module, "list_all_places", listed)
    monkeypatch.setattr(Clients, "require", lambda *_: None)
    with pytest.raises(Unreachable, match="us-central1-a"):
        GcpProvider(clock=ManualClock()).clean_up("r1", "us-central1")


# -- quotas -----------------------------------------------------------------------------------------------------------


def two_t4() -> Offer:
    return offer("n1-standard-8+T4:2", accelerator=T4)


def h100(instance_type: str, *, spot: bool = False) -> Offer:
    return offer(instance_type, accelerator=H100, vcpus=208, spot=spot)


def known(**limits: float) -> dict[str, quotas.Quota]:
    return {metric: quotas.Quota(metric=metric, limit=limit, usage=0, where="r") for metric, limit in limits.items()}


@pytest.mark.parametrize(
    ("what", "days", "limits", "metric"),
    [
        (offer(), 1, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}, "NVIDIA_L4_GPUS"),
        (offer(), 1, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 1}, ""),
        (offer(), 8, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 1}, "NVIDIA_L4_GPUS"),
        (offer(spot=True), 1, {"NVIDIA_L4_GPUS": 1, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}, ""),
        (offer(spot=True), 1, {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}, "NVIDIA_L4_GPUS"),
        (offer(spot=True), 1, {"PREEMPTIBLE_CPUS": 0}, ""),
        (offer(), 1, {"GPUS_ALL_REGIONS": 0, "NVIDIA_L4_GPUS": 8}, "GPUS_ALL_REGIONS"),
        (cpu_offer(), 1, {"CPUS": 1}, "CPUS"),
        (cpu_offer(), 1, {"CPUS": 2}, ""),
        (cpu_offer(spot=True), 1, {"CPUS": 100, "PREEMPTIBLE_CPUS": 1}, "PREEMPTIBLE_CPUS"),
        (offer("n2-standard-4", accelerator=None), 1, {"CPUS": 0, "N2_CPUS": 8}, ""),
        (offer("n2-standard-4", accelerator=None), 1, {"N2_CPUS": 3}, "N2_CPUS"),
        (offer("a4-highgpu-8g", accelerator=Accelerator(name="B200", count=8, memory_gib=180)), 1, {}, ""),
        (h100("a3-highgpu-8g"), 1, {"NVIDIA_H100_GPUS": 0}, ""),
        (h100("a3-highgpu-8g", spot=True), 1, {"PREEMPTIBLE_NVIDIA_H100_GPUS": 4}, "PREEMPTIBLE_NVIDIA_H100_GPUS"),
        (h100("a3-megagpu-8g", spot=True), 1, {"PREEMPTIBLE_NVIDIA_H100_GPUS": 4}, ""),
        (offer("c4-standard-4", accelerator=None), 1, {"CPUS": 0, "C4_CPUS": 0}, ""),
        (cpu_offer(), 1, {"CPUS": 2, "CPUS_ALL_REGIONS": 1}, "CPUS_ALL_REGIONS"),
        (cpu_offer(spot=True), 1, {"CPUS": 2, "CPUS_ALL_REGIONS": 1}, "CPUS_ALL_REGIONS"),
        (cpu_offer(spot=True), 1, {"PREEMPTIBLE_CPUS": 2, "CPUS_ALL_REGIONS": 1}, ""),
        (two_t4(), 1, {"NVIDIA_T4_GPUS": 1}, "NVIDIA_T4_GPUS"),
        (two_t4(), 1, {"NVIDIA_T4_GPUS": 1, "PREEMPTIBLE_NVIDIA_T4_GPUS": 0}, "NVIDIA_T4_GPUS"),
    ],
)
def test_which_quota_is_too_small(what: Any, days: int, limits: dict[str, float], metric: str) -> None:
    found = quotas.missing(what, days * 86400.0, known(**limits))
    assert (found[0].metric if found else "") == metric


@pytest.mark.parametrize(
    ("what", "untold"),
    [
        (cpu_offer(), []),
        (two_t4(), []),
        (offer("c3-standard-4", accelerator=None), []),
        *((offer(f"{family}-standard-4", accelerator=None), ["CPUS_PER_VM_FAMILY"]) for family in ("c3d", "c4", "c4a")),
        (offer(), ["CPUS_PER_VM_FAMILY"]),
        (h100("a3-highgpu-8g"), ["GPUS_PER_GPU_FAMILY", "CPUS_PER_VM_FAMILY"]),
        (h100("a3-megagpu-8g", spot=True), ["GPUS_PER_GPU_FAMILY"]),
        (h100("a3-highgpu-8g", spot=True), []),
        (offer("g4-standard-24", accelerator=SLICE), ["GPUS_PER_GPU_FAMILY", "CPUS_PER_VM_FAMILY"]),
    ],
)
def test_a_quota_that_nobody_tells_is_unknown(what: Any, untold: list[str]) -> None:
    """All that Compute Engine can tell is large enough: the metrics are those of its own description."""
    enum = schema.document()["schemas"]["Quota"]["properties"]["metric"]["enum"]
    told = quotas.looked_at(what, 8 * 86400.0, known(**dict.fromkeys(enum, 1000.0)))
    assert [metric for metric, yes in told.items() if not yes] == untold
    assert [metric for metric, yes in told.items() if yes and metric not in enum] == []
    bare = quotas.looked_at(what, 60, {})
    assert set(bare.values()) == {False}
    assert "CPUS_ALL_REGIONS" in bare


def test_what_is_used_already_counts() -> None:
    used = {"CPUS": quotas.Quota(metric="CPUS", limit=24, usage=23, where="us-central1")}
    found = quotas.missing(cpu_offer(), 60, used)
    assert found is not None
    error = quotas.exceeded(*found, cpu_offer(), "research-42")
    assert "CPUS of the project research-42 in us-central1 is 24, of which 23 are used" in error.message
    assert "e2-standard-2 needs 2" in error.message


# -- prices of what is left, addresses, credentials ---------------------------------------------------------------------


def test_what_disks_cost() -> None:
    balanced = compute_v1.Disk({"size_gb": 100, "type_": "https://x/zones/z/diskTypes/pd-balanced"})
    assert inventory.disk_usd_per_hour(balanced) == pytest.approx(10 / 730, abs=1e-6)
    hyper = {"size_gb": 100, "type_": "hyperdisk-balanced", "provisioned_iops": 4000, "provisioned_throughput": 240}
    assert inventory.disk_usd_per_hour(compute_v1.Disk(hyper)) == pytest.approx((8 + 5 + 4) / 730, abs=1e-6)
    unheard = compute_v1.Disk({"size_gb": 1, "type_": "pd-unheard-of"})
    assert inventory.disk_usd_per_hour(unheard) == pytest.approx(0.17 / 730, abs=1e-6)


@pytest.mark.parametrize("text", ["", "everybody", "300.1.1.1", "2001:db8::1"])
def test_who_may_come_in_is_an_ipv4_range(text: str) -> None:
    with pytest.raises(InvalidRequest):
        caller(text)
    assert caller("203.0.113.7") == "203.0.113.7/32"
    assert caller("203.0.113.77/24") == "203.0.113.0/24"


@pytest.mark.parametrize("host", ["127.0.0.1:8600", "localhost:1/", "10.0.0.5:80", "compute.googleapis.com", "8.8.8.8"])
def test_no_password_travels_in_the_open(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("", f"https://{host}"):
        monkeypatch.setenv("COSTGPU_GCP_ENDPOINT", url)
        assert endpoint() == url.rstrip("/")
    monkeypatch.setenv("COSTGPU_GCP_ENDPOINT", f"http://{host}")
    if host[0] == "1" or "localhost" in host:
        assert endpoint() == f"http://{host}".rstrip("/")
    else:
        with pytest.raises(InvalidRequest, match="https"):
            endpoint()


def test_without_credentials_the_message_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(AuthError, match="No usable Google Cloud credentials") as caught:
        GcpProvider(clock=ManualClock()).identity()
    assert "gcloud auth application-default login" in caught.value.hint


def test_without_a_project_the_message_says_how_to_name_one() -> None:
    nameless: Any = SimpleNamespace()
    with pytest.raises(AuthError, match="which Google Cloud project") as caught:
        Clients(ManualClock(), credentials=nameless).identity()
    assert "gcp_project" in caught.value.hint


def test_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    robot: Any = SimpleNamespace(
        service_account_email="bot@research-42.iam.gserviceaccount.com", project_id="research-42"
    )
    found = Clients(ManualClock(), credentials=robot).identity()
    assert (found.provider, found.account, found.principal) == ("gcp", "research-42", robot.service_account_email)
    assert Clients(ManualClock(), "other-7", credentials=robot).identity().account == "other-7"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "lab-1")
    person: Any = SimpleNamespace(account="")
    assert Clients(ManualClock(), credentials=person).identity().account == "lab-1"
    assert Clients(ManualClock(), credentials=person).identity().principal


def test_how_to_end_one_by_hand() -> None:
    ref = InstanceRef(provider="gcp", region="us-central1", instance_id="us-central1-a/costgpu-r1-1")
    by_hand = "gcloud compute instances delete costgpu-r1-1 --zone us-central1-a --quiet"
    assert end_by_hand(ref) == by_hand
    of_run = by_hand.replace(" --quiet", " --project research-42 --quiet")
    assert end_by_hand(ref, "research-42") == of_run


def test_by_hand_means_the_project_of_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    ref = InstanceRef(provider="gcp", region="us-central1", instance_id="us-central1-a/costgpu-r1-1")
    robot: Any = SimpleNamespace(service_account_email="bot@x.test", project_id="research-42")
    adapter = GcpProvider(clock=ManualClock(), credentials=robot)

    def refused(*_: Any, **__: Any) -> Any:
        raise AuthError("not allowed")

    row = compute_v1.Instance(labels={TAG_RUN: "r1"})
    monkeypatch.setattr(Clients, "read", lambda *_, **__: row)
    monkeypatch.setattr(Clients, "write", refused)
    with pytest.raises(TerminationUnconfirmed) as caught:
        request_termination(adapter, ref, ManualClock())
    assert "--project research-42" in caught.value.hint
    with pytest.raises(AuthError) as inner:
        adapter.terminate(ref)
    assert "--project research-42" in inner.value.hint


@given(st.text(max_size=90))
def test_the_reaper_knows_owners_in_the_form_of_labels(owner: str) -> None:
    assert label_form(owner) == label_value(owner)
