"""How budgets stand, with what people were told about them."""

from __future__ import annotations

from collections.abc import Sequence

from costgpu.errors import CostGpuError, LedgerError
from costgpu.ledger.records.budget_rules import BudgetState
from costgpu.ledger.records.budget_store import Alert, StoredBudget, alerts_of, all_budgets, unknown_budget
from costgpu.render.text.budget import Standing
from costgpu.runner.spending import Spending, budget_state, gather, shipped_prices
from costgpu.workflows.context import AppContext


def standings(context: AppContext, name: str | None = None) -> tuple[list[Standing], list[CostGpuError]]:
    """All budgets, or one, by the ledger alone; and what could not be read or believed."""
    stored = all_budgets(context.ledger)
    if name is not None:
        names = [each.budget.name for each in stored]
        stored = tuple(each for each in stored if each.budget.name == name)
        if not stored:
            raise unknown_budget(name, names)
    budgets = [each.budget for each in stored]
    spending = gather(context.ledger, budgets, None, context.clock.now(), shipped_prices)
    return [standing_of(context, each, spending) for each in stored], spending.problems


def standing_of(
    context: AppContext,
    stored: StoredBudget,
    spending: Spending,
    state: BudgetState | None = None,
    new: tuple[int, ...] = (),
) -> Standing:
    """A budget with its alerts; alerts that cannot be read are one more problem."""
    state = state or budget_state(spending, stored.budget)
    alerts: Sequence[Alert] = ()
    try:
        alerts = alerts_of(context.ledger, stored, state.period)
    except LedgerError as error:
        spending.problems.append(error)
    return Standing(state=state, alerts=alerts, new=new)


def note_problems(context: AppContext, problems: Sequence[CostGpuError]) -> None:
    """Notes what could not be read, written or believed."""
    for problem in problems:
        context.reporter.note(problem.message, problem.hint)
