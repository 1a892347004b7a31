"""The work of `costgpu budget check`: look, tell, perhaps end. Imports lazily."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from costgpu.errors import (
    AlertFailed,
    BudgetCrossed,
    BudgetExceeded,
    CostGpuError,
    LedgerError,
    RunBusy,
    TerminationUnconfirmed,
    Unreachable,
)

if TYPE_CHECKING:
    from costgpu.ledger.records.budget_rules import BudgetState
    from costgpu.ledger.records.budget_store import Alert, DeliveryAttempt, StoredBudget
    from costgpu.models.run import RunView
    from costgpu.providers.base import Provider
    from costgpu.render.text.budget import Standing
    from costgpu.runner.machine_cost import Machine
    from costgpu.runner.spending import Spending
    from costgpu.workflows.context import AppContext

PRINTED = "printed"
_PARTLY = re.compile(r"\d+ of (\d+) delivered; failed: (#\d+(?:,#\d+)*); ")  # to the end: the ledger cuts what is long


class Check:
    """One check of all budgets: look, tell, perhaps end; the exit code says how things stand.

    Args:
        parts: To work with.
        offline: Ask no provider.
        verbose: Show every budget; on a terminal that is so anyway.
        as_json: Print one document and nothing else on stdout.
    """

    def __init__(self, parts: AppContext, *, offline: bool, verbose: bool, as_json: bool) -> None:
        self._parts = parts
        self._offline = offline
        self._all = (verbose or sys.stdout.isatty()) and not as_json
        self._json = as_json
        self._undelivered: list[str] = []
        self._enforced: list[str] = []
        self._alive: list[str] = []  # what could not be ended

    def carry_out(self, *, enforce: bool) -> int:
        """Does everything and returns the exit code.

        Raises:
            LedgerError: The budgets cannot be read.
        """
        from costgpu.ledger.records.budget_store import all_budgets
        from costgpu.render.text.budget import check_json, line
        from costgpu.runner.spending import gather, shipped_prices

        parts = self._parts
        stored = all_budgets(parts.ledger)
        if not stored and self._all:
            typer.echo("No budgets. costgpu budget set NAME --monthly 200 makes one.")
        providers, unusable = (None, {}) if self._offline or not stored else _providers(parts)
        budgets = [each.budget for each in stored]
        spending = gather(parts.ledger, budgets, providers, parts.clock.now(), shipped_prices)
        spending.not_asked.update(unusable)
        standings = [self._tell(each, spending) for each in stored]
        if enforce and not spending.clock_off:
            self._enforce(standings, spending)
        for where, why in spending.not_asked.items():
            self._say(line(f"not asked: {where}: {why}"))
        tell_problems(spending.problems)
        code = self._exit_code(standings, spending)
        if self._json:
            typer.echo(
                check_json(
                    standings,
                    not_asked=spending.not_asked,
                    problems=spending.problems,
                    undelivered=self._undelivered,
                    enforced=self._enforced,
                    exit_code=code,
                    now=parts.clock.now(),
                )
            )
        return code

    def _say(self, text: str) -> None:
        if not self._json:
            typer.echo(text)
            sys.stdout.flush()

    def _exit_code(self, standings: Sequence[Standing], spending: Spending) -> int:
        """The worst of what there is to say."""
        if self._alive:
            return TerminationUnconfirmed.exit_code
        if self._undelivered:
            return AlertFailed.exit_code
        if any(standing.state.exceeded for standing in standings):
            return BudgetExceeded.exit_code
        if any(standing.state.crossed for standing in standings):
            return BudgetCrossed.exit_code
        if spending.problems:
            return spending.problems[0].exit_code
        return Unreachable.exit_code if spending.not_asked else 0

    def _tell(self, stored: StoredBudget, spending: Spending) -> Standing:
        """Says what nobody has said yet about one budget, here and to the alert addresses."""
        from costgpu.ledger.records.budget_store import claim_delivery, finish_delivery
        from costgpu.render.text.alert_message import message
        from costgpu.render.text.budget import Standing, line
        from costgpu.runner.spending import budget_state

        state = budget_state(spending, stored.budget)
        now = self._parts.clock.now()
        if spending.clock_off:
            if state.crossed or self._all:
                self._say(line(message(state)))
            return Standing(state=state)
        try:
            turn = claim_delivery(self._parts.ledger, stored, state.period, state.crossed, state.spent_usd, now)
        except LedgerError as error:
            if state.crossed or self._all:
                self._say(line(message(state)))
            if state.crossed:
                self._failed(stored, f"it could not be recorded, and was not sent: {error.message}")
            spending.problems.append(error)
            return Standing(state=state)
        news = _news(stored, state, turn)
        said = [message(state)] if turn.new or self._all else []
        for text in said:
            self._say(line(text))
        if turn.alerts:
            delivered, detail = self._send(state, turn, news)
            if delivered and detail == PRINTED:
                for text in news:
                    if text not in said:
                        self._say(line(text))
            if not delivered:
                self._failed(stored, detail)
            try:
                finish_delivery(
                    self._parts.ledger, turn.alerts, self._parts.clock.now(), delivered=delivered, detail=detail
                )
            except LedgerError as error:
                spending.problems.append(error)
        return standing_of(self._parts, stored, spending, state, new=tuple(alert.threshold for alert in turn.new))

    def _send(self, state: BudgetState, turn: DeliveryAttempt, news: Sequence[str]) -> tuple[bool, str]:
        """Whether everybody knows now, and by which way or what has failed."""
        try:
            urls = [url.get_secret_value() for url in self._parts.checked_settings().alert_urls]
        except CostGpuError as error:
            return False, error.message
        if not urls:
            return True, PRINTED
        from costgpu.alert.notify import deliver
        from costgpu.render.text.alert_message import title

        positions = still_to_tell(turn.alerts, len(urls))
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
        from costgpu.render.text.budget import line

        text = f"{stored.budget.name}: the alert could not be delivered: {why.rstrip('.')}; the next check tries again."
        self._undelivered.append(text)
        self._say(line(text))

    def _enforce(self, standings: Sequence[Standing], spending: Spending) -> None:
        """Ends what costs money for budgets of which nothing is left. One failure does not keep the others alive."""
        from costgpu.runner.spending import machines_counted

        done: set[tuple[str, object]] = set()
        for standing in standings:
            if not standing.state.exceeded:
                continue
            for machine in machines_counted(standing.state.budget, spending.machines):
                if not machine.going or machine.usd_per_hour == 0 or (machine.run_id, machine.ref) in done:
                    continue
                done.add((machine.run_id, machine.ref))
                why = f"the budget {standing.state.budget.name} is exceeded"
                if machine.owner != self._owner():
                    self._name_only(machine, f"it is of {machine.owner or 'nobody known'}", why)
                elif not machine.recorded:
                    self._end_by_tag(machine, why)
                elif _from_here(machine.run_id):
                    self._cancel(machine, why)
                else:
                    self._name_only(machine, "it was launched from another computer", why)

    def _owner(self) -> str:
        """Who I am to the owner tag."""
        from costgpu.runner.launch import current_owner

        try:
            return self._parts.settings.owner or current_owner()
        except CostGpuError:
            return current_owner()

    def _cancel(self, machine: Machine, why: str) -> None:
        """Through the runner: the job is asked, its outputs come home, the machine is ended and confirmed."""
        what = f"run {machine.run_id} ({machine.name})"
        try:
            view = end_run(self._parts, machine.run_id)
        except CostGpuError as error:
            self._not_ended(what, error.message)
            return
        if view is None:
            self._ended(f"being ended by the terminal that drives it: {what}: {why}")
            return
        home = f"its outputs are in {view.spec.workdir}" if view.collected else "its outputs were not brought home"
        self._ended(f"ended: {what}: {why}; {home}")

    def _end_by_tag(self, machine: Machine, why: str) -> None:
        from costgpu.runner.end_instance import clean_up, end_instance

        ref, clock = machine.ref, self._parts.clock
        assert ref is not None  # noqa: S101 - what is known by its tag has a name
        what = f"{ref.provider} {ref.instance_id} in {ref.region}"
        try:
            provider = self._parts.provider(ref.provider)
            end_instance(provider, ref, clock, known_since=machine.started_at)
            left = clean_up(provider, machine.run_id, ref.region, clock)
        except CostGpuError as error:
            self._not_ended(what, error.message)
            return
        rest = f"; left behind: {', '.join(left)}" if left else ""
        self._ended(f"ended: {what}, run {machine.run_id} ({machine.name}): {why}{rest}")

    def _name_only(self, machine: Machine, whose: str, why: str) -> None:
        """Others' machines, and runs whose outputs only another computer can bring home."""
        from costgpu.runner.end_instance import end_by_hand

        if machine.recorded:
            what, how = f"run {machine.run_id} ({machine.name})", f"costgpu cancel {machine.run_id}"
            how += " where it was launched; elsewhere its outputs are lost"
        else:
            ref = machine.ref
            assert ref is not None  # noqa: S101 - what is known by its tag has a name
            what, how = f"{ref.provider} {ref.instance_id} in {ref.region}", end_by_hand(ref)
        self._ended(f"not ended, {whose}: {what}; {why}. To end it: {how}")

    def _ended(self, text: str) -> None:
        from costgpu.render.text.budget import line

        self._enforced.append(text)
        self._say(line(text))

    def _not_ended(self, what: str, why: str) -> None:
        self._alive.append(what)
        self._ended(f"NOT ENDED: {what}: {why}")


