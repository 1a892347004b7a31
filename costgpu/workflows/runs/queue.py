"""Runs that wait: for room among the machines, for a budget, or for whoever goes on with an interrupted job.

There is no daemon. The queue is what the ledger calls waiting; a cron line, or the next command, starts what may start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costgpu.errors import CostGpuError, LedgerError, ProviderError, RunBusy
from costgpu.models.job import Attempt
from costgpu.models.run import RunState, RunView
from costgpu.providers import registry
from costgpu.runner.adopt import adopt_job, collect_finished
from costgpu.runner.drive.context import Detached
from costgpu.runner.files.sent_folder import keep_sent, sent_folder
from costgpu.runner.find_run import load_run, runs_of_job
from costgpu.runner.launch import current_owner, intend
from costgpu.runner.load_runs import load_runs
from costgpu.runner.state.attempts import attempts_of_job
from costgpu.runner.state.journal import RunJournal
from costgpu.runner.state.lock import is_driven, lock_run, lock_runs
from costgpu.runner.state.observer import Observer
from costgpu.workflows.context import AppContext
from costgpu.workflows.environment import environment_again
from costgpu.workflows.runs.plan import PlannedRun, budget_refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run of the queue, and what it waits for."""

    view: RunView
    waits_for: str  # a sentence without its full stop; empty if it may start
    holds_others: bool = True  # whether what came after it waits behind it


def enqueue(context: AppContext, planned: PlannedRun, observer: Observer, run_id: str) -> RunView:
    """Records a plan that was agreed to as a run that waits, and keeps its files as they are now.

    Raises:
        RunError: The files cannot be kept; nothing waits.
        LedgerError: The same: the intent could not be recorded.
    """
    spec = planned.plan.spec
    attempt = Attempt(job_id=run_id, index=0, number=1) if spec.recovery is not None else None
    folder = context.tools.folder
    with lock_run(folder / run_id):
        view = intend(
            planned.plan,
            RunJournal(context.ledger, context.clock, run_id),
            owner=context.settings.owner or current_owner(),
            queued=True,
            attempt=attempt,
        )
        try:
            keep_sent(context.tools.select(view), sent_folder(folder, view))
        except CostGpuError:
            _give_up(context, view, observer)
            raise
    return view


def _give_up(context: AppContext, view: RunView, observer: Observer) -> None:
    driver = adopt_job(view, context.ledger, context.tools, observer, {})
    driver.cancel()


def waiting(context: AppContext) -> list[WaitingRun]:
    """What waits, in the order in which it is started.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    views, damaged = load_runs(context.ledger, context.ledger.open_runs())
    for problem in damaged.values():
        context.reporter.note(f"not listed: {problem.message}", problem.hint)
    busy = sum(not view.waits for view in views)
    found: list[WaitingRun] = []
    for view in views:
        if not view.waits:
            continue
        if is_driven(context.tools.folder / view.run_id):
            busy += 1
            continue
        reason, holds = _what_for(context, view, busy)
        if not reason and any(each.holds_others for each in found):
            reason = "the runs before it"
        found.append(WaitingRun(view=view, waits_for=reason, holds_others=holds and bool(reason)))
        busy += not reason
    return found


def _what_for(context: AppContext, view: RunView, busy: int) -> tuple[str, bool]:
    """What a run waits for, and whether those after it wait, too."""
    if not (context.tools.folder / view.run_id).exists() and not sent_folder(context.tools.folder, view).exists():
        return f"{view.client}, where its files are", False
    if environment_again(view.spec) is None:
        return f"variables that are not set here: {', '.join(view.spec.env_names)}", False
    most = context.settings.max_machines
    if busy >= most:
        return f"room: {busy} of {most} machines are in use (max_machines)", True
    _, refusal = budget_refusal(context, view.spec, view.options)
    if refusal is not None:
        return refusal.message.rstrip("."), True
    return _credentials(context, view), False


def _credentials(context: AppContext, view: RunView) -> str:
    """Why nothing can be rented for a run now; empty if something can."""
    problems: Mapping[str, str] = {}
    for name in dict.fromkeys(option.offer.provider for option in view.options):
        try:
            if registry.has_credentials(registry.spec(name)):
                context.provider(name).identity()
                return ""
            problems = {**problems, name: "no credentials here"}
        except ProviderError as error:
            problems = {**problems, name: error.message.rstrip(".")}
    return "; ".join(f"{name}: {why}" for name, why in problems.items())


def start_waiting(context: AppContext, observer: Observer) -> list[RunView]:
    """Brings home what is finished, and starts what may start; each goes on without this process.

    Returns:
        The runs that were started, as they are now.

    Raises:
        RunBusy: Another process is at it.
    """
    started: list[RunView] = []
    with lock_run(context.tools.folder / "queue"):
        collect_finished(context.ledger, context.tools, observer)
        tried: set[str] = set()
        while True:
            ready = [each.view for each in waiting(context) if not each.waits_for and each.view.run_id not in tried]
            if not ready:
                return started
            tried.add(ready[0].run_id)
            if (view := _start(context, ready[0], observer)) is not None:
                started.append(view)


def _start(context: AppContext, view: RunView, observer: Observer) -> RunView | None:
    """Starts a run and leaves it; None if it could not be started, which is told."""
    folder = context.tools.folder
    try:
        with lock_runs(folder / one.run_id for one in runs_of_job(context.ledger, view)):
            if not load_run(context.ledger, view.run_id).waits:
                return None  # somebody else was quicker
            driver = adopt_job(view, context.ledger, context.tools, observer, environment_again(view.spec))
            driver.leave_when_running()
            observer.changed(driver.view)
            driver.drive()
    except Detached:
        pass
    except RunBusy:
        return None
    except LedgerError:
        raise
    except CostGpuError as error:
        observer.note(f"Run {view.run_id} ({view.name}): {error.message}")
    now = attempts_of_job(context.ledger, load_run(context.ledger, view.run_id))[-1]
    return now if now.state is not RunState.INTENT else None
