"""The create call as it was made, and the receipt that closes a run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from costgpu.ledger.codec import to_json
from costgpu.models.instance import CreateRequest
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind
from costgpu.providers import registry
from costgpu.runner.drive import termination
from costgpu.runner.machine.boot_script import boot_script

if TYPE_CHECKING:
    from costgpu.runner.drive.loop import Driver


def request_of(driver: Driver) -> CreateRequest:
    """The create call of the current attempt: the same each time, in each process."""
    view = driver.view
    tried, option = view.attempt, view.option
    assert tried is not None and option is not None  # noqa: S101, PT018 - there is no call without them
    keys = driver.keys()
    spec = registry.spec(option.offer.provider)
    waits = spec.watchdog_delay_seconds
    script = boot_script(
        deadline=tried.lease_until + timedelta(seconds=waits),
        lifetime_seconds=option.lease.lifetime_seconds + waits,
        user_public_key=keys.user_public if spec.over_ssh else "",
        host_private_key=keys.host_private if spec.over_ssh else "",
        host_public_key=keys.host_public if spec.over_ssh else "",
    )
    return CreateRequest(
        run_id=view.run_id,
        token=tried.token,
        name=view.name,
        owner=view.owner,
        offer=option.offer,
        zone=tried.zone,
        disk_gib=option.disk_gib,
        lease_until=tried.lease_until,
        boot_script=script,
        allow_from=tried.allow_from,
        tags=view.spec.tags,
    )


def close(driver: Driver, reason: EndReason, by: EndedBy, left: tuple[str, ...]) -> None:
    """Writes the receipt."""
    receipt = termination.receipt_for(
        driver.view,
        termination.all_layers(driver.view),
        reason=reason,
        ended_by=by,
        left_behind=left,
        now=driver.tools.clock.now(),
    )
    driver.record.add(
        EventKind.CLOSED,
        reason=reason.value,
        ended_by=by.value,
        metered_seconds=receipt.metered_seconds,
        metered_cost_usd=str(receipt.metered_cost_usd),
        receipt=to_json(receipt),
    )
