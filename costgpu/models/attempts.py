"""What a job that went on after interruptions has cost and lost. Imports `job`, `offer` and `run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from costgpu.models.offer import PurchaseOption
from costgpu.models.run import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsSummary:
    """All machines of all attempts at a job together."""

    machines: int
    interruptions: int
    metered_seconds: float
    metered_cost_usd: Decimal
    lost_seconds: float  # work that had to be done again
    restart_seconds: float  # from the create calls of further machines to their jobs' start
    on_demand_usd: (
        Decimal | None
    )  # cost of the same work on demand without interruptions; None if its price is not known


def job_seconds(view: RunView) -> float:
    """Return how long the job itself has run on the machine of a run."""
    status = view.status
    if status is not None and status.finished_epoch is not None and status.job_started_epoch is not None:
        return max(0.0, status.finished_epoch - status.job_started_epoch)
    if view.started_at is None:
        return 0.0
    return max(0.0, ((view.confirmed_at or view.changed_at) - view.started_at).total_seconds())


def summarize(views: Sequence[RunView]) -> AttemptsSummary | None:
    """Return the runs of one job, in order, as far as they are closed; None for a job that had no second attempt."""
    made = [view for view in views if view.receipt is not None and view.receipt.instance is not None]
    leads = [view for view in made if view.is_first_machine]  # what one machine of an attempt loses, all do
    if len(leads) < 2:
        return None
    receipts = [view.receipt for view in made if view.receipt is not None]
    nodes = leads[0].spec.nodes
    lost = sum(_lost_seconds(view, after) for view, after in pairwise(leads)) * nodes
    restarts = sum(_start_seconds(view) for view in leads[1:]) * nodes
    worked = sum(job_seconds(view) for view in leads) - lost / nodes
    alone = _on_demand_usd(leads[0], _start_seconds(leads[0]) + worked)
    return AttemptsSummary(
        machines=len(made),
        interruptions=sum(view.reason is not None and view.reason.interrupted for view in leads),
        metered_seconds=sum(receipt.metered_seconds for receipt in receipts),
        metered_cost_usd=sum((receipt.metered_cost_usd for receipt in receipts), Decimal(0)),
        lost_seconds=lost,
        restart_seconds=restarts,
        on_demand_usd=alone * nodes if alone is not None else None,
    )


def _lost_seconds(view: RunView, after: RunView) -> float:
    """Return how much of the work on a machine the next one had to do again."""
    worked, status = job_seconds(view), view.status
    if after.restored_from is None:
        return worked
    ended = status.finished_epoch if status is not None else None
    if ended is None:
        ended = (view.confirmed_at or view.changed_at).timestamp()
    return min(worked, max(0.0, ended - after.restored_from.timestamp()))


def _start_seconds(view: RunView) -> float:
    """From the create call to the start of the job, set-up included."""
    if view.create_call is None or view.started_at is None:
        return 0.0
    status, set_up = view.status, 0.0
    if status is not None and status.job_started_epoch is not None and status.started_epoch is not None:
        set_up = status.job_started_epoch - status.started_epoch
    return max(0.0, (view.started_at - view.create_call.at).total_seconds() + set_up)


def _on_demand_usd(view: RunView, seconds: float) -> Decimal | None:
    """Return what so much time of the machine of a run would have cost on demand, disk and address included."""
    option = view.option
    if option is None or option.offer.purchase_option is not PurchaseOption.SPOT:
        return None
    rate = option.lease.usd_per_hour
    if rate <= option.usd_per_hour:
        return None  # the lease was made without knowing the price on demand
    return (Decimal(str(round(seconds, 1))) * rate / 3600).quantize(Decimal("0.000001"))
