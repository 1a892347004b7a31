"""The report of a ledger: what the runs of a period have cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from costgpu.ledger.costs.totals import SpendTotal, Summary, total_of
from costgpu.ledger.records.accuracy import Comparison, accuracy
from costgpu.ledger.records.budget_sums import BudgetUse
from costgpu.models.job import CostOutcome, EndReason
from costgpu.models.run import RunView
from costgpu.providers import registry
from costgpu.render.html.ledger_sections import budget_sections, estimates_section, spending_section
from costgpu.render.phrases import counted, day, minute, percent, visible
from costgpu.render.report import Cell, Heading, Report, ReportSection, Row, Table, Tile
from costgpu.units import format_duration, format_usd
from costgpu.version import __version__

MOST_OPEN = 40  # open runs that are listed
MOST_ROWS = 10  # of a list of names; the rest is summed up
STYLES = {CostOutcome.SUCCEEDED: "fine", CostOutcome.OPEN: "gpu"}
SHARES = ("Cost", "Share", "Machine time", "Runs")
METERED = (
    "Metered: the price when the run was launched, with disk and address, × the seconds from the create call to the end that"
    " the provider confirmed, recorded when the run closed and never re-priced. What the provider bills may differ: taxes,"
    " discounts, free tiers, traffic. A run across an edge of the period counts by its share of time."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPeriod:
    """Everything that the report says of a period."""

    since: datetime
    until: datetime
    now: datetime  # when the report was made
    summary: Summary
    budgets: Sequence[BudgetUse] = ()
    comparisons: Sequence[Comparison] = ()
    open_runs: Sequence[RunView] = ()  # runs that have not ended, counted with what they have cost so far
    unreadable: Sequence[str] = ()  # open runs that cannot be counted


def ledger_report(found: LedgerPeriod, *, place: str, all_time: Decimal) -> Report:
    """Return the report.

    Args:
        place: Where the ledger is; without a password.
        all_time: What all closed runs of the ledger have cost, the period aside.
    """
    summary, now = found.summary, minute(found.now)
    first, last = found.since.astimezone(UTC), (found.until - timedelta(microseconds=1)).astimezone(UTC)
    budgets = budget_sections(found.budgets, summary.days[-1])
    if summary.total.runs:
        sections = [spending_section(summary), *budgets, *_sections(found, now)]
    else:
        launch = "costgpu run launches the first run, and its cost will be here."
        spent = f"{format_usd(all_time)} was spent at other times: choose them with --since and --until."
        words = f"The ledger has none. {spent if all_time else launch}"
        sections = [ReportSection(title="No runs in this period", parts=[words]), *budgets]
    made = f"Made {now} by costgpu {__version__} from the ledger {visible(place, 300)}, in which closed runs have cost"
    made += f" {format_usd(all_time)} in all."
    if summary.unpriced:
        made += f" {counted(summary.unpriced, 'run')} had a machine whose cost is not known and counts as nothing."
    if found.unreadable:
        made += f" {counted(len(found.unreadable), 'open run')} cannot be read and is not counted."
    period = f"{day(first.date())} to {day(last.date())}"
    return Report(
        title="What the training runs have cost",
        window=f"costgpu: {period}",
        subtitle=f"{period}, days of UTC. All costs are metered, not billed: price × seconds as costgpu saw them.",
        tiles=_tiles(found) if summary.total.runs else (),
        sections=sections,
        footer=[made, METERED],
    )


def _sections(found: LedgerPeriod, now: str) -> list[ReportSection]:
    """Return where the money went."""
    summary = found.summary
    total, wasted = summary.total.cost_usd, summary.wasted
    more = len(found.open_runs) - MOST_OPEN
    left_out = f" {counted(more, 'cheaper run')} not listed." if more > 0 else ""
    lost = "No run failed, sat idle or lost its machine."
    if wasted.runs:
        where = "went to runs that failed, sat idle, lost their machine, or never started their job."
        lost = f"{format_usd(wasted.cost_usd)}, {percent(wasted.cost_usd, total)}, {where}"
    return [
        ReportSection(
            title="Running now",
            introduction=f"What has begun and not ended, metered until {now}.{left_out}",
            parts=[_open_runs(found)] if found.open_runs else [],
        ),
        ReportSection(title="By provider", parts=[_providers(summary)]),
        ReportSection(title="GPU against CPU", parts=[_accelerators(summary)]),
        ReportSection(title="Wasted", introduction=lost, parts=_outcomes(summary)),
        estimates_section(found.comparisons),
        ReportSection(title="By job", parts=[_names("Job", summary.jobs, total)]),
        ReportSection(
            title="By person", parts=[_names("Person", summary.people, total)] if len(summary.people) > 1 else []
        ),
    ]


def _tiles(found: LedgerPeriod) -> list[Tile]:
    summary = found.summary
    total, wasted = summary.total, summary.wasted
    gpu = sum(summary.gpu_usd, Decimal(0))
    running = len(found.open_runs)
    succeeded = summary.outcomes.get(CostOutcome.SUCCEEDED, SpendTotal()).runs
    wasted_note = f"{percent(wasted.cost_usd, total.cost_usd)} of it, in {counted(wasted.runs, 'run')}"
    tiles = [
        ("Spent", format_usd(total.cost_usd), f"{_hours(total.machine_seconds)} of machines"),
        ("Runs", f"{total.runs:,}", f"{succeeded:,} succeeded" + (f", {running} running" if running else "")),
        ("Of which GPUs", percent(gpu, total.cost_usd), f"{format_usd(gpu)}; CPU {format_usd(total.cost_usd - gpu)}"),
        ("Wasted", format_usd(wasted.cost_usd), wasted_note),
    ]
    if found.comparisons:
        known = accuracy(found.comparisons)[0]
        note = f"median of {counted(known.runs, 'run')}"
        note = f"interval held in {percent(known.held, known.intervals)}" if known.intervals else note
        tiles.append(("Estimates off by", percent(known.median_time_error), note))
    if running:
        so_far = sum((view.metered_at_most(found.now)[1] for view in found.open_runs), Decimal(0))
        cap = sum((view.option.lease.worst_cost_usd for view in found.open_runs if view.option), Decimal(0))
        tiles.append(("Running now", format_usd(so_far), f"so far; at most {format_usd(cap)}"))
    return tiles


def _open_runs(found: LedgerPeriod) -> Table:
    rows: list[Row] = []
    for view in sorted(found.open_runs, key=lambda view: -view.metered_at_most(found.now)[1])[:MOST_OPEN]:
        seconds, usd = view.metered_at_most(found.now)
        offer = view.option.offer if view.option else None
        rows.append(
            [
                Cell(view.name, below=f"{view.run_id}, {view.owner}"),
                f"{offer.provider} {offer.instance_type}" if offer else "–",
                format_duration(seconds),
                format_usd(usd),
                format_usd(view.option.lease.worst_cost_usd) if view.option else "–",
                minute(view.lease_until) if view.lease_until else "–",
            ]
        )
    return Table("Open runs", ["Job", "Machine", "For", "So far", "At most", "Gone by"], rows, text=(1,))


def _bars(what: str, head: Sequence[str], rows: Iterable[Row], colours: Sequence[tuple[str, str]]) -> Table:
    """Return a table with a bar behind each name, and the meanings of its colours."""
    return Table("", [what, Heading("", bar=True), *head], list(rows), colours=colours)


def _bar(*parts: tuple[str, Decimal], most: Decimal) -> Cell:
    """Return a bar of these amounts, where `most` fills its width."""
    return Cell("", bar=[(style, float(100 * usd / most)) for style, usd in parts if usd > 0 and most])


def _providers(summary: Summary) -> Table:
    found: dict[str, dict[str, SpendTotal]] = {}
    for (provider, purchase), tally in summary.providers.items():
        found.setdefault(provider or "no machine", {})[purchase] = tally
    ranked = _ranked({provider: total_of(kinds.values()) for provider, kinds in found.items()})
    rows: list[Row] = []
    for provider, tally in ranked:
        spot = found[provider].get("spot", SpendTotal()).cost_usd
        bar = _bar(("one", tally.cost_usd - spot), ("two", spot), most=_most(ranked))
        cells = [format_usd(tally.cost_usd), format_usd(spot), _hours(tally.machine_seconds), f"{tally.runs:,}"]
        rows.append([registry.label(provider) or provider, bar, *cells])
    head = ("Cost", "Of which spot", "Machine time", "Runs")
    return _bars("Provider", head, rows, [("one", "on demand"), ("two", "spot")])


def _accelerators(summary: Summary) -> Table:
    ranked = _ranked(summary.accelerators)
    most, rest = _most(ranked), ranked[MOST_ROWS:]
    shown = [(name or "CPU only", "gpu" if name else "cpu", tally) for name, tally in ranked[:MOST_ROWS]]
    if rest:
        shown.append((f"{len(rest):,} others", "mid", total_of(tally for _, tally in rest)))
    rows: list[Row] = []
    for name, style, tally in shown:
        known = tally.machine_seconds and tally.cost_usd
        rate = f"{format_usd(tally.cost_usd / Decimal(tally.machine_seconds / 3600))}/h" if known else "–"
        cells = [format_usd(tally.cost_usd), _hours(tally.machine_seconds), rate, f"{tally.runs:,}"]
        rows.append([name, _bar((style, min(tally.cost_usd, most)), most=most), *cells])
    head = ("Cost", "Machine time", "On average", "Runs")
    return _bars("Accelerator", head, rows, [("gpu", "GPU"), ("cpu", "CPU")])


def _outcomes(summary: Summary) -> list[Table]:
    """Return what the runs came to, and what counts as what."""
    found = [(outcome, summary.outcomes[outcome]) for outcome in CostOutcome if outcome in summary.outcomes]
    rows: list[Row] = []
    for outcome, tally in found:
        bar = _bar(("bad" if outcome.wasted else STYLES.get(outcome, "mid"), tally.cost_usd), most=_most(found))
        rows.append([outcome.value, bar, *_share_cells(tally, summary.total.cost_usd)])
    ends: dict[CostOutcome, list[str]] = {}
    for reason in EndReason:
        ends.setdefault(reason.outcome, []).append(reason.words)
    meanings = [
        [outcome.value, "wasted" if outcome.wasted else "not wasted", ", ".join(reasons)]
        for outcome, reasons in ends.items()
    ]
    head, title = ["Here", "", "Ends of runs, as the ledger has them"], "What counts as what"
    colours = [("fine", "did its work"), ("mid", "neither"), ("bad", "wasted")]
    return [
        _bars("Run", SHARES, rows, colours),
        Table("A run counts as a whole", head, meanings, text=(1, 2), folded=title),
    ]


def _names(what: str, tallies: Mapping[str, SpendTotal], total: Decimal) -> Table:
    ranked = _ranked(tallies)
    most, rest = _most(ranked), ranked[MOST_ROWS:]
    rows: list[Row] = [
        [who or "without a name", _bar(("one", tally.cost_usd), most=most), *_share_cells(tally, total)]
        for who, tally in ranked[:MOST_ROWS]
    ]
    if rest:
        others = total_of(tally for _, tally in rest)
        bar = _bar(("mid", min(others.cost_usd, most)), most=most)
        rows.append([f"{len(rest):,} others", bar, *_share_cells(others, total)])
    return _bars(what, SHARES, rows, ())


def _share_cells(tally: SpendTotal, total: Decimal) -> list[str]:
    runs = f"{tally.runs:,}" if tally.runs else "–"
    return [format_usd(tally.cost_usd), percent(tally.cost_usd, total), _hours(tally.machine_seconds), runs]


def _hours(seconds: float) -> str:
    """``1,234 h`` of machine time."""
    return f"{seconds / 3600:,.0f} h" if seconds >= 36000 else format_duration(seconds) if seconds else "–"


def _ranked(tallies: Mapping[str, SpendTotal]) -> list[tuple[str, SpendTotal]]:
    """Return the most expensive first."""
    return sorted(tallies.items(), key=lambda item: (-item[1].cost_usd, -item[1].machine_seconds, item[0]))


def _most(tallies: Iterable[tuple[object, SpendTotal]]) -> Decimal:
    return max((tally.cost_usd for _, tally in tallies), default=Decimal(0))
