"""What the steps of a run work with: the run in the ledger, the services around it, and the connection to its machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from costgpu.clock import Clock
from costgpu.errors import AuthError, CostGpuError, HostUnreachable, LedgerConflict, ProviderError
from costgpu.job.files.checkpoint_store import CheckpointStore
from costgpu.job.files.selection import FileSelection
from costgpu.job.machine.host import Connector, Host, Keys, LogPosition
from costgpu.job.machine.keys import load_keys, make_keys
from costgpu.job.state.journal import RunJournal
from costgpu.job.state.observer import Observer
from costgpu.job.timeouts import (
    CLEAN_UP_SECONDS,
    DESCRIBE_SECONDS,
    LEASE_CHECK_SECONDS,
    RECONNECT_POLL_SECONDS,
    VISIBLE_SECONDS,
)
from costgpu.models.events import Ending, GivenUp, LeftAlone
from costgpu.models.instance import Instance, InstanceRef, InstanceState
from costgpu.models.job import EndReason
from costgpu.models.offer import Offer
from costgpu.models.run import EndedBy, RunState, RunView
from costgpu.providers.base import Provider
from costgpu.retry import retry_provider_call

if TYPE_CHECKING:
    from costgpu.job.files.bucket_outputs import BucketOutputs

CAN_DETACH = (RunState.RUNNING, RunState.COLLECTING)
"""States in which the agent guards job and machine by itself, so that the client may go."""


class Detached(Exception):
    """The client has left the run on purpose.

    Attributes:
        run_id: The run; of several machines, that of the first.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id


class MachineEnded(Exception):
    """The machine has ended, or is ending, and nobody of ours has asked for it.

    Attributes:
        instance: As its provider describes it; None if it does not know it (any more).
    """

    def __init__(self, instance: Instance | None) -> None:
        super().__init__()
        self.instance = instance


@dataclass(slots=True, kw_only=True)
class Services:
    """What is outside of a run."""

    provider: Callable[[str], Provider]  # name -> adapter. Raises `CostGpuError` for an unknown one
    connect: Connector  # opens a connection to a machine
    clock: Clock  # tells the time and waits
    folder: Path  # private folder of all runs
    select: Callable[[RunView], FileSelection]  # chooses the files of a working folder that travel
    allow_from: Callable[[str], str]  # provider name -> CIDR that may reach the machine
    # why a job may not get a machine now, such as a budget; asked when a create call is recorded. None to ask nobody
    refusal: Callable[[RunView], CostGpuError | None] | None = None
    # the user's bucket, where a machine leaves outputs that nobody fetches; None without one
    bucket: BucketOutputs | None = None


