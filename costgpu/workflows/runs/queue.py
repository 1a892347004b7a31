"""Runs that wait: for room among the machines, for a budget, or for whoever goes on with an interrupted job.

There is no daemon. The queue is what the ledger calls waiting; a cron line, or the next command, starts what may start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from costgpu.errors import CostGpuError, LedgerError, ProviderError, RunBusy, TerminationUnconfirmed
from costgpu.job.adopt import adopt_job, collect_finished
from costgpu.job.drive.context import Detached
from costgpu.job.files.sent_folder import keep_sent, sent_folder, sent_selection
from costgpu.job.find_run import current_run, load_run
from costgpu.job.launch import current_owner, intend
from costgpu.job.load_runs import load_runs
from costgpu.job.place_policy import looks_again_at
from costgpu.job.state.journal import RunJournal
from costgpu.job.state.lock import is_driven, lock_run
from costgpu.job.state.observer import Observer
from costgpu.models.run import RunState, RunView
from costgpu.providers import registry
from costgpu.render.text.queue import WaitingRun
from costgpu.workflows.context import AppContext
from costgpu.workflows.environment import environment_again
from costgpu.workflows.runs.budgets import ask_budgets
from costgpu.workflows.runs.inputs import check_inputs
from costgpu.workflows.runs.plan import PlannedRun


def enqueue(context: AppContext, planned: PlannedRun, observer: Observer, run_id: str) -> RunView:
    """Record a plan that was agreed to as a run that waits, and keeps its files as they are now.

    Raises:
        RunError: The files cannot be kept, or the script reads what stays here; nothing waits.
        LedgerError: The same: the intent could not be recorded.
    """
    check_inputs(planned.plan)
    folder = context.tools.folder
    with lock_run(folder / run_id):
        view = intend(
            replace(planned.plan, spec=replace(planned.plan.spec, queued=True)),
            RunJournal(context.ledger, context.clock, run_id),
            owner=context.settings.owner or current_owner(),
        )
        try:
            keep_sent(context.tools.select(view), sent_folder(folder, view))
        except CostGpuError:
            adopt_job(view, context.ledger, context.tools, observer, {}).cancel()
            raise
    return view


def waiting(context: AppContext) -> list[WaitingRun]:
    """Return what waits, in the order in which it is started.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    views, damaged = load_runs(context.ledger, context.ledger.open_runs())
    for problem in damaged.values():
        context.reporter.note(f"not listed: {problem.message}", problem.hint)
    waits = {view.run_id for view in views if view.waits and not is_driven(context.tools.folder / view.job_id)}
    busy = sum(view.machine_ids[0] not in waits for view in views)
    found: list[WaitingRun] = []
    for view in views:
        if view.run_id not in waits or not view.is_first_machine:
            continue
        reason = what_keeps_back(context, view) or _cannot_be_left(context, view)
        holds = not reason
        if not reason and any(each.holds_others for each in found):
            reason = "the runs before it"
        elif not reason and busy and busy + view.spec.nodes > context.settings.max_machines:
            reason = f"room: {busy} of {context.settings.max_machines} machines are in use (max_machines)"
        found.append(WaitingRun(view=view, waits_for=reason, holds_others=holds))
    return found


def what_keeps_back(context: AppContext, view: RunView) -> str:
    """Return why a run that waits cannot be started from here now; empty if it can, were there room, or does not wait."""
    if not view.waits:
        return ""
    if sent_selection(sent_folder(context.tools.folder, view)) is None:
        return f"{view.client}, where its files are"
    if environment_again(view.spec) is None:
        return f"variables that are not set here: {', '.join(view.spec.env_names)}"
    refusal = ask_budgets(context.ledger, view.spec, view.options, view.owner, context.clock.now()).refusal
    return refusal.message.rstrip(".") if refusal is not None else ""


def _cannot_be_left(context: AppContext, view: RunView) -> str:
    """Return why a run that nothing keeps back cannot be started and left now; empty if it can."""
    if view.is_later_attempt and view.spec.needs_client:
        return f"you: without a bucket somebody has to save its checkpoints (costgpu attach {view.run_id})"
    if context.clock.now() < (due := looks_again_at(view)):
        return f"the next look for a machine, at {due:%H:%M} UTC"
    problems: dict[str, str] = {}
    for name in dict.fromkeys(option.offer.provider for option in view.options):
        try:
            if registry.has_credentials(registry.spec(name)):
                context.provider(name).identity()
                return ""
            problems[name] = "no credentials here"
        except ProviderError as error:
            problems[name] = error.message.rstrip(".")
    return "; ".join(f"{name}: {why}" for name, why in problems.items())


def start_waiting(
    context: AppContext, observer: Observer, environments: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> list[RunView]:
    """Bring home what is finished, and start what may start; each goes on without this process.

    Args:
        environments: Run id -> variables of its job, where this process knows them.

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
            known = environments.get(ready[0].run_id)
            if (view := _start(context, ready[0], observer, known)) is not None:
                started.append(view)


def _start(
    context: AppContext, view: RunView, observer: Observer, environment: Mapping[str, str] | None
) -> RunView | None:
    """Start a run and leave it; None if it could not be started, which is told.

    Raises:
        TerminationUnconfirmed: A machine may be billing.
    """
    folder = context.tools.folder
    try:
        with lock_run(folder / view.job_id):
            if not load_run(context.ledger, view.run_id).waits:
                return None  # somebody else was quicker
            variables = environment_again(view.spec) if environment is None else environment
            driver = adopt_job(view, context.ledger, context.tools, observer, variables, detach=True)
            observer.changed(driver.view)
            driver.drive()
    except Detached:
        pass
    except RunBusy:
        return None
    except (LedgerError, TerminationUnconfirmed):
        raise
    except CostGpuError as error:
        observer.note(f"Run {view.run_id} ({view.name}): {error.message} {error.hint}".strip())
    now = current_run(context.ledger, load_run(context.ledger, view.run_id))
    return now if now.state is not RunState.INTENT else None
