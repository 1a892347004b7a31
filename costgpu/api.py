"""The Python interface: the same workflows as the command line, for notebooks and programs.

Nothing is printed, nobody is asked, and no process is ended: remarks go to the logger ``costgpu``, and errors are
those of the command line. Time spans are seconds or texts such as ``"2h"``; amounts are US dollars.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from os import PathLike, fspath
from typing import TYPE_CHECKING

from costgpu.models.prediction import Objective
from costgpu.models.prediction import Verdict as _Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.version import __version__
from costgpu.workflows.estimate.request import MEASURE_FOR, TABLE_ROWS, EstimateRequest
from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.requests import request_of

if TYPE_CHECKING:
    from datetime import date

    from costgpu.models.offer import Offer
    from costgpu.models.prediction import Advice, Service
    from costgpu.models.run import RunView
    from costgpu.workflows.estimate.estimate import Estimate

Script = str | PathLike[str]
Amount = str | float | Decimal
"""US dollars."""
TimeSpan = str | float
"""Seconds, or a text such as ``"90s"`` or ``"2h"``."""
FRAME_HEIGHT = "40em"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(_Verdict):
    """The answer to an estimate; in a notebook it shows as the HTML report.

    Attributes:
        profile: What was measured.
        advice: Changes that would make the job cheaper, best first.
        day: Day from which the age of prices is counted.
        service: Machines for a steady rate of requests; None if that was not asked for.
    """

    profile: WorkloadProfile
    advice: tuple[Advice, ...]
    day: date
    service: Service | None = None

    def __str__(self) -> str:
        from costgpu.render.text.advice import advice_lines
        from costgpu.render.text.estimate import verdict_text

        advice = "\n".join(advice_lines(self.advice, unit=self.unit))
        return verdict_text(self, self.profile, self.day, besides=[advice] if advice else [], service=self.service)

    def to_html(self) -> str:
        """The HTML report: one page that needs nothing else."""
        from costgpu.render.html.verdict_page import verdict_html
        from costgpu.render.text.advice import sentences

        advice = [" ".join(sentences(one)) for one in self.advice]
        return verdict_html(self, self.profile, advice, self.day, service=self.service, version=__version__)

    def _repr_html_(self) -> str:
        """The report in a frame, so that its styles do not touch the notebook's."""
        page = html.escape(self.to_html())
        return f'<iframe srcdoc="{page}" sandbox="" style="width:100%;height:{FRAME_HEIGHT};border:0"></iframe>'


def estimate(
    script: Script | WorkloadProfile | None = None,
    *,
    args: Sequence[object] = (),
    module: str | None = None,
    epochs: float | None = None,
    total_steps: float | None = None,
    infra: str | Iterable[str] = (),
    instance_type: str | Iterable[str] = (),
    gpus: str | None = None,
    nodes: str | int | None = None,
    spot: bool = False,
    objective: str = Objective.CHEAPEST,
    deadline: TimeSpan | None = None,
    max_cost: Amount | None = None,
    value_of_time: Amount | None = None,
    measure_for: TimeSpan = MEASURE_FOR,
    isolation: str | None = None,
    python: Script | None = None,
    workdir: Script | None = None,
    like: str | None = None,
    params: str | float | None = None,
    tokens: str | float | None = None,
    save: Script | None = None,
    rows: int = TABLE_ROWS,
    rate: str | None = None,
) -> Verdict:
    """Says where to run a script that trains or infers; see `costgpu estimate`.

    Args:
        script: Script to measure here, a saved profile (a path or its value), or None with `module`, `like` or `params`.
        args: Arguments of the script.
        module: Module to measure instead of a script.
        epochs: Number of epochs to predict.
        total_steps: Number of optimizer steps to predict.
        infra: Providers or regions, e.g. ``"aws"`` or ``["aws/us-east-1", "gcp"]``; empty for all.
        instance_type: Machine types to show whatever beats them, e.g. ``"g5.xlarge"`` or ``["g5.xlarge", "c7i.2xlarge"]``.
        gpus: Accelerators, e.g. ``"A100:1"``; ``"none"`` for CPUs only.
        nodes: Machines that train together, e.g. ``4``, or ``"2-16"`` to choose from.
        spot: Spot prices instead of on-demand prices.
        objective: ``"cheapest"``, ``"fastest"`` or ``"balanced"``.
        deadline: Longest time that the job may take.
        max_cost: Highest cost of the job.
        value_of_time: Value of an hour of waiting.
        measure_for: Time to measure after the first step.
        isolation: ``"copy-on-write"``, ``"write-protected"`` or ``"in-process"``; None for the strongest that there is.
        python: Interpreter for the script.
        workdir: Folder to run in.
        like: Kind of work instead of a measurement.
        params: Parameters of a language model instead of a measurement, with `tokens`.
        tokens: Number of training tokens.
        save: File to write the measured profile to.
        rows: Length of the table.
        rate: Requests that the script gets as a service, e.g. ``"5/s"`` or ``"1M/day"``.

    Raises:
        UsageError: An argument is wrong.
        ScriptError: The script cannot be measured.
    """
    from costgpu.workflows.estimate.estimate import estimate as estimate_workload

    profile = script if isinstance(script, WorkloadProfile) else None
    request = request_of(EstimateRequest, locals(), command=_command(script, args))
    return _verdict(estimate_workload(request, LogReporter(), profile))


