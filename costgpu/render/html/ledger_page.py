"""The ledger as one HTML page; its prose is in the template ``ledger.html``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from markupsafe import Markup

from costgpu.ledger.costs.totals import SpendTotal, Summary, total_of
from costgpu.ledger.records.accuracy import Comparison, accuracy
from costgpu.ledger.records.budget_sums import BudgetUse
from costgpu.models.job import CostOutcome, EndReason
from costgpu.models.run import RunView
from costgpu.providers import registry
from costgpu.render.html.ledger_sections import MOST_PICTURES, budget_sections, estimates_section, spending_section
from costgpu.render.html.page import (
    BarRow,
    fraction,
    hours,
    minute,
    name,
    percent,
    render,
    share,
    two_lines,
)
from costgpu.render.phrases import counted, day
from costgpu.render.report import Table
from costgpu.units import format_duration, format_usd

MOST_OPEN = 40  # open runs that are listed
MOST_ROWS = 10  # of a list of names; the rest is summed up
STYLES = {CostOutcome.SUCCEEDED: "fine", CostOutcome.OPEN: "gpu"}
Tile = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that the page says of a period."""

    since: datetime
    until: datetime
    now: datetime  # when the report was made
    summary: Summary
    budgets: Sequence[BudgetUse] = ()
    comparisons: Sequence[Comparison] = ()
    open_runs: Sequence[RunView] = ()  # runs that have not ended, counted with what they have cost so far
    unreadable: Sequence[str] = ()  # open runs that cannot be counted


def report_html(report: Report, *, place: str, version: str, all_time: Decimal) -> str:
    """Return the page.

    Args:
        place: Where the ledger is; without a password.
        all_time: What all closed runs of the ledger have cost, the period aside.
    """
    summary = report.summary
    first, last = report.since.astimezone(UTC), (report.until - timedelta(microseconds=1)).astimezone(UTC)
    total, by_person = summary.total.cost_usd, len(summary.people) > 1
    return render(
        "ledger.html",
        report=report,
        summary=summary,
        period=f"{day(first.date())} to {day(last.date())}",
        now=minute(report.now),
        place=place,
        version=version,
        all_time=all_time,
        tiles=_tiles(report),
        spending=spending_section(summary) if summary.total.runs else None,
        budgets=budget_sections(report.budgets),
        budgets_without_picture=len(report.budgets) - MOST_PICTURES,
        open_runs=_open_runs(report),
        providers=_providers(summary),
        accelerators=_accelerators(summary),
        outcomes=_outcomes(summary),
        outcome_table=_outcome_table(),
        wasted_share=percent(summary.wasted.cost_usd, summary.total.cost_usd),
        estimates=estimates_section(report.comparisons),
        names=[
            ("By job", "Job", _names(summary.jobs, total)),
            *([("By person", "Person", _names(summary.people, total))] if by_person else []),
        ],
    )


def _tiles(report: Report) -> list[Tile]:
    summary = report.summary
    total, wasted = summary.total, summary.wasted
    gpu = sum(summary.gpu_usd, Decimal(0))
    running = len(report.open_runs)
    succeeded = summary.outcomes.get(CostOutcome.SUCCEEDED, SpendTotal()).runs
    wasted_note = f"{percent(wasted.cost_usd, total.cost_usd)} of it, in {counted(wasted.runs, 'run')}"
    tiles = [
        ("Spent", format_usd(total.cost_usd), f"{hours(total.machine_seconds)} of machines"),
        ("Runs", f"{total.runs:,}", f"{succeeded:,} succeeded" + (f", {running} running" if running else "")),
        ("Of which GPUs", percent(gpu, total.cost_usd), f"{format_usd(gpu)}; CPU {format_usd(total.cost_usd - gpu)}"),
        ("Wasted", format_usd(wasted.cost_usd), wasted_note),
    ]
    if report.comparisons:
        found = accuracy(report.comparisons)[0]
        note = f"median of {counted(found.runs, 'run')}"
        note = f"interval held in {share(found.held / found.intervals)}" if found.intervals else note
        tiles.append(("Estimates off by", share(found.median_time_error), note))
    if running:
        so_far = sum((view.metered_at_most(report.now)[1] for view in report.open_runs), Decimal(0))
        cap = sum((view.option.lease.worst_cost_usd for view in report.open_runs if view.option), Decimal(0))
        tiles.append(("Running now", format_usd(so_far), f"so far; at most {format_usd(cap)}"))
    return tiles


