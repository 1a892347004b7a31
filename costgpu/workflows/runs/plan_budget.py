"""What budgets say to the plan of a run."""

from __future__ import annotations

from dataclasses import replace

from costgpu.errors import BudgetExceeded, LedgerError
from costgpu.ledger.records.budget_rules import BudgetState
from costgpu.models.run import Plan
from costgpu.workflows.context import AppContext


def with_budgets(context: AppContext, plan: Plan) -> tuple[Plan, BudgetExceeded | None]:
    """The plan with a note for every budget that the run falls under, and why it is refused, if it is.

    Nothing is asked of a provider. A run that costs nothing falls under no budget.
    """
    cap = max(option.lease.worst_cost_usd for option in plan.options)
    if cap <= 0:
        return plan, None
    from costgpu.ledger.records.budget_store import all_budgets
    from costgpu.render.text.budget import plan_note
    from costgpu.runner.launch import current_owner
    from costgpu.runner.spending import budget_state, gather, run_selection, shipped_prices

    owner, refusal, notes = context.settings.owner or current_owner(), None, []
    try:
        mine = [
            stored.budget
            for stored in all_budgets(context.ledger)
            if any(
                run_selection(stored.budget).includes(
                    provider=option.offer.provider, owner=owner, name=plan.spec.name, tags=plan.spec.tags
                )
                for option in plan.options
            )
        ]
        if not mine:
            return plan, None
        spending = gather(context.ledger, mine, None, context.clock.now(), shipped_prices)
        for budget in mine:
            state = budget_state(spending, budget)
            notes.append(plan_note(state, cap))
            if state.exceeded and budget.enforce:
                refusal = refusal or _refusal(state)
    except LedgerError as error:
        notes.append(f"Whether a budget allows this run is not known: {error.message}")
    return replace(plan, notes=(*plan.notes, *notes)), refusal


def _refusal(state: BudgetState) -> BudgetExceeded:
    from costgpu.render.text.budget import amounts, begins_anew

    name, anew = state.budget.name, begins_anew(state)
    again = f"It begins anew {anew}. " if anew else ""
    return BudgetExceeded(
        f"The budget {name} is exceeded ({amounts(state)}) and refuses new runs.",
        hint=f"{again}costgpu budget set {name} --replace ... raises it; costgpu budget show {name} says what counts.",
    )
