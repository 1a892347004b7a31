"""What budgets say of a job before it gets a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal

from costgpu.errors import BudgetExceeded, CapTooSmall, CostGpuError, LedgerDamaged, LedgerError
from costgpu.job.plan import LaunchPlace, Limits, extras_usd_per_hour, options_for
from costgpu.ledger import Ledger
from costgpu.ledger.records.budget_rules import BudgetState
from costgpu.models.job import JobSpec
from costgpu.models.run import LaunchOption
from costgpu.units import us_dollars

MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetAnswer:
    """What budgets say of a job: a remark of each that it falls under, and why it is refused, if it is."""

    notes: tuple[str, ...] = ()
    refusal: CostGpuError | None = None


def ask_budgets(
    ledger: Ledger, spec: JobSpec, options: Sequence[LaunchOption], owner: str, now: datetime
) -> BudgetAnswer:
    """Ask the budgets whether a job may begin. A job that costs nothing falls under none.

    A budget that enforces and cannot be counted refuses: what cannot be read might be what has used it up.

    Args:
        owner: Who launches it.
    """
    cap = spec.nodes * max(option.lease.worst_cost_usd for option in options)
    if cap <= 0:
        return BudgetAnswer()
    from costgpu.render.text.budget import plan_note

    try:
        states = _states(ledger, spec, {option.offer.provider for option in options}, owner, now)
    except LedgerError as error:
        return BudgetAnswer(notes=(f"Whether a budget allows this run is not known: {error.message}",), refusal=error)
    with us_dollars():
        refusals = [_refusal(state, cap, problem) for state, problem in states]
        notes = tuple(plan_note(state, cap) for state, _ in states)
    return BudgetAnswer(notes=notes, refusal=next((refusal for refusal in refusals if refusal is not None), None))


def fit_to_budgets(
    ledger: Ledger, spec: JobSpec, limits: Limits, places: Sequence[LaunchPlace], owner: str, now: datetime
) -> Limits:
    """Return the limits with a cap that no budget refuses: at most what those leave that refuse a larger one.

    Raises:
        BudgetExceeded: They leave too little for a machine to boot and be set up.
        LedgerError: What they leave cannot be told.
    """
    offers = [place.offer for place in places]
    if not any(offer.price_usd_per_hour or extras_usd_per_hour(offer) for offer in offers):
        return limits
    states = _states(ledger, spec, {offer.provider for offer in offers}, owner, now)
    for state, problem in states:
        if state.budget.enforce and problem is not None:
            raise problem
    limiting = [state for state, _ in states if state.refuses(state.open_usd + 1)]
    if not limiting:
        return limits
    least = min(limiting, key=lambda state: state.open_usd)
    left = (least.open_usd / spec.nodes).quantize(MICRO, ROUND_DOWN) * spec.nodes
    if limits.max_cost_usd is not None and left >= limits.max_cost_usd:
        return limits
    fitted = replace(limits, max_cost_usd=left, cap_from=f"what the budget {least.budget.name} leaves,")
    from costgpu.render.text.budget import left_phrase

    with us_dollars():
        try:
            if left > 0:
                options_for(places, fitted)
                return fitted
            why = ""
        except CapTooSmall as error:
            why = f" {error.hint}"
        raise BudgetExceeded(
            f"The budget {least.budget.name} leaves too little for this run: {left_phrase(least)}.",
            hint=f"{why} costgpu budget show {least.budget.name} says what counts.".strip(),
        )


def _states(
    ledger: Ledger, spec: JobSpec, providers: Iterable[str], owner: str, now: datetime
) -> list[tuple[BudgetState, CostGpuError | None]]:
    """Return how the budgets stand that a job falls under at one of the providers, and what keeps them from being counted.

    Raises:
        LedgerError: The budgets cannot be read.
    """
    from costgpu.job.spending import gather, shipped_prices
    from costgpu.ledger.costs.charges import charges
    from costgpu.ledger.records.budget_store import all_budgets
    from costgpu.ledger.records.budget_sums import budget_state

    mine = [
        stored.budget
        for stored in all_budgets(ledger)
        if any(
            stored.budget.selection.includes(provider=name, owner=owner, name=spec.name, tags=spec.tags)
            for name in providers
        )
    ]
    if not mine:
        return []
    spending = gather(ledger, mine, None, now, shipped_prices)
    hint = "Put back a copy of the ledger, or set the budget again, with --replace and without --enforce."
    found: list[tuple[BudgetState, CostGpuError | None]] = []
    for budget in mine:
        # what a wrong clock has put into a later period would not be counted in this one
        late = charges(ledger, budget.selection, now + timedelta(days=1), None)
        problems: list[CostGpuError] = [
            LedgerDamaged(
                f"The ledger {ledger.place} is damaged, or the clock here is wrong: run {run.run_id} is of the future.",
                hint=hint,
            )
            for run in late
        ]
        problems += [LedgerDamaged(error.message, hint=hint) for error in ledger.damage.values()]
        found.append((budget_state(spending, budget), next(iter([*problems, *spending.problems]), None)))
    return found


def _refusal(state: BudgetState, cap: Decimal, problem: CostGpuError | None) -> CostGpuError | None:
    """Return why a budget refuses a job with this cap; None if it does not."""
    from costgpu.render.text.budget import amounts, begins_anew, exact_usd, left_phrase

    name, anew = state.budget.name, begins_anew(state)
    if state.budget.enforce and problem is not None:
        kind = type(problem)
        return kind(f"The budget {name} cannot be counted, and refuses new runs: {problem.message}", hint=problem.hint)
    if not state.refuses(cap):
        return None
    again = f"It begins anew {anew}. " if anew else ""
    ways = f"costgpu budget set {name} --replace ... raises it; costgpu budget show {name} says what counts."
    if state.exceeded:
        return BudgetExceeded(
            f"The budget {name} is exceeded ({amounts(state)}) and refuses new runs.", hint=again + ways
        )
    fit = "--fit lowers the cap to that. " if state.open_usd > 0 else again
    return BudgetExceeded(
        f"The budget {name} refuses this run: its cap of {exact_usd(cap)} is more than {left_phrase(state)}.",
        hint=fit + ways,
    )
