"""Drives a job: attempt after attempt, each on one machine or several, until it is over or nothing can follow.

The next attempt is begun in the ledger before the one before is closed (`next_attempt`), and no machine is asked for before
the end of the last one's is confirmed: there are never machines of two attempts. Whether there is a next one, and where,
are the rules of `place_policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile

from costgpu.errors import CostGpuError, LedgerError, ProviderError, RunCancelled, RunError
from costgpu.job import place_policy
from costgpu.job.drive import collect
from costgpu.job.drive.attempt import AttemptDriver
from costgpu.job.drive.checkpoints import fetch_newer_checkpoint, kept_checkpoints
from costgpu.job.drive.context import CAN_DETACH, RunContext, Services
from costgpu.job.drive.machine import MachineDriver, StopSignal
from costgpu.job.drive.next_attempt import record_machines
from costgpu.job.files.selection import FileSelection
from costgpu.job.files.sent_folder import keep_sent, sent_folder, sent_selection
from costgpu.job.state.attempts import attempt_id, attempts_of_job, machines_of_attempt
from costgpu.job.state.journal import EventStore, RunJournal
from costgpu.job.state.observer import Observer
from costgpu.job.timeouts import WAIT_POLL_SECONDS
from costgpu.models.run import RunState, RunView


@dataclass(slots=True, kw_only=True)
class JobDriver:
    """Takes a job forward; there is one at a time.

    Attributes:
        attempts: All so far, in order. A client that was killed may have left the last two open: the one before is then
            taken to its end first.
    """

    ledger: EventStore
    services: Services
    observer: Observer
    secrets: Mapping[str, str] | None
    detach: bool = False
    alone: bool = False  # whether only one machine is meant, and this process begins nothing after it
    attempts: list[AttemptDriver] = field(default_factory=list)
    _prepared: set[int] = field(default_factory=set)  # attempts that this process has prepared
    # when a run that waits is to look again -> monotonic, when it does so at last, however the clock is set
    _looks_at: dict[datetime, float] = field(default_factory=dict)
    _is_over: bool = False
    _stopping: bool = False  # whether somebody has asked this process to end while machines were ending

    @classmethod
    def of(
        cls,
        view: RunView,
        ledger: EventStore,
        services: Services,
        observer: Observer,
        secrets: Mapping[str, str] | None,
        *,
        detach: bool = False,
    ) -> JobDriver:
        """Return the driver of a run's job, with the attempts that are recorded. To be used while the job is locked."""
        driver = cls(ledger=ledger, services=services, observer=observer, secrets=secrets, detach=detach)
        attempts = attempts_of_job(ledger, view) or ((view,),)  # its record may be lost meanwhile
        first = 0 if view.spec.goes_on else next(i for i, each in enumerate(attempts) if view in each)
        for machines in attempts[first:]:
            driver._add(machines[0])
        return driver

    @classmethod
    def of_machine(cls, run_id: str, ledger: EventStore, services: Services, observer: Observer) -> JobDriver:
        """Return a driver that takes only this machine to its end, whatever becomes of the rest of its job."""
        driver = cls(ledger=ledger, services=services, observer=observer, secrets=None, alone=True)
        driver.attempts.append(attempt := AttemptDriver())
        attempt.add(MachineDriver(driver._context(run_id, attempt)))
        return driver

    @property
    def attempt(self) -> AttemptDriver:
        """Return that of now: the first that is not closed, or the last."""
        return next((one for one in self.attempts if not one.is_closed), self.attempts[-1])

    @property
    def view(self) -> RunView:
        """Return the run of machine 0 of the attempt of now."""
        return self.attempt.view

    @property
    def views(self) -> tuple[RunView, ...]:
        """Return the runs of a job that goes on, of all its attempts; else those of the last."""
        told = self.attempts if self.view.spec.goes_on else self.attempts[-1:]
        return tuple(view for attempt in told for view in attempt.views)

    @property
    def machines(self) -> Sequence[MachineDriver]:
        """Return the drivers of what may have a machine now."""
        return self.attempt.machines

    @property
    def context(self) -> RunContext:
        """Return the context of machine 0 of the attempt of now."""
        return self.attempt.context

    @property
    def decisive(self) -> RunView:
        """Return the run that tells how the job has ended: of the last attempt that had machines."""
        had = (one for one in reversed(self.attempts) if any(view.instance is not None for view in one.views))
        return next(had, self.attempt).decisive

    @property
    def error(self) -> CostGpuError | None:
        """Return what the command line ends with; None for the exit code of the job."""
        return self.attempts[-1].error

    @property
    def ledger_error(self) -> LedgerError | None:
        """Return why the ledger could not be written; None if it could."""
        return next((one.ledger_error for one in self.attempts if one.ledger_error is not None), None)

    def drive(self, *, only_home: bool = False) -> RunView:
        """Take the job to its end and return the last run of its machine 0, closed.

        Args:
            only_home: Whether to go only as far as what its machines have made is home.

        Raises:
            Detached: The user left on purpose, or a detached run was asked for.
            TerminationUnconfirmed: A machine may be billing.
            CostGpuError: The driver cannot go on, but the machines can; the hint says how to come back.
        """
        reaction: Callable[[], None] | None = None
        self._is_over = False
        try:
            while reaction is not None or not (self._is_over or (only_home and self._is_home)):
                act, reaction = reaction or self._step, None
                try:
                    act()
                except KeyboardInterrupt:  # also in the middle of a reaction to the one before
                    reaction = self._interrupted
                except StopSignal:
                    reaction = self._stopped
        except CostGpuError as error:
            self.attempt.end_unstarted(error)
            raise
        finally:
            for attempt in self.attempts:
                attempt.disconnect()
        return self.view

    @property
    def _is_home(self) -> bool:
        return not any(view.state in CAN_DETACH for view in self.attempt.views)

    def cancel(self) -> RunView:
        """End the job: a running one is asked first, and its outputs are brought home; it does not go on."""
        for attempt in self.attempts:
            attempt.cancel()
        return self.drive()

    def _step(self) -> None:
        attempt = self.attempt
        if not attempt.is_closed:
            if self._may_begin(attempt):
                attempt.step()
        elif not self._go_on():
            if not self.alone:  # it knows nothing of the other attempts, which may go on from what is kept
                self.finish()
            self._is_over = True

    def _interrupted(self) -> None:
        """Ask what Ctrl-C means, and do it; a job that waits is given up."""
        if self.view.waits and self.view.is_later_attempt:
            self.context.give_up_job()
        else:
            self.attempt.interrupted()

    def _stopped(self) -> None:
        """Leave a job that waits or runs: SIGTERM or SIGHUP came."""
        if self.view.waits and not self.context.cancelling:
            which = "the next" if self.view.is_later_attempt else "a"
            raise RunCancelled(
                f"The client was ended while its job waits for {which} machine; nothing is billed.",
                hint=f"Go on: costgpu attach {self.view.run_id}; give it up: costgpu cancel {self.view.run_id}",
            )
        self._stopping = True
        self.attempt.stopped()

    def _go_on(self) -> bool:
        """Return whether there is another attempt; takes hold of it."""
        last = self.attempts[-1].view
        if self.alone or last.spec.attempt is None:
            return False
        run_id = attempt_id(last.job_id, last.spec.attempt.index + 1)
        if not self.ledger.events(run_id):
            return False
        self._add(RunJournal(self.ledger, self.services.clock, run_id).view)
        if not self.view.waits:
            self.observer.changed(self.view)
        elif self._stopping:
            self._stopped()  # does not return
        return True

    def _add(self, lead: RunView) -> None:
        """Append an attempt, with drivers for all its machines."""
        attempt = AttemptDriver()
        attempt.add(MachineDriver(self._context(lead.run_id, attempt)))
        if attempt.context.excluded and self.attempts:
            attempt.context.last_refusal = self.attempts[-1].error
        self._complete(attempt, record=not lead.waits)
        self.attempts.append(attempt)  # as a whole: Ctrl-C may come in between

    def _complete(self, attempt: AttemptDriver, *, record: bool = True) -> None:
        """Add the other machines of an attempt. Those of one that waits are recorded when it begins."""
        if record:
            record_machines(self.ledger, attempt.context, attempt.view)
        for view in machines_of_attempt(self.ledger, attempt.view)[len(attempt.machines) :]:
            attempt.add(MachineDriver(self._context(view.run_id, attempt)))

    def _context(self, run_id: str, attempt: AttemptDriver) -> RunContext:
        earlier = [one.views for one in takewhile(lambda one: one is not attempt, self.attempts)]
        journal = RunJournal(self.ledger, self.services.clock, run_id)
        return RunContext(
            journal=journal,
            services=with_sent_files(self.services),
            observer=self.observer,
            secrets=self.secrets,
            detach_when_running=self.detach,
            keeping=kept_checkpoints(self.services.folder, journal.view),
            excluded=place_policy.full_places(earlier) if journal.view.searched_at is None else frozenset(),
            avoided=place_policy.avoided_place(earlier),
        )

    def _may_begin(self, attempt: AttemptDriver) -> bool:
        """Before machines are asked for: check, wait where none was free, and get what the job goes on from.

        Returns:
            Whether they may be asked for now.

        Raises:
            CostGpuError: The job cannot go on now. It waits, and nothing is billed.
        """
        view = attempt.view
        if view.state is not RunState.INTENT or attempt.context.cancelling:
            return True
        if not view.waits:
            self._keep_sent()
        if not view.is_later_attempt:
            self._complete(attempt)
            return True
        if self._is_given_up():
            attempt.context.cancelling = True
            return True
        if self.detach and self._due():
            self._is_over = True  # whoever comes next looks again
            return False
        if len(self.attempts) not in self._prepared:
            self._prepare()
            self._prepared.add(len(self.attempts))
        if (left := self._due()) > 0:
            due = place_policy.looks_again_at(view)
            self.observer.waiting(view, f"no machine was to be had; the next look, at {due:%H:%M:%S} UTC")
            self.services.clock.sleep(min(left, WAIT_POLL_SECONDS))
            return False
        self._complete(attempt)
        return True

    def _prepare(self) -> None:
        """Check that the job can go on from here, and get what it goes on from."""
        attempt, recovery = self.view.spec.attempt, self.view.spec.recovery
        assert attempt is not None  # noqa: S101 - a later attempt has one
        self._check()
        try:
            self._get_from_bucket()
        except ProviderError as error:
            error.hint = f"{error.hint} {self._how_to_return()}".strip()
            raise
        saving = self._saving()
        if [context for context in saving if context.checkpoints.store.discard_damaged()]:
            self.observer.note("A checkpoint that was kept here is damaged, and is not used.")
        if attempt.searches:
            return
        kept = any(context.checkpoints.lead.newest() is not None for context in saving)
        what = "from its newest checkpoint" if kept else "from its beginning: no checkpoint was saved"
        if recovery is None:
            what = "from its beginning, on a larger machine"
        most = f" of {recovery.most + 1}" if recovery is not None else ""
        self.observer.note(f"Attempt {attempt.number}{most}: the job goes on {what}.")

    def _saving(self) -> list[RunContext]:
        """Return the contexts of the machines whose checkpoints are kept."""
        contexts = [driver.context for driver in self.machines]
        return [context for context in contexts if context.keeping is not None and context.keeping.saves]

    def _keep_sent(self) -> None:
        """Keep the files of a job that begins and may go on, as they are now. One whose files cannot be kept is ended."""
        sent = sent_folder(self.services.folder, self.view)
        if not self.view.spec.goes_on or sent_selection(sent) is not None:
            return
        try:
            keep_sent(self.services.select(self.view), sent)
        except CostGpuError:
            self.cancel()
            raise

    def _check(self) -> None:
        """Raise the error for a job that cannot go on now, or from here."""
        view = self.view
        error: CostGpuError | None = None
        if self.secrets is None and view.spec.env_names:
            names = ", ".join(view.spec.env_names)
            error = RunError(
                f"Job {view.job_id} waits for its next machine, and its variables are not set here: {names}."
            )
        elif sent_selection(sent_folder(self.services.folder, view)) is None:
            where = f"was begun on {view.client}: the files that it was begun with are not here."
            error = RunError(f"Job {view.job_id} {where}")
        elif self.services.refusal is not None:
            error = self.services.refusal(view)
        if error is not None:
            error.hint = f"{error.hint} {self._how_to_return()}".strip()
            raise error

    def _how_to_return(self) -> str:
        run_id = self.view.run_id
        return (
            f"costgpu attach {run_id} goes on with the job, costgpu cancel {run_id} gives it up."
            " Nothing is billed meanwhile."
        )

    def _due(self) -> float:
        """Return how many seconds are left until another machine is looked for, where none was to be had."""
        clock, view = self.services.clock, self.view
        due = place_policy.looks_again_at(view)
        now = max(clock.now(), view.searched_at or view.created_at)  # it may have been set back
        left = (due - now).total_seconds()
        until = self._looks_at.setdefault(due, clock.monotonic() + left)
        return max(0.0, min(left, until - clock.monotonic()))

    def _is_given_up(self) -> bool:
        """Return whether somebody has cancelled the job, perhaps while it had no machine."""
        for attempt in self.attempts:
            for driver in attempt.machines:
                if driver.view.state is not RunState.CLOSED:  # nobody gives up what is over
                    driver.context.journal.refresh()
        return any(view.given_up for attempt in self.attempts for view in attempt.views)

    def _get_from_bucket(self) -> None:
        """Fetch what the last machines have left in the bucket, if that is newer than what is here.

        Raises:
            ProviderError: The bucket does not answer, or refuses.
            RunError: What is there cannot be kept here.
        """
        for context in self._saving():
            last = self._last_of(context.view.machine)
            if last is not None and last.spec.bucket:
                fetch_newer_checkpoint(context, last)

    def _last_of(self, machine: int) -> RunView | None:
        """Return the last run of this number of machine whose job has begun; None if none has."""
        of_machine = [view for one in self.attempts for view in one.views if view.machine == machine]
        return next((view for view in reversed(of_machine) if view.started_at is not None), None)

    def finish(self) -> None:
        """When all is over: what of the job has not come home yet does so, and what was kept for going on is removed."""
        if any(not attempt.is_closed for attempt in self.attempts):
            return
        last = self.decisive
        if self._saving() and not last.outputs_home:
            try:
                self._get_from_bucket()
            except CostGpuError as error:
                self.observer.note(f"What the job has left in {last.spec.bucket} could not be fetched: {error.message}")
        for context in self._saving():
            own = self._last_of(context.view.machine) or context.view
            store, home = context.checkpoints.store, own.outputs_home
            well = own.status is not None and own.status.ended_well
            checkpoint = None if home and well else store.newest()
            placed = checkpoint is None or collect.place_checkpoint(context, store, checkpoint, only_lacking=home)
            if placed and self.ledger_error is None:  # else whoever comes next does not know of the end, and may go on
                store.remove()


def with_sent_files(services: Services) -> Services:
    """Return the services, with the files that a job was begun with where these are kept."""

    def select(view: RunView) -> FileSelection:
        kept = sent_selection(sent_folder(services.folder, view))
        if kept is None and (view.spec.queued or view.is_later_attempt):  # the folder may have been edited meanwhile
            raise RunError(
                f"The files that run {view.run_id} was begun with are not here any more.", hint="Run it again."
            )
        return kept or services.select(view)

    return replace(services, select=select)
