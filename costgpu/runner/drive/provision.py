"""From intent to an instance with an id: the next place, the create call, and what became of an unanswered one."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from costgpu.errors import (
    CapTooSmall,
    CostGpuError,
    InvalidRequest,
    LedgerConflict,
    NoCapacity,
    ProviderError,
    RunCancelled,
    Throttled,
    Unreachable,
)
from costgpu.ledger.codec import to_json
from costgpu.models.instance import Instance
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy, EventKind, RunState
from costgpu.retry import retry_provider_call
from costgpu.runner.drive import termination
from costgpu.runner.drive.receipt import close, request_of
from costgpu.runner.lease import LEAST_JOB_SECONDS, boot_seconds

if TYPE_CHECKING:
    from costgpu.runner.drive.loop import Driver

CREATE_SECONDS = 300.0  # how long an unanswered create call is repeated


def attempt(driver: Driver) -> None:
    """Chooses the next place and records the create call before it is made; closes the run if there is none."""
    place = None if driver.cancelling or driver.error is not None else _next_place(driver)
    if place is None:
        driver.error = driver.error or _nothing_left(driver)
        close(driver, _reason(driver), EndedBy.NOTHING_CREATED, ())
        return
    index, zone = place
    option = driver.view.options[index]
    number = len(driver.view.refusals) + 1
    try:
        account = driver.account(driver.tools.provider(option.offer.provider))
    except ProviderError as error:
        driver.error = error
        close(driver, EndReason.PROVISION_FAILED, EndedBy.NOTHING_CREATED, ())
        return
    until = driver.tools.clock.now() + timedelta(seconds=option.lease.lifetime_seconds)
    driver.keys()
    driver.asked, driver.asked_at = f"{driver.view.run_id}-{number}", None
    driver.record.add(
        EventKind.ATTEMPTED,
        attempt=number,
        token=f"{driver.view.run_id}-{number}",
        option=index,
        zone=zone,
        lease_until=until.replace(microsecond=0).isoformat(),
        allow_from=driver.tools.allow_from(option.offer.provider),
        account=account,
        offer=to_json(option.offer),
        lifetime_seconds=option.lease.lifetime_seconds,
        worst_cost_usd=str(option.lease.worst_cost_usd),
        usd_per_hour=str(option.lease.usd_per_hour),
    )


def create(driver: Driver) -> None:
    """Makes the create call, again and again while it is not answered.

    A refusal proves that nothing was created only if no call before it, by whatever process, went unanswered.
    """
    driver.record.refresh()
    if driver.view.state is not RunState.PROVISIONING:
        return  # ended from another computer while this one slept
    provider, request, clock = driver.provider(), request_of(driver), driver.tools.clock
    certain = driver.asked == request.token
    left = (request.lease_until - clock.now()).total_seconds()
    if not certain and left < boot_seconds(request.offer) + LEAST_JOB_SECONDS:
        late = CapTooSmall(f"Of the lease of run {request.run_id} too little is left to boot a machine.")
        driver.end(EndReason.UNCLAIMED, EndedBy.CLIENT, late)  # only looked for, not created
        return
    zone = f" in {request.zone or request.offer.region}"
    driver.observer.waiting(driver.view, f"asking {provider.name} for {request.offer.instance_type}{zone}")

    def call() -> Instance:
        nonlocal certain
        driver.asked_at = clock.monotonic()
        try:
            return provider.create(request)
        except (Throttled, Unreachable):
            certain = False
            raise

    try:
        instance = retry_provider_call(clock, call, limit_seconds=CREATE_SECONDS)
    except Unreachable as error:
        driver.end(EndReason.PROVISION_FAILED, EndedBy.CLIENT, error)  # it may exist: looked for from there
        return
    except ProviderError as error:
        found = None if certain else find(driver)
        if found is None:
            _refused(driver, error)
            termination.clean_up(provider, request.run_id, request.offer.region, clock)
            return
        instance = found
    created(driver, instance)


def _refused(driver: Driver, error: ProviderError) -> None:
    driver.record.add(EventKind.REFUSED, error=type(error).__name__, message=error.message)
    if isinstance(error, NoCapacity):
        driver.observer.note(error.message)
    else:
        driver.error = error


def created(driver: Driver, instance: Instance) -> None:
    """Records the id, before anything is waited for."""
    layers = to_json(driver.provider().layers(request_of(driver)))
    while driver.view.instance is None:
        if driver.view.state is RunState.CLOSED:  # from another computer: nobody would come for it
            termination.terminate(driver.provider(), instance.ref, driver.tools.clock)
            termination.confirm(
                driver.provider(), instance.ref, driver.tools.clock, known_since=driver.tools.clock.now()
            )
            return
        with contextlib.suppress(LedgerConflict):  # somebody has written meanwhile: the id is not to be lost
            driver.record.add(
                EventKind.CREATED,
                **to_json(instance.ref),
                zone=instance.zone,
                instance_type=instance.instance_type,
                launched_at=instance.launched_at.isoformat(),
                layers=layers,
            )


def find(driver: Driver) -> Instance | None:
    """The machine of a create call whose answer was lost, looked for until it would have to be visible.

    Counted from the last call: this process's own, or the last that another one can have made.
    """
    tried = driver.view.attempt
    assert tried is not None  # noqa: S101 - provisioning has one
    provider, request, clock = driver.provider(), request_of(driver), driver.tools.clock
    own = driver.asked == tried.token
    last = clock.monotonic() - (clock.now() - tried.at).total_seconds() + (0.0 if own else CREATE_SECONDS)
    last = max(last, driver.asked_at if driver.asked_at is not None else last)
    while True:
        found = retry_provider_call(clock, lambda: provider.find(request), limit_seconds=CREATE_SECONDS)
        if found is not None or clock.monotonic() - last > termination.UNKNOWN_SECONDS:
            return found
        driver.observer.waiting(driver.view, "making sure that no machine was created")
        clock.sleep(3.0)


def _next_place(driver: Driver) -> tuple[int, str | None] | None:
    """The first option and zone that have not refused."""
    tried = {(index, zone) for index, zone, _ in driver.view.refusals}
    for index, option in enumerate(driver.view.options):
        provider = driver.tools.provider(option.offer.provider)
        try:
            zones = provider.zones(option.offer)
        except InvalidRequest as error:
            driver.observer.note(error.message)
            continue
        for zone in zones:
            if (index, zone) not in tried:
                return index, zone
    return None


def _nothing_left(driver: Driver) -> CostGpuError:
    if driver.cancelling:
        return RunCancelled("Cancelled before anything was created.")
    if not driver.view.refusals:
        return InvalidRequest("There is no place to launch in.")
    index, zone, message = driver.view.refusals[-1]
    offer = driver.view.options[index].offer
    return NoCapacity(
        f"No machine was free in any of {len(driver.view.refusals)} places. The last one, {offer.instance_type} in"
        f" {zone or offer.region}: {message}",
        hint="Try again later, or allow more: another --infra or --gpus, or no --spot.",
    )


def _reason(driver: Driver) -> EndReason:
    if isinstance(driver.error, RunCancelled):
        return EndReason.CANCELLED
    return EndReason.NO_CAPACITY if isinstance(driver.error, NoCapacity) else EndReason.PROVISION_FAILED
