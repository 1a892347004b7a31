"""Drives one run from its state to its end. Every step can be the first one of a new process.

The loop looks at the run's state and does what is next, so a client that was killed anywhere is followed by one that
goes on from there. Nothing here keeps a machine alive: all limits are armed on the machine and at the provider.
The steps themselves are in `provision`, `machine` and `finish`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from costgpu.clock import Clock
from costgpu.errors import (
    AuthError,
    CostGpuError,
    HostUnreachable,
    LedgerConflict,
    ProviderError,
    RunCancelled,
    TerminationUnconfirmed,
)
from costgpu.models.instance import Instance
from costgpu.models.job import EndReason, FileEntry, JobStatus
from costgpu.models.run import EndedBy, EventKind, RunState, RunView
from costgpu.providers.base import Provider
from costgpu.retry import retry_provider_call
from costgpu.runner.drive import finish, follow, provision, termination
from costgpu.runner.machine.host import Connector, Fetches, Host, Keys, LogPosition, Selection, Stream
from costgpu.runner.machine.keys import load_keys, make_keys
from costgpu.runner.state.journal import RunJournal
from costgpu.runner.state.observer import Answer, Observer
from costgpu.runner.state.states import IllegalEvent
from costgpu.units import format_duration

HANDS_OFF = (RunState.RUNNING, RunState.COLLECTING)  # the agent guards the machine and the job by itself
CAN_LEAVE = (RunState.RUNNING, RunState.COLLECTING)  # the job goes on, or is over, without us


class BucketStore(Protocol):
    """Where outputs go besides home: the user's bucket."""

    def upload_urls(self, view: RunView) -> Mapping[str, str]:
        """``outputs`` and ``logs`` -> presigned URL, valid as long as the lease."""

    def check(self, url: str, until: datetime) -> str:
        """Raises if the bucket cannot be used; returns a warning, or nothing."""

    def rescue(self, view: RunView, folder: Path) -> tuple[JobStatus, tuple[FileEntry, ...], Fetches] | None:
        """What a machine that is gone has left there; None if nothing is there."""


@dataclass(slots=True, kw_only=True)
class Tools:
    """What a driver works with.

    Attributes:
        provider: Name -> adapter. Raises `CostGpuError` for an unknown one.
        connect: To a machine.
        clock: Tells the time and waits.
        folder: Private folder of all runs.
        select: Chooses the files of a working folder that travel.
        allow_from: Provider name -> CIDR that may reach the machine.
        depot: The bucket; None without one.
    """

    provider: Callable[[str], Provider]
    connect: Connector
    clock: Clock
    folder: Path
    select: Callable[[RunView], Selection]
    allow_from: Callable[[str], str]
    depot: BucketStore | None = None


class Detached(Exception):
    """The driver has left on purpose."""


class Hangup(BaseException):
    """The terminal is gone, or somebody ends this process politely."""