def _open_runs(report: Report) -> Table:
    rows = []
    for view in sorted(report.open_runs, key=lambda view: -view.metered_at_most(report.now)[1])[:MOST_OPEN]:
        seconds, usd = view.metered_at_most(report.now)
        offer = view.option.offer if view.option else None
        rows.append(
            [
                two_lines(name(view.name), Markup("{}, {}").format(name(view.run_id), name(view.owner))),
                name(f"{offer.provider} {offer.instance_type}") if offer else "–",
                format_duration(seconds),
                format_usd(usd),
                format_usd(view.option.lease.worst_cost_usd) if view.option else "–",
                minute(view.lease_until) if view.lease_until else "–",
            ]
        )
    head = ["Job", "Machine", "For", "So far", "At most", "Gone by"]
    return Table("Open runs", head, rows, text=(1,))


def _providers(summary: Summary) -> list[BarRow]:
    found: dict[str, dict[str, SpendTotal]] = {}
    for (provider, purchase), tally in summary.providers.items():
        found.setdefault(provider or "no machine", {})[purchase] = tally
    ranked = _ranked({provider: total_of(kinds.values()) for provider, kinds in found.items()})
    most = _most(ranked)
    rows = []
    for provider, tally in ranked:
        spot = found[provider].get("spot", SpendTotal()).cost_usd
        shown = registry.label(provider) or provider
        cells = [format_usd(tally.cost_usd), format_usd(spot), hours(tally.machine_seconds), f"{tally.runs:,}"]
        rows.append(
            BarRow(name(shown), [("one", fraction(tally.cost_usd - spot, most)), ("two", fraction(spot, most))], cells)
        )
    return rows


def _accelerators(summary: Summary) -> list[BarRow]:
    ranked = _ranked(summary.accelerators)
    most, rest = _most(ranked), ranked[MOST_ROWS:]
    shown = [*ranked[:MOST_ROWS], *([("others", total_of(tally for _, tally in rest))] if rest else [])]
    rows = []
    for accelerator, tally in shown:
        rate = (
            f"{format_usd(tally.cost_usd / Decimal(tally.machine_seconds / 3600))}/h"
            if tally.machine_seconds and tally.cost_usd
            else "–"
        )
        cells = [format_usd(tally.cost_usd), hours(tally.machine_seconds), rate, f"{tally.runs:,}"]
        bar = [("gpu" if accelerator else "cpu", fraction(tally.cost_usd, most))]
        rows.append(BarRow(name(accelerator or "CPU only"), bar, cells))
    return rows


def _outcomes(summary: Summary) -> list[BarRow]:
    found = [(outcome, summary.outcomes[outcome]) for outcome in CostOutcome if outcome in summary.outcomes]
    most = _most(found)
    return [
        BarRow(
            outcome.value,
            [("bad" if outcome.wasted else STYLES.get(outcome, "mid"), fraction(tally.cost_usd, most))],
            _share_cells(tally, summary.total.cost_usd),
        )
        for outcome, tally in found
    ]


def _outcome_table() -> Table:
    ends: dict[CostOutcome, list[str]] = {}
    for reason in EndReason:
        ends.setdefault(reason.outcome, []).append(reason.words)
    rows = [
        [outcome.value, "wasted" if outcome.wasted else "not wasted", ", ".join(reasons)]
        for outcome, reasons in ends.items()
    ]
    head = ["Here", "", "Ends of runs, as the ledger has them"]
    return Table("A run counts as a whole", head, rows, text=(1, 2))


def _names(tallies: Mapping[str, SpendTotal], total: Decimal) -> list[BarRow]:
    ranked = _ranked(tallies)
    most, rest = _most(ranked), ranked[MOST_ROWS:]
    rows = [
        BarRow(name(who or "without a name"), [("one", fraction(tally.cost_usd, most))], _share_cells(tally, total))
        for who, tally in ranked[:MOST_ROWS]
    ]
    if rest:
        others = total_of(tally for _, tally in rest)
        bar = [("mid", fraction(min(others.cost_usd, most), most))]
        rows.append(BarRow(f"{len(rest):,} others", bar, _share_cells(others, total)))
    return rows


def _share_cells(tally: SpendTotal, total: Decimal) -> list[str]:
    runs = f"{tally.runs:,}" if tally.runs else "–"
    return [format_usd(tally.cost_usd), percent(tally.cost_usd, total), hours(tally.machine_seconds), runs]


def _ranked(tallies: Mapping[str, SpendTotal]) -> list[tuple[str, SpendTotal]]:
    """Return the most expensive first."""
    return sorted(tallies.items(), key=lambda item: (-item[1].cost_usd, -item[1].machine_seconds, item[0]))


def _most(tallies: Iterable[tuple[str, SpendTotal]]) -> Decimal:
    return max((tally.cost_usd for _, tally in tallies), default=Decimal(0))
