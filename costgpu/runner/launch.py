"""Carries out a plan that was agreed to."""

from __future__ import annotations

import getpass
import re
import secrets
import socket
import string
from collections.abc import Mapping

from costgpu.ledger.codec import to_json
from costgpu.models.run import Plan
from costgpu.runner.drive.context import RunContext, Services
from costgpu.runner.drive.loop import Driver
from costgpu.runner.state.journal import EventStore, RunJournal
from costgpu.runner.state.lock import lock_run
from costgpu.runner.state.observer import Observer

RUN_ID_LENGTH = 12


def new_run_id() -> str:
    """Twelve characters that no other run has: a letter, then letters and digits (60 bits)."""
    rest = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(RUN_ID_LENGTH - 1))
    return secrets.choice(string.ascii_lowercase) + rest


def job_name(text: str) -> str:
    """A name for people and tags: letters, digits and dashes, at most 40."""
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
    """Carries out a plan.

    Returns:
        The driver, with the closed run and the error to end with.

    Raises:
        Detached: The run goes on without this client.
        LedgerError: Nothing was created: the intent could not be recorded.
    """
    journal = RunJournal(ledger, services.clock, run_id or new_run_id())
    context = RunContext(
        journal=journal, services=services, observer=observer, secrets=environment, detach_when_running=detach
    )
    driver = Driver(context)
    with lock_run(services.folder / journal.run_id):
        journal.begin(
            {
                "name": plan.spec.name,
                "owner": owner,
                "client": socket.gethostname(),
                "spec": to_json(plan.spec),
                "identity": to_json(plan.identity),
                "options": [to_json(option) for option in plan.options],
                "estimate": _estimate(plan),
                "workload": {"key": plan.workload, "steps": plan.steps},
            }
        )
        observer.changed(driver.view)
        driver.drive()
    return driver


def _estimate(plan: Plan) -> dict[str, float] | None:
    if plan.prediction is None:
        return None
    wall, cost = plan.prediction.wall_seconds, plan.prediction.cost_usd
    return {
        "seconds": wall.value,
        "seconds_low": wall.low,
        "seconds_high": wall.high,
        "cost_usd": cost.value,
        "cost_usd_low": cost.low,
        "cost_usd_high": cost.high,
        "job_seconds": plan.prediction.run_seconds.value,
    }
