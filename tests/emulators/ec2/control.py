"""The control side of the emulated account."""

import base64
from collections.abc import Iterable
from typing import Any

from moto.ec2.models.instances import Instance
from moto.moto_api._internal.models import moto_api_backend

from costgpu.providers.base import TAG_NAME
from tests.emulators.control_side import ControlSide
from tests.emulators.ec2.account import AccountState
from tests.emulators.ec2.instances import Ec2Instances, all_instances
from tests.emulators.ec2.services import Scheduler
from tests.emulators.faults import FaultInjector
from tests.emulators.machines import NoGuests


class Control(ControlSide):
    def __init__(
        self, account: AccountState, faults: FaultInjector, compute: Ec2Instances, scheduler: Scheduler
    ) -> None:
        super().__init__(account, faults)
        self._compute, self._scheduler = compute, scheduler

    def instances_of(self, name: str) -> list[dict[str, Any]]:
        """Those of the jobs of that name."""
        wanted = (TAG_NAME, name)
        return self._rows(i for i in all_instances() if wanted in ((tag["key"], tag["value"]) for tag in i.get_tags()))

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """What really exists and existed, everywhere; only in these states, if any are given."""
        return [row for row in self._rows(all_instances()) if not states or row["state"] in states]

    @staticmethod
    def _rows(instances: Iterable[Instance]) -> list[dict[str, Any]]:
        return [
            {
                "id": each.id,
                "region": each.region_name,
                "zone": each.placement.zone,
                "state": each.state,
                "type": each.instance_type,
                "image": each.image_id,
                "token": each.client_token,
                "public_ip": each.public_ip,
                "private_ip": each.private_ip,
                "spot": each.lifecycle == "spot",
                "behaviour": each.instance_initiated_shutdown_behavior,
                "imds": [each.metadata_options.http_tokens, each.metadata_options.http_put_response_hop_limit],
                "user_data": base64.b64encode(base64.b64decode(str(each.user_data or ""))).decode(),
                "tags": {tag["key"]: tag["value"] for tag in each.get_tags()},
            }
            for each in instances
        ]

    def reset(self) -> None:
        """A new account."""
        self._compute.reset()
        moto_api_backend.reset()
        self._state.reset()
        self._faults.clear()
        self._scheduler.fired.clear()

    def expire(self, access_key: str) -> None:
        """Its requests are refused from now on."""
        self._faults.expired.add(access_key)

    def quota(self, region: str, code: str, value: float) -> None:
        self._state.quotas[region, code] = value

    def shortage(self, instance_type: str, zone: str = "*") -> None:
        self._state.shortages.add((instance_type, zone))

    def fail_launch(self, instance_type: str, code: str, message: str) -> None:
        """The next instance of that type is created, and terminated while it is pending."""
        self._compute.failing.setdefault(instance_type, []).append((code, message))

    def power_off(self, instance_id: str) -> None:
        """A guest of `NoGuests` powers itself off."""
        if not isinstance(self._compute.machines, NoGuests):
            raise TypeError("real guests power themselves off")
        self._compute.machines.power_off(instance_id)

    def interrupt(self, instance_id: str, notice_seconds: float = 120.0) -> None:
        self._compute.interrupt(instance_id, notice_seconds)

    def change(self, instance_id: str, **attributes: Any) -> None:
        """Sets attributes of moto's instance, such as disable_api_termination."""
        instance = next(each for each in all_instances() if each.id == instance_id)
        for name, value in attributes.items():
            if not hasattr(instance, name):
                raise KeyError(name)
            setattr(instance, name, value)
