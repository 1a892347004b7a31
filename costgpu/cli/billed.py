"""What providers say they have billed, asked on a person's word: `costgpu ledger billed`, and for `budget check`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from costgpu.errors import AuthError, NotConfirmed, ProviderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costgpu.ledger.records.billed import Compared
    from costgpu.providers.base import Bill, Billing
    from costgpu.workflows.context import AppContext


def billed(
    month: Annotated[str | None, typer.Option(metavar="YYYY-MM", help="Else the current one, up to today.")] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Pay for the answer without being asked.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also if an answer is less than 6 hours old.")] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Only what this ledger was told before; ask nobody.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Hold what was metered against the provider's own figures, run by run.

    AWS Cost Explorer takes $0.01 for each request, BigQuery at most as much for a look into
    Google's billing export; an answer is kept for 6 hours.
    The figures are stored in the ledger, where costgpu ledger accuracy uses them.
    """
    from costgpu.render.text.billed import billed_json, billed_text
    from costgpu.workflows.context import app_context

    if stored and fresh:
        raise UsageError("--stored asks nobody, and --fresh asks again: choose one.")
    with app_context() as parts:
        now = parts.clock.now()
        start, end = _month(month, now)
        bills: list[Bill] = []
        failed: list[tuple[str, ProviderError]] = []
        if not stored:
            who = asked_of(parts)
            if not who:
                raise AuthError(
                    "No provider with credentials here tells what it has billed.",
                    hint="costgpu doctor says how to get some, and which settings a provider's bills want."
                    " --stored shows what this ledger was told before.",
                )
            for billing in _agree(who, start, end, failed, yes=yes, fresh=fresh):
                try:
                    bills.append(billing.billed(start, end, fresh=fresh))
                except ProviderError as error:
                    failed.append((billing.name, error))
            if not bills:
                _end(failed)
        rows, sources, notes = settled(parts, bills, start, end)
        show = billed_json if json else billed_text
        typer.echo(show(rows, start, end, parts.clock.now(), sources=sources, notes=notes))
        _end(failed)


def _end(failed: Sequence[tuple[str, ProviderError]]) -> None:
    """Names who has not told; ends with the first one's exit code. Nothing if everybody has.

    Raises:
        ProviderError: Of the first one.
    """
    for name, error in failed:
        typer.echo(f"costgpu: {name} has not told what it has billed{_why(error, failed)}", err=True)
    if failed:
        raise failed[0][1]


def _why(error: ProviderError, failed: Sequence[tuple[str, ProviderError]]) -> str:
    return "." if error is failed[0][1] else f": {error.message}"  # the first one's words end the command


def asked_of(parts: AppContext) -> list[Billing]:
    """Everybody with credentials here who tells what was billed."""
    from costgpu.providers import registry

    found = (
        spec.billing(parts.provider_config(spec.name))
        for spec in registry.specs()
        if spec.billing is not None and spec.has_credentials()
    )
    return [billing for billing in found if billing is not None]


def billed_lines(parts: AppContext, start: datetime, end: datetime) -> list[str]:
    """Metered beside billed for other commands, and stored. The caller has the user's word that it may cost a cent.

    Args:
        parts: To work with.
        start: Of the period; the UTC day that it is in counts whole.
        end: Of the period; likewise.

    Returns:
        Lines of text; a provider that does not answer is one of them.

    Raises:
        LedgerError: What was billed cannot be stored or read.
    """
    from datetime import timedelta

    from costgpu.render.text.billed import billed_text

    low = _midnight(start)
    high = _midnight(end - timedelta(microseconds=1)) + timedelta(days=1)
    bills, failed = [], []
    for billing in asked_of(parts):
        try:
            bills.append(billing.billed(low, high))
        except ProviderError as error:
            failed.append(f"not asked: {billing.name}: {error.message}")
    if not bills:
        return failed or ["No provider with credentials here tells what it has billed."]
    rows, sources, notes = settled(parts, bills, low, high)
    return [*billed_text(rows, low, high, parts.clock.now(), sources=sources, notes=notes).splitlines(), *failed]


def settled(
    parts: AppContext, bills: list[Bill], start: datetime, end: datetime
) -> tuple[tuple[Compared, ...], list[tuple[str, datetime]], list[str]]:
    """Stores the answers, and holds them against what was metered: rows, who said so and when, notes."""
    from costgpu.ledger.records.billed import BilledCost, compare_with_bills, latest_bills, record_bills

    for bill in bills:
        costs = [
            BilledCost(
                provider=bill.provider,
                account=bill.account,
                run_id=row.run_id,
                start=row.start,
                end=row.end,
                amount_usd=row.amount_usd,
                source=bill.source,
                said_at=bill.asked_at,
            )
            for row in bill.rows
        ]
        record_bills(
            parts.ledger,
            costs,
            provider=bill.provider,
            account=bill.account,
            start=bill.start,
            end=bill.end,
            said_at=bill.asked_at,
        )
    sources = [(bill.source, bill.asked_at) for bill in bills]
    if not bills:
        said: dict[str, datetime] = {}
        for cost in latest_bills(parts.ledger, start, end):
            said[cost.source] = max(cost.said_at, said.get(cost.source, cost.said_at))
        sources = list(said.items())
    providers = [bill.provider for bill in bills] or None
    return compare_with_bills(parts.ledger, start, end, providers), sources, [bill.note for bill in bills if bill.note]


def _agree(
    who: list[Billing],
    start: datetime,
    end: datetime,
    failed: list[tuple[str, ProviderError]],
    *,
    yes: bool,
    fresh: bool,
) -> list[Billing]:
    """Says what it costs before it is asked; a kept answer costs nothing. Returns who can be asked, and adds the others."""
    able, paid = [], []
    for billing in who:
        try:
            if not yes and billing.usd_per_request and (fresh or billing.kept(start, end) is None):
                paid.append(billing)
            able.append(billing)
        except ProviderError as error:
            failed.append((billing.name, error))
    if not paid:
        return able
    words = " and ".join(f"{billing.name} takes ${billing.usd_per_request} a request" for billing in paid)
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{words} for what it has billed.", hint="Add -y to pay that, or --stored to ask nobody.")
    sys.stderr.write(f"{words} for what it has billed. Ask? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotConfirmed("Not asked; nothing was spent.")
    return able


def _month(text: str | None, now: datetime) -> tuple[datetime, datetime]:
    """From its first day to the first of the next one."""
    try:
        first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC) if text else _midnight(now).replace(day=1)
        after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    except ValueError as error:
        raise UsageError(f"--month {text!r} is no month.", hint="Write it as 2026-11.") from error
    if first > now:
        raise UsageError(f"--month {text} has not begun.")
    return first, after


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
