"""Carries out a plan that was agreed to."""

from __future__ import annotations

import getpass
import re
import secrets
import socket
import string
from collections.abc import Mapping
from dataclasses import replace

from costgpu.job.drive.context import Services
from costgpu.job.drive.job import JobDriver
from costgpu.job.state.attempts import attempt_id
from costgpu.job.state.journal import EventStore, RunJournal
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import Observer
from costgpu.models.events import Intended
from costgpu.models.job import Attempt, JobNode
from costgpu.models.run import Plan, RunView
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
) -> JobDriver:
    """Carry out a plan.

    Returns:
        The driver, with the closed runs and the error to end with.

    Raises:
        Detached: The job goes on without this client.
        LedgerError: Nothing was created: the intent could not be recorded.
        RunError: The same: the files of a job that may go on later could not be kept.
    """
    journal = RunJournal(ledger, services.clock, run_id or new_run_id())
    with lock_run(services.folder / journal.run_id):
        view = intend(plan, journal, owner=owner)
        driver = JobDriver.of(view, ledger, services, observer, environment, detach=detach)
        observer.changed(driver.view)
        driver.drive()
    return driver


def intend(plan: Plan, journal: RunJournal, *, owner: str) -> RunView:
    """Record a plan that was agreed to, by the run of its first machine; nothing is asked of a provider.

    Raises:
        LedgerError: It could not be recorded.
    """
    spec, job_id = plan.spec, journal.run_id
    if spec.nodes > 1:
        spec = replace(spec, node=JobNode(node=0, run_ids=tuple(attempt_id(job_id, 0, n) for n in range(spec.nodes))))
    if spec.nodes > 1 or spec.goes_on:
        spec = replace(spec, attempt=Attempt(job_id=job_id, index=0, number=1))
    return journal.begin(
        Intended(
            name=spec.name,
            owner=owner,
            client=socket.gethostname(),
            spec=spec,
            identity=plan.identity,
            options=plan.options,
            estimate=_estimate(plan),
            workload={"key": key_on(plan.workload, spec.nodes), "steps": plan.steps},
        )
    )


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
