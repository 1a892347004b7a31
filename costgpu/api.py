"""The Python interface: the same workflows as the command line, for notebooks and programs.

Nothing is printed, nobody is asked, and no process is ended: remarks go to the logger ``costgpu``, and errors are
those of the command line. Time spans are seconds or texts such as ``"2h"``; amounts are US dollars. The file is longer
than others because its docstrings are the reference.
"""

from __future__ import annotations

import functools
import html
import inspect
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from os import PathLike, fspath
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from costgpu.job.state.observer import NullObserver
from costgpu.models.estimate import Estimate
from costgpu.models.job import LogStream
from costgpu.models.offer import Offer
from costgpu.models.prediction import Advice, Service
from costgpu.models.prediction import Verdict as _Verdict
from costgpu.models.run import RunView
from costgpu.models.workload import WorkloadProfile
from costgpu.workflows.estimate.request import EstimateRequest
from costgpu.workflows.offers import OfferRequest, has_image
from costgpu.workflows.options import options_of
from costgpu.workflows.reporter import LogReporter
from costgpu.workflows.runs.request import RunRequest

if TYPE_CHECKING:
    from costgpu.job.drive.job import JobDriver
    from costgpu.workflows.runs.logs import Logs

Script = str | PathLike[str]
FRAME_HEIGHT = "40em"
P = ParamSpec("P")
Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(_Verdict):
    """The answer to an estimate; in a notebook it shows as the HTML report.

    Attributes:
        profile: What was measured.
        advice: Changes that would make the job cheaper, best first.
        day: Day from which the age of prices is counted.
        service: Machines for a steady rate of requests; None if that was not asked for.
        besides: The whole answer, for what else the command line tells of it; None to tell only what is above.
    """

    profile: WorkloadProfile
    advice: tuple[Advice, ...]
    day: date
    service: Service | None = None
    besides: Estimate | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        from costgpu.render.estimate.first_screen import estimate_text

        return estimate_text(self._estimate(), explain=True)

    def to_html(self) -> str:
        """Return the HTML report: one page that needs nothing else."""
        from costgpu.render.estimate.sections import estimate_report
        from costgpu.render.html.page import report_html

        return report_html(estimate_report(self._estimate()))

    def _estimate(self) -> Estimate:
        besides = self.besides or Estimate(verdict=self, profile=self.profile, today=self.day)
        return replace(
            besides, verdict=self, profile=self.profile, advice=self.advice, today=self.day, service=self.service
        )

    def _repr_html_(self) -> str:
        """Return the report in a frame, so that its styles do not touch the notebook's."""
        page = html.escape(self.to_html())
        return f'<iframe srcdoc="{page}" sandbox="" style="width:100%;height:{FRAME_HEIGHT};border:0"></iframe>'


@dataclass(kw_only=True)
class _Estimate(EstimateRequest):
    script: Script | WorkloadProfile | None = field(default=None, kw_only=False)
    args: Sequence[object] = ()


@dataclass(kw_only=True)
class _Run(RunRequest):
    script: Script | None = field(default=None, kw_only=False)
    args: Sequence[object] = ()
    wait: bool = True


def _taking(kind: Callable[P, Request]) -> Callable[[Callable[[Request], Result]], Callable[P, Result]]:
    """Return what makes a function of a request one that takes the request's options as its arguments."""

    def decorate(body: Callable[[Request], Result]) -> Callable[P, Result]:
        @functools.wraps(body)
        def call(*args: P.args, **options: P.kwargs) -> Result:
            return body(kind(*args, **options))

        call.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
        found = options_of(kind)  # type: ignore[arg-type]
        texts = "\n".join(f"        {each.name}: {each.help.removesuffix(' Repeatable.')}" for each in found)
        call.__doc__ = (body.__doc__ or "").replace("        options: Those of the command line.", texts)
        return call

    return decorate


@_taking(_Estimate)
def estimate(asked: _Estimate) -> Verdict:
    """Say where to run a script that trains or infers; see `costgpu estimate`.

    Args:
        script: Script to measure here, a saved profile (a path or its value), or None with `module`, `like` or `params`.
        args: Arguments of the script.
        options: Those of the command line.

    Raises:
        UsageError: An argument is wrong.
        ScriptError: The script cannot be measured.
    """
    from costgpu.workflows.estimate.estimate import estimate as estimate_workload

    profile = asked.script if isinstance(asked.script, WorkloadProfile) else None
    request = replace(asked, command=_command(asked.script, asked.args))
    found = estimate_workload(request, LogReporter(), profile)
    values = {field.name: getattr(found.verdict, field.name) for field in fields(found.verdict)}
    return Verdict(
        **values,
        profile=found.profile,
        advice=found.advice,
        day=found.today,
        service=found.service,
        besides=found,
    )


@_taking(OfferRequest)
def offers(asked: OfferRequest) -> list[Offer]:
    """List machine types that can be rented, at the prices in use; see `costgpu offers`.

    Args:
        options: Those of the command line.

    Raises:
        PriceNotFound: No offer matches.
    """
    from costgpu.pricing.catalog import Catalog

    return Catalog.current(LogReporter().note, has_image=has_image).query(asked.query)


@_taking(_Run)
def run(asked: _Run) -> RunView:
    """Run a script on a rented machine, or on this one; see `costgpu run`.

    The call is the consent: nobody is asked. Rented machines need `max_cost` or `max_duration`, unless the estimate
    sets the limit. Ctrl-C cancels the run.

    Args:
        script: Script to run, a task file of SkyPilot or dstack, or None with `module`.
        args: Arguments of the script.
        options: Those of the command line.
        wait: Whether to wait for the end of the run, or only until the job has started.

    Returns:
        The closed run with its receipt and the job's exit code in `status`; without `wait` the run as it is.

    Raises:
        BudgetExceeded: A budget refuses the run; nothing was created.
        SyncRefused: The script reads files that would not travel, and neither `include` nor `exclude` names them.
        RunError: The run ended without its job's own exit code.
        TerminationUnconfirmed: The machine may still be billing.
    """
    from costgpu.job.drive.context import Detached
    from costgpu.job.find_run import load_run
    from costgpu.job.launch import new_run_id
    from costgpu.workflows.runs.start import planned_run, start_run

    request = replace(asked, command=_command(asked.script, asked.args))
    with planned_run(request, LogReporter()) as (context, planned):
        run_id = new_run_id()
        try:
            driver = start_run(context, planned, NullObserver(), run_id=run_id, detach=not asked.wait)
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
    from costgpu.job.find_run import load_run
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
    from costgpu.workflows.context import AppContext
    from costgpu.workflows.runs.cancel import cancel as cancel_found
    from costgpu.workflows.runs.find_run import find_run

    with AppContext(LogReporter()) as context:
        done = cancel_found(context, find_run(context, run), NullObserver(), now=now)
        if done.driver is not None and done.driver.ledger_error is not None:
            raise done.driver.ledger_error
        return done.view


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
    from costgpu.job.state.outcome import error_for

    error = driver.ledger_error or driver.error or error_for(driver.decisive)
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


def _command(script: Script | WorkloadProfile | None, args: Sequence[object]) -> tuple[str, ...]:
    words = () if script is None or isinstance(script, WorkloadProfile) else (fspath(script),)
    return (*words, *map(str, args))
