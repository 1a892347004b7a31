"""The work of `costgpu budget check`: look, alert, perhaps end what runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from costgpu.errors import (
    AlertFailed,
    BudgetCrossed,
    BudgetExceeded,
    CostGpuError,
    LedgerDamaged,
    LedgerError,
    TerminationUnconfirmed,
    Unreachable,
)
from costgpu.job.spending import gather, shipped_prices
from costgpu.ledger.records.budget_rules import BudgetState
from costgpu.ledger.records.budget_store import (
    Alert,
    DeliveryAttempt,
    StoredBudget,
    alerts_of,
    all_budgets,
    claim_delivery,
    finish_delivery,
    unknown_budget,
)
from costgpu.ledger.records.budget_sums import Spending, budget_state
from costgpu.ledger.schema import EPOCH
from costgpu.render.text.budget import CheckedBudget, late_message, message, title
from costgpu.workflows.context import AppContext, askable

PRINTED = "printed"
_PARTLY = re.compile(r"\d+ of (\d+) delivered; failed: (#\d+(?:,#\d+)*); ")  # to the end: the ledger cuts what is long


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How all budgets stand."""

    standings: Sequence[CheckedBudget]
    not_asked: Mapping[str, str]  # place -> why its machines are not known
    problems: Sequence[CostGpuError]  # what could not be read, written or believed
    undelivered: Sequence[str]  # alerts that reached nobody, in words
    enforced: Sequence[str]  # what was done about machines, in words
    alive: Sequence[str]  # machines that could not be ended

    @property
    def exit_code(self) -> int:
        """Return the worst of what there is to say."""
        if self.alive:
            return TerminationUnconfirmed.exit_code
        if self.undelivered:
            return AlertFailed.exit_code
        if any(standing.state.exceeded for standing in self.standings):
            return BudgetExceeded.exit_code
        if any(standing.state.crossed for standing in self.standings):
            return BudgetCrossed.exit_code
        if self.problems:
            return self.problems[0].exit_code
        return Unreachable.exit_code if self.not_asked else 0


class BudgetCheck:
    """One check of all budgets.

    Args:
        say: Prints news as soon as they are known; an alert without addresses is delivered by it.
        verbose: Say how every budget stands, also without news.
    """

    def __init__(self, context: AppContext, say: Callable[[str], None], *, offline: bool, verbose: bool) -> None:
        self._context, self._say = context, say
        self._offline, self._verbose = offline, verbose
        self._undelivered: list[str] = []

    def carry_out(self, *, enforce: bool) -> CheckResult:
        """Look, alerts and, with `enforce`, end what runs beyond a budget.

        Raises:
            LedgerError: The budgets cannot be read.
        """
        context = self._context
        damaged: list[LedgerDamaged] = []
        stored = all_budgets(context.ledger, damaged)
        if not stored and not damaged and self._verbose:
            self._say("No budgets. costgpu budget set NAME --monthly 200 makes one.")
        providers, unusable = (None, {}) if self._offline or not stored else askable(context.provider)
        budgets = [each.budget for each in stored]
        spending = gather(context.ledger, budgets, providers, context.clock.now(), shipped_prices)
        spending.not_asked.update(unusable)
        spending.problems += damaged  # one budget that cannot be read does not silence the others
        standings = [self._alert(each, spending) for each in stored]
        enforced: list[str] = []
        alive: list[str] = []
        if enforce and not spending.clock_off and any(standing.state.exceeded for standing in standings):
            from costgpu.workflows.spending.enforce import Enforcement

            enforcement = Enforcement(context, self._say)
            enforcement.enforce(standings, spending)
            enforced, alive = enforcement.actions, enforcement.alive
        for where, why in spending.not_asked.items():
            self._say(f"not asked: {where}: {why}")
        note_problems(context, spending.problems)
        return CheckResult(
            standings=standings,
            not_asked=spending.not_asked,
            problems=spending.problems,
            undelivered=self._undelivered,
            enforced=enforced,
            alive=alive,
        )

    def _alert(self, stored: StoredBudget, spending: Spending) -> CheckedBudget:
        """Say what nobody has said yet about one budget, here and to the alert addresses."""
        context, state = self._context, budget_state(spending, stored.budget)
        shown = bool(state.crossed) or self._verbose
        if spending.clock_off:
            if shown:
                self._say(message(state))
            return CheckedBudget(state=state)
        try:
            attempt = claim_delivery(
                context.ledger, stored, state.period, state.crossed, state.spent_usd, context.clock.now()
            )
        except LedgerError as error:
            if shown:
                self._say(message(state))
            if state.crossed:
                self._failed(stored, f"it could not be recorded, and was not sent: {error.message}")
            spending.problems.append(error)
            return CheckedBudget(state=state)
        said = [message(state)] if attempt.new or self._verbose else []
        for text in said:
            self._say(text)
        if attempt.alerts:
            self._deliver(stored, state, attempt, said, spending)
        return standing_of(context, stored, spending, state, new=tuple(alert.threshold for alert in attempt.new))

    def _deliver(
        self,
        stored: StoredBudget,
        state: BudgetState,
        attempt: DeliveryAttempt,
        said: Sequence[str],
        spending: Spending,
    ) -> None:
        news = _news(stored, state, attempt)
        delivered, detail = self._send(state, attempt, news)
        if delivered and detail == PRINTED:
            for text in news:
                if text not in said:
                    self._say(text)
        if not delivered:
            self._failed(stored, detail)
        try:
            now = self._context.clock.now()
            finish_delivery(self._context.ledger, attempt.alerts, now, delivered=delivered, detail=detail)
        except LedgerError as error:
            spending.problems.append(error)

    def _send(self, state: BudgetState, attempt: DeliveryAttempt, news: Sequence[str]) -> tuple[bool, str]:
        """Return whether everybody knows now, and by which way or what has failed."""
        try:
            urls = [url.get_secret_value() for url in self._context.checked_settings().alert_urls]
        except CostGpuError as error:
            return False, error.message
        if not urls:
            return True, PRINTED
        from costgpu.alert.notify import deliver

        positions = still_to_tell(attempt.alerts, len(urls))
        done = deliver([urls[n - 1] for n in positions], title(state), "\n".join(news))
        failed = [(n, each) for n, each in zip(positions, done, strict=True) if not each.ok]
        if not failed:
            return True, ", ".join(each.service for each in done)
        where = ",".join(f"#{n}" for n, _ in failed)  # first: the words may be cut, and the next check reads these
        words = "; ".join(
            f"#{n} {each.service}: {each.detail.rstrip('.') or 'it did not say why'}" for n, each in failed
        )
        return False, f"{len(urls) - len(failed)} of {len(urls)} delivered; failed: {where}; {words}"

    def _failed(self, stored: StoredBudget, why: str) -> None:
        text = f"{stored.budget.name}: the alert could not be delivered: {why.rstrip('.')}; the next check tries again."
        self._undelivered.append(text)
        self._say(text)


