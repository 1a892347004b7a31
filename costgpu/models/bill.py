"""What a provider says that it has billed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledRow:
    """What one run was billed in one part of a period."""

    run_id: str  # from our tag; empty for everything in the account that has none
    start: datetime  # beginning of the part, UTC
    end: datetime  # end of the part, UTC, exclusive
    amount_usd: Decimal  # as the provider says it
    estimated: bool = False  # whether the provider says that this may still change


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A provider's own figures for a period."""

    provider: str  # whose
    account: str  # as the provider names it
    start: datetime  # UTC
    end: datetime  # UTC, exclusive
    rows: tuple[BilledRow, ...]  # by run and day; amounts of zero are left out
    asked_at: datetime  # when the provider said so
    source: str  # such as ``AWS Cost Explorer``
    requests: int  # how many were made and paid for this answer; 0 if it was kept from an earlier time
    note: str = ""  # what a person should do or know about these figures; empty if nothing
