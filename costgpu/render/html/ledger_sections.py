"""The report's sections that have a picture: spending over time, budgets, and how good the estimates were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import partial

from costgpu.ledger.costs.periods import Every
from costgpu.ledger.costs.totals import Summary
from costgpu.ledger.records.accuracy import Comparison, accuracy
from costgpu.ledger.records.budget_sums import BudgetUse
from costgpu.render.html.charts import MOST_POINTS, estimate_against_actual, spending_against_budget, stacked_bars
from costgpu.render.phrases import MONTHS, counted, day, interval, percent, visible
from costgpu.render.report import Cell, Figure, Heading, Part, ReportSection, Row, Table
from costgpu.render.text.budget import RATE_PHRASES
from costgpu.units import format_duration, format_usd

BY_DAY, BY_WEEK = 120, 800  # days of a report up to which it goes by day, and by week
PREPOSITIONS = {"day": "on", "week": "in the", "month": "in"}
UNITS = {Every.DAILY: "day", Every.WEEKLY: "week", Every.MONTHLY: "month", Every.TOTAL: "period"}
MOST_PICTURES = 6  # of budgets
MOST_PAIRS = 20_000  # runs in the picture; the figures beside it are of all
LISTED_RUNS = 40  # up to which every estimate is listed
LENGTHS = {
    "under 1 min": 60,
    "1 to 10 min": 600,
    "10 min to 1 h": 3600,
    "1 to 6 h": 6 * 3600,
    "6 h to 1 day": 86400,
    "over 1 day": float("inf"),
}  # groups of runs by their longest estimate in seconds
BELOW = "The table below has the numbers."
BUDGET_LEGEND = (
    ("line", "spent since the period began"),
    ("line over", "in a period that exceeds it"),
    ("dashes", "budget"),
)


def spending_section(summary: Summary) -> ReportSection:
    """Return what was spent by day, week or month."""
    step, buckets = _buckets(summary.days)
    names: dict[str, Callable[[date], str]] = {
        "day": day,
        "week": lambda first: f"week of {day(first)}",
        "month": lambda at: f"{MONTHS[at.month - 1]} {at.year}",
    }
    rows = [
        (
            names[step](summary.days[first]),
            sum(summary.gpu_usd[first:end], Decimal(0)),
            sum(summary.cpu_usd[first:end], Decimal(0)),
        )
        for first, end in buckets
    ]
    bars = [
        (
            f"{when}: {format_usd(gpu + cpu)} (GPU {format_usd(gpu)}, CPU {format_usd(cpu)})",
            {"gpu": float(gpu), "cpu": float(cpu)},
        )
        for when, gpu, cpu in rows
    ]
    top, top_gpu, top_cpu = max(rows, key=lambda row: row[1] + row[2])
    most = f"{format_usd(top_gpu + top_cpu)}, {PREPOSITIONS[step]} {top}"
    description = f"{format_usd(summary.total.cost_usd)} in all; the most, {most}"
    days = [summary.days[first] for first, _ in buckets]
    sums = (sum(summary.gpu_usd, Decimal(0)), sum(summary.cpu_usd, Decimal(0)), summary.total.cost_usd)
    table = Table(
        f"Spent by {step}; those without cost are left out",
        ["", "GPU", "CPU", "Together"],
        [[when, *map(format_usd, (gpu, cpu, gpu + cpu))] for when, gpu, cpu in rows if gpu or cpu],
        foot=["All", *map(format_usd, sums)],
        folded="Numbers",
    )
    figure = Figure(
        draw=partial(stacked_bars, days=days, bars=bars),
        label=f"Spent by {step}",
        description=f"{description}. {BELOW}",
        legend=[("gpu", "on GPU machines"), ("cpu", "on CPU machines")],
    )
    return ReportSection(title=f"Spent by {step}", introduction=f"{description}.", parts=[figure, table])


def _buckets(days: Sequence[date]) -> tuple[str, list[tuple[int, int]]]:
    """Return how the days are put together, and from which to which."""
    if len(days) <= BY_DAY:
        return "day", [(i, i + 1) for i in range(len(days))]
    step = "week" if len(days) <= BY_WEEK else "month"
    starts = [i for i, at in enumerate(days) if i == 0 or (at.weekday() == 0 if step == "week" else at.day == 1)]
    return step, list(zip(starts, [*starts[1:], len(days)], strict=True))


def budget_sections(budgets: Sequence[BudgetUse], last: date) -> list[ReportSection]:
    """Return what each budget has used in the period that this day is in, the most used first, and the first ones drawn."""
    uses = sorted(budgets, key=lambda use: -use.used / use.budget.amount_usd)
    rows: list[Row] = []
    for use in uses:
        budget, amount = use.budget, use.budget.amount_usd
        exceeded = use.used >= amount
        only = [*([budget.provider] if budget.provider else []), *([f"runs of {budget.owner}"] if budget.owner else [])]
        only += [f"tag {key}={value}" for key, value in budget.tags.items()]
        rule = f"{RATE_PHRASES[budget.every].capitalize()}, {', '.join(only) or 'all runs'}, {budget.time_zone}"
        bar = ("bad" if exceeded else "gpu", min(100 * float(use.share), 100.0))
        share = Cell(percent(use.share), style="over-text" if exceeded else "")
        drawn = Cell("", bar=[bar] if bar[1] else [])
        rows.append([Cell(budget.name, below=rule), format_usd(use.used), format_usd(amount), share, drawn])
    parts: list[Part] = []
    if rows:
        head = ("Budget", "Used", "Of", "", Heading("", bar=True))
        parts.append(Table(f"In the period of each that {day(last)} is in", head, rows))
    if len(uses) > MOST_PICTURES:
        parts.append(f"{counted(len(uses) - MOST_PICTURES, 'more budget')} without a picture: see above.")
    note = (
        "Runs of this ledger, open ones with what they have cost so far. costgpu budget check also counts machines that this"
        " ledger does not know, and what open runs may still cost."
    )
    return [ReportSection(title="Budgets", introduction=note, parts=parts), *map(_budget_section, uses[:MOST_PICTURES])]


def _budget_section(use: BudgetUse) -> ReportSection:
    """Return what was spent in each period of a budget."""
    budget, amount = use.budget, use.budget.amount_usd
    over = sum(period.usd[-1] >= amount for period in use.periods)
    exceeded = (
        f"exceeded in {over} of {counted(len(use.periods), UNITS[budget.every])}" if over else "never exceeded here"
    )
    description = f"{format_usd(amount)} {RATE_PHRASES[budget.every]}; {exceeded}"
    rows, periods, first = [], [], 0
    for period in use.periods:
        spent = period.usd[-1]
        used = percent(spent, amount) + (", so far" if period.partial else "")
        rows.append([day(period.start), format_usd(spent), format_usd(amount), used])
        periods.append((first, [float(usd) for usd in period.usd]))
        first += len(period.usd)
    days = [use.periods[0].start + timedelta(days=index) for index in range(first)]
    figure = Figure(
        draw=partial(spending_against_budget, days=days, periods=periods, amount=float(amount)),
        label=f"Budget {visible(budget.name)}",
        description=description,
        legend=BUDGET_LEGEND,
        wide=210,
        narrow=190,
    )
    head = ["From", "Spent", "Budget", "Used"]
    table = Table(f"Periods of {visible(budget.name)}", head, rows, folded="Numbers")
    return ReportSection(title=f"Budget {visible(budget.name)}", introduction=f"{description}.", parts=[figure, table])


def estimates_section(pairs: Sequence[Comparison]) -> ReportSection:
    """Return how good the estimates were."""
    title = "Estimate against actual"
    if not pairs:
        nothing = "No run in this period had an estimate and succeeded on the machine it was for."
        return ReportSection(title=title, parts=[nothing])
    known = accuracy(pairs)[0]
    description = (
        f"Half of {counted(known.runs, 'run')} took within {percent(known.median_time_error)} of what was said."
    )
    if known.intervals:
        held = percent(known.held, known.intervals)
        description += f" The interval held in {held} of them; 80 % is what it promises."
    legend = [("gpu round", "GPU run"), ("cpu", "CPU run"), ("dots", "as estimated; above it took longer")]
    legend += [("bar", "interval of the estimate")] if len(pairs) <= MOST_POINTS else []
    figure = Figure(
        draw=partial(estimate_against_actual, pairs=pairs[:MOST_PAIRS]),
        label="Estimated and actual time of runs",
        description=f"{description} {BELOW}",
        legend=legend,
        width=620,
        wide=470,
        narrow=330,
    )
    table = _runs_table(pairs) if len(pairs) <= LISTED_RUNS else _lengths_table(pairs)
    told = f"{description} From the create call to the confirmed end, of runs that succeeded."
    return ReportSection(title=title, introduction=told, parts=[figure, table])


def _runs_table(pairs: Sequence[Comparison]) -> Table:
    rows: list[Row] = []
    for pair in pairs:
        run, low, high = pair.run, pair.run.estimated_seconds_low, pair.run.estimated_seconds_high
        rows.append(
            [
                Cell(run.name, below=run.run_id),
                run.instance_type or run.provider,
                format_duration(pair.estimated),
                interval(format_duration(low or 0), format_duration(high or 0)) if pair.held is not None else "–",
                format_duration(pair.actual),
                {True: "yes", False: "no", None: "–"}[pair.held],
            ]
        )
    head = ["Run", "Machine", "Estimated", "Interval", "Actual", "Held"]
    return Table("Runs with an estimate", head, rows, text=(1,), folded="Numbers")


def _lengths_table(pairs: Sequence[Comparison]) -> Table:
    rows, low = [], 0.0
    for length, high in LENGTHS.items():
        group = [pair for pair in pairs if low <= pair.estimated < high]
        low = high
        if not group:
            continue
        ratios = sorted(pair.actual / pair.estimated for pair in group)
        known = [pair.held for pair in group if pair.held is not None]
        tenth, ninth = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        held = percent(sum(known), len(known))
        middle = ratios[len(ratios) // 2]
        rows.append([length, f"{len(ratios):,}", f"{middle:.2f}", interval(f"{tenth:.2f}", f"{ninth:.2f}"), held])
    head = ["Estimated", "Runs", "Median of actual / estimated", "8 of 10 between", "Interval held"]
    return Table(f"{counted(len(pairs), 'run')} by the length that was estimated", head, rows, folded="Numbers")
