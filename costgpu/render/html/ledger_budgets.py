"""The report's part about budgets. Result -> str."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from costgpu.ledger.records.budget_rules import Budget, Every
from costgpu.render.html import elements
from costgpu.render.html.spending_summary import BudgetUse, Summary
from costgpu.render.html.svg import against
from costgpu.units import format_usd

MOST_PICTURES = 6  # of budgets
UNITS = {Every.DAILY: "day", Every.WEEKLY: "week", Every.MONTHLY: "month", Every.TOTAL: "period"}
EVERY = {Every.DAILY: "a day", Every.WEEKLY: "a week", Every.MONTHLY: "a month", Every.TOTAL: "in all"}


def budgets_html(summary: Summary) -> str:
    """How they went, each with a picture."""
    uses = sorted(summary.budgets, key=lambda use: -_used(use) / use.budget.amount_usd)
    rows = []
    for use in uses:
        budget, used = use.budget, _used(use)
        share = used / budget.amount_usd
        over = share >= 1
        bar = elements.bar([("bad" if over else "gpu", float(min(share, Decimal(1))))])
        percent = elements.share(float(share))
        figure = f'<span class="over-text">{percent}</span>' if over else percent
        rows.append(
            f"<tr><th scope='row'>{elements.text(budget.name)}<br><span class='soft'>{_rule(budget)}</span></th>"
            f"<td class='n'>{format_usd(used)}</td><td class='n'>{format_usd(budget.amount_usd)}</td>"
            f"<td class='n'>{figure}</td><td class='share less'>{bar}</td></tr>"
        )
    until = elements.day(summary.days[-1]) if summary.days else ""
    head = (
        "<tr><th>Budget</th><th class='n'>Used</th><th class='n'>Of</th><th class='n'></th><th class='less'></th></tr>"
    )
    overview = (
        f"<div class='scroll'><table><caption>In the period of each that {until} is in</caption>"
        f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    pictures = "".join(_budget_picture(use) for use in uses[:MOST_PICTURES] if use.stretches)
    legend = elements.legend(
        [("line", "spent since a period began"), ("line over", "in a period that goes beyond it"), ("dashes", "budget")]
    )
    more = len(uses) - MOST_PICTURES
    rest = (
        f"<p class='soft'>{elements.count(more, 'more budget')} without a picture: see above.</p>" if more > 0 else ""
    )
    return elements.section(
        "Budgets",
        "Runs of this ledger, open ones with what they have cost so far. <code>costgpu budget check</code> also counts "
        "machines that this ledger does not know, and what open runs may still cost.",
        overview + (legend + pictures if pictures else "") + rest,
    )


def _budget_picture(use: BudgetUse) -> str:
    budget = use.budget
    days = [use.stretches[0].start + timedelta(days=i) for i in range(sum(len(s.usd) for s in use.stretches))]
    stretches, at = [], 0
    for stretch in use.stretches:
        stretches.append((at, [float(value) for value in stretch.usd]))
        at += len(stretch.usd)
    over = sum(bool(s.usd) and s.usd[-1] >= budget.amount_usd for s in use.stretches)
    said = f"{format_usd(budget.amount_usd)} {EVERY[budget.every]}; "
    said += (
        f"exceeded in {over} of {elements.count(len(use.stretches), UNITS[budget.every])}"
        if over
        else "never exceeded here"
    )
    picture = elements.both(
        lambda width, height: against(
            width,
            height,
            days,
            stretches,
            float(budget.amount_usd),
            name=f"Budget {elements.plain(budget.name)}",
            text=said,
        ),
        wide=210,
        narrow=190,
    )
    rows = [
        [
            elements.day(s.start),
            format_usd(s.usd[-1]),
            format_usd(budget.amount_usd),
            elements.percent(s.usd[-1], budget.amount_usd) + (", so far" if s.partial else ""),
        ]
        for s in use.stretches
        if s.usd
    ]
    table = elements.table(["From", "Spent", "Budget", "Used"], rows, f"Periods of {elements.text(budget.name)}")
    return (
        f"<h3>{elements.text(budget.name)}</h3><p class='soft'>{said}.</p>"
        f"<figure>{picture}</figure>{elements.folded('Numbers', table)}"
    )


def _used(use: BudgetUse) -> Decimal:
    return use.stretches[-1].usd[-1] if use.stretches and use.stretches[-1].usd else Decimal(0)


def _rule(budget: Budget) -> str:
    """What a budget counts."""
    only = [*([budget.provider] if budget.provider else []), *([f"runs of {budget.owner}"] if budget.owner else [])]
    only += [f"tag {key}={value}" for key, value in budget.tags.items()]
    what = elements.text(", ".join(only), 300) or "all runs"
    return f"{EVERY[budget.every].capitalize()}, {what}, {elements.text(budget.time_zone)}"
