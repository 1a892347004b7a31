"""Carries out a plan that was agreed to."""

from __future__ import annotations

import getpass
import re
import secrets
import socket
import string
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from typing import Any

from costgpu.errors import CostGpuError
from costgpu.job.drive.context import RunContext, Services
from costgpu.job.drive.group import GroupDriver
from costgpu.job.drive.loop import Driver
from costgpu.job.drive.recovery import RecoveryDriver, recovering_driver
from costgpu.job.state.journal import EventStore, RunJournal
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import Observer
from costgpu.ledger.codec import to_json
from costgpu.models.job import Attempt, EndReason, JobNode, JobSpec
from costgpu.models.run import EventKind, Option, Plan, RunView
from costgpu.models.workload import key_on

RUN_ID_LENGTH = 12


def new_run_id() -> str:
    """Twelve characters that no other run has: a letter, then letters and digits (60 bits)."""
    rest = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(RUN_ID_LENGTH - 1))
    return secrets.choice(string.ascii_lowercase) + rest


def job_name(text: str) -> str:
    """Return a name for people and tags: letters, digits and dashes, at most 40."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "job"


def current_owner() -> str:
    """``user@host``, for the owner tag."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def launch(
    plan: Plan,
    ledger: EventStore,
    services: Services,
    observer: Observer,
    *,
    owner: str,
    environment: Mapping[str, str],
    detach: bool = False,
    run_id: str | None = None,
) -> Driver:
    """Carry out a plan on one machine.

    Returns:
        The driver, with the closed run and the error to end with.

    Raises:
        Detached: The run goes on without this client.
        LedgerError: Nothing was created: the intent could not be recorded.
    """
    journal = RunJournal(ledger, services.clock, run_id or new_run_id())
    driver = Driver(_context(journal, services, observer, environment, detach=detach))
    with lock_run(services.folder / journal.run_id):
        journal.begin(_intent(plan, plan.spec, owner))
        observer.changed(driver.view)
        driver.drive()
    return driver


def intend(plan: Plan, journal: RunJournal, *, owner: str, queued: bool, attempt: Attempt | None) -> RunView:
    """Return records a plan that was agreed to as a run of one machine; nothing is asked of a provider.

    Raises:
        LedgerError: It could not be recorded.
    """
    return journal.begin(_intent(plan, replace(plan.spec, queued=queued, attempt=attempt), owner))


def launch_recovering(
    plan: Plan,
    ledger: EventStore,
    services: Services,
    observer: Observer,
    *,
    owner: str,
    environment: Mapping[str, str],
    detach: bool = False,
    run_id: str | None = None,
) -> RecoveryDriver:
    """Carry out a plan on one machine after the other, as long as they are taken back.

    Returns:
        The driver, with the closed runs, one for each machine, and the error to end with.

    Raises:
        Detached: The run goes on without this client.
        LedgerError: Nothing was created: the intent could not be recorded.
        RunError: The same: the files could not be kept.
    """
    journal = RunJournal(ledger, services.clock, run_id or new_run_id())
    with lock_run(services.folder / journal.run_id):
        intend(plan, journal, owner=owner, queued=False, attempt=Attempt(job_id=journal.run_id, index=0, number=1))
        driver = RecoveryDriver(
            runs=[recovering_driver(journal, services, observer, environment, detach=detach)],
            ledger=ledger,
            services=services,
            observer=observer,
            secrets=environment,
            detach=detach,
        )
        observer.changed(driver.view)
        driver.drive()
    return driver


