"""What providers say that they have billed: rows, and held beside what was metered.

A row is added only if the amount is not the one that was said last, so that asking often makes no rows; once more when
the same amount is said again after `LATE`, when nothing is added to a bill any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, func, select

from costgpu.ledger.costs.charges import RunFilter, charges
from costgpu.ledger.projections import plain
from costgpu.ledger.schema import billed, from_nano, instant, text, to_microseconds, to_nano
from costgpu.ledger.store import Ledger
from costgpu.models.bill import Bill, BilledRow

ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
LATE = timedelta(hours=48)  # so long after a cost its bill may still be incomplete


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledCost:
    """What a provider says that one run cost from `start` to `end` (exclusive)."""

    provider: str
    account: str  # as the provider names it
    run_id: str  # empty for what has no run's tag
    start: datetime
    end: datetime
    amount_usd: Decimal
    source: str  # such as ``AWS Cost Explorer``
    said_at: datetime  # when the provider said so


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What one run cost in a period, metered and billed."""

    run_id: str  # empty for everything in the account that has no run's tag
    name: str  # the job's name; empty if this ledger does not know the run
    metered_usd: Decimal | None  # the run's share of the period; None if this ledger has no closed run of that id
    billed_usd: Decimal | None  # None if no bill has it


def record_bill(ledger: Ledger, bill: Bill) -> int:
    """Add what is new about a period; what was said before and is not any more becomes zero.

    What was said later already stays: a kept answer is older than it looks.

    Returns:
        How many rows were added.

    Raises:
        ValueError: An amount is too large to be kept, or not a number.
    """
    wanted = {_key(row): row for row in (_row(bill, billed_row) for billed_row in bill.rows)}

    def work(connection: Connection) -> int:
        known = {
            _key(row): row
            for row in (dict(found._mapping) for found in _latest(connection, bill.start, bill.end))
            if (row["provider"], row["account"]) == (bill.provider, bill.account)
        }
        rows = [row for key, row in wanted.items() if key not in known or _is_news(row, known[key])]
        gone = [row for key, row in known.items() if key not in wanted and row["nano_usd"]]
        said = {"nano_usd": 0, "at_us": to_microseconds(bill.asked_at), "source": plain(bill.source)}
        rows += [
            {**{key: row[key] for key in row if key != "id"}, **said} for row in gone if said["at_us"] >= row["at_us"]
        ]
        if rows:
            connection.execute(billed.insert(), rows)
        return len(rows)

    return ledger.write(work)


def latest_bills(ledger: Ledger, start: datetime = ALWAYS[0], end: datetime = ALWAYS[1]) -> tuple[BilledCost, ...]:
    """Return what was said last about every run and part of a period, oldest part first; zeros are left out."""

    def read(connection: Connection) -> tuple[BilledCost, ...]:
        rows = (row for row in _latest(connection, start, end) if row.nano_usd)
        return tuple(ledger.readable(rows, _cost, lambda row: f"row {row.id} of what was billed"))

    return ledger.read(read, ())


def without_repeats(costs: Iterable[BilledCost]) -> tuple[BilledCost, ...]:
    """Each run's cost of a day once: the account that pays for others says it, too, and who said it last counts.

    What has no run's tag is another thing in every account, and stays.
    """
    last: dict[tuple[str, ...], BilledCost] = {}
    for cost in costs:
        key = (cost.provider, cost.run_id, f"{cost.start}", f"{cost.end}", "" if cost.run_id else cost.account)
        if key not in last or cost.said_at >= last[key].said_at:
            last[key] = cost
    return tuple(last.values())


def compare_with_bills(
    ledger: Ledger, start: datetime, end: datetime, providers: Sequence[str] | None = None
) -> tuple[Compared, ...]:
    """Return every run that was metered or billed in a period, the dearest first; last, what has no run's tag.

    Args:
        start: The beginning of the period.
        end: Its end, exclusive.
        providers: Whose runs; None for those that have said something about the period.
    """
    bills: dict[str, Decimal] = {}
    said: set[str] = set()
    for cost in without_repeats(latest_bills(ledger, start, end)):
        if providers is None or cost.provider in providers:
            said.add(cost.provider)
            bills[cost.run_id] = bills.get(cost.run_id, Decimal(0)) + cost.amount_usd
    low, high = to_microseconds(start), to_microseconds(end)
    metered: dict[str, tuple[str, Decimal]] = {}
    for name in sorted(said if providers is None else providers):
        for run in charges(ledger, RunFilter(provider=name), start, end, ("name",)):
            metered[run.run_id] = run.name, from_nano(run.cost_in(low, high))
    rows = [
        Compared(
            run_id=run_id,
            name=metered[run_id][0] if run_id in metered else "",
            metered_usd=metered[run_id][1] if run_id in metered else None,
            billed_usd=bills.get(run_id),
        )
        for run_id in {*bills, *metered}
    ]
    return tuple(
        sorted(rows, key=lambda row: (not row.run_id, -max(row.billed_usd or 0, row.metered_usd or 0), row.run_id))
    )


def _latest(connection: Connection, start: datetime, end: datetime) -> Sequence[Any]:
    same = (billed.c.provider, billed.c.account, billed.c.run_id, billed.c.start_us, billed.c.end_us)
    inside = (billed.c.start_us >= to_microseconds(start), billed.c.end_us <= to_microseconds(end))
    last = select(func.max(billed.c.id)).where(*inside).group_by(*same)
    query = select(billed).where(billed.c.id.in_(last)).order_by(billed.c.start_us, billed.c.id)
    return list(connection.execute(query))


def _row(bill: Bill, row: BilledRow) -> dict[str, Any]:
    nano = to_nano(row.amount_usd)
    if nano is None:
        raise ValueError(f"An amount of {row.amount_usd} US dollars cannot be kept.")
    return {
        "at_us": to_microseconds(bill.asked_at),
        "provider": plain(bill.provider),
        "account": plain(bill.account),
        "run_id": plain(row.run_id),
        "start_us": to_microseconds(row.start),
        "end_us": to_microseconds(row.end),
        "nano_usd": nano,
        "source": plain(bill.source),
    }


def _is_news(row: dict[str, Any], known: dict[str, Any]) -> bool:
    if row["at_us"] < known["at_us"]:
        return False
    settled = row["end_us"] + LATE // timedelta(microseconds=1)
    return bool(row["nano_usd"] != known["nano_usd"] or known["at_us"] < settled <= row["at_us"])


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("provider", "account", "run_id", "start_us", "end_us"))


def _cost(row: Any) -> BilledCost:
    return BilledCost(
        provider=text(row.provider),
        account=text(row.account),
        run_id=text(row.run_id),
        start=instant(row.start_us),
        end=instant(row.end_us),
        amount_usd=from_nano(row.nano_usd),
        source=text(row.source),
        said_at=instant(row.at_us),
    )