def _providers(parts: AppContext) -> tuple[list[Provider], dict[str, str]]:
    """Everybody who can be asked, and why others cannot: one that cannot be used does not hide the others."""
    from costgpu.providers import registry

    found, unusable = [], {}
    for spec in registry.specs():
        try:
            if spec.has_credentials():
                found.append(parts.provider(spec.name))
        except CostGpuError as error:
            unusable[spec.name] = error.message
    return found, unusable


def _from_here(run_id: str) -> bool:
    """Whether this computer has the key of a run, and so can bring its outputs home."""
    from costgpu.config import runs_folder
    from costgpu.runner.machine.keys import USER_KEY

    try:
        return (runs_folder() / run_id / USER_KEY).exists()
    except (CostGpuError, OSError):
        return False


def end_run(parts: AppContext, run_id: str) -> RunView | None:
    """Cancels a run as `costgpu cancel` does, without showing what its job writes; None if another terminal does it.

    Raises:
        CostGpuError: It goes on, or its end is not confirmed.
    """
    from costgpu.runner.adopt import adopt
    from costgpu.runner.drive.context import Detached
    from costgpu.runner.find_run import load_run
    from costgpu.runner.state.lock import lock_run
    from costgpu.runner.state.observer import NullObserver
    from costgpu.workflows.runs.cancel import cancel_driven

    view = load_run(parts.ledger, run_id)
    try:
        with lock_run(parts.tools.folder / run_id):
            driver = adopt(view, parts.ledger, parts.tools, NullObserver(), None)
            return driver.cancel()
    except Detached:
        return None
    except RunBusy:
        try:
            cancel_driven(parts, view, now=False)
        except CostGpuError as error:
            if view.lease_until is None or parts.clock.now() <= view.lease_until:
                raise RunBusy(
                    f"its job could not be asked to end: {error.message.rstrip('.')}; the terminal that drives it may be"
                    " saving its outputs, and the next check tries again."
                ) from error
            cancel_driven(parts, view, now=True)  # its driver ends the machine
        return None