@dataclass(slots=True, kw_only=True)
class KeptCheckpoints:
    """What is kept of a job that goes on after interruptions, and how far that is."""

    store: CheckpointStore  # what this machine's job has saved, or that of machine 0
    lead: CheckpointStore  # what the job goes on from: of several machines, what machine 0 has saved
    save_at: float = 0.0  # from then on, monotonic, the machine is asked for a new checkpoint
    keep_until: float = 0.0  # until then, monotonic, a machine that is taken back may save what its job has made
    kept: int = 0  # number of the checkpoint of this machine that was kept last
    saves: bool = True  # whether this machine's are kept; of several, perhaps only those of machine 0


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One run in the process that takes it forward."""

    journal: RunJournal
    services: Services
    observer: Observer
    secrets: Mapping[str, str] | None = None  # environment of the job; None in a process that does not have it
    detach_when_running: bool = False  # whether to leave the run once its job runs
    # option index and zone: the only place to try, because the other machines of the job are there; None for any
    only_place: tuple[int, str | None] | None = None
    excluded: frozenset[tuple[int, str | None]] = frozenset()  # places that had no room for all machines of the job
    avoided: tuple[Offer, str | None] | None = None  # where the last attempt was interrupted: tried last
    saves_for_next: bool = False  # whether another machine was taken back, and so the work is for the next attempt
    keeping: KeptCheckpoints | None = None  # what is kept of a job that goes on after interruptions; None for others
    log_position: LogPosition = field(default_factory=LogPosition)  # how much of the job's output has been shown
    cancelling: bool = False  # whether the user has cancelled
    last_refusal: CostGpuError | None = None  # why the last place that this process tried was none; None before one
    # what the command line ends with once the run is closed; None for the job's own exit code
    error: CostGpuError | None = None
    own_token: str = ""  # token of the create call that this process was the first to make; empty if it was another one
    create_called_at: float | None = None  # when this process last made it, monotonic; None if it has not
    created_at: float | None = None  # when this process learned the machine's id, monotonic; None if another one did
    disconnected_at: float | None = None  # when the connection was lost, monotonic; None while there is one
    silent_at: float | None = None  # when a machine that is reached began to say nothing, monotonic; None if it answers
    gpus_until: float | None = None  # when the driver must have named the GPUs, monotonic; None until it is asked
    _accounts: dict[str, str] = field(default_factory=dict)
    _host: Host | None = None
    _told: set[str] = field(default_factory=set)
    # when the machine's id became known by what another process has recorded, monotonic; None until it is asked for
    _recorded_since: float | None = None
    _ask_lease_at: float = 0.0  # from then on, monotonic, the provider is asked again whether the lease is over
    _began_at: datetime = field(init=False)
    began_monotonic: float = field(init=False)  # when this process took hold of the run

    def __post_init__(self) -> None:
        self._began_at, self.began_monotonic = self.clock.now(), self.clock.monotonic()

    @property
    def view(self) -> RunView:
        """Return the run now."""
        return self.journal.view

    @property
    def clock(self) -> Clock:
        """Tell the time and wait."""
        return self.services.clock

    @property
    def checkpoints(self) -> KeptCheckpoints:
        """Return what is kept of a job that goes on after interruptions; asked for only of one."""
        assert self.keeping is not None  # noqa: S101
        return self.keeping

    @property
    def for_next(self) -> bool:
        """Return whether what the job has made is for the next attempt, and not for the user yet."""
        return self.saves_for_next or self.view.interrupted

    @property
    def folder(self) -> Path:
        """Return the run's private folder."""
        return self.services.folder / self.view.run_id

    @property
    def instance(self) -> InstanceRef:
        """Return the run's machine; asked for only once there is one."""
        assert self.view.instance is not None  # noqa: S101
        return self.view.instance

    @property
    def lease_until(self) -> datetime:
        """Return the end of the lease; asked for only after a create call."""
        assert self.view.lease_until is not None  # noqa: S101
        return self.view.lease_until

    def provider(self) -> Provider:
        """Return the adapter of the current create call, with the credentials that the run was launched with.

        Raises:
            AuthError: They are another account's: what it does not know would look as if it were gone.
        """
        option = self.view.option
        assert option is not None  # noqa: S101 - asked for only after a create call
        provider = self.services.provider(option.offer.provider)
        wanted = self.view.account_at(provider.name)
        mine = self.account(provider) if wanted else ""
        if mine != wanted:
            raise AuthError(
                f"Run {self.view.run_id} belongs to {provider.name} account {wanted}, and these credentials to account"
                f" {mine}.",
                hint="Choose the credentials that it was launched with, such as AWS_PROFILE.",
            )
        return provider

    def account(self, provider: Provider) -> str:
        """Return the account that the credentials for a provider belong to; asked once."""
        if provider.name not in self._accounts:
            identity = retry_provider_call(self.clock, provider.identity, limit_seconds=DESCRIBE_SECONDS)
            self._accounts[provider.name] = identity.account
        return self._accounts[provider.name]

    def keys(self) -> Keys:
        """Return the one-run keys; made before the first create call and never again."""
        if self.view.instance is None:
            return make_keys(self.folder)
        return load_keys(self.folder)

    def describe(self) -> Instance | None:
        """Return the machine as its provider describes it now; None if it does not know it."""
        provider, ref = self.provider(), self.instance
        return retry_provider_call(self.clock, lambda: provider.describe(ref), limit_seconds=DESCRIBE_SECONDS)

    def connection(self) -> Host:
        """Return the connection, made anew where it was lost. Raises `HostUnreachable` if the machine does not answer."""
        if self._host is None:
            instance = self.describe()
            if instance is None or instance.endpoint is None or not instance.state.alive:
                raise HostUnreachable(f"{self.instance.instance_id} has no address")
            try:
                self._host = self.services.connect(instance, self.keys())
            except HostUnreachable:
                if self.view.state in (*CAN_DETACH, RunState.SYNCING):
                    with contextlib.suppress(ProviderError):  # the user may have moved to another network
                        self.provider().open_access(instance, self.services.allow_from(instance.ref.provider))
                raise
        return self._host

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection, as far as is known."""
        return self._host is not None

    def answered(self) -> None:
        """Note that the machine has answered: from now on a lost connection is another one."""
        self.disconnected_at, self.silent_at = None, None

    def use_connection(self, host: Host) -> None:
        """Take over a connection."""
        self.disconnect()
        self._host = host

    def disconnect(self) -> None:
        """Close the connection. Idempotent."""
        if self._host is not None:
            with contextlib.suppress(CostGpuError, OSError):
                self._host.close()
            self._host = None

    def known_since(self) -> float:
        """When the machine's id became known, by the monotonic clock.

        What another process has recorded proves little. A machine that nobody has reached yet may be one that its provider
        does not show yet, and what is recorded for later than now was written by another clock: then it counts as known
        since this process began. The clock here may have been set forward since: the provider's own is asked, once.
        """
        view, now = self.view, self.clock.now()
        if self.created_at is not None:
            return self.created_at
        seen = view.synced or view.started_at is not None
        if not seen or view.known_since is None or view.known_since > now:
            return self.began_monotonic
        if self._recorded_since is None:
            told: datetime | None = None
            with contextlib.suppress(ProviderError):
                told = self.provider().list_owned([self.instance.region]).told_at
            age = (min(now, told or now) - view.known_since).total_seconds()
            self._recorded_since = self.clock.monotonic() - max(0.0, age)
        return self._recorded_since

    def check_alive(self, instance: Instance | None) -> None:
        """Raise `MachineEnded` for a machine that is no more; not as long as it is there, or may be."""
        if instance is None:
            if self.clock.monotonic() - self.known_since() < VISIBLE_SECONDS:
                return
        elif instance.state in (InstanceState.PENDING, InstanceState.RUNNING):
            return
        raise MachineEnded(instance)

    @property
    def past_lease(self) -> bool:
        """Return whether the machine should have ended itself some time ago.

        The clock here may be wrong, or be set while the run goes on: the provider's own has the last word.
        """
        until, view, monotonic = self.lease_until, self.view, self.clock.monotonic()
        if view.launched_at is not None and view.option is not None:  # the lease may be by a clock that was wrong
            until = min(until, view.launched_at + timedelta(seconds=view.option.lease.lifetime_seconds))
        over = until + timedelta(seconds=CLEAN_UP_SECONDS)
        if monotonic < self._ask_lease_at:
            return False
        here = max(self.clock.now(), self._began_at + timedelta(seconds=monotonic - self.began_monotonic))
        if here <= over:
            return False
        self._ask_lease_at = monotonic + LEASE_CHECK_SECONDS
        try:
            told = self.provider().list_owned([self.instance.region]).told_at
        except ProviderError:
            return False
        if (told or here) <= over:
            return False
        self._ask_lease_at = 0.0
        return True

    def await_connection(self, error: CostGpuError) -> None:
        """After a lost connection: waits a little, and the loop tries again. Raises `MachineEnded` if it is gone."""
        self.disconnect()
        self.check_alive(self.describe())
        if self.past_lease:
            self.end(EndReason.DEADLINE, error=error)  # its own watchdog should have ended it
            return
        self.observer.waiting(self.view, f"no connection ({error.message}); the job goes on without it")
        self.clock.sleep(RECONNECT_POLL_SECONDS)
        self.journal.refresh()

    def seconds_disconnected(self) -> float:
        """Return how long there has been no connection; the first call begins to count."""
        now = self.clock.monotonic()
        self.disconnected_at = now if self.disconnected_at is None else self.disconnected_at
        return now - self.disconnected_at

    def seconds_silent(self, *, connected: bool) -> float:
        """Return for how long the agent has said nothing though the machine is reached; the first call begins to count.

        Args:
            connected: Whether it was reached just now. A network that is down proves nothing about an agent.
        """
        now = self.clock.monotonic()
        self.silent_at = None if not connected else now if self.silent_at is None else self.silent_at
        return 0.0 if self.silent_at is None else now - self.silent_at

    def note_once(self, text: str) -> None:
        """Tell a person something that may happen again and again."""
        if text not in self._told:
            self._told.add(text)
            self.observer.note(text)

    def keep_machine(self, error: CostGpuError, what: str = "The outputs wait on the machine") -> NoReturn:
        """Leave the machine, and what is on it, to its lease, and raise the error."""
        run_id = self.view.run_id
        error.hint = (
            f"{error.hint} {what} until {self.lease_until:%Y-%m-%d %H:%M} UTC, when it is ended:"
            f" costgpu fetch {run_id}; to give them up: costgpu cancel --now {run_id}"
        ).strip()
        self.journal.add(LeftAlone(because=error.message))
        raise error

    def give_up_job(self) -> None:
        """Record that the job is not to go on after this run; do nothing for a job that would not."""
        if self.view.spec.attempt is None:
            return
        self.cancelling = True
        if not self.view.given_up:
            retry_on_conflict(lambda: self.journal.add(GivenUp()))

    def end(self, reason: EndReason, by: EndedBy = EndedBy.CLIENT, error: CostGpuError | None = None) -> None:
        """Turn the run towards its end."""
        self.error = self.error or error
        if self.view.state is RunState.INTENT:
            self.journal.refresh()  # a create call may be written without this process having heard so
        if self.view.state is RunState.INTENT:
            self.cancelling = True
        elif self.view.state not in (RunState.TERMINATING, RunState.CLOSED):
            self.journal.add(Ending(reason=reason, by=by))

    def leave(self) -> None:
        """Record that the client goes and the run stays; a run that ends already is not left.

        Raises:
            Detached: Unless the run ends.
        """
        retry_on_conflict(self._leave)

    def _leave(self) -> None:
        if self.view.state in CAN_DETACH:
            self.journal.add(LeftAlone(because="on purpose"))
            raise Detached(self.view.run_id)


def retry_on_conflict(act: Callable[[], object]) -> None:
    """Do what the user wants, whatever another process has written meanwhile."""
    while True:
        with contextlib.suppress(LedgerConflict):
            act()
            return
