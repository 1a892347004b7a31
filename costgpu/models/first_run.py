"""What was seen of one machine on a real account: chosen facts, none of which names whose account it is.

Imports `offer` and `run`. Times are seconds since the create call.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from costgpu.models.offer import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPhase:
    """One event of the run, as the ledger has it."""

    kind: str  # `EventKind`
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSighting:
    """The machine as its provider described it from some moment on."""

    seconds: float
    state: str  # `InstanceState`; ``unknown`` once the provider does not know it any more
    words: str  # the provider's own, for the last change of state
    by_guest: bool  # whether they say that its own system has switched it off
    preempted: bool  # whether they say that the provider took it back


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """What came of a simulated maintenance of its host."""

    events: tuple[str, ...] = ()  # the provider's names of what has happened to the machine since, oldest first
    time_limit_before: bool  # whether the provider had a time limit for the machine before
    time_limit_after: bool  # and afterwards
    refusal: str = ""  # why it could not be simulated; empty if it was


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMachine:
    """One machine from the create call to its end. None where something was not seen."""

    offer: Offer
    worst_cost_usd: Decimal  # of its lease
    run_id: str = ""  # for this computer's ledger; left out of the report
    cost_usd: Decimal | None = None  # as the receipt has it
    phases: tuple[TrialPhase, ...] = ()
    first_answer_seconds: float | None = None  # something answered over SSH, whosever key it showed
    our_key_seconds: float | None = None  # it showed the key of the run
    foreign_key: bool = False  # whether it has shown another key before
    console_boot_seconds: float | None = None  # the provider's copy of the console had what the boot script says
    console_end_seconds: float | None = None  # it had what was said right before the power-off
    power_off_seconds: float | None = None  # that was said
    said: str = ""  # by the job: its GPU and driver
    sightings: tuple[MachineSighting, ...] = ()
    maintenance: Maintenance | None = None  # None where the provider cannot simulate it
    reason: str = ""  # why the run ended, in costgpu's words
    ended_by: str = ""
    confirmed_state: str = ""
    left_behind: int = 0  # number of things that could not be removed
    refused: tuple[str, ...] = ()  # what the provider said to create calls that it refused
    error: str = ""  # the error that the run ended with
    exit_code: int = 0  # of that error
