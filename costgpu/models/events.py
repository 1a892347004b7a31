"""The events of a run, as its journal holds them: one frozen value for each kind. Imports `instance`, `job`, `run`.

What is stored of them are their fields, by name; fields with defaults are lacking in rows of older versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from costgpu.models.instance import Identity, Safeguard
from costgpu.models.job import EndReason, JobSpec, JobStatus
from costgpu.models.offer import Offer
from costgpu.models.run import EndedBy, EventKind, LaunchOption, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """A run was agreed to; nothing was asked of a provider."""

    name: str = ""
    owner: str = ""
    client: str = ""  # host name
    spec: JobSpec
    identity: Identity
    options: tuple[LaunchOption, ...] = ()
    estimate: Mapping[str, float] | None = None  # what was predicted for the run, by the names of its columns
    workload: Mapping[str, Any] = field(default_factory=dict)  # key and steps, by which measured speeds are found


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """A create call is about to be made; fields are those of `CreateCall`."""

    attempt: int  # number of the call, from 1
    token: str
    option: int
    zone: str | None
    lease_until: datetime
    allow_from: str
    account: str = ""
    offer: Offer | None = None  # of the option
    lifetime_seconds: float | None = None
    worst_cost_usd: Decimal | None = None
    usd_per_hour: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The provider has certainly not created anything, or ended it while it was launched."""

    error: str = ""
    message: str = ""
    confirmed_state: str = ""  # of a machine that was ended while it was being launched; empty if there was none
    left_behind: tuple[str, ...] = ()  # what the call has left and could not be removed, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """No place had a machine; all of them are asked again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The instance has an id."""

    provider: str
    region: str
    instance_id: str
    zone: str | None = None
    instance_type: str = ""
    launched_at: datetime | None = None
    layers: tuple[Safeguard, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The machine answers as itself."""

    host: str = ""
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The files are on the machine."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The job was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The outputs are on the user's machine, or kept for the next one."""

    kept: bool = False  # whether they are kept for the job's next machine, and not home
    files: int = 0
    bytes: int = 0
    replaced: int = 0
    stuck: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The machine is about to be ended."""

    reason: EndReason
    by: EndedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The provider says that the machine is gone; fields are those of `RunView`."""

    state: str
    provider_reason: str = ""
    by: EndedBy = EndedBy.SOMEBODY_ELSE
    reason: EndReason = EndReason.INSTANCE_LOST
    ended_at: datetime | None = None
    ended_before: bool = False
    forgotten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The run is over."""

    reason: EndReason
    ended_by: EndedBy | None = None
    metered_seconds: float | None = None
    metered_cost_usd: Decimal | None = None
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAlone:
    """The client has left the run on purpose."""

    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Another process took over."""

    client: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint is on the user's side."""

    taken_at: datetime
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint is on the machine."""

    taken_at: datetime
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Somebody has cancelled the job: it does not go on after this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Anything worth keeping that changes nothing."""


Event = (
    Intended
    | Attempted
    | Refused
    | Searched
    | Created
    | Reached
    | Synced
    | Started
    | JobStatus
    | Collected
    | Ending
    | Confirmed
    | Closed
    | LeftAlone
    | Adopted
    | Saved
    | Restored
    | GivenUp
    | Noted
)

EVENTS: Mapping[EventKind, type[Event]] = MappingProxyType(
    {
        EventKind.INTENDED: Intended,
        EventKind.ATTEMPTED: Attempted,
        EventKind.REFUSED: Refused,
        EventKind.SEARCHED: Searched,
        EventKind.CREATED: Created,
        EventKind.REACHED: Reached,
        EventKind.SYNCED: Synced,
        EventKind.STARTED: Started,
        EventKind.FINISHED: JobStatus,
        EventKind.COLLECTED: Collected,
        EventKind.ENDING: Ending,
        EventKind.CONFIRMED: Confirmed,
        EventKind.CLOSED: Closed,
        EventKind.DETACHED: LeftAlone,
        EventKind.ADOPTED: Adopted,
        EventKind.SAVED: Saved,
        EventKind.RESTORED: Restored,
        EventKind.GIVEN_UP: GivenUp,
        EventKind.NOTED: Noted,
    }
)
KINDS: Mapping[type[Event], EventKind] = MappingProxyType({event: kind for kind, event in EVENTS.items()})
