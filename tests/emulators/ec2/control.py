"""The control side of the emulated cloud, under ``/emu/``: JSON in, JSON out.

- GET  requests: every API request so far; POST requests: forget them
- GET  instances: what really exists, in every region; POST instances {name}: only those of the job of that name
- POST reset; settings {pending_seconds, shutdown_seconds, invisible_seconds}; clock {advance_seconds}
- POST faults {faults: [see `faults.Fault`], add: beside those that are there}; expire {access_key}
- POST kill {see `faults.KillOrder`}
- POST quota {region, code, value}; shortage {instance_type, zone}
- POST power-off {instance_id}; interrupt {instance_id, notice_seconds}; change {instance_id, attribute: value, ...}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from moto.ec2.models.instances import Instance
from moto.moto_api._internal.models import moto_api_backend

from costgpu.providers.base import TAG_NAME
from tests.emulators.ec2.account import World
from tests.emulators.ec2.instances import Compute, all_instances
from tests.emulators.ec2.services import Scheduler
from tests.emulators.faults import Fault, KillOrder, Mischief
from tests.emulators.machines import NoGuests
from tests.emulators.wire import Reply


class Control:
    """Answers the requests to ``/emu/``."""

    def __init__(self, world: World, mischief: Mischief, compute: Compute, scheduler: Scheduler) -> None:
        self._world, self._mischief, self._compute, self._scheduler = world, mischief, compute, scheduler

    def answer(self, method: str, what: str, body: bytes) -> Reply:
        """One request; an unknown one is a 404, a wrong one a 400 with the reason."""
        handler = getattr(self, f"_{method.lower()}_{what.replace('-', '_')}", None)
        if handler is None:
            return Reply("404 Not Found", [("Content-Type", "application/json")], b'{"error": "no such control"}')
        try:
            answer = handler(**json.loads(body or b"{}"))
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            return Reply(
                "400 Bad Request", [("Content-Type", "application/json")], json.dumps({"error": repr(error)}).encode()
            )
        return Reply("200 OK", [("Content-Type", "application/json")], json.dumps(answer).encode())

    def _get_requests(self) -> list[dict[str, Any]]:
        return list(self._mischief.recorded)

    def _post_requests(self) -> None:
        self._mischief.recorded = []

    def _post_instances(self, name: str) -> list[dict[str, Any]]:
        wanted = (TAG_NAME, name)
        return self._rows(i for i in all_instances() if wanted in ((tag["key"], tag["value"]) for tag in i.get_tags()))

    def _get_instances(self) -> list[dict[str, Any]]:
        return self._rows(all_instances())

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

    def _post_reset(self) -> None:
        self._compute.reset()
        moto_api_backend.reset()
        self._world.reset()
        self._mischief.clear()
        self._scheduler.fired.clear()

    def _post_settings(self, **values: float) -> None:
        for name, value in values.items():
            if not name.endswith("_seconds") or not hasattr(self._world, name):
                raise KeyError(name)
            setattr(self._world, name, float(value))

    def _post_clock(self, advance_seconds: float) -> str:
        self._world.ahead += timedelta(seconds=advance_seconds)
        return self._world.now().isoformat()

    def _post_faults(self, faults: list[dict[str, Any]], add: bool = False) -> None:
        self._mischief.faults = [*(self._mischief.faults if add else ()), *(Fault(**fault) for fault in faults)]

    def _get_faults(self) -> list[int]:
        return [fault.times for fault in self._mischief.faults]

    def _post_kill(self, **order: Any) -> None:
        self._mischief.kills.append(KillOrder(**order))

    def _post_expire(self, access_key: str) -> None:
        self._mischief.expired.add(access_key)

    def _post_quota(self, region: str, code: str, value: float) -> None:
        self._world.quotas[region, code] = value

    def _post_shortage(self, instance_type: str, zone: str = "*") -> None:
        self._world.shortages.add((instance_type, zone))

    def _post_power_off(self, instance_id: str) -> None:
        if not isinstance(self._compute.machines, NoGuests):
            raise TypeError("real guests power themselves off")
        self._compute.machines.power_off(instance_id)

    def _post_interrupt(self, instance_id: str, notice_seconds: float = 120.0) -> None:
        self._compute.interrupt(instance_id, notice_seconds)

    def _post_change(self, instance_id: str, **attributes: Any) -> None:
        instance = next(each for each in all_instances() if each.id == instance_id)
        for name, value in attributes.items():
            if not hasattr(instance, name):
                raise KeyError(name)
            setattr(instance, name, value)
