"""The commands of the command line, as they put the workflows together; what they raise is what a person sees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from costgpu.errors import CostGpuError, RunBusy, RunError
from costgpu.job.drive.context import Detached
from costgpu.job.drive.job import JobDriver
from costgpu.job.find_run import load_run
from costgpu.job.launch import launch
from costgpu.job.plan import LaunchPlace, Limits, options_for
from costgpu.job.state.observer import NullObserver
from costgpu.job.state.outcome import error_for, exit_code
from costgpu.models.instance import Identity
from costgpu.models.job import EndReason, JobSpec
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.reap import TaggedInstance
from costgpu.models.run import Plan, RunState
from costgpu.workflows.runs.attach import attach_run, watch_run
from costgpu.workflows.runs.cancel import cancel_by_tag, cancel_driven, cancel_run
from costgpu.workflows.runs.fetch import fetch_outputs
from costgpu.workflows.runs.find_run import find_run, recorded_run
from costgpu.workflows.runs.reap import error_for as reap_error
from costgpu.workflows.runs.reap import reap as reap_everything
from costgpu.workflows.spending.budget_check import BudgetCheck
from tests.simulation.computer import OWNER, Context, Terminal
from tests.simulation.process import Process
from tests.simulation.schedule import Setting

RUN = "r1"
VCPUS = 4


def run(process: Process) -> None:
    """`costgpu run`."""
    world = process.world
    context = Context(process, world.here)
    driver = launch(
        plan(world.schedule.setting, str(world.here.work)),
        context.ledger,
        context.tools,
        Terminal(process),
        owner=OWNER,
        environment={"TOKEN": "x"},
        detach=process.step["detach"],
        run_id=RUN,
    )
    _finish(process, driver)


def attach(process: Process) -> None:
    """`costgpu attach`."""
    world = process.world
    context = Context(process, world.here)
    view = recorded_run(context, RUN)
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
    found = find_run(context, RUN)
    world.end_wanted = True
    process.discards = now
    if isinstance(found, TaggedInstance):
        process.discards = True
        instance = found.instance
        cancel_by_tag(context, instance.ref, instance.run_id, instance.launched_at)
        world.invariants.said_ended(process, instance.ref.instance_id)
        return
    view = load_run(context.ledger, found.run_id)
    if view.state is RunState.CLOSED:
        return
    try:
        driver = cancel_run(context, view, Terminal(process, ask=False), now=now)
    except RunBusy:
        cancel_driven(context, view, now=now)
        return
    if driver is not None and driver.ledger_error is not None:
        raise driver.ledger_error


def fetch(process: Process) -> None:
    """`costgpu fetch`."""
    process.must_not_end = True
    world = process.world
    context = Context(process, world.elsewhere if process.step["by_tag"] else world.here)
    _, problem = fetch_outputs(context, RUN, None)
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

    world.end_wanted = True  # by the budget, if it is exceeded
    BudgetCheck(context, say, offline=False, verbose=False).carry_out(enforce=True)


COMMANDS: dict[str, Callable[[Process], None]] = {
    "run": run,
    "attach": attach,
    "cancel": cancel,
    "fetch": fetch,
    "reap": reap,
    "check": check,
}


def _finish(process: Process, driver: JobDriver) -> None:
    error = driver.error or error_for(driver.view)
    if error is not None:
        raise error
    if exit_code(driver.view) == 0:
        process.world.invariants.said_succeeded(process, driver.view)


def plan(setting: Setting, workdir: str) -> Plan:
    """What the person has agreed to."""
    places = [LaunchPlace(offer=_offer(setting, region)) for region in ("us-east-1", "us-west-2")]
    limits = Limits(max_cost_usd=Decimal(setting.cap_usd), disk_gib=50)
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
    )
    return Plan(
        spec=spec,
        options=options_for(places, limits),
        prediction=None,
        verdict="",
        identity=Identity(provider="fake", account="000000000000", principal="me"),
        layers=(),
        files=1,
        bytes=5,
        left_out={},
        price_as_of=date(2026, 1, 1),
    )


def _offer(setting: Setting, region: str) -> Offer:
    return Offer(
        provider="fake",
        instance_type="f1.gpu",
        family="f1",
        region=region,
        zone=None,
        purchase_option=PurchaseOption.SPOT if setting.spot else PurchaseOption.ON_DEMAND,
        price_usd_per_hour=Decimal(setting.price_usd),
        vcpus=VCPUS,
        memory_gib=16.0,
        architecture="x86_64",
        accelerator=None,
        price_source="simulation",
        price_as_of=date(2026, 1, 1),
    )


__all__ = ["COMMANDS", "RUN", "Any", "CostGpuError", "Detached", "EndReason", "NullObserver", "plan"]
