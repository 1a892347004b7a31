"""Ends what costs money for budgets that are exceeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from costgpu.config import runs_folder
from costgpu.errors import CostGpuError, RunBusy
from costgpu.job.find_run import load_run
from costgpu.job.launch import current_owner
from costgpu.job.machine.keys import USER_KEY
from costgpu.job.state.observer import Answer, NullObserver
from costgpu.ledger.costs.charges import Charge
from costgpu.ledger.records.budget_sums import Spending
from costgpu.ledger.schema import from_microseconds
from costgpu.models.run import RunView
from costgpu.render.text.budget import CheckedBudget
from costgpu.workflows.context import AppContext
from costgpu.workflows.runs.cancel import cancel_by_tag, cancel_driven, cancel_run


class Enforcement:
    """Ends machines; one failure does not keep the others alive.

    Attributes:
        actions: What was done about each machine, in words.
        alive: Machines that could not be ended.
    """

    def __init__(self, context: AppContext, say: Callable[[str], None]) -> None:
        self.actions: list[str] = []
        self.alive: list[str] = []
        self._context, self._say = context, say

    def enforce(self, standings: Sequence[CheckedBudget], spending: Spending) -> None:
        """End what the exceeded budgets count, each machine once; others' machines are only named."""
        done: set[tuple[str, object]] = set()
        for standing in standings:
            if not standing.state.exceeded:
                continue
            for machine in spending.of(standing.state.budget):
                if not machine.going or machine.nano_usd_per_hour == 0 or (machine.run_id, machine.ref) in done:
                    continue
                done.add((machine.run_id, machine.ref))
                self._end(machine, f"the budget {standing.state.budget.name} is exceeded")

    def _end(self, machine: Charge, why: str) -> None:
        if machine.owner != self._owner():
            self._name_only(machine, f"it is of {machine.owner or 'nobody known'}", why)
        elif not machine.recorded:
            self._end_by_tag(machine, why)
        elif _from_here(machine.run_id):
            self._cancel(machine, why)
        else:
            self._name_only(machine, "it was launched from another computer", why)

    def _owner(self) -> str:
        """Return the user's name in the owner tag."""
        try:
            return self._context.settings.owner or current_owner()
        except CostGpuError:
            return current_owner()

    def _cancel(self, machine: Charge, why: str) -> None:
        """Through the runner: the job is asked to end, its outputs are downloaded, the machine is terminated."""
        what = _name(machine)
        try:
            view = end_run(self._context, machine.run_id)
        except CostGpuError as error:
            self._not_ended(what, error.message)
            return
        if view is None:
            self._done(f"being ended by the terminal that drives it: {what}: {why}")
            return
        home = f"its outputs are in {view.spec.workdir}" if view.outputs_home else "its outputs were not brought home"
        self._done(f"ended: {what}: {why}; {home}")

    def _end_by_tag(self, machine: Charge, why: str) -> None:
        assert machine.ref is not None  # noqa: S101 - what is known by its tag has a name
        try:
            left = cancel_by_tag(self._context, machine.ref, machine.run_id, from_microseconds(machine.began))
        except CostGpuError as error:
            self._not_ended(_name(machine), error.message)
            return
        rest = f"; left behind: {', '.join(left)}" if left else ""
        self._done(f"ended: {_name(machine)}, run {machine.run_id} ({machine.name}): {why}{rest}")

    def _name_only(self, machine: Charge, whose: str, why: str) -> None:
        """Others' machines, and runs whose outputs only another computer can download."""
        from costgpu.job.end_instance import end_by_hand

        if machine.recorded:
            how = f"costgpu cancel {machine.run_id} where it was launched; elsewhere its outputs are lost"
        else:
            assert machine.ref is not None  # noqa: S101 - what is known by its tag has a name
            how = end_by_hand(machine.ref)
        self._done(f"not ended, {whose}: {_name(machine)}; {why}. To end it: {how}")

    def _done(self, text: str) -> None:
        self.actions.append(text)
        self._say(text)

    def _not_ended(self, what: str, why: str) -> None:
        self.alive.append(what)
        self._done(f"NOT ENDED: {what}: {why}")


def _name(machine: Charge) -> str:
    ref = machine.ref
    if machine.recorded or ref is None:
        return f"run {machine.run_id} ({machine.name})"
    return f"{ref.provider} {ref.instance_id} in {ref.region}"


def _from_here(run_id: str) -> bool:
    """Return whether this computer has the key of a run, and so can download its outputs."""
    try:
        return (runs_folder() / run_id / USER_KEY).exists()
    except (CostGpuError, OSError):
        return False


class _Leaving(NullObserver):
    """Ctrl-C ends the check: the job has been asked to end, and its outputs wait for the next one."""

    def interrupted(self, _view: RunView) -> Answer:
        return Answer.DETACH


def end_run(context: AppContext, run_id: str) -> RunView | None:
    """Cancel a run as `costgpu cancel` does, without showing what its job writes; None if another terminal does it.

    Raises:
        CostGpuError: It goes on, or its end is not confirmed.
        KeyboardInterrupt: Pressed meanwhile; the run is as it was left.
    """
    view = load_run(context.ledger, run_id)
    try:
        driver = cancel_run(context, view, _Leaving())
    except RunBusy:
        try:
            cancel_driven(context, view, now=False)
        except CostGpuError as error:
            if view.lease_until is None or context.clock.now() <= view.lease_until:
                raise RunBusy(
                    f"its job could not be asked to end: {error.message.rstrip('.')}; the terminal that drives it may be"
                    " saving its outputs, and the next check tries again."
                ) from error
            cancel_driven(context, view, now=True)  # its driver ends the machine
        return None
    if driver is None:
        raise KeyboardInterrupt
    return driver.view
