"""Drives a job that goes on after interruptions: one run after the other, each on a machine of its own.

The next run is begun in the ledger before the interrupted one is closed (`next_run`), and no machine is asked for before
the end of the last one is confirmed: there is never more than one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from costgpu.errors import CostGpuError, LedgerError, OutputsDamaged, ProviderError, RunCancelled, RunError
from costgpu.job.drive import collect
from costgpu.job.drive.context import KeptCheckpoints, RunContext, Services
from costgpu.job.drive.loop import Driver, StopSignal
from costgpu.job.files.checkpoint_store import CheckpointStore
from costgpu.job.files.sent_folder import keep_sent, sent_folder, sent_selection
from costgpu.job.machine.host import Selection
from costgpu.job.state.attempts import attempt_id
from costgpu.job.state.journal import EventStore, RunJournal
from costgpu.job.state.lock import lock_run
from costgpu.job.state.observer import Observer
from costgpu.job.timeouts import SEARCH_SECONDS, WAIT_POLL_SECONDS
from costgpu.models.run import RunState, RunView
from costgpu.units import format_size

STORE = "checkpoints"  # folder of a job's checkpoints, in the private folder of its first run


def search_pause(searches: int) -> float:
    """Seconds before another machine is looked for, after so many runs in a row for which none was to be had."""
    return min(SEARCH_SECONDS[1], SEARCH_SECONDS[0] * 2.0 ** (searches - 1)) if searches else 0.0


def store_of(folder: Path, job_id: str) -> CheckpointStore:
    """Return where the checkpoints of a job are kept."""
    return CheckpointStore(folder / job_id / STORE)


@dataclass(slots=True, kw_only=True)
class RecoveryDriver:
    """Takes the runs of one job forward, one after the other; there is one at a time.

    Attributes:
        runs: Drivers of all its runs so far, in order. A client that was killed may have left the last two open: the one
            before is then taken to its end first.
    """

    runs: list[Driver]
    ledger: EventStore
    services: Services
    observer: Observer
    secrets: Mapping[str, str] | None
    detach: bool = False
    _locks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def driver(self) -> Driver:
        """Return that of now: of the first run that is not closed, or of the last."""
        return next((one for one in self.runs if one.view.state is not RunState.CLOSED), self.runs[-1])

    @property
    def view(self) -> RunView:
        """Return the run of now."""
        return self.driver.view

    @property
    def views(self) -> tuple[RunView, ...]:
        """Return all runs of the job, in order."""
        return tuple(driver.view for driver in self.runs)

    @property
    def machines(self) -> Sequence[Driver]:
        """Return the drivers of what may have a machine now."""
        return (self.driver,)

    @property
    def context(self) -> RunContext:
        """Context of the run of now."""
        return self.driver.context

    def leave_when_running(self) -> None:
        """Leave the job as soon as it runs."""
        self.detach = True
        for driver in self.runs:
            driver.leave_when_running()

    @property
    def decisive(self) -> RunView:
        """Return the run that tells how the job has ended: the last one that had a machine."""
        return next((view for view in reversed(self.views) if view.instance is not None), self.view)

    @property
    def error(self) -> CostGpuError | None:
        """Return what the command line ends with; None for the exit code of the job."""
        return self.runs[-1].error

    @property
    def ledger_error(self) -> LedgerError | None:
        """Return why the ledger could not be written; None if it could."""
        return next((driver.ledger_error for driver in self.runs if driver.ledger_error is not None), None)

    def drive(self) -> RunView:
        """Take the job to its end and return its last run, closed.

        Raises:
            Detached: The user left on purpose, or a detached run was asked for.
            TerminationUnconfirmed: A machine may be billing.
            CostGpuError: The driver cannot go on; the hint says how to come back.
        """
        with self._locks:
            while True:
                try:
                    if self.view.state is not RunState.CLOSED:
                        self._begin()
                        self.driver.drive()
                    elif not self._go_on():
                        break
                    if self.detach and self.view.waits and self._due():
                        return self.view  # whoever comes next looks again
                except KeyboardInterrupt:
                    self.context.give_up_job()
            self.finish()
        return self.view

    def cancel(self) -> RunView:
        """End the job: a running one is asked first, and its outputs are brought home; it does not go on."""
        for driver in self.runs:
            if driver.view.state is not RunState.CLOSED:
                driver.cancel()
        self.finish()
        return self.view

    def _go_on(self) -> bool:
        """Return whether there is another run; takes hold of it."""
        attempt = self.runs[-1].view.spec.attempt
        assert attempt is not None  # noqa: S101 - every run of such a job has one
        run_id = attempt_id(attempt.job_id, attempt.index + 1)
        if not self.ledger.events(run_id):
            return False
        self._locks.enter_context(lock_run(self.services.folder / run_id))
        self.runs.append(self._driver(run_id))
        return True

    def _driver(self, run_id: str) -> Driver:
        return recovering_driver(
            RunJournal(self.ledger, self.services.clock, run_id),
            self.services,
            self.observer,
            self.secrets,
            detach=self.detach,
        )

    def _begin(self) -> None:
        """Before another machine is asked for: checks, waits where none was free, and gets what the job goes on from.

        Raises:
            CostGpuError: The job cannot go on now. It waits, and nothing is billed.
        """
        view, attempt, recovery = self.view, self.view.spec.attempt, self.view.spec.recovery
        if view.state is RunState.INTENT and not view.waits:
            self._keep_sent()
        if not view.waits or attempt is None or recovery is None or not view.is_later_attempt:
            return
        if self._is_given_up():
            self.context.cancelling = True
            return
        self._check(attempt.job_id)
        try:
            self._get_from_bucket()
        except ProviderError as error:
            error.hint = f"{error.hint} {self._how_to_return()}".strip()
            raise
        keeping = self.context.keeping
        if keeping is not None and keeping.store.discard_damaged():
            self.observer.note("A checkpoint that was kept here is damaged, and is not used.")
        newest = keeping.store.newest() if keeping is not None else None
        if attempt.searches == 0:
            what = "from its newest checkpoint" if newest is not None else "from its beginning: no checkpoint was saved"
            self.observer.note(f"Attempt {attempt.number} of {recovery.most + 1}: the job goes on {what}.")
        self._pause()
        if self._is_given_up():
            self.context.cancelling = True
            return
        before = self.runs[attempt.index - 1].view
        if keeping is not None and attempt.searches == 0 and before.option is not None:
            keeping.avoided = (before.option.offer, before.create_call.zone if before.create_call else None)

    def _keep_sent(self) -> None:
        """Keep the files of a job that begins, as they are now. A job whose files cannot be kept is ended."""
        sent = sent_folder(self.services.folder, self.view)
        if sent_selection(sent) is not None:
            return
        try:
            keep_sent(self.services.select(self.view), sent)
        except CostGpuError:
            self.driver.cancel()
            raise

    def _check(self, job_id: str) -> None:
        """Raise the error for a job that cannot go on now, or from here."""
        view = self.view
        error: CostGpuError | None = None
        if self.secrets is None and view.spec.env_names:
            names = ", ".join(view.spec.env_names)
            error = RunError(f"Job {job_id} waits for its next machine, and its variables are not set here: {names}.")
        elif sent_selection(sent_folder(self.services.folder, view)) is None:
            error = RunError(f"Job {job_id} was begun on {view.client}: the files that it was begun with are not here.")
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
        view, attempt = self.view, self.view.spec.attempt
        if attempt is None or attempt.searches == 0:
            return 0.0
        waited = (self.services.clock.now() - view.created_at).total_seconds()
        return max(0.0, search_pause(attempt.searches) - max(0.0, waited))

    def _pause(self) -> None:
        try:
            while (left := self._due()) > 0 and not self._is_given_up():
                self.observer.waiting(self.view, f"no machine was to be had; the next look in {left:.0f} s")
                self.services.clock.sleep(min(left, WAIT_POLL_SECONDS))
        except StopSignal:
            raise RunCancelled(
                "The client was ended while its job waits for the next machine; nothing is billed.",
                hint=f"Go on: costgpu attach {self.view.run_id}; give it up: costgpu cancel {self.view.run_id}",
            ) from None

    def _is_given_up(self) -> bool:
        """Return whether somebody has cancelled the job, perhaps while it had no machine."""
        for driver in self.runs:
            driver.context.journal.refresh()
        return any(view.given_up for view in self.views)

    def _get_from_bucket(self) -> None:
        """Fetch what the last machine has left in the bucket, if that is newer than what is here.

        Raises:
            ProviderError: The bucket does not answer, or refuses.
            RunError: What is there cannot be kept here.
        """
        bucket, keeping = self.services.bucket, self.context.keeping
        last = next((view for view in reversed(self.views) if view.started_at is not None), None)
        if bucket is None or keeping is None or last is None or not last.spec.bucket:
            return
        store = keeping.store
        newest = store.newest()
        try:
            there = bucket.checkpoint(last, self.services.folder / last.run_id)
        except OutputsDamaged as error:
            self.observer.note(f"Checkpoints in {last.spec.bucket} cannot be used: {error.message}")
            return
        for found, archive in there:
            if newest is not None and newest.taken_epoch >= found.taken_epoch:
                return
            size = format_size(found.total_bytes)
            self.observer.waiting(self.view, f"fetching a checkpoint of {size} from the bucket")
            try:
                store.keep(found, partial(bucket.fetch_checkpoint, last, archive))
                return
            except OutputsDamaged as error:
                self.observer.note(f"A checkpoint in {last.spec.bucket} cannot be used: {error.message}")
            except OSError as error:
                raise RunError(
                    f"A checkpoint of {size} in {last.spec.bucket} cannot be kept here: {error.strerror or error}.",
                    hint=f"Nothing is billed meanwhile. When that is mended: costgpu attach {self.view.run_id}",
                ) from error

    def finish(self) -> None:
        """When all is over: what of the job has not come home yet does so, and what was kept for going on is removed."""
        keeping, last = self.context.keeping, self.decisive
        if keeping is None or self.view.state is not RunState.CLOSED:
            return
        if not last.outputs_home:
            try:
                self._get_from_bucket()
            except CostGpuError as error:
                self.observer.note(f"What the job has left in {last.spec.bucket} could not be fetched: {error.message}")
        well = last.status is not None and last.status.ended_well
        checkpoint = None if last.outputs_home and well else keeping.store.newest()
        if checkpoint is None or collect.place_checkpoint(
            self.context, keeping.store, checkpoint, only_lacking=last.outputs_home
        ):
            keeping.store.remove()


def recovering_driver(
    journal: RunJournal,
    services: Services,
    observer: Observer,
    secrets: Mapping[str, str] | None,
    *,
    detach: bool = False,
) -> Driver:
    """Return a driver for one run of a job that goes on after interruptions."""
    attempt = journal.view.spec.attempt
    assert attempt is not None  # noqa: S101 - every run of such a job has one
    context = RunContext(
        journal=journal,
        services=with_sent_files(services),
        observer=observer,
        secrets=secrets,
        detach_when_running=detach,
        keeping=KeptCheckpoints(store=store_of(services.folder, attempt.job_id)),
    )
    return Driver(context)


def with_sent_files(services: Services) -> Services:
    """Return the services, with the files that a job was begun with where these are kept."""

    def select(view: RunView) -> Selection:
        kept = sent_selection(sent_folder(services.folder, view))
        if kept is None and (view.spec.queued or view.is_later_attempt):  # the folder may have been edited meanwhile
            raise RunError(
                f"The files that run {view.run_id} was begun with are not here any more.", hint="Run it again."
            )
        return kept or services.select(view)

    return replace(services, select=select)