def still_to_tell(alerts: Sequence[Alert], addresses: int) -> list[int]:
    """Positions, from 1, of the addresses that a message has not reached yet; all unless it is known that some have."""
    missing: set[int] = set()
    for alert in alerts:
        partly = _PARTLY.match(alert.detail) if alert.delivered is False else None
        if partly is None or int(partly.group(1)) != addresses:
            return list(range(1, addresses + 1))
        missing |= {int(n.removeprefix("#")) for n in partly.group(2).split(",")}
    return sorted(n for n in missing if n <= addresses) or list(range(1, addresses + 1))


def _news(stored: StoredBudget, state: BudgetState, attempt: DeliveryAttempt) -> list[str]:
    """Return the messages to send: how the budget stands if that is news, and what earlier periods could not tell."""
    start = state.period.start or EPOCH
    late = {alert.period_start: alert for alert in attempt.alerts if alert.period_start != start}  # the highest one
    news = [late_message(stored.budget, alert) for alert in late.values()]
    if any(alert.period_start == start for alert in attempt.alerts):
        news.append(message(state))
    return news


def standings(context: AppContext, name: str | None = None) -> tuple[list[CheckedBudget], list[CostGpuError]]:
    """Return all budgets, or one, by the ledger alone; and what could not be read or believed."""
    damaged: list[LedgerDamaged] = []
    stored = all_budgets(context.ledger, damaged)
    if name is not None:
        names = [each.budget.name for each in stored]
        stored = tuple(each for each in stored if each.budget.name == name)
        if not stored and damaged:
            raise damaged[0]
        if not stored:
            raise unknown_budget(name, names)
    budgets = [each.budget for each in stored]
    spending = gather(context.ledger, budgets, None, context.clock.now(), shipped_prices)
    return [standing_of(context, each, spending) for each in stored], [*spending.problems, *damaged]


def standing_of(
    context: AppContext,
    stored: StoredBudget,
    spending: Spending,
    state: BudgetState | None = None,
    new: tuple[int, ...] = (),
) -> CheckedBudget:
    """Return a budget with its alerts; alerts that cannot be read are one more problem."""
    state = state or budget_state(spending, stored.budget)
    alerts: Sequence[Alert] = ()
    try:
        alerts = alerts_of(context.ledger, stored, state.period)
    except LedgerError as error:
        spending.problems.append(error)
    return CheckedBudget(state=state, alerts=alerts, new=new)


def note_problems(context: AppContext, problems: Sequence[CostGpuError]) -> None:
    """Note what could not be read, written or believed."""
    for problem in problems:
        context.reporter.note(problem.message, problem.hint)
