"""The Python interface: the same workflows as the command line, for notebooks and programs.

Nothing is printed, nobody is asked, and no process is ended: remarks go to the logger ``costgpu``, and errors are
those of the command line. Time spans are seconds or texts such as ``"2h"``; amounts are US dollars. The file is longer
than others because its docstrings are the reference.
"""

from __future__ import annotations

import html
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from os import PathLike, fspath
from typing import TYPE_CHECKING

from costgpu.models.job import LogStream
from costgpu.models.prediction import Objective
from costgpu.models.prediction import Verdict as _Verdict
from costgpu.models.workload import WorkloadProfile
from costgpu.runner.state.observer import NullObserver
from costgpu.version import __version__
from costgpu.workflows.estimate.request import MEASURE_FOR, TABLE_ROWS, EstimateRequest
from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.requests import request_of

if TYPE_CHECKING:
    from datetime import date

    from costgpu.models.offer import Offer
    from costgpu.models.prediction import Advice, Service
    from costgpu.models.run import RunView
    from costgpu.runner.adopt import JobDriver
    from costgpu.workflows.estimate.estimate import Estimate
    from costgpu.workflows.runs.logs import Logs

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
        from costgpu.render.text.advice import advice_block
        from costgpu.render.text.estimate import verdict_text

        advice = advice_block(self.advice, unit=self.unit)
        return verdict_text(self, self.profile, self.day, explain=True, besides=[advice], service=self.service)

    def to_html(self) -> str:
        """Return the HTML report: one page that needs nothing else."""
        from costgpu.render.html.verdict_page import verdict_html
        from costgpu.render.text.advice import sentences

        advice = [" ".join(sentences(one)) for one in self.advice]
        return verdict_html(self, self.profile, advice, self.day, service=self.service, version=__version__)

    def _repr_html_(self) -> str:
        """Return the report in a frame, so that its styles do not touch the notebook's."""
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
        isolation: ``"copy-on-write"``, ``"write-protected"`` or ``"copy"``; None for the strongest that there is.
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
    gpus: str | Iterable[str] | None = None,
    cpus: str | float | None = None,
    memory: str | float | None = None,
    infra: str | Iterable[str] = (),
    spot: bool | None = None,
    max_price: Amount | None = None,
    sort: str = "price",
) -> list[Offer]:
    """List machine types that can be rented, at the prices in use; see `costgpu offers`.

    Args:
        gpus: Accelerators, e.g. ``"A100:1"``, or a list, any of which will do; ``"none"`` for CPUs only.
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
    cpus: str | float | None = None,
    memory: str | float | None = None,
    spot: bool | None = None,
    max_cost: Amount | None = None,
    fit: bool = False,
    max_duration: TimeSpan | None = None,
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    outputs: Sequence[str] = (),
    setup: str | None = None,
    extra: str | Sequence[str] = (),
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
    wait: bool = True,
) -> RunView:
    """Run a script on a rented machine, or on this one; see `costgpu run`.

    The call is the consent: nobody is asked. Rented machines need `max_cost` or `max_duration`, unless the estimate
    sets the limit. Ctrl-C cancels the run.

    Args:
        script: Script to run, a task file of SkyPilot or dstack, or None with `module`.
        args: Arguments of the script.
        module: Module to run instead of a script.
        infra: Providers or regions, ``"local"`` for this machine; empty for all.
        instance_type: Machine type, or several to choose from.
        gpus: Accelerators; None to let the estimate decide.
        cpus: Virtual CPUs, e.g. ``"8+"``.
        memory: Main memory in GiB, e.g. ``"32..128"``.
        spot: Spot instead of on-demand machines.
        max_cost: Highest cost of the run.
        fit: Whether the highest cost is lowered to what the budgets leave.
        max_duration: Longest time of the job.
        include: Patterns in the syntax of ``.gitignore`` for files that travel whatever ignore rules say.
        exclude: The same for files that stay here, whatever else is said.
        outputs: Files to download; empty for all that is new or changed.
        setup: Command before the job; None to install what the project names.
        extra: Extras of the project that rented machines install, too.
        env: Variables of the job.
        name: Name of the job.
        tags: Tags for the machine.
        python: Interpreter to measure with, and to run with on this machine.
        workdir: Folder to send and run in.
        profile: Saved profile to use instead of measuring.
        estimate: Whether to measure the script here first.
        bucket: Bucket for outputs and logs.
        nodes: Number of machines that work on the job together; None for as many as the command asks for.
        launcher: What starts the processes on several machines, or ``"ray"`` for a Ray cluster; None for torchrun,
            or what the command says.
        outputs_from: Machines whose outputs are downloaded: ``"0"``, or ``"all"`` into folders ``rank-N``.
        wait: Whether to wait for the end of the run, or only until the job has started.

    Returns:
        The closed run with its receipt and the job's exit code in `status`; without `wait` the run as it is.

    Raises:
        BudgetExceeded: A budget refuses the run; nothing was created.
        SyncRefused: The script reads files that would not travel, and neither `include` nor `exclude` names them.
        RunError: The run ended without its job's own exit code.
        TerminationUnconfirmed: The machine may still be billing.
    """
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.launch import new_run_id
    from costgpu.workflows.runs.request import RunRequest
    from costgpu.workflows.runs.start import planned_run, start_run

    request = request_of(RunRequest, locals(), command=_command(script, args))
    with planned_run(request, LogReporter()) as (context, planned):
        run_id = new_run_id()
        try:
            driver = start_run(context, planned, NullObserver(), run_id=run_id, detach=not wait)
        except Detached as left:
            return load_run(context.ledger, left.run_id)
        return _decisive(driver)


def runs(*, closed: bool = True) -> list[RunView]:
    """List the runs of the ledger, newest first: open ones and, with `closed`, the recent closed ones."""
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.list_runs import list_runs

    with AppContext(LogReporter()) as context:
        return list_runs(context, closed=closed).runs


def jobs(*, closed: bool = False) -> list[RunView]:
    """List the runs that `costgpu jobs` lists: open ones and, with `closed`, the recent closed ones, newest first."""
    return runs(closed=closed)


def logs(run: str, follow: bool = False, *, rank: int | None = None) -> Logs:
    """Return what a job has written; see `costgpu logs`.

    Args:
        run: Run id or the beginning of one, job name, or instance id; so for the functions below.
        follow: Wait until the job is over, and meanwhile write to stdout and stderr what it writes.
        rank: Rank of a job on several machines; None for the machine that is named.

    Raises:
        RunError: There is no such run, or it has left no logs here.
    """
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.logs import fetch_logs, follow_logs, machine_of_rank, read_logs

    with AppContext(LogReporter()) as context:
        named = run if rank is None else machine_of_rank(context, run, rank)
        if follow:
            follow_logs(context, named, _Printing())
        return read_logs(fetch_logs(context, named), rank)


def attach(run: str, follow: bool = False) -> RunView:
    """Wait for the end of a run and take it there: its outputs come home, its machine ends; see `costgpu attach`.

    A run that another process drives is only waited for. Ctrl-C cancels one that this call drives.

    With `follow` what the job writes is written to stdout and stderr meanwhile. Results and errors are those of `run`;
    a run that is closed already is a `RunError`.
    """
    from costgpu.errors import RunBusy
    from costgpu.runner.find_run import load_run
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.attach import attach_run, open_run, watch_run

    observer = _Printing() if follow else NullObserver()
    with AppContext(LogReporter()) as context:
        view = open_run(context, run)
        try:
            return _decisive(attach_run(context, view, observer))
        except RunBusy:
            watch_run(context, view, observer)
            return load_run(context.ledger, view.run_id)


def cancel(run: str, *, now: bool = False) -> RunView | None:
    """End a run: its outputs are saved, its machine is terminated; see `costgpu cancel`.

    With `now` it is ended at once, and what is on the machine is lost.

    Returns:
        The run; not yet closed if another process drives it and ends it. None for a machine of which only the tag is
        known: it is terminated.

    Raises:
        TerminationUnconfirmed: The machine may still be billing.
    """
    from costgpu.errors import RunBusy
    from costgpu.models.reap import TaggedInstance
    from costgpu.models.run import RunState
    from costgpu.runner.find_run import current_run, load_run
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.cancel import cancel_driven, cancel_job_by_tag, cancel_run
    from costgpu.workflows.runs.find_run import find_run

    reporter = LogReporter()
    with AppContext(reporter) as context:
        found = find_run(context, run)
        if isinstance(found, TaggedInstance):
            if left := cancel_job_by_tag(context, found.instance)[1]:
                reporter.note(f"Left behind: {', '.join(left)}; costgpu reap --yes removes it.")
            return None
        view = current_run(context.ledger, load_run(context.ledger, found.run_id))
        if view.state is RunState.CLOSED:
            return view
        try:
            driver = cancel_run(context, view, NullObserver(), now=now)
        except RunBusy:
            cancel_driven(context, view, now=now)
            driver = None
        if driver is not None and driver.broken is not None:
            raise driver.broken
        return driver.decisive if driver is not None else load_run(context.ledger, view.run_id)


def fetch(run: str, to: Script | None = None) -> tuple[str, ...]:
    """Download the outputs and logs of a run, and leave its machine as it is; see `costgpu fetch`.

    They come to the folder `to`, or to the one that the job was sent from. Returned are sentences about what has come.

    Raises:
        RunError: There is nothing to download, or something could not be downloaded.
    """
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.fetch import fetch_outputs

    with AppContext(LogReporter()) as context:
        remarks, problem = fetch_outputs(context, run, None if to is None else fspath(to))
        if problem is not None:
            raise problem
        return tuple(remarks)


def _decisive(driver: JobDriver) -> RunView:
    """Return the run that decides how a job has ended, or raise what went wrong with it."""
    from costgpu.runner.state.outcome import error_for

    error = driver.broken or driver.error or error_for(driver.decisive)
    if error is not None:
        raise error
    return driver.decisive


class _Printing(NullObserver):
    """Writes what a job writes to stdout and stderr, also where these are a notebook's."""

    def __init__(self) -> None:
        self._decoders = {stream: getincrementaldecoder("utf-8")("replace") for stream in LogStream}

    def output(self, stream: LogStream, data: bytes) -> None:
        """Write it."""
        sink = sys.stderr if stream is LogStream.STDERR else sys.stdout
        sink.write(self._decoders[stream].decode(data))
        sink.flush()


def _verdict(found: Estimate) -> Verdict:
    values = {field.name: getattr(found.verdict, field.name) for field in fields(found.verdict)}
    return Verdict(**values, profile=found.profile, advice=found.advice, day=found.today, service=found.service)


def _command(script: Script | WorkloadProfile | None, args: Sequence[object]) -> tuple[str, ...]:
    words = () if script is None or isinstance(script, WorkloadProfile) else (fspath(script),)
    return (*words, *map(str, args))