def offers(
    *,
    gpus: str | None = None,
    cpus: str | float | None = None,
    memory: str | float | None = None,
    infra: str | Iterable[str] = (),
    spot: bool | None = None,
    max_price: Amount | None = None,
    sort: str = "price",
) -> list[Offer]:
    """Lists machine types that can be rented, at the prices in use; see `costgpu offers`.

    Args:
        gpus: Accelerators, e.g. ``"A100:1"``; ``"none"`` for CPUs only.
        cpus: Virtual CPUs, e.g. ``"8+"``.
        memory: Main memory in GiB, e.g. ``"32..128"``.
        infra: Providers or regions; empty for all.
        spot: Spot or on-demand prices; None for both.
        max_price: Highest price of the machine per hour.
        sort: ``"price"``, ``"gpu-price"``, ``"memory"`` or ``"name"``.

    Raises:
        PriceNotFound: No offer matches.
    """
    from costgpu.pricing.catalog import query_current
    from costgpu.workflows.offers import has_image, offer_query

    query = offer_query(gpus=gpus, cpus=cpus, memory=memory, infra=infra, spot=spot, max_price=max_price, sort=sort)
    return query_current(query, warn=LogReporter().note, has_image=has_image)


def run(
    script: Script | None = None,
    *,
    args: Sequence[object] = (),
    module: str | None = None,
    infra: str | Iterable[str] = (),
    instance_type: str | Iterable[str] | None = None,
    gpus: str | None = None,
    spot: bool = False,
    max_cost: Amount | None = None,
    fit: bool = False,
    max_duration: TimeSpan | None = None,
    outputs: Sequence[str] = (),
    setup: str | None = None,
    env: Mapping[str, str] | None = None,
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    python: Script | None = None,
    workdir: Script | None = None,
    profile: Script | None = None,
    estimate: bool = True,
    bucket: str | None = None,
    nodes: int | None = None,
    launcher: str | None = None,
    outputs_from: str = "0",
    recover: int | None = None,
    checkpoint: str | Sequence[str] = (),
    resume_args: str | None = None,
    fallback: str | None = None,
    engine: str = "plain",
    wait: bool = True,
) -> RunView:
    """Runs a script on a rented machine, or on this one; see `costgpu run`.

    The call is the consent: nobody is asked. Rented machines need `max_cost` or `max_duration`, unless the estimate
    sets the limit. Ctrl-C cancels the run.

    Args:
        script: Script to run, or None with `module`.
        args: Arguments of the script.
        module: Module to run instead of a script.
        infra: Providers or regions, ``"local"`` for this machine; empty for all.
        instance_type: Machine type, or several to choose from.
        gpus: Accelerators; None to let the estimate decide.
        spot: Spot instead of on-demand machines.
        max_cost: Highest cost of the run.
        fit: Whether the highest cost is lowered to what the budgets leave.
        max_duration: Longest time of the job.
        outputs: Files to download; empty for all that is new or changed.
        setup: Command before the job.
        env: Variables of the job.
        name: Name of the job.
        tags: Tags for the machine.
        python: Interpreter to measure with, and to run with on this machine.
        workdir: Folder to send and run in.
        profile: Saved profile to use instead of measuring.
        estimate: Whether to measure the script here first.
        bucket: Bucket for outputs and logs.
        nodes: Number of machines that work on the job together; None for as many as the command asks for.
        launcher: What starts the processes on several machines; None for torchrun, or what the command says.
        outputs_from: Machines whose outputs are downloaded: ``"0"``, or ``"all"`` into folders ``rank-N``.
        engine: What runs the script: ``"plain"``, or ``"ray"`` for a Ray cluster of the machines.
        wait: Whether to wait for the end of the run, or only until the job has started.

    Returns:
        The closed run with its receipt and the job's exit code in `status`; without `wait` the run as it is.

    Raises:
        BudgetExceeded: A budget refuses the run; nothing was created.
        RunError: The run ended without its job's own exit code.
        TerminationUnconfirmed: The machine may still be billing.
    """
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.launch import new_run_id
    from costgpu.runner.state.observer import NullObserver
    from costgpu.runner.state.outcome import error_for
    from costgpu.workflows.runs.request import RunRequest
    from costgpu.workflows.runs.start import planned_run, start_run

    request = request_of(RunRequest, locals(), command=_command(script, args))
    with planned_run(request, LogReporter()) as (context, planned):
        run_id = new_run_id()
        try:
            driver = start_run(context, planned, NullObserver(), run_id=run_id, detach=not wait)
        except Detached as left:
            return load_run(context.ledger, left.run_id)
        error = driver.broken or driver.error or error_for(driver.decisive)
        if error is not None:
            raise error
        return driver.decisive


def runs(*, closed: bool = True) -> list[RunView]:
    """Lists the runs of the ledger, newest first: open ones and, with `closed`, the recent closed ones."""
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.list_runs import list_runs

    with AppContext(LogReporter()) as context:
        return list_runs(context, closed=closed).runs


def _verdict(found: Estimate) -> Verdict:
    values = {field.name: getattr(found.verdict, field.name) for field in fields(found.verdict)}
    return Verdict(**values, profile=found.profile, advice=found.advice, day=found.today, service=found.service)


def _command(script: Script | WorkloadProfile | None, args: Sequence[object]) -> tuple[str, ...]:
    words = () if script is None or isinstance(script, WorkloadProfile) else (fspath(script),)
    return (*words, *map(str, args))
