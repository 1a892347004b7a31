"""The report's sections that have a picture: spending over time, budgets, and how good the estimates were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal

from markupsafe import Markup

from costgpu.ledger.costs.periods import Every
from costgpu.ledger.costs.totals import Summary
from costgpu.ledger.records.accuracy import Comparison, accuracy
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_sums import BudgetUse
from costgpu.render.html.charts import MOST_POINTS, estimate_against_actual, spending_against_budget, stacked_bars
from costgpu.render.html.page import PageSection, name, percent, responsive, share
from costgpu.render.phrases import MONTHS, counted, day, visible
from costgpu.render.report import Table
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


def spending_section(summary: Summary) -> PageSection:
    """Return what was spent by day, week or month."""
    step, buckets = _buckets(summary.days)
    rows = [
        (
            _bucket_name(summary.days[first], step),
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
    )
    return PageSection(
        title=f"Spent by {step}",
        description=description,
        picture=responsive(
            lambda width, height: stacked_bars(width, height, days, bars), f"Spent by {step}", f"{description}. {BELOW}"
        ),
        table=table,
    )


def _buckets(days: Sequence[date]) -> tuple[str, list[tuple[int, int]]]:
    """Return how the days are put together, and from which to which."""
    if len(days) <= BY_DAY:
        return "day", [(i, i + 1) for i in range(len(days))]
    step = "week" if len(days) <= BY_WEEK else "month"
    starts = [i for i, at in enumerate(days) if i == 0 or (at.weekday() == 0 if step == "week" else at.day == 1)]
    return step, list(zip(starts, [*starts[1:], len(days)], strict=True))


def _bucket_name(first: date, step: str) -> str:
    if step == "month":
        return f"{MONTHS[first.month - 1]} {first.year}"
    return f"week of {day(first)}" if step == "week" else day(first)


def budget_sections(budgets: Sequence[BudgetUse]) -> list[tuple[BudgetUse, Markup, PageSection]]:
    """One for each budget with what it counts, the most used first; the first ones with a picture."""
    uses = sorted(budgets, key=lambda use: -use.used / use.budget.amount_usd)
    return [
        (use, _rule(use.budget), _budget_section(use, pictured=index < MOST_PICTURES)) for index, use in enumerate(uses)
    ]


def _budget_section(use: BudgetUse, *, pictured: bool) -> PageSection:
    budget, amount = use.budget, use.budget.amount_usd
    over = sum(period.usd[-1] >= amount for period in use.periods)
    units = counted(len(use.periods), UNITS[budget.every])
    exceeded = f"exceeded in {over} of {units}" if over else "never exceeded here"
    description = f"{format_usd(amount)} {RATE_PHRASES[budget.every]}; {exceeded}"
    rows = [
        [
            day(period.start),
            format_usd(period.usd[-1]),
            format_usd(amount),
            percent(period.usd[-1], amount) + (", so far" if period.partial else ""),
        ]
        for period in use.periods
    ]
    return PageSection(
        description=description,
        picture=_budget_picture(use, description) if pictured else None,
        table=Table(f"Periods of {visible(budget.name)}", ["From", "Spent", "Budget", "Used"], rows),
    )


def _budget_picture(use: BudgetUse, description: str) -> Markup:
    periods, first = [], 0
    for period in use.periods:
        periods.append((first, [float(usd) for usd in period.usd]))
        first += len(period.usd)
    days = [use.periods[0].start + timedelta(days=index) for index in range(first)]
    return responsive(
        lambda width, height: spending_against_budget(width, height, days, periods, float(use.budget.amount_usd)),
        f"Budget {visible(use.budget.name)}",
        description,
        wide=210,
        narrow=190,
    )


def _rule(budget: Budget) -> Markup:
    """Return what a budget counts."""
    only = [*([budget.provider] if budget.provider else []), *([f"runs of {budget.owner}"] if budget.owner else [])]
    only += [f"tag {key}={value}" for key, value in budget.tags.items()]
    what = name(", ".join(only), 300) or "all runs"
    return Markup("{}, {}, {}").format(RATE_PHRASES[budget.every].capitalize(), what, name(budget.time_zone))


def estimates_section(pairs: Sequence[Comparison]) -> PageSection | None:
    """Return how good the estimates were; None without a run that had one and succeeded."""
    if not pairs:
        return None
    known, shown = accuracy(pairs)[0], pairs[:MOST_PAIRS]
    description = f"Half of {counted(known.runs, 'run')} took within {share(known.median_time_error)} of what was said."
    if known.intervals:
        held = share(known.held / known.intervals)
        description += f" The interval held in {held} of them; 80 % is what it promises."
    legend = [("gpu round", "GPU run"), ("cpu", "CPU run"), ("dots", "as estimated; above it took longer")]
    legend += [("bar", "interval of the estimate")] if len(pairs) <= MOST_POINTS else []
    picture = responsive(
        lambda width, height: estimate_against_actual(width, height, shown),
        "Estimated and actual time of runs",
        f"{description} {BELOW}",
        wide=470,
        narrow=330,
        width=620,
    )
    table = _runs_table(pairs) if len(pairs) <= LISTED_RUNS else _lengths_table(pairs)
    return PageSection(description=description, picture=picture, legend=legend, table=table)


def _runs_table(pairs: Sequence[Comparison]) -> Table:
    rows = []
    for pair in pairs:
        run, low, high = pair.run, pair.run.estimated_seconds_low, pair.run.estimated_seconds_high
        rows.append(
            [
                Markup('{} <span class="soft">{}</span>').format(name(run.name), name(run.run_id)),
                name(run.instance_type or run.provider),
                format_duration(pair.estimated),
                f"{format_duration(low or 0)} – {format_duration(high or 0)}" if pair.held is not None else "–",
                format_duration(pair.actual),
                {True: "yes", False: "no", None: "–"}[pair.held],
            ]
        )
    head = ["Run", "Machine", "Estimated", "Interval", "Actual", "Held"]
    return Table("Runs with an estimate", head, rows, text=(1,))


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
        held = share(sum(known) / len(known)) if known else "–"
        middle = ratios[len(ratios) // 2]
        rows.append([length, f"{len(ratios):,}", f"{middle:.2f}", f"{tenth:.2f} – {ninth:.2f}", held])
    head = ["Estimated", "Runs", "Median of actual / estimated", "8 of 10 between", "Interval held"]
    return Table(f"{counted(len(pairs), 'run')} by the length that was estimated", head, rows)
