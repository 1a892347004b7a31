"""What interruptions have cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from costgpu.models.attempts import summarize
from costgpu.models.job import Attempt, EndReason, JobPhase, JobStatus, Recovery
from costgpu.models.offer import PurchaseOption
from costgpu.models.run import RunView
from costgpu.render.text.receipt import receipts_text
from tests.unit.render.runs import NOW, closed


def attempt(number: int, *, worked: float, restored_ago: float | None = None, reason: EndReason) -> RunView:
    """A run whose job began 100 s after its create call.

    Args:
        restored_ago: How old the checkpoint was, when the machine before was gone, that it goes on from.
    """
    view = closed()
    assert view.create_call is not None
    assert view.option is not None
    assert view.receipt is not None
    began = view.create_call.at + timedelta(hours=number)
    started = began + timedelta(seconds=100)
    ended = started + timedelta(seconds=worked)
    offer = replace(view.option.offer, purchase_option=PurchaseOption.SPOT, price_usd_per_hour=Decimal("1.00"))
    lease = replace(view.option.lease, usd_per_hour=Decimal("3.00"))
    before = started - timedelta(hours=1) + timedelta(seconds=worked)
    return replace(
        view,
        run_id=f"{view.run_id}{number}",
        spec=replace(
            view.spec, recovery=Recovery(most=5), attempt=Attempt(job_id="a", index=number, number=number + 1)
        ),
        create_call=replace(view.create_call, at=began),
        options=(replace(view.option, offer=offer, lease=lease, extras_usd_per_hour=Decimal("0.01")),),
        started_at=started,
        restored_from=None if restored_ago is None else before - timedelta(seconds=restored_ago),
        reason=reason,
        status=JobStatus(
            phase=JobPhase.FINISHED,
            reason=reason,
            exit_code=0,
            started_epoch=started.timestamp(),
            job_started_epoch=started.timestamp(),
            finished_epoch=ended.timestamp(),
        ),
        receipt=replace(
            view.receipt,
            metered_seconds=worked + 160,
            metered_cost_usd=Decimal("0.10"),
            reason=reason,
            confirmed_at=NOW,
        ),
    )


def test_one_machine_is_no_sum() -> None:
    assert summarize([attempt(0, worked=600, reason=EndReason.SUCCEEDED)]) is None


def test_work_that_was_done_twice_and_time_to_start_again() -> None:
    taken, done = EndReason.INTERRUPTED, EndReason.SUCCEEDED
    views = [attempt(0, worked=600, reason=taken), attempt(1, worked=600, restored_ago=50, reason=done)]
    total = summarize(views)
    assert total is not None
    assert (total.machines, total.interruptions) == (2, 1)
    assert total.lost_seconds == pytest.approx(50)
    assert total.restart_seconds == pytest.approx(100)
    assert total.metered_cost_usd == Decimal("0.20")
    assert total.on_demand_usd == Decimal("1.041667")  # 100 s and 1,150 s of work at $3.00 an hour


def test_without_a_checkpoint_all_work_is_lost() -> None:
    total = summarize(
        [attempt(0, worked=600, reason=EndReason.INTERRUPTED), attempt(1, worked=600, reason=EndReason.SUCCEEDED)]
    )
    assert total is not None
    assert total.lost_seconds == pytest.approx(600)


def test_what_is_not_known_is_not_told() -> None:
    views = [attempt(0, worked=600, reason=EndReason.INTERRUPTED), attempt(1, worked=600, reason=EndReason.SUCCEEDED)]
    option = views[0].options[0]
    plain = replace(option, lease=replace(option.lease, usd_per_hour=Decimal("1.01")))
    total = summarize([replace(views[0], options=(plain,)), views[1]])
    assert total is not None
    assert total.on_demand_usd is None


def test_the_receipt_tells_it() -> None:
    taken, done = EndReason.INTERRUPTED, EndReason.SUCCEEDED
    said = receipts_text([attempt(0, worked=600, reason=taken), attempt(1, worked=600, restored_ago=50, reason=done)])
    for words in (
        ", attempt 2)",
        "interrupted, and gone on with elsewhere",
        "together   2 machines after 1 interruption, 25 min of them, $0.20",
        "lost       2 min: 50 s of work since the checkpoints, 100 s to start again",
        "on demand  the same work would have cost about $1.04",
    ):
        assert words in said, said
    assert max(len(line) for line in said.splitlines()) <= 80
