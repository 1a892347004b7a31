"""Plans a run and starts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from costgpu.errors import UsageError
from costgpu.job.adopt import JobDriver
from costgpu.job.launch import current_owner, launch, launch_group, launch_recovering
from costgpu.job.state.observer import Observer
from costgpu.models.run import Plan
from costgpu.providers import registry
from costgpu.workflows.context import AppContext
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.runs.inputs import check_inputs
from costgpu.workflows.runs.plan import PlannedRun, plan_run
from costgpu.workflows.runs.request import RunRequest, check
from costgpu.workflows.task_files.read_task import with_task_file


@contextmanager
def planned_run(request: RunRequest, reporter: Reporter) -> Iterator[tuple[AppContext, PlannedRun]]:
    """Check and plans; nothing is spent. The context can carry the plan out."""
    request = with_task_file(request, reporter)
    check(request)
    script = script_request(request, reporter)
    with context_of(request, script.workdir, reporter) as context:
        yield context, plan_run(request, script, context)


def context_of(request: RunRequest, workdir: Path, reporter: Reporter) -> AppContext:
    """Return what a run is planned and carried out with, by the settings of its folder and the options of its request."""
    return AppContext(
        reporter,
        workdir,
        strict=True,
        sync_limit_mib=request.sync_limit_mib,
        bucket=request.bucket,
        **registry.settings_of_option("--subnet", request.subnet),
    )


def is_free(plan: Plan) -> bool:
    """Return whether the run costs nothing, so that nobody needs to agree to it."""
    first = plan.options[0]
    return first.offer.is_here and not first.offer.price_usd_per_hour


def check_detached(plan: Plan) -> None:
    """Refuse to leave a job whose checkpoints only this client would save.

    Raises:
        UsageError: It goes on after interruptions, and has no bucket.
    """
    if plan.spec.recovery is not None and not plan.spec.bucket:
        raise UsageError(
            "--recover with --detach or --queue needs a bucket: without this client nobody saves the checkpoints.",
            hint="Add --bucket s3://name/prefix, or stay: leave --detach and --queue out.",
        )


def start_run(
    context: AppContext, planned: PlannedRun, observer: Observer, *, run_id: str, detach: bool = False
) -> JobDriver:
    """Carry out a plan that was agreed to, unless a budget refuses it.

    Raises:
        Detached: The run goes on without this process.
        BudgetExceeded: Nothing was created.
    """
    if planned.refusal is not None:
        raise planned.refusal
    check_inputs(planned.plan)
    if detach:
        check_detached(planned.plan)
    spec = planned.plan.spec
    start = launch_recovering if spec.recovery is not None else launch_group if spec.nodes > 1 else launch
    return start(
        planned.plan,
        context.ledger,
        context.tools,
        observer,
        owner=context.settings.owner or current_owner(),
        environment=planned.environment,
        detach=detach,
        run_id=run_id,
    )
