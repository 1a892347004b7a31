"""One machine on a real account: an ordinary run, planned, agreed to, carried out, and watched from beside."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from costgpu.errors import CapTooSmall, CostGpuError, RunCancelled, RunNotFound, TerminationUnconfirmed
from costgpu.job.drive.context import Detached
from costgpu.job.drive.machine import StopSignal
from costgpu.job.find_run import load_run
from costgpu.job.launch import current_owner, new_run_id
from costgpu.job.state.observer import Observer
from costgpu.job.state.outcome import error_for
from costgpu.models.first_run import TrialMachine, TrialPhase
from costgpu.models.offer import Offer, PurchaseOption
from costgpu.models.run import EventKind, RunEvent, RunState, RunView
from costgpu.units import format_dollars
from costgpu.workflows.context import AppContext
from costgpu.workflows.estimate.measure import script_request
from costgpu.workflows.first_run import trial_job
from costgpu.workflows.first_run.redact import Redactor
from costgpu.workflows.first_run.watch import MachineWatch
from costgpu.workflows.reporter import Reporter
from costgpu.workflows.runs.cancel import cancel_driven
from costgpu.workflows.runs.plan import PlannedRun, plan_run
from costgpu.workflows.runs.request import RunRequest
from costgpu.workflows.runs.start import start_run

PUBLIC = frozenset({"projects", "global", "images", "family"})  # parts of the path of an image that are everybody's
NAME = "first-run"
LONGEST = f"{trial_job.LONGEST_SECONDS / 60:g}m"


class Allowance:
    """What trials may still cost: the worst that each can cost is taken off before it begins, and never given back."""

    def __init__(self, most_usd: Decimal) -> None:
        self.left_usd = most_usd

    def take(self, worst_usd: Decimal) -> None:
        """Raise `CapTooSmall` if that is more than what is left; then nothing is taken."""
        if worst_usd > self.left_usd:
            raise CapTooSmall(
                f"The machine could cost {format_dollars(worst_usd)}, and {format_dollars(self.left_usd)} are left.",
                hint="Allow more: --max-cost.",
            )
        self.left_usd -= worst_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """A trial that somebody can agree to."""

    offer: Offer
    context: AppContext
    planned: PlannedRun

    @property
    def worst_usd(self) -> Decimal:
        """Return the most that it can cost."""
        return self.planned.plan.most_usd


@contextlib.contextmanager
def planned_trial(offer: Offer, allowance: Allowance, reporter: Reporter) -> Iterator[PlannedTrial]:
    """Plan the trial of one machine; nothing is spent.

    Raises:
        CapTooSmall: What is left does not boot it.
        CostGpuError: It cannot be planned.
    """
    with tempfile.TemporaryDirectory(prefix="costgpu-first-run-") as folder:
        job = Path(folder) / "first_run.py"
        job.write_bytes(Path(trial_job.__file__).read_bytes())
        request = RunRequest(
            command=(str(job),),
            infra=(f"{offer.provider}/{offer.region}",),
            instance_type=(offer.instance_type,),
            spot=offer.purchase_option is PurchaseOption.SPOT,
            max_cost=f"{allowance.left_usd:f}",
            max_duration=LONGEST,
            setup="",
            name=NAME,
            estimate=False,
        )
        script = script_request(request, reporter)
        with AppContext(reporter, strict=True) as context:  # with the settings of the current folder, not of the job's
            yield PlannedTrial(offer=offer, context=context, planned=plan_run(request, script, context))


def carry_out(
    trial: PlannedTrial, allowance: Allowance, observer: Observer
) -> tuple[TrialMachine, CostGpuError | None]:
    """Create the machine, measures it, and end it.

    Returns:
        What was seen; and the error, if it did not come as far as its job, may still be billing, or was cancelled. What
        a later end is called is no error: that is what is to be found out.

    Raises:
        CapTooSmall, BudgetExceeded: It may not be created.
    """
    context = trial.context
    allowance.take(trial.worst_usd)
    provider = context.provider(trial.offer.provider)
    watch = MachineWatch(provider, context.clock, observer, ask_to_end=lambda view: _ask_to_end(context, view))
    context.tools = replace(context.tools, connect=watch.connector(context.tools.connect))
    run_id, error, view = new_run_id(), None, None
    try:
        driver = start_run(context, trial.planned, watch, run_id=run_id)
        error = driver.ledger_error or driver.error or error_for(driver.decisive)
    except CostGpuError as failed:
        error = failed
    except Detached:  # SIGTERM: the run goes on by itself
        watch.stopped = True
    finally:
        with contextlib.suppress(RunNotFound):
            view = load_run(context.ledger, run_id)
        try:
            watch.finish(view)
        except (KeyboardInterrupt, StopSignal):  # what was seen so far is worth having
            watch.stopped = True
    if view is None:  # not even the intent was recorded
        assert error is not None  # noqa: S101 - nothing else keeps it from being
        raise error
    done = _trial(trial, watch, view, context.ledger.events(run_id), error)
    if watch.stopped and not isinstance(error, TerminationUnconfirmed):
        hint = (
            "" if view.state is RunState.CLOSED else f"costgpu cancel {run_id} ends its machine; else its lease does."
        )
        error = RunCancelled(f"The trial of a {trial.offer.instance_type} was cancelled; no other follows.", hint=hint)
    elif any(phase.kind == EventKind.STARTED for phase in done.phases):
        error = error if isinstance(error, TerminationUnconfirmed) else None
    return done, error


def _ask_to_end(context: AppContext, view: RunView) -> None:
    """From a thread of its own: with another connection to the ledger."""
    with AppContext(context.reporter, strict=True) as own:
        cancel_driven(own, load_run(own.ledger, view.run_id), now=False)


def _trial(
    planned: PlannedTrial, watch: MachineWatch, view: RunView, events: Sequence[RunEvent], error: CostGpuError | None
) -> TrialMachine:
    begun = next((event.at for event in events if event.kind is EventKind.ATTEMPTED), None)

    def since(at: datetime | None) -> float | None:
        return round((at - begun).total_seconds(), 1) if at is not None and begun is not None else None

    receipt = view.receipt
    said = watch.said.decode(errors="replace").replace(trial_job.LAST_WORDS, "").strip()
    return TrialMachine(
        offer=view.option.offer if view.option is not None else planned.offer,
        worst_cost_usd=planned.worst_usd,
        run_id=view.run_id,
        cost_usd=receipt.metered_cost_usd if receipt is not None else None,
        phases=tuple(TrialPhase(kind=event.kind.value, seconds=since(event.at) or 0.0) for event in events),
        first_answer_seconds=since(watch.answered_at),
        our_key_seconds=since(watch.key_at),
        foreign_key=watch.foreign_key,
        console_boot_seconds=since(watch.boot_words_at),
        console_end_seconds=since(watch.console_end_at),
        power_off_seconds=since(watch.last_words_at),
        said=said,
        sightings=tuple(replace(each, seconds=since(at) or 0.0) for at, each in watch.seen),
        maintenance=watch.maintenance,
        reason=view.reason.value if view.reason is not None else "",
        ended_by=receipt.ended_by.value if receipt is not None else "",
        confirmed_state=view.confirmed_state,
        left_behind=len(receipt.left_behind) if receipt is not None else 0,
        refused=tuple(message for _, _, message in view.refusals),
        error=f"{type(error).__name__}: {error.message}" if error is not None else "",
        exit_code=error.exit_code if error is not None else 0,
    )


def redactor_for(context: AppContext, providers: Sequence[str], trials: Sequence[TrialMachine]) -> Redactor:
    """Take what is known of the accounts, of this computer and of the trials out of every text."""
    settings = context.settings
    found = [settings.bucket, settings.owner, current_owner(), settings.caller_address, str(Path.home())]
    found += [trial.run_id for trial in trials]
    for name in providers:
        with contextlib.suppress(CostGpuError):
            who = context.provider(name).identity()
            found += [who.account, who.principal, *who.principal.split("@")[:1], who.source]
            settings_there = context.provider_config(name).settings.values()
            found += [*settings_there, *(part for value in settings_there for part in value.split("/"))]
    found = [value for value in found if value not in PUBLIC]
    return Redactor(value for value in found if value)
