"""Runs as the ledger tells them, and machines that it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from costgpu.errors import ConfigError, LedgerError, ProviderError
from costgpu.job.load_runs import load_runs
from costgpu.models.instance import Instance
from costgpu.models.job import JobPhase
from costgpu.models.run import RunState, RunView
from costgpu.workflows.context import AppContext

RECENT_RUNS = 50


@dataclass(frozen=True, slots=True)
class RunList:
    """Runs of the ledger, and machines that are known only by their tags."""

    runs: list[RunView]
    tagged: list[Instance]


def list_runs(context: AppContext, *, closed: bool = False, by_tag: bool = False) -> RunList:
    """Open runs, newest first; with `closed` the recent closed ones, too.

    Args:
        by_tag: Whether the providers are asked for machines; they are in any case if the ledger cannot be read.
    """
    ledger = context.ledger
    views: list[RunView] = []
    try:
        ids = ledger.recent_runs(RECENT_RUNS) if closed else tuple(reversed(ledger.open_runs()))
        views, damaged = load_runs(ledger, ids)
        for problem in damaged.values():  # one that makes no sense does not hide the others
            context.reporter.note(f"not listed: {problem.message}", problem.hint)
    except (ConfigError, LedgerError) as error:
        context.reporter.note(f"{error.message} Asking the providers instead.", error.hint)
        by_tag = True
    found: list[Instance] = []
    known = {view.run_id for view in views}
    for provider in context.providers() if by_tag else ():
        try:
            owned = provider.list_owned(None)
        except ProviderError as error:
            context.reporter.note(f"{provider.name} could not be asked: {error.message}")
            continue
        found += [i for i in owned.instances if i.state.alive and i.run_id not in known]
        for region, why in owned.unreachable:
            context.reporter.note(f"{provider.name}/{region} could not be asked: {why}")
    return RunList(views, found)


def waiting_runs(context: AppContext, views: Sequence[RunView]) -> list[str]:
    """Return a sentence for each job of this computer that no client drives: its outputs wait for somebody."""
    from costgpu.config import runs_folder
    from costgpu.job.state.lock import is_driven

    folders = {view.run_id: runs_folder() / view.run_id for view in views}
    # of several machines, only the first: its job is called by that run
    begun = [view for view in views if view.state not in (RunState.INTENT, RunState.CLOSED) and view.is_first_machine]
    here = [view for view in begun if folders[view.run_id].exists()]  # only here are their keys
    alone = [view for view in here if not is_driven(runs_folder() / view.job_id)]
    if not alone:
        return []
    from costgpu.job.adopt import job_status

    now = context.clock.now()
    with ThreadPoolExecutor(8) as pool:  # each may take seconds to answer
        answers = list(pool.map(lambda view: job_status(view, context.tools), alone))
    lines = []
    for view, status in zip(alone, answers, strict=True):
        what = "goes on without a client"
        if status is not None and status.phase is JobPhase.FINISHED:
            what = "is over; its outputs wait"
        elif view.lease_until is not None and view.lease_until < now:
            what = "has outlived its lease"
        lines.append(f"{view.run_id} {what}: costgpu attach {view.run_id}")
    return lines
