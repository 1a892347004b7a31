"""One attempt of a job on one machine: states, events, plan, view and receipt. Imports `job`, `instance`, `prediction`.

Times are aware UTC, durations seconds, money `Decimal` US dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from costgpu.models.footprint import FileUse
from costgpu.models.inputs import Inputs
from costgpu.models.instance import Identity, InstanceRef, Safeguard
from costgpu.models.job import EndReason, JobSpec, JobStatus, Launcher, OutputsFrom
from costgpu.models.offer import Offer
from costgpu.models.prediction import Prediction
from costgpu.models.storage import StorageNeed

OVERDUE = timedelta(seconds=60)  # a machine is gone this long after the end of its lease at the latest


class RunState(StrEnum):
    """State of a run, in the order of a run without failures."""

    INTENT = "intent"  # recorded; nothing was asked of the provider yet
    PROVISIONING = "provisioning"  # a create call may have been made
    BOOTING = "booting"  # the instance has an id
    SYNCING = "syncing"  # the machine answers; agent and files are on their way
    RUNNING = "running"  # set-up or job
    COLLECTING = "collecting"  # the job is over, its outputs are being downloaded
    TERMINATING = "terminating"
    CLOSED = "closed"  # confirmed by the provider, or nothing was ever created


class EndedBy(StrEnum):
    """Who ended the machine."""

    CLIENT = "client"
    AGENT = "agent"  # on the instance
    WATCHDOG = "watchdog"  # on the instance, armed in the create call
    PROVIDER = "provider"  # preemption, or the provider's own deadline
    REAPER = "reaper"
    SOMEBODY_ELSE = "somebody_else"
    NOTHING_CREATED = "nothing_created"


class EventKind(StrEnum):
    """Kind of an event of a run."""

    INTENDED = "intended"
    ATTEMPTED = "attempted"  # written before the create call
    REFUSED = "refused"  # the provider has certainly not created anything
    SEARCHED = "searched"  # no place had a machine; all of them are asked again later
    CREATED = "created"
    REACHED = "reached"
    SYNCED = "synced"
    STARTED = "started"
    FINISHED = "finished"
    COLLECTED = "collected"
    ENDING = "ending"  # written before the terminate call
    CONFIRMED = "confirmed"
    CLOSED = "closed"
    DETACHED = "detached"
    ADOPTED = "adopted"  # another process took over
    SAVED = "saved"  # a checkpoint is on the user's side
    RESTORED = "restored"  # a checkpoint is on the machine
    GIVEN_UP = "given_up"  # somebody has cancelled the job: it does not go on after this run
    NOTED = "noted"  # anything worth keeping that changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One row of the ledger; never changed."""

    run_id: str
    sequence: int  # 0, 1, 2, ... within the run, without gaps
    at: datetime  # time at which it was written
    kind: EventKind
    data: Mapping[str, Any] = field(default_factory=dict)  # facts, as JSON values; money and times as strings


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How long an instance may live, counted from its create call."""

    lifetime_seconds: float  # seconds from the create call to power-off
    worst_cost_usd: Decimal  # highest cost of that time: machine at its on-demand price, disk and address
    usd_per_hour: Decimal  # rate that the two were computed with
    limited_by: str  # ``--max-cost``, ``--max-duration``, ``--lease`` or ``the estimate``


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof of the end of a run."""

    run_id: str
    instance: InstanceRef | None  # None if nothing was ever created
    instance_type: str
    layers: tuple[Safeguard, ...]  # all safeguards, armed or not
    reason: EndReason
    ended_by: EndedBy
    requested_at: datetime | None  # time at which its end was requested; None if it ended itself
    confirmed_state: str  # state that the provider confirmed; empty until then
    confirmed_at: datetime | None  # time of the confirmation
    provider_reason: str  # the provider's own words
    left_behind: tuple[str, ...]  # resources that could not be removed: access rules and the like
    metered_seconds: float  # seconds from the create call to confirmation, as observed
    metered_cost_usd: Decimal  # those seconds at the offer's price, disk and address included
    # whether the machine ended by itself at an unknown earlier time: both figures are upper bounds
    metered_at_most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOption:
    """An offer that the run may be launched on, with what it may cost there."""

    offer: Offer
    lease: Lease
    disk_gib: int  # size of the root disk
    extras_usd_per_hour: Decimal = Decimal(0)  # price of disk and address; 0 on this machine
    size: int = 0  # 0 for what was asked for; n for the n-th larger machine, for a job that has run out of memory
    placement: bool = False  # whether several such machines are placed close together
    efa_interfaces: int = 0  # network interfaces with EFA of each of several such machines; 0 for a plain network

    @property
    def usd_per_hour(self) -> Decimal:
        """Return the price of the machine with its disk and address."""
        return self.offer.price_usd_per_hour + self.extras_usd_per_hour

    def cost_usd(self, start: datetime, seconds: Decimal) -> Decimal:
        """Cost of a machine that lives from `start`: an own price counts until its last day is over, then the list price."""
        own = self.offer.own_price
        usd = seconds * self.usd_per_hour
        if own is not None:
            held = Decimal((own.ends_at - start).total_seconds())
            after = seconds - min(max(held, Decimal(0)), seconds)
            usd += after * (own.list_usd_per_hour - self.offer.price_usd_per_hour)
        return (usd / 3600).quantize(Decimal("0.000001"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCall:
    """One create call, repeatable with the same values."""

    number: int  # number of the call, from 1
    token: str
    option: int  # index into the run's options
    zone: str | None  # None where the provider chose
    at: datetime  # time of the first call: metering starts here
    lease_until: datetime  # latest power-off
    allow_from: str  # CIDR of the client
    account: str = ""  # account at the provider of this call; empty in rows of older versions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as its events tell it.

    Attributes:
        client: Host name of the machine that launched it.
        options: Offers in the order in which they are tried.
        changed_at: Time of the last change of state.
        create_call: The last create call.
        refusals: Places that have refused in this look for a machine: option index, zone, message.
        left_behind: What refused calls have left and could not be removed then: region, words.
        searched_at: End of the last look that found no machine; None before one.
        instance: The instance, once there is one.
        known_since: Time at which its id was recorded.
        launched_at: Start of the instance by the provider's clock.
        layers: Safeguards, as the provider armed them with it.
        status: Final status of the job, as the agent told it.
        synced: Whether the files are on the machine.
        started_at: Start of the job; None until then.
        collected: Whether the outputs are on the user's machine, so that nothing is lost with the run's.
        kept: Whether they are kept there for the job's next machine, and not home.
        saved_at: Time of the newest checkpoint of this run, by its machine's clock; None without one.
        given_up: Whether the job is not to go on after this run, because somebody has cancelled it.
        restored_from: Time of the checkpoint that its job goes on from; None for a job that begins.
        reason: Reason of the end; None until the run ends.
        ending_by: Who requested the end.
        ending_at: Time of that request.
        confirmed_state: State that the provider confirmed; empty until then.
        confirmed_at: Time of the confirmation.
        provider_reason: The provider's own words.
        forgotten: Whether the provider knew nothing of the machine any more.
        ended_before: Whether `confirmed_at` is only the latest time at which it can have ended.
        receipt: Receipt of a closed run.
        detached: Whether the last client left on purpose.
        adopted_at: Time at which a process last went on with what another one had begun.
        next_sequence: Sequence number of the next event.
    """

    run_id: str
    state: RunState
    name: str
    owner: str
    client: str
    spec: JobSpec
    identity: Identity
    options: tuple[LaunchOption, ...]
    created_at: datetime
    changed_at: datetime
    create_call: CreateCall | None = None
    refusals: tuple[tuple[int, str | None, str], ...] = ()
    left_behind: tuple[tuple[str, str], ...] = ()
    searched_at: datetime | None = None
    instance: InstanceRef | None = None
    known_since: datetime | None = None
    launched_at: datetime | None = None
    layers: tuple[Safeguard, ...] = ()
    status: JobStatus | None = None
    synced: bool = False
    started_at: datetime | None = None
    collected: bool = False
    kept: bool = False
    saved_at: datetime | None = None
    given_up: bool = False
    restored_from: datetime | None = None
    reason: EndReason | None = None
    ending_by: EndedBy | None = None
    ending_at: datetime | None = None
    confirmed_state: str = ""
    confirmed_at: datetime | None = None
    provider_reason: str = ""
    forgotten: bool = False
    ended_before: bool = False
    receipt: Receipt | None = None
    detached: bool = False
    adopted_at: datetime | None = None
    next_sequence: int = field(default=1)

    @property
    def option(self) -> LaunchOption | None:
        """Option of the last create call."""
        return self.options[self.create_call.option] if self.create_call else None

    @property
    def lease_until(self) -> datetime | None:
        """Latest end of the machine; None before the first create call."""
        return self.create_call.lease_until if self.create_call else None

    @property
    def waits(self) -> bool:
        """Return whether it is to be started by whoever comes next: nothing is billed, and nobody needs to be there."""
        return self.state is RunState.INTENT and (self.spec.queued or self.is_later_attempt)

    @property
    def interrupted(self) -> bool:
        """Return True if the machine is taken back, and the job's work is for its next attempt and not for its user."""
        preempted = self.status is not None and self.status.reason is EndReason.PREEMPTED
        return preempted and self.spec.recovery is not None

    @property
    def outputs_home(self) -> bool:
        """Return whether what its job has made is home, rather than kept for the next machine."""
        return self.collected and not self.kept and not (self.reason is not None and self.reason.interrupted)

    @property
    def is_later_attempt(self) -> bool:
        """Return whether it goes on with a job that has begun before, or has found no machine yet, and may wait."""
        attempt = self.spec.attempt
        return self.spec.goes_on and attempt is not None and (attempt.index > 0 or self.searched_at is not None)

    @property
    def job_id(self) -> str:
        """Run id of the first machine of the first attempt, by which the whole job is called."""
        if self.spec.attempt is not None:
            return self.spec.attempt.job_id
        return self.spec.node.group_id if self.spec.node is not None else self.run_id

    @property
    def machine(self) -> int:
        """Return the number of its machine among those of the attempt, from 0."""
        return self.spec.node.node if self.spec.node is not None else 0

    @property
    def is_first_machine(self) -> bool:
        """Return whether it is the run of machine 0, which stands for its attempt."""
        return self.machine == 0

    @property
    def machine_ids(self) -> tuple[str, ...]:
        """Return the runs of all machines of the attempt, by number."""
        return self.spec.node.run_ids if self.spec.node is not None else (self.run_id,)

    @property
    def has_peers(self) -> bool:
        """Return whether other machines work on the job with this one."""
        return self.spec.node is not None

    @property
    def machine_mark(self) -> str:
        """Return which machine of several it is, such as ``[1/2] ``; empty without others."""
        return f"[{self.machine + 1}/{len(self.machine_ids)}] " if self.has_peers else ""

    @property
    def ranks_per_node(self) -> int:
        """Return the ranks that each machine of the job has: as asked for, or one for each GPU."""
        if self.spec.launcher is Launcher.NONE or self.spec.launcher.runs_once:
            return 1
        accelerator = self.option.offer.accelerator if self.option is not None else None
        wanted = self.spec.processes
        return wanted if wanted > 0 else max(1, int(accelerator.count) if accelerator is not None else 1)

    @property
    def first_rank(self) -> int:
        """Lowest rank on this machine of the job."""
        return self.machine * self.ranks_per_node

    @property
    def outputs_folder(self) -> str | None:
        """Folder that outputs come home to; None if those of this machine are not wanted."""
        workdir = self.spec.workdir
        if not self.has_peers or (self.is_first_machine and self.spec.outputs_from is OutputsFrom.RANK_0):
            return workdir
        return f"{workdir}/rank-{self.first_rank}" if self.spec.outputs_from is OutputsFrom.ALL else None

    def account_at(self, provider: str) -> str:
        """Return the account that pays for the run at this provider; empty if it is not known."""
        if self.create_call is not None and self.create_call.account:
            return self.create_call.account
        return self.identity.account if self.identity.provider == provider else ""

    def metered(self, now: datetime) -> tuple[float, Decimal]:
        """Return the seconds and cost from the create call until `now`, or until the end that was confirmed."""
        never_created = self.instance is None and self.state is not RunState.PROVISIONING
        if self.create_call is None or self.option is None or never_created:
            return 0.0, Decimal(0)
        end = self.confirmed_at or now
        start = self.create_call.at
        # The create call may have been repeated much later, by another client.
        if self.launched_at is not None and self.known_since is not None:
            start = min(max(start, self.launched_at), self.known_since)
        seconds = max(0.0, (end - start).total_seconds())
        billed = Decimal(max(60, int(-(-seconds // 1)))) if self.instance else Decimal(0)
        return seconds, self.option.cost_usd(start, billed)

    def metered_at_most(self, now: datetime) -> tuple[float, Decimal]:
        """As `metered`, but not beyond the lease: for callers that have not asked whether the machine still runs."""
        return self.metered(now if self.lease_until is None else min(now, self.lease_until + OVERDUE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a launch is going to do."""

    spec: JobSpec
    options: tuple[
        LaunchOption, ...
    ]  # offers in order; the first is the plan, the others are for when it has no capacity
    # prediction for the first option; None if it was not measured, or its length is not known
    prediction: Prediction | None
    verdict: str  # sentence of the estimate that chose the place; empty if the user did
    identity: Identity
    layers: tuple[Safeguard, ...]  # safeguards, as they will be armed
    files: int  # number of files of the working folder that are sent
    bytes: int  # total size of those files
    left_out: dict[str, int]  # reason -> number of files and whole folders that are not sent
    price_as_of: date  # day of the price of the first option
    workload: str = ""  # key of what the script does, by which measured speeds are found again; empty if there is none
    steps: float | None = None  # optimizer steps of the whole job; None if that is not known
    notes: tuple[str, ...] = field(default=())  # remarks to read before confirming
    others: tuple[Identity, ...] = ()  # identities at the further providers of the options
    largest: tuple[FileUse, ...] = ()  # the largest of what ignore rules leave out
    inputs: Inputs = field(default_factory=Inputs)  # what the script reads and would not find
    packages: str = ""  # what says which packages the machine installs, and what installs them; empty if nothing does
    storage: StorageNeed | None = None  # weights and checkpoints on a rented machine's disk; None if they are small

    @property
    def most_usd(self) -> Decimal:
        """Highest cost of all machines together, wherever they are found."""
        return self.spec.nodes * max(option.lease.worst_cost_usd for option in self.options)
