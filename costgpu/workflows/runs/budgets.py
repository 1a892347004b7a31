"""What budgets say of a job before it gets a machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from costgpu.errors import BudgetExceeded, LedgerError
from costgpu.ledger.records.budget_rules import BudgetState
from costgpu.models.job import JobSpec
from costgpu.models.run import Option

if TYPE_CHECKING:
    from costgpu.ledger import Ledger


def budget_refusal(
    ledger: Ledger, spec: JobSpec, options: Sequence[Option], owner: str, now: datetime
) -> tuple[list[str], BudgetExceeded | None]:
    """A remark on every budget that a job falls under, and why it is refused, if it is.

    Args:
        owner: Who launches it.
    """
    cap = spec.nodes * max(option.lease.worst_cost_usd for option in options)
    if cap <= 0:
        return [], None
    from costgpu.ledger.records.budget_store import all_budgets
    from costgpu.render.text.budget import plan_note
    from costgpu.runner.spending import budget_state, gather, run_selection, shipped_prices

    refusal: BudgetExceeded | None = None
    notes: list[str] = []
    try:
        mine = [
            stored.budget
            for stored in all_budgets(ledger)
            if any(
                run_selection(stored.budget).includes(
                    provider=option.offer.provider, owner=owner, name=spec.name, tags=spec.tags
                )
                for option in options
            )
        ]
        if not mine:
            return [], None
        spending = gather(ledger, mine, None, now, shipped_prices)
        for budget in mine:
            state = budget_state(spending, budget)
            notes.append(plan_note(state, cap))
            if state.exceeded and budget.enforce:
                refusal = refusal or _refusal(state)
    except LedgerError as error:
        notes.append(f"Whether a budget allows this run is not known: {error.message}")
    return notes, refusal


def _refusal(state: BudgetState) -> BudgetExceeded:
    from costgpu.render.text.budget import amounts, begins_anew

    name, anew = state.budget.name, begins_anew(state)
    again = f"It begins anew {anew}. " if anew else ""
    return BudgetExceeded(
        f"The budget {name} is exceeded ({amounts(state)}) and refuses new runs.",
        hint=f"{again}costgpu budget set {name} --replace ... raises it; costgpu budget show {name} says what counts.",
    )
