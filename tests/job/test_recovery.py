"""Jobs that go on when their machines are taken back."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from costgpu.errors import AuthError, BudgetExceeded
from costgpu.job.adopt import adopt_job
from costgpu.job.drive.context import Detached
from costgpu.job.files.bucket_outputs import BucketOutputs
from costgpu.job.state.observer import NullObserver
from costgpu.models.job import EndReason
from costgpu.models.offer import Accelerator
from costgpu.models.run import EventKind
from tests.fake_cloud.script import NEVER, PROGRESS, JobScript
from tests.job.recovery_world import SAVING, RecoveryWorld


def machines(world: RecoveryWorld) -> int:
    return len([view for view in world.attempts() if view.instance is not None])


def test_a_job_that_is_interrupted_three_times_comes_to_its_end(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [500, 400, 300])
    driver = world.run()
    world.check_job()
    assert (world.work / "model.pt").read_bytes() == b"weights"
    assert [view.reason for view in driver.views] == [*[EndReason.INTERRUPTED] * 3, EndReason.SUCCEEDED]
    assert [view.spec.attempt.number for view in driver.views if view.spec.attempt] == [1, 2, 3, 4]
    assert driver.error is None
    assert driver.decisive.reason is EndReason.SUCCEEDED
    receipts = [view.receipt for view in driver.views if view.receipt is not None]
    assert sum((one.metered_cost_usd for one in receipts), Decimal(0)) <= Decimal("2.00")
    assert all(view.restored_from is not None for view in driver.views[1:])
    jobs = [instance.guest.job for instance in world.cloud.instances.values() if instance.guest and instance.guest.job]
    assert [job.order.argv for job in jobs] == [("train.py",), *[("train.py", "--resume", PROGRESS)] * 3]
    assert [job.secrets.get("COSTGPU_ATTEMPT") for job in jobs] == ["1", "2", "3", "4"]
    assert [job.secrets.get("COSTGPU_RESUME") for job in jobs] == [None, *[PROGRESS] * 3]
    done = [job.done_before for job in jobs]
    assert done[0] == 0
    assert sorted(done) == done
    worked = [job.finished_at - job.job_at for job in jobs if job.finished_at and job.job_at]
    assert sum(worked) == pytest.approx(1000, abs=1)  # each says goodbye with a checkpoint: nothing is done twice
    assert not (tmp_path / "runs" / "r1" / "checkpoints").exists()


def test_the_next_machine_is_elsewhere(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [300])
    driver = world.run()
    calls = [view.create_call for view in driver.views]
    assert calls[0] is not None
    assert calls[1] is not None
    assert (calls[0].option, calls[0].zone) != (calls[1].option, calls[1].zone)


def test_a_machine_without_notice_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [450], replace(SAVING, sigterm_seconds=1e9))
    world.run(grace_seconds=1e6)
    first, second = world.attempts()
    world.check_job()
    assert first.saved_at is not None
    job = next(
        i.guest.job for i in world.cloud.instances.values() if i.guest and i.guest.job and i.guest.job.done_before
    )
    assert job.done_before in (200.0, 300.0, 400.0)
    assert second.reason is EndReason.SUCCEEDED


def test_only_so_often(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [300] * 9)
    driver = world.run(most=2)
    world.check_job()
    assert machines(world) == 3
    assert driver.view.reason is EndReason.PREEMPTED
    assert any("gone on 2 times already" in note for note in world.who.notes)
    assert float((world.work / PROGRESS).read_bytes()) > 300  # what it had made comes home


def test_the_cap_is_for_all_attempts_together(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [700] * 20, replace(SAVING, seconds=1e6))
    driver = world.run(most=50, max_cost="1.00")
    world.check_job()
    receipts = [view.receipt for view in driver.views if view.receipt is not None]
    assert sum((one.metered_cost_usd for one in receipts), Decimal(0)) <= Decimal("1.00")
    assert 3 < len(receipts) < 20
    assert driver.view.reason in (EndReason.PREEMPTED, EndReason.DEADLINE)


def test_the_longest_time_is_for_all_attempts_together(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [300] * 20, replace(SAVING, seconds=1e6))
    world.run(most=50, max_cost="20.00", max_duration_seconds=700.0)
    world.check_job()
    jobs = [instance.guest.job for instance in world.cloud.instances.values() if instance.guest and instance.guest.job]
    assert sum(job.finished_at - job.job_at for job in jobs if job.finished_at and job.job_at) <= 701


def test_a_job_that_cannot_go_on_gets_no_fourth_machine(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])
    broken = JobScript(seconds=10.0, exit_code=3, saves=1e9)

    def after_the_first() -> None:
        world.cloud.script = broken

    world.cloud.schedule(150, after_the_first)
    driver = world.run()
    world.check_job()
    assert machines(world) == 4  # the first, and three that could not go on
    assert driver.decisive.reason is EndReason.JOB_FAILED
    assert driver.decisive.status is not None
    assert driver.decisive.status.exit_code == 3
    assert any("failed 3 times as soon as it went on" in note for note in world.who.notes)
    assert float((world.work / PROGRESS).read_bytes()) > 100  # the checkpoint is not lost


def test_where_no_machine_is_free_it_is_looked_for_again(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])

    def full() -> None:
        world.cloud.no_capacity()
        world.cloud.schedule(1500, world.cloud.no_capacity_rules.clear)

    world.cloud.schedule(200, full)
    driver = world.run()
    world.check_job()
    assert machines(world) == 2
    assert len(driver.views) == 2  # however often it was looked for
    searches = [event for event in world.book.events(driver.view.run_id) if event.kind is EventKind.SEARCHED]
    assert 3 <= len(searches) <= 6
    assert driver.decisive.reason is EndReason.SUCCEEDED


def test_after_a_machine_whose_gpu_does_not_answer_comes_another_one(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])
    good = world.cloud.machine

    def second_has_none() -> None:
        world.cloud.machine = replace(good, driver_seconds=NEVER)
        world.cloud.schedule(400, lambda: setattr(world.cloud, "machine", good))

    world.cloud.schedule(200, second_has_none)
    driver = world.run(gpu=Accelerator(name="T4", count=1, memory_gib=16))
    world.check_job()
    assert [view.reason for view in driver.views][-2:] == [EndReason.DRIVER_FAILED, EndReason.SUCCEEDED]


def test_what_is_sent_is_what_was_there_at_the_beginning(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])
    sent: list[str] = []

    def edit() -> None:
        (world.work / "train.py").write_text("half of an edit")
        sent.append((tmp_path / "runs/r1/sent/files/train.py").read_text())

    world.cloud.schedule(200, edit)
    world.run()
    assert sent == ["train"]
    assert not (tmp_path / "runs/r1/sent").exists()


def test_saved_checkpoints_are_recorded(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [])
    world.run()
    saved = [event for event in world.book.events("r1") if event.kind is EventKind.SAVED]
    assert 5 <= len(saved) <= 10
    assert world.attempts()[0].saved_at is not None


class _With:
    """An object with some methods of its own."""

    def __init__(self, target: Any, **methods: Any) -> None:
        self._target, self._methods = target, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._target, name)


def test_a_budget_keeps_a_job_waiting(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])
    exceeded = BudgetExceeded("The budget team is exceeded.")
    world.tools = replace(world.tools, refusal=lambda view: exceeded if view.is_later_attempt else None)
    with pytest.raises(BudgetExceeded) as caught:
        world.run()
    assert "costgpu attach" in caught.value.hint
    assert world.attempts()[-1].waits
    world.tools = replace(world.tools, refusal=None)
    world.resume()
    world.check_job()


def test_from_the_queue_nobody_waits_for_a_machine(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])

    with pytest.raises(Detached):
        world.run(detach=True)
    world.clock.sleep(350)
    world.cloud.no_capacity()
    world.reap()
    began = world.clock.monotonic()
    view = world.attempts()[-1]
    assert view.waits
    driver = adopt_job(view, world.book, world.tools, NullObserver(), {}, detach=True)
    driver.drive()
    assert world.clock.monotonic() - began < 60
    assert driver.view.waits
    assert driver.view.spec.attempt is not None
    assert driver.view.spec.attempt.searches == 1


def test_a_spot_price_that_has_risen_does_not_lift_the_cap(tmp_path: Path) -> None:
    """Machines are counted at the rate of their leases, the price on demand."""
    world = RecoveryWorld(tmp_path, [700] * 20, replace(SAVING, seconds=1e6))
    driver = world.run(most=50, max_cost="1.00", spot_price="0.30")
    world.check_job()
    receipts = [view.receipt for view in driver.views if view.receipt is not None]
    assert sum(one.metered_seconds for one in receipts) / 3600 * 1.00 <= 1.00


def test_a_bucket_that_refuses_keeps_a_job_waiting(tmp_path: Path) -> None:
    world = RecoveryWorld(tmp_path, [400])
    refused = AuthError("Access denied to s3://team/runs.")

    def refuses(*_: Any) -> Any:
        raise refused

    bucket = _With(None, checkpoint=refuses, upload_urls=lambda _: {}, rescue=lambda *_: None)
    world.tools = replace(world.tools, bucket=cast("BucketOutputs", bucket))
    with pytest.raises(AuthError) as caught:
        world.run(bucket="s3://team/runs")
    assert "costgpu attach" in caught.value.hint
    assert world.attempts()[-1].waits
    assert not world.cloud.alive()
