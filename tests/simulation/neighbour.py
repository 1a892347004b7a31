"""What is in the ledger besides the run: an open run of long ago with a damaged record, and a budget."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from costgpu.ledger.costs.periods import Every
from costgpu.ledger.records.budget_rules import Budget
from costgpu.ledger.records.budget_store import set_budget
from costgpu.models.run import EventKind, RunEvent
from tests.job.examples import facts_of, intent
from tests.simulation.computer import Computer
from tests.simulation.timeline import START

NEIGHBOUR = "a0"


def plant_neighbour(computer: Computer, how: str) -> None:
    """A run that nobody can read any more."""
    store = computer.store
    for sequence, kind in enumerate((EventKind.INTENDED, EventKind.ATTEMPTED, EventKind.CREATED)):
        data: Any = {**facts_of(kind), "instance_id": "i-99"} if sequence else intent(NEIGHBOUR).data
        store.target.append(RunEvent(run_id=NEIGHBOUR, sequence=sequence, at=START, kind=kind, data=data))
    store.target.change(NEIGHBOUR, 1 if how == "hole" else 0, how)
    (computer.runs / NEIGHBOUR).mkdir(parents=True)
    (computer.runs / NEIGHBOUR / "driver.lock").touch()


def plant_budget(computer: Computer, amount: str) -> None:
    """One that counts everything."""
    budget = Budget(name="all", amount_usd=Decimal(amount), every=Every.TOTAL, enforce=True)
    set_budget(computer.store.target, budget, START)


__all__ = ["NEIGHBOUR", "plant_budget", "plant_neighbour", "replace"]