def launch_group(
    plan: Plan,
    ledger: EventStore,
    services: Services,
    observer: Observer,
    *,
    owner: str,
    environment: Mapping[str, str],
    detach: bool = False,
    run_id: str | None = None,
) -> GroupDriver:
    """Carries out a plan on several machines: all of them or none. Where one place has no room for all, the next is tried.

    Returns:
        The driver, with the closed runs, one for each machine, and the error to end with.

    Raises:
        Detached: The job goes on without this client.
        LedgerError: Nothing was created: the intent could not be recorded.
    """
    first, excluded, spent = run_id or new_run_id(), frozenset[tuple[int, str | None]](), Decimal(0)
    refusal: CostGpuError | None = None
    while True:
        ids = (first, *(new_run_id() for _ in range(plan.spec.nodes - 1)))
        drivers = []
        with ExitStack() as locks:
            for number, one in enumerate(ids):
                locks.enter_context(lock_run(services.folder / one))
                journal = RunJournal(ledger, services.clock, one)
                context = _context(journal, services, observer, environment, detach=detach)
                context.excluded, context.last_refusal = excluded, refusal
                spec = replace(plan.spec, node=JobNode(node=number, run_ids=ids))
                journal.begin(_intent(plan, spec, owner, spent))
                drivers.append(Driver(context))
            observer.changed(drivers[0].view)
            group = GroupDriver(drivers)
            group.drive()
        full = full_places(group)
        if not full:
            return group
        spent += sum((view.receipt.metered_cost_usd for view in group.views if view.receipt is not None), Decimal(0))
        first, excluded, refusal = new_run_id(), excluded | full, group.error


def _context(
    journal: RunJournal, services: Services, observer: Observer, environment: Mapping[str, str], *, detach: bool
) -> RunContext:
    return RunContext(
        journal=journal, services=services, observer=observer, secrets=environment, detach_when_running=detach
    )


def full_places(driver: GroupDriver) -> frozenset[tuple[int, str | None]]:
    """Return the place that had room for some of a job's machines and not for all; none if it failed for another reason.

    Where the provider chose the zone, that is the choice itself and the zone: asked for by name, it is as full.
    """
    call = driver.view.create_call
    if driver.context.cancelling or driver.stopping or call is None or driver.view.started_at is not None:
        return frozenset()
    book = driver.context.journal.book
    events = [event for view in driver.views for event in book.events(view.run_id)]
    if any(each.kind is EventKind.ENDING and each.data.get("reason") == EndReason.CANCELLED for each in events):
        return frozenset()  # from another terminal
    full = [view for view in driver.views if view.reason is EndReason.NO_CAPACITY]
    if driver.view in full and driver.view.instance is None:
        return frozenset()  # the first machine has found no place at all
    refused = {(option, zone) for view in full for option, zone, _ in view.refusals}
    return frozenset({(call.option, call.zone), *refused} if full else ())


def _intent(plan: Plan, spec: JobSpec, owner: str, spent: Decimal = Decimal(0)) -> dict[str, Any]:
    """Return what a run begins with.

    Args:
        spent: What earlier tries of the same job have cost: it is taken off every machine's share of the cap.
    """
    first = spec.node is None or spec.node.node == 0
    options = [to_json(_within_cap(option, spent / spec.nodes)) for option in plan.options]
    return {
        "name": spec.name,
        "owner": owner,
        "client": socket.gethostname(),
        "spec": to_json(spec),
        "identity": to_json(plan.identity),
        "options": options,
        "estimate": _estimate(plan) if first else None,
        "workload": {"key": key_on(plan.workload, spec.nodes) if first else "", "steps": plan.steps},
    }


def _within_cap(option: Option, spent: Decimal) -> Option:
    """Return the option with a lease that is shorter by what was spent already."""
    lease = option.lease
    if not spent or not lease.usd_per_hour:
        return option
    seconds = max(0.0, lease.lifetime_seconds - float(spent * 3600 / lease.usd_per_hour))
    left = replace(lease, lifetime_seconds=seconds, worst_cost_usd=max(Decimal(0), lease.worst_cost_usd - spent))
    return replace(option, lease=left)


def _estimate(plan: Plan) -> dict[str, float] | None:
    """Return what was predicted for the run of one machine."""
    if plan.prediction is None:
        return None
    wall, cost = plan.prediction.wall_seconds, plan.prediction.cost_usd
    return {
        "seconds": wall.value,
        "seconds_low": wall.low,
        "seconds_high": wall.high,
        "cost_usd": cost.value / plan.spec.nodes,
        "cost_usd_low": cost.low / plan.spec.nodes,
        "cost_usd_high": cost.high / plan.spec.nodes,
        "job_seconds": plan.prediction.run_seconds.value,
    }
