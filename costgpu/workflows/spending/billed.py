"""Compares what was metered with what providers say they have billed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from costgpu.errors import ProviderError, UsageError
from costgpu.ledger.records.billed import compare_with_bills, latest_bills, record_bill
from costgpu.models.bill import Bill
from costgpu.providers.base import Billing
from costgpu.render.text.ledger import BilledPeriod
from costgpu.workflows.context import AppContext


@dataclass(slots=True)
class Bills:
    """Answers of providers, and who has not answered."""

    bills: list[Bill] = field(default_factory=list)
    failed: list[tuple[str, ProviderError]] = field(default_factory=list)


def billing_providers(context: AppContext) -> list[Billing]:
    """Return providers with credentials here that tell what they have billed."""
    from costgpu.providers import registry

    found = (
        spec.billing(context.provider_config(spec.name))
        for spec in registry.specs()
        if spec.billing is not None and spec.has_credentials()
    )
    return [billing for billing in found if billing is not None]


def sort_by_fee(
    providers: Sequence[Billing], start: datetime, end: datetime, *, fresh: bool
) -> tuple[list[Billing], list[Billing], Bills]:
    """Return the providers that can be asked, those of them that take a fee for the answer, and those that refuse already.

    An answer that is kept costs nothing.
    """
    able: list[Billing] = []
    paid: list[Billing] = []
    bills = Bills()
    for billing in providers:
        try:
            if billing.usd_per_request and (fresh or billing.kept(start, end) is None):
                paid.append(billing)
            able.append(billing)
        except ProviderError as error:
            bills.failed.append((billing.name, error))
    return able, paid, bills


def ask(
    providers: Sequence[Billing], start: datetime, end: datetime, *, fresh: bool = False, bills: Bills | None = None
) -> Bills:
    """Ask providers for their bills; one that refuses does not hide the others."""
    bills = bills or Bills()
    for billing in providers:
        try:
            bills.bills.append(billing.billed(start, end, fresh=fresh))
        except ProviderError as error:
            bills.failed.append((billing.name, error))
    return bills


def compare(context: AppContext, bills: Sequence[Bill], start: datetime, end: datetime) -> BilledPeriod:
    """Store the answers and compare them with what was metered; without answers, those stored before.

    Raises:
        LedgerError: They cannot be stored or read.
    """
    for bill in bills:
        record_bill(context.ledger, bill)
    if bills:
        sources = [(bill.source, bill.asked_at) for bill in bills]
    else:
        said: dict[str, datetime] = {}
        for cost in latest_bills(context.ledger, start, end):
            said[cost.source] = max(cost.said_at, said.get(cost.source, cost.said_at))
        sources = list(said.items())
    return BilledPeriod(
        rows=compare_with_bills(context.ledger, start, end, [bill.provider for bill in bills] or None),
        start=start,
        end=end,
        sources=sources,
        notes=[bill.note for bill in bills if bill.note],
    )


def parse_month(text: str | None, now: datetime) -> tuple[datetime, datetime]:
    """First moment of a month, the current one for None, and of the next one."""
    try:
        first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC) if text else midnight(now).replace(day=1)
        after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    except ValueError as error:
        raise UsageError(f"--month {text!r} is not a month.", hint="Write it as 2026-11.") from error
    if first > now:
        raise UsageError(f"--month {text} has not begun.")
    return first, after


def midnight(at: datetime) -> datetime:
    """Beginning of the UTC day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
