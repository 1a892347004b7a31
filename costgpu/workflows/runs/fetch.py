"""Downloads the outputs and logs of a run, from its machine or from its bucket."""

from __future__ import annotations

from pathlib import Path

from costgpu.errors import RunError
from costgpu.job.adopt import finish_job
from costgpu.job.drive.checkpoints import store_of
from costgpu.job.drive.collect import bring_home
from costgpu.job.find_run import current_run, runs_of_job
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import NullObserver
from costgpu.models.instance import Instance
from costgpu.models.job import Outputs, OutputsFrom
from costgpu.models.run import RunState, RunView
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.find_run import connection, run_and_machine
from costgpu.workflows.sweep.bundle import read_spec


def fetch_outputs(context: AppContext, text: str, to: str | None) -> tuple[list[str], RunError | None]:
    """Download what there is; the machine is left as it is.

    Args:
        to: Target folder; None for the one that the job was sent from.

    Returns:
        Sentences for a person; and what is missing or could not be read, None if nothing is.
    """
    view, instance = run_and_machine(context, text)
    if view is not None and view.spec.goes_on:  # the machine of now has them, or they are kept here
        view, instance = run_and_machine(context, current_run(context.ledger, view).run_id)
        if view is not None and (instance is None or not instance.state.alive):
            kept = _from_store(context, view, to)
            if kept is not None:
                return kept
    if view is not None and view.waits:
        raise RunError(
            f"Run {view.run_id} waits for a machine, and nothing of its job is kept here.",
            hint="costgpu queue says what it waits for.",
        )
    if view is not None and view.outputs_folder is None and view.has_peers:  # the first machine has them
        view, instance = run_and_machine(context, view.machine_ids[0])
    if view is None or view.spec.outputs_from is not OutputsFrom.ALL:
        remarks, problem = _fetch_from(context, view, instance, to)
        return [*remarks, *_page_of_sweep(context, view, to)], problem
    remarks, problem = [], None
    for one in runs_of_job(context.ledger, view):
        try:
            said, wrong = _fetch_from(context, *run_and_machine(context, one.run_id), to)
        except RunError as error:
            said, wrong = [], error
        remarks += said
        problem = problem or wrong
    return remarks, problem


def _page_of_sweep(context: AppContext, view: RunView | None, to: str | None) -> list[str]:
    """Write the page of a sweep whose results have come home; a sentence about it."""
    spec = read_spec(view.spec.argv) if view is not None else None
    if view is None or spec is None:
        return []
    from costgpu.workflows.sweep.results import results_at_home, write_page

    folder = Path(to).resolve() if to else Path(view.spec.workdir)
    results = results_at_home(spec, folder)
    page = write_page(results, spec, folder, context.clock.now()) if results is not None else None
    return [] if page is None else [f"The page of the sweep is {page}."]


def _fetch_from(
    context: AppContext, view: RunView | None, instance: Instance | None, to: str | None
) -> tuple[list[str], RunError | None]:
    run_id = view.run_id if view is not None else instance.run_id if instance else ""
    home = Path(to).resolve() if to else Path.cwd()
    if view is not None:
        own = view.outputs_folder or view.spec.workdir
        home = home / Path(own).relative_to(view.spec.workdir) if to else Path(own)
    if view is not None and view.outputs_home and to is None:
        return [f"The outputs of run {run_id} are home already, in {home}."], None
    if instance is None or not instance.state.alive:
        return _from_bucket(context, view, run_id, home)
    return _from_machine(context, view, instance, home)


def _from_store(context: AppContext, view: RunView, to: str | None) -> tuple[list[str], RunError | None] | None:
    """Return what is kept here of a job that has no machine now; None if that is nothing."""
    store = store_of(context.tools.folder, view.job_id)
    newest = store.newest()
    if newest is None:
        return None
    if view.state is RunState.CLOSED and to is None:
        remarks: list[str] = []
        with lock_run(context.tools.folder / view.job_id):
            finish_job(view, context.ledger, context.tools, RemarksObserver(remarks))
        return remarks, None
    home = Path(to or view.spec.workdir).resolve()
    brought = bring_home(store, Outputs(files=newest.files), home=home, run_id=view.run_id, view=view)
    goes_on = f"The job waits for its next machine: costgpu attach {view.run_id} goes on with it."
    return [*brought.remarks, *([goes_on] if view.waits else [])], brought.placed.problem


class RemarksObserver(NullObserver):
    """Keeps what a person should know."""

    def __init__(self, remarks: list[str]) -> None:
        self._remarks = remarks

    def note(self, text: str) -> None:
        """One more."""
        self._remarks.append(text)


def _from_machine(
    context: AppContext, view: RunView | None, instance: Instance, home: Path
) -> tuple[list[str], RunError | None]:
    run_id = instance.run_id
    folder = context.tools.folder / run_id
    try:
        with connection(context, instance) as host:
            host.status()  # an agent that does not answer is noticed before it is given the time to read all outputs
            host.fetch_logs(folder)
            brought = bring_home(host, host.outputs(), home=home, run_id=run_id, view=view)
    except OSError as error:
        raise RunError(
            f"The logs and outputs of run {run_id} cannot be kept here: {error.strerror or error}.",
            hint=f"Make room, then: costgpu fetch {run_id}. What is on the machine stays there until its lease ends.",
        ) from error
    until = f"{instance.lease_until:%Y-%m-%d %H:%M} UTC" if instance.lease_until else "somebody ends it"
    stays = f"Its machine stays until {until}; costgpu cancel {run_id} ends it now."
    return [*brought.remarks, stays], brought.staying or brought.placed.problem


def _from_bucket(
    context: AppContext, view: RunView | None, run_id: str, home: Path
) -> tuple[list[str], RunError | None]:
    folder = context.tools.folder / run_id
    try:
        rescued = context.tools.bucket.rescue(view, folder) if view is not None and context.tools.bucket else None
    except OSError as error:
        raise RunError(
            f"What run {run_id} has left in the bucket cannot be kept here: {error.strerror or error}.",
            hint=f"Make room, then: costgpu fetch {run_id}.",
        ) from error
    if rescued is None:
        raise RunError(
            f"The machine of run {run_id} is gone{', and nothing is in a bucket' if view else ''}.",
            hint="Outputs live with their machine, unless --bucket was given.",
        )
    status, entries, source = rescued
    brought = bring_home(source, Outputs(files=entries), home=home, run_id=run_id, view=view)
    return [*([status.detail] if status.detail else []), *brought.remarks], brought.placed.problem