def standing_of(
    parts: AppContext,
    stored: StoredBudget,
    spending: Spending,
    state: BudgetState | None = None,
    new: tuple[int, ...] = (),
) -> Standing:
    """A budget with what people were told; an unreadable part goes to the problems."""
    from costgpu.ledger.records.budget_store import alerts_of
    from costgpu.render.text.budget import Standing
    from costgpu.runner.spending import budget_state

    state = state or budget_state(spending, stored.budget)
    alerts: Sequence[Alert] = ()
    try:
        alerts = alerts_of(parts.ledger, stored, state.period)
    except LedgerError as error:
        spending.problems.append(error)
    return Standing(state=state, alerts=alerts, new=new)


def tell_problems(problems: Sequence[CostGpuError]) -> None:
    """Says on stderr what could not be read, written or believed, each once."""
    for message, hint in dict.fromkeys((problem.message, problem.hint) for problem in problems):
        typer.echo(f"costgpu: {message}", err=True)
        if hint:
            typer.echo(f"hint: {hint}", err=True)


def still_to_tell(alerts: Sequence[Alert], addresses: int) -> list[int]:
    """Positions, from 1, of the addresses that a message has not reached yet; all unless it is known that some have."""
    missing: set[int] = set()
    for alert in alerts:
        partly = _PARTLY.match(alert.detail) if alert.delivered is False else None
        if partly is None or int(partly.group(1)) != addresses:
            return list(range(1, addresses + 1))
        missing |= {int(n.removeprefix("#")) for n in partly.group(2).split(",")}
    return sorted(n for n in missing if n <= addresses) or list(range(1, addresses + 1))


def _news(stored: StoredBudget, state: BudgetState, turn: DeliveryAttempt) -> list[str]:
    """What people are to be told: how it stands if that is news, and what could not be told in a period that is over."""
    from costgpu.ledger.schema import EPOCH
    from costgpu.render.text.alert_message import late_message, message

    start = state.period.start or EPOCH
    late: dict[object, Alert] = {a.period_start: a for a in turn.alerts if a.period_start != start}  # the highest one
    news = [late_message(stored.budget, alert) for alert in late.values()]
    if any(alert.period_start == start for alert in turn.alerts):
        news.append(message(state))
    return news
