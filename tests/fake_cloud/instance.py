"""One instance on the provider's side: its states, what ended it, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from costgpu.errors import ProviderError
from costgpu.models.instance import CreateRequest, Endpoint, Instance, InstanceRef, InstanceState
from costgpu.models.job import EndReason
from costgpu.models.run import EndedBy
from costgpu.providers.base import TAG_RUN
from costgpu.providers.common import facts_in
from tests.fake_cloud.guest import Event, Guest
from tests.fake_cloud.script import NEVER

REASONS = {
    EndedBy.CLIENT: "user initiated",
    EndedBy.AGENT: "instance initiated shutdown",
    EndedBy.WATCHDOG: "instance initiated shutdown",
    EndedBy.PROVIDER: "spot capacity taken back",
    EndedBy.SOMEBODY_ELSE: "user initiated",
}


@dataclass(kw_only=True)
class FakeInstance:
    """An instance, ours or foreign. Times are seconds on the cloud's time line."""

    ref: InstanceRef  # its name
    request: CreateRequest | None  # what created it; None on a foreign one
    tags: Mapping[str, str]  # as they are on it
    zone: str  # where
    instance_type: str  # what
    created_at: float  # when the create call was carried out
    running_at: float  # when the provider calls it running
    visible_at: float  # from when on queries know it
    address: str  # its public address
    wall: Callable[[float], float]  # from the time line to the provider's clock, as Unix time
    make_guest: Callable[[FakeInstance], Guest]  # called when it runs
    preempted_at: float | None = None  # when the provider takes it back; None if it does not
    terminating_seconds: float  # how long terminating takes
    spot: bool = False
    tells_end: bool = True  # whether the provider says when it has ended
    refusal: ProviderError | None = None  # why the provider ends it instead of calling it running; None if it does not
    state: InstanceState = InstanceState.PENDING  # now
    state_reason: str = ""  # the provider's words for it
    ended_by: EndedBy | None = None  # the truth about who ended it, which no client can see; None while it lives
    end_reason: EndReason | None = None  # likewise, what for
    guest: Guest | None = None  # None until it runs
    stopped_due: float = NEVER
    off_at: float | None = None  # when it switched itself off, if that has only stopped it
    terminating_at: float | None = None  # when its end began; billing ends there
    terminated_at: float | None = None  # when it was gone
    terminate_calls: int = 0  # how often its end was asked for
    now: float = field(default=0.0)

    @property
    def ours(self) -> bool:
        """Whether it carries our tag."""
        return TAG_RUN in self.tags

    def advance(self, to: float) -> None:
        """Lets everything happen that is due until then."""
        while True:
            at, action = min(self._events(), key=lambda event: event[0], default=(NEVER, lambda _: None))
            if at > to or at == NEVER:
                break
            self.now = max(at, self.now)
            action(self.now)
        self.now = max(self.now, to)

    def next_event(self) -> float:
        """When something will happen by itself."""
        return min((at for at, _ in self._events()), default=NEVER)

    def begin_end(self, at: float, by: EndedBy, reason: EndReason | None = None, words: str = "") -> None:
        """Terminating begins, unless it already has."""
        if self.state in (InstanceState.TERMINATING, InstanceState.TERMINATED):
            return
        self.state, self.terminating_at = InstanceState.TERMINATING, at
        if self.off_at is None:
            self.ended_by, self.end_reason = by, reason
            self.state_reason = words or REASONS.get(by, "")

    def switch_off(self, at: float, by: EndedBy, reason: EndReason | None = None) -> None:
        """It powers itself off, at a provider where that only stops it."""
        if self.state is InstanceState.RUNNING:
            self.state, self.stopped_due, self.state_reason = (
                InstanceState.STOPPING,
                at + 5.0,
                "switched off by its guest",
            )
            self.off_at, self.ended_by, self.end_reason = at, by, reason

    def stop(self, at: float, seconds: float) -> None:
        """Somebody stops it: its guest is off, its disks go on."""
        if self.state in (InstanceState.PENDING, InstanceState.RUNNING):
            self.state, self.stopped_due, self.state_reason = InstanceState.STOPPING, at + seconds, "user initiated"

    def describe(self) -> Instance:
        """As the provider describes it."""
        reachable = self.state is InstanceState.RUNNING
        ended = self.off_at if self.off_at is not None else self.terminated_at
        ended = ended if self.tells_end else None
        return Instance(
            ref=self.ref,
            zone=self.zone,
            instance_type=self.instance_type,
            state=self.state,
            reason=self.state_reason,
            preempted=self.ended_by is EndedBy.PROVIDER and self.end_reason is EndReason.PREEMPTED,
            launched_at=datetime.fromtimestamp(self.wall(self.created_at), UTC),
            ended_at=None if ended is None else datetime.fromtimestamp(self.wall(ended), UTC),
            by_guest=self.off_at is not None,
            refusal=self.refusal if self.end_reason is EndReason.NO_CAPACITY else None,
            endpoint=Endpoint(kind="fake", host=self.address) if reachable else None,
            spot=self.spot,
            private_address=self.address.replace("198.51.100.", "10.0.0."),
            **facts_in(self.tags),
        )

    def _events(self) -> Iterator[Event]:
        if self.state is InstanceState.TERMINATED:
            return
        if self.state is InstanceState.TERMINATING:
            if self.terminating_at is not None:
                yield self.terminating_at + self.terminating_seconds, self._gone
            return
        if self.state is InstanceState.PENDING:
            yield self.running_at, self._run
        if self.state is InstanceState.STOPPING:
            yield self.stopped_due, lambda _: self._stopped()
        if self.preempted_at is not None and self.state is not InstanceState.STOPPED:
            yield self.preempted_at, self._preempted
        if self.state is InstanceState.RUNNING and self.guest is not None:
            yield from self.guest.events()

    def _run(self, at: float) -> None:
        if self.refusal is not None:
            self.begin_end(at, EndedBy.PROVIDER, EndReason.NO_CAPACITY, self.refusal.message)
            return
        self.state = InstanceState.RUNNING
        if self.request is not None:
            self.guest = self.make_guest(self)

    def _stopped(self) -> None:
        self.state = InstanceState.STOPPED

    def _gone(self, at: float) -> None:
        self.state, self.terminated_at = InstanceState.TERMINATED, at

    def _preempted(self, at: float) -> None:
        self.begin_end(at, EndedBy.PROVIDER, EndReason.PREEMPTED)