@dataclass(slots=True, kw_only=True)
class Driver:
    """The one process that takes a run forward.

    Attributes:
        record: The run.
        tools: To work with.
        observer: Who watches.
        secrets: Environment of the job; None in a process that does not have it.
        detach_when_running: With ``-d``.
        position: How much of the job's output has been shown.
        cancelling: Whether the user has cancelled.
        error: What the command line ends with once the run is closed; None for the job's own exit code.
        accounts: Provider -> whose money the credentials here spend.
        asked: Token of the create call that this process was the first to make; empty if it was another one.
        asked_at: When this process last made it, monotonic; None if it has not.
        lost_since: When the connection was lost, monotonic; None while there is one.
    """

    record: RunJournal
    tools: Tools
    observer: Observer
    secrets: Mapping[str, str] | None = None
    detach_when_running: bool = False
    position: LogPosition = field(default_factory=LogPosition)
    cancelling: bool = False
    error: CostGpuError | None = None
    accounts: dict[str, str] = field(default_factory=dict)
    asked: str = ""
    asked_at: float | None = None
    lost_since: float | None = None
    _host: Host | None = None

    @property
    def view(self) -> RunView:
        """The run now."""
        return self.record.view

    @property
    def folder(self) -> Path:
        """The run's private folder."""
        return self.tools.folder / self.view.run_id

    def drive(self) -> RunView:
        """Takes the run to its end and returns it closed.

        Raises:
            Detached: The user left on purpose, or a detached run was asked for.
            TerminationUnconfirmed: The machine may be billing.
            CostGpuError: The driver cannot go on, but the machine can; the hint says how to come back.
        """
        steps: Mapping[RunState, Callable[[Driver], None]] = {
            RunState.INTENT: provision.attempt,
            RunState.PROVISIONING: provision.create,
            RunState.BOOTING: follow.boot,
            RunState.SYNCING: follow.sync,
            RunState.RUNNING: follow.follow,
            RunState.COLLECTING: finish.collect,
            RunState.TERMINATING: finish.terminate,
        }
        shown = self.view.state
        reaction: Callable[[], None] | None = None
        try:
            while reaction is not None or self.view.state is not RunState.CLOSED:
                try:
                    react, reaction = reaction, None
                    if react is not None:
                        react()
                    else:
                        self._step(steps[self.view.state])
                    if self.view.state is not shown:
                        shown = self.view.state
                        self.observer.changed(self.view)
                except KeyboardInterrupt:  # also in the middle of a reaction to the one before
                    reaction = self._interrupted
                except Hangup:
                    reaction = self._hung_up
        finally:
            with contextlib.suppress(KeyboardInterrupt, Hangup):  # what is decided stays decided
                self.let_go()
        return self.view

    def _step(self, step: Callable[[Driver], None]) -> None:
        before = self.view.state
        try:
            step(self)
        except LedgerConflict:
            pass  # somebody else took it further: look again
        except IllegalEvent:
            if self.view.state is before:
                raise
        except ProviderError as error:
            self._provider_failed(error)

    def cancel(self, reason: EndReason = EndReason.CANCELLED, by: EndedBy = EndedBy.CLIENT) -> RunView:
        """Ends the run; a running job is asked first, and its outputs are brought home."""
        self._identify()
        self._cancel(reason, by)
        return self.drive()

    def give_up(self, reason: EndReason) -> None:
        """Turns a run whose job has not started towards its end; `drive` takes it there."""
        self._identify()
        self._cancel(reason, EndedBy.CLIENT)

    def _identify(self) -> None:
        """Raises before anything is changed if the credentials are not the run's, or nobody can be asked."""
        if self.view.attempt is not None:
            try:
                self.provider()
            except ProviderError as error:
                self._provider_failed(error)

    def end(self, reason: EndReason, by: EndedBy, error: CostGpuError | None) -> None:
        """Turns the run towards its end."""
        self.error = self.error or error
        if self.view.state is RunState.INTENT:
            self.cancelling = True
        elif self.view.state not in (RunState.TERMINATING, RunState.CLOSED):
            self.record.add(EventKind.ENDING, reason=reason.value, by=by.value)

    def leave(self) -> None:
        """Records that the driver goes and the run stays; a run that ends already is not left.

        Raises:
            Detached: Unless the run ends.
        """

        def go() -> None:
            if self.view.state in CAN_LEAVE:
                self.record.add(EventKind.DETACHED, because="on purpose")
                raise Detached

        self._insist(go)

    def provider(self) -> Provider:
        """The adapter of the current attempt, with the credentials that the run was launched with.

        Raises:
            AuthError: They are another account's: what it does not know would look as if it were gone.
        """
        option = self.view.option
        assert option is not None  # noqa: S101 - asked for only after an attempt
        provider = self.tools.provider(option.offer.provider)
        wanted = self.view.attempt.account if self.view.attempt else ""
        if not wanted and provider.name == self.view.identity.provider:
            wanted = self.view.identity.account
        mine = self.account(provider) if wanted else ""
        if mine != wanted:
            raise AuthError(
                f"Run {self.view.run_id} belongs to {provider.name} account {wanted}, and these credentials to account"
                f" {mine}.",
                hint="Choose the credentials that it was launched with, such as AWS_PROFILE.",
            )
        return provider

    def account(self, provider: Provider) -> str:
        """Whose money these credentials spend at a provider; asked once."""
        if provider.name not in self.accounts:
            mine = retry_provider_call(self.tools.clock, provider.identity, limit_seconds=termination.DESCRIBE_SECONDS)
            self.accounts[provider.name] = mine.account
        return self.accounts[provider.name]

    def keys(self) -> Keys:
        """The one-run keys; made before the first create call and never again."""
        if self.view.instance is None:
            return make_keys(self.folder)
        return load_keys(self.folder)

    def talk(self) -> Host:
        """The connection, made anew where it was lost. Raises `HostUnreachable` if the machine does not answer."""
        if self._host is None:
            provider, ref = self.provider(), self.view.instance
            assert ref is not None  # noqa: S101 - only asked with a machine
            instance = retry_provider_call(
                self.tools.clock, lambda: provider.describe(ref), limit_seconds=termination.DESCRIBE_SECONDS
            )
            if instance is None or instance.endpoint is None or not instance.state.alive:
                raise HostUnreachable(f"{ref.instance_id} has no address")
            try:
                self._host = self.tools.connect(instance, self.keys())
            except HostUnreachable:
                if self.view.state in CAN_LEAVE or self.view.state is RunState.SYNCING:
                    self._open_access(provider, instance)
                raise
            self.lost_since = None
        return self._host

    def _open_access(self, provider: Provider, instance: Instance) -> None:
        """The user may have moved to another network: the next try comes from the address of now."""
        with contextlib.suppress(ProviderError):
            provider.open_access(instance, self.tools.allow_from(instance.ref.provider))

    def keep(self, host: Host) -> None:
        """Takes over a connection."""
        self.let_go()
        self._host = host

    def let_go(self) -> None:
        """Closes the connection. Idempotent."""
        if self._host is not None:
            with contextlib.suppress(CostGpuError, OSError):
                self._host.close()
            self._host = None

    def heard(self, stream: Stream, data: bytes) -> None:
        """Counts and passes on what the job wrote.

        Raises:
            HostUnreachable: The lease is over, and the machine still talks: it is ended from here.
        """
        until = self.view.lease_until
        if until is not None and self.tools.clock.now() > until + timedelta(seconds=termination.CLEAN_SECONDS):
            raise HostUnreachable("its lease is over")
        if not data:
            return
        seen = self.position
        if stream is Stream.STDOUT:
            self.position = LogPosition(stdout=seen.stdout + len(data), stderr=seen.stderr)
        else:
            self.position = LogPosition(stdout=seen.stdout, stderr=seen.stderr + len(data))
        self.observer.output(stream, data)

    def _interrupted(self) -> None:
        """Ctrl-C."""
        state = self.view.state
        if state is RunState.CLOSED:
            return
        if state is RunState.TERMINATING:
            self.observer.note("The machine is being ended; that cannot be interrupted.")
            return
        try:
            answer = self.observer.interrupted(self.view)
        except KeyboardInterrupt:
            answer = Answer.CANCEL
        if answer is Answer.DETACH and state in CAN_LEAVE:
            self.leave()
        if answer is Answer.CANCEL:
            self._cancel(EndReason.CANCELLED, EndedBy.CLIENT)

    def _cancel(self, reason: EndReason, by: EndedBy) -> None:
        """Asks a running job first; the second time, or without one, the machine is ended at once."""
        again, self.cancelling = self.cancelling, True
        self.error = self.error or RunCancelled(f"Run {self.view.run_id} ({self.view.name}) was cancelled.")
        if self.view.state is RunState.RUNNING and not again:
            try:
                self.talk().cancel()
            except CostGpuError as unheard:
                self.observer.note(f"The job could not be asked to end: {unheard.message}")
            else:
                grace = format_duration(self.view.spec.grace_seconds)
                self.observer.note(f"The job is asked to end; it has {grace}. Then its outputs come home.")
                return  # follow it to its end, then its outputs, then the machine
        if self.view.state is RunState.COLLECTING and not again:
            return
        self._insist(lambda: self.end(reason, by, None))

    def _insist(self, act: Callable[[], object]) -> None:
        """What the user wants holds, whatever another process has written meanwhile."""
        while True:
            with contextlib.suppress(LedgerConflict):
                act()
                return

    def _hung_up(self) -> None:
        """SIGTERM or SIGHUP: a job that runs goes on without us; nothing else would."""
        if self.cancelling:
            return  # leaving would keep a machine that nobody wants: on to the end
        if self.view.state in CAN_LEAVE:
            self.leave()
        if self.view.state not in (RunState.TERMINATING, RunState.CLOSED):
            ended = RunCancelled("The client was ended before the job had started.")
            self._insist(lambda: self.end(EndReason.CANCELLED, EndedBy.CLIENT, ended))

    def _provider_failed(self, error: ProviderError) -> None:
        view = self.view
        possible = view.state is RunState.PROVISIONING or (view.state is RunState.TERMINATING and view.instance is None)
        if possible and not isinstance(error, TerminationUnconfirmed):
            place = f"{view.option.offer.provider} {view.option.offer.region}" if view.option else "the provider"
            raise TerminationUnconfirmed(
                f"Whether a machine was created for run {view.run_id} in {place} is not known: {error.message}",
                hint=f"{error.hint} Then: costgpu cancel {view.run_id}. By hand: end what has the tag"
                f" costgpu-run={view.run_id}. It would end itself by {_time(view.lease_until)}.".strip(),
            ) from error
        if view.state is RunState.TERMINATING and view.instance and not isinstance(error, TerminationUnconfirmed):
            account = view.attempt.account if view.attempt else ""
            raise TerminationUnconfirmed(
                f"{view.instance.instance_id} in {view.instance.region} is to be ended, and nobody can be asked to do it:"
                f" it may be billing. {error.message}",
                hint=f"{error.hint} Then: costgpu cancel {view.run_id}. By hand:"
                f" {termination.end_by_hand(view.instance, account)}. It ends itself by {_time(view.lease_until)}.".strip(),
            ) from error
        if view.state in (RunState.INTENT, RunState.TERMINATING):
            raise error
        if view.state in HANDS_OFF or isinstance(error, AuthError):
            what = (
                "The machine goes on without this client" if view.state in HANDS_OFF else "No job runs on the machine"
            )
            error.hint = (
                f"{error.hint} {what}, and it ends itself by {_time(view.lease_until)} at the latest."
                f" Come back: costgpu attach {view.run_id}; end it: costgpu cancel {view.run_id}"
            ).strip()
            raise error
        self.end(EndReason.PROVISION_FAILED, EndedBy.CLIENT, error)


def _time(until: datetime | None) -> str:
    return f"{until:%Y-%m-%d %H:%M} UTC" if until is not None else "its lease's end"
