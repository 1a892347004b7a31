"""Google's own client on the emulated project, and instances to insert, for tests without the adapter."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.emulators.compute_engine.client import PROJECT, RunningComputeEngine

ZONE = "us-central1-a"


class Google:
    """The clients of one caller, made when they are needed."""

    def __init__(self, gce: RunningComputeEngine, caller: str = "") -> None:
        self._endpoint = gce.environment(caller)["COSTGPU_GCP_ENDPOINT"]

    def __getattr__(self, name: str) -> Any:
        """``google.instances`` is an `InstancesClient`."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import compute_v1

        kind = getattr(compute_v1, "".join(part.title() for part in name.split("_")) + "Client")
        client = kind(
            client_options={"api_endpoint": self._endpoint},
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            transport="rest",
        )
        setattr(self, name, client)
        return client

    def insert(self, *, zone: str = ZONE, request_id: str = "", **fields: Any) -> Any:
        """Its operation, not awaited."""
        request = {"project": PROJECT, "zone": zone, "instance_resource": instance(zone=zone, **fields)}
        return self.instances.insert_unary(request={**request, **({"request_id": request_id} if request_id else {})})

    def made(self, *, zone: str = ZONE, **fields: Any) -> Any:
        done(self.wait(self.insert(zone=zone, **fields)))
        return self.get(fields.get("name", "vm"), zone)

    def get(self, name: str = "vm", zone: str = ZONE) -> Any:
        return self.instances.get(project=PROJECT, zone=zone, instance=name)

    def wait(self, operation: Any) -> Any:
        """An operation when it is done."""
        place = operation.zone.rpartition("/")[2]
        if place:
            return self.zone_operations.wait(project=PROJECT, zone=place, operation=operation.name)
        return self.global_operations.wait(project=PROJECT, operation=operation.name)


def done(operation: Any) -> Any:
    """It, if it went well."""
    assert operation.status.name == "DONE", operation
    assert not operation.error.errors, operation.error
    return operation


def refused(call: Any, *args: Any, **kwargs: Any) -> str:
    """What Google's client says of a call whose values are wrong."""
    from google.api_core import exceptions

    with pytest.raises(exceptions.BadRequest) as caught:
        call(*args, **kwargs)
    return str(caught.value.message)


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def instance(
    *,
    name: str = "vm",
    zone: str = ZONE,
    kind: str = "e2-standard-2",
    script: str = "",
    gpu: str = "",
    gpus: int = 1,
    lives: float = 3600.0,
    image: str = "projects/debian-cloud/global/images/family/debian-12",
    **more: Any,
) -> Any:
    """One that ends itself after `lives` seconds (0: never); `more` replaces its fields."""
    from google.cloud import compute_v1

    scheduling: dict[str, Any] = {"automatic_restart": False}
    if lives:
        scheduling.update(termination_time=soon(lives), instance_termination_action="DELETE")
    if gpu:
        scheduling.update(on_host_maintenance="TERMINATE")
    items = [{"key": "startup-script", "value": script}] if script else []
    accelerators = (
        [{"accelerator_type": f"zones/{zone}/acceleratorTypes/{gpu}", "accelerator_count": gpus}] if gpu else []
    )
    return compute_v1.Instance(
        {
            "name": name,
            "machine_type": f"zones/{zone}/machineTypes/{kind}",
            "labels": {"costgpu-run": name},
            "disks": [
                {
                    "boot": True,
                    "auto_delete": True,
                    "initialize_params": {
                        "source_image": image,
                        "disk_type": f"zones/{zone}/diskTypes/pd-balanced",
                        "labels": {"costgpu-run": name},
                    },
                }
            ],
            "network_interfaces": [
                {
                    "network": "global/networks/default",
                    "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
                }
            ],
            "scheduling": scheduling,
            "metadata": {"items": items},
            "guest_accelerators": accelerators,
            **more,
        }
    )
