"""The commands of the command line, as they put the workflows together; what they raise is what a person sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal

from costgpu.errors import RunBusy, RunError
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import current_run
from costgpu.job.plan import LaunchPlace, Limits, options_for
from costgpu.job.state.outcome import error_for, exit_code
from costgpu.models.instance import Identity, Instance
from costgpu.models.job import JobSpec, OutputsFrom, Recovery
from costgpu.models.offer import Offer
from costgpu.models.run import LaunchOption, Plan, RunState, RunView
from costgpu.workflows.runs.attach import attach_run, watch_run
from costgpu.workflows.runs.cancel import cancel as cancel_found
from costgpu.workflows.runs.fetch import fetch_outputs
from costgpu.workflows.runs.find_run import find_run, recorded_run
from costgpu.workflows.runs.plan import PlannedRun
from costgpu.workflows.runs.queue import enqueue, start_waiting
from costgpu.workflows.runs.reap import error_for as reap_error
from costgpu.workflows.runs.reap import reap as reap_everything
from costgpu.workflows.runs.start import start_run
from costgpu.workflows.spending.budget_check import BudgetCheck
from tests.emulators.create_requests import offer_of
from tests.fake_cloud.script import PROGRESS
from tests.simulation.computer import Context, Terminal
from tests.simulation.process import Process
from tests.simulation.schedule import Setting

JOBS = ("r1", "s1", "t1")
RUN = JOBS[0]
ENVIRONMENT = {"TOKEN": "x"}
VCPUS = 4


def job_of(process: Process) -> str:
    """The job that a command is about."""
    return JOBS[process.step.get("job", 0)]


def run(process: Process) -> None:
    """`costgpu run`."""
    world = process.world
    context, setting = Context(process, world.here), world.schedule.setting
    detach = process.step["detach"] and (setting.recover is None or setting.bucket)
    driver = start_run(context, planned(process, context), Terminal(process), run_id=RUN, detach=detach)
    _finish(process, driver)


def put_into_queue(process: Process) -> None:
    """`costgpu run --queue`."""
    context, terminal = Context(process, process.world.here), Terminal(process, ask=False)
    view = enqueue(context, planned(process, context), terminal, job_of(process))
    try:
        start_waiting(context, terminal, {view.run_id: ENVIRONMENT})
    except RunBusy:
        return


def queue(process: Process) -> None:
    """`costgpu queue --start`."""
    start_waiting(Context(process, process.world.here), Terminal(process, ask=False))


def _now(context: Context, view: RunView) -> RunView:
    """The run of a job that is meant now."""
    return view if view.spec.attempt is None else current_run(context.ledger, view)


def attach(process: Process) -> None:
    """`costgpu attach`."""
    world = process.world
    context = Context(process, world.here)
    view = _now(context, recorded_run(context, job_of(process)))
    if view.state is RunState.CLOSED:
        raise RunError(f"Run {view.run_id} is closed.")
    try:
        driver = attach_run(context, view, Terminal(process))
    except RunBusy:
        process.must_not_end = True
        watch_run(context, view, Terminal(process))
        return
    _finish(process, driver)


def cancel(process: Process) -> None:
    """`costgpu cancel`."""
    world, now = process.world, process.step["now"]
    context = Context(process, world.elsewhere if process.step["by_tag"] else world.here)
    found = find_run(context, job_of(process))
    world.end_wanted.add(job_of(process))
    process.discards = now or isinstance(found, Instance)
    done = cancel_found(context, found, Terminal(process, ask=False), now=now)
    for ref in done.by_tag:
        world.invariants.said_ended(process, ref.instance_id)
    if done.driver is not None and done.driver.ledger_error is not None:
        raise done.driver.ledger_error
    if done.view is not None and not done.was_closed:
        world.invariants.said_cancelled(process, done.view.job_id)


def fetch(process: Process) -> None:
    """`costgpu fetch`."""
    process.must_not_end = True
    world = process.world
    context = Context(process, world.elsewhere if process.step["by_tag"] else world.here)
    _, problem = fetch_outputs(context, job_of(process), None)
    if problem is not None:
        raise problem


def reap(process: Process) -> None:
    """`costgpu reap --yes`."""
    world = process.world
    computer = world.elsewhere if process.step["elsewhere"] else world.here
    context = Context(process, computer)
    found = reap_everything(context, Terminal(process, ask=False), (), end=True, older_than=None, mine=False)
    for ref in found.ended:
        world.invariants.said_ended(process, ref.instance_id)
    error = reap_error(found, ended=True)
    world.invariants.reaped(process, computer, found)
    if error is not None:
        raise error


def check(process: Process) -> None:
    """`costgpu budget check --enforce`."""
    world = process.world
    context = Context(process, world.here)

    def say(text: str) -> None:
        world.log(process, "says", "", text)

    world.end_wanted.update(JOBS)  # by the budget, if it is exceeded
    BudgetCheck(context, say, offline=False, verbose=False).carry_out(enforce=True)


def _finish(process: Process, driver: JobDriver) -> None:
    error = driver.error or error_for(driver.decisive)
    if error is not None:
        raise error
    if exit_code(driver.decisive) == 0:
        process.world.invariants.said_succeeded(process, driver.decisive)


def planned(process: Process, context: Context) -> PlannedRun:
    """What the person has agreed to."""
    setting = process.world.schedule.setting
    whole = plan(setting, str(process.world.here.work))
    return PlannedRun(plan=whole, environment=ENVIRONMENT, refusal=None, at=context.clock.now())


def plan(setting: Setting, workdir: str) -> Plan:
    """The job of a setting, and where it may run."""
    recovery = None
    if setting.recover is not None:
        recovery = Recovery(most=setting.recover, checkpoints=(PROGRESS,), resume_args=("--resume", "{latest}"))
    spec = JobSpec(
        name="train",
        argv=("train.py",),
        workdir=workdir,
        setup="pip install x" if setting.setup_seconds else "",
        env_names=setting.env_names,
        outputs=setting.patterns,
        max_cost_usd=Decimal(setting.cap_usd),
        max_duration_seconds=setting.max_duration_seconds,
        idle_seconds=setting.idle_seconds,
        grace_seconds=setting.grace_seconds,
        auto_shutdown=setting.auto_shutdown,
        bucket="s3://mine/runs" if setting.bucket else "",
        nodes=setting.nodes,
        min_nodes=setting.min_nodes,
        outputs_from=OutputsFrom.RANK_0 if setting.rank_0 else OutputsFrom.ALL,
        recovery=recovery,
        retry_until_up=setting.retry_until_up,
        on_oom_next_size=setting.next_size,
    )
    return Plan(
        spec=spec,
        options=options(setting),
        prediction=None,
        verdict="",
        identity=Identity(provider="fake", account="000000000000", principal="me"),
        layers=(),
        files=1,
        bytes=5,
        left_out={},
        price_as_of=date(2026, 1, 1),
    )


def options(setting: Setting) -> tuple[LaunchOption, ...]:
    """Two regions; larger machines too, if those may be taken."""
    sizes = range(3 if setting.next_size else 1)
    limits = Limits(max_cost_usd=Decimal(setting.cap_usd), disk_gib=50, nodes=setting.nodes)
    regions = ("us-east-1", "us-west-2")
    return tuple(
        replace(option, size=size)
        for size in sizes
        for option in options_for([LaunchPlace(offer=_offer(setting, region, size)) for region in regions], limits)
    )


def _offer(setting: Setting, region: str, size: int) -> Offer:
    price = Decimal(setting.price_usd)
    facts = {"price_usd_per_hour": price, "vcpus": VCPUS, "memory_gib": 16.0, "price_as_of": date(2026, 1, 1)}
    return offer_of("fake", region, f"f{size + 1}.gpu", spot=setting.spot, **facts)


COMMANDS: dict[str, Callable[[Process], None]] = {
    "run": run,
    "enqueue": put_into_queue,
    "queue": queue,
    "attach": attach,
    "cancel": cancel,
    "fetch": fetch,
    "reap": reap,
    "check": check,
}
