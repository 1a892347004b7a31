"""Jobs that go on when their machines are taken back."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costgpu.errors import AuthError, BudgetExceeded
from costgpu.job.adopt import adopt_job
from costgpu.job.drive.context import Detached
from costgpu.job.state.observer import NullObserver
from costgpu.models.job import EndReason
from costgpu.models.offer import Accelerator
from tests.fake_cloud.script import NEVER, PROGRESS, JobScript
from tests.job.world import RECOVERS, SAVING, World

GOES_ON: dict[str, Any] = {"spot": True, "recovery": RECOVERS, "max_cost_usd": Decimal("2.00")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Whose first machine is taken back."""
    return World(tmp_path, SAVING, takes_back=[400])


def test_a_job_that_is_interrupted_three_times_comes_to_its_end(tmp_path: Path) -> None:
    world = World(tmp_path, SAVING, takes_back=[500, 400, 300])
    driver = world.launch(**GOES_ON)
    world.check_over()
    assert (world.work / "model.pt").read_bytes() == b"weights"
    assert [view.reason for view in driver.views] == [*[EndReason.INTERRUPTED] * 3, EndReason.SUCCEEDED]
    assert [view.spec.attempt.number for view in driver.views if view.spec.attempt] == [1, 2, 3, 4]
    assert driver.error is None
    assert driver.decisive.reason is EndReason.SUCCEEDED
    receipts = [view.receipt for view in driver.views if view.receipt is not None]
    assert sum((one.metered_cost_usd for one in receipts), Decimal(0)) <= Decimal("2.00")
    assert all(view.restored_from is not None for view in driver.views[1:])
    places = [(view.create_call.option, view.create_call.zone) for view in driver.views if view.create_call]
    assert all(one != after for one, after in itertools.pairwise(places))
    jobs = [one.guest.job for one in world.machines() if one.guest and one.guest.job]
    assert [job.order.argv for job in jobs] == [("train.py",), *[("train.py", "--resume", PROGRESS)] * 3]
    assert [job.secrets.get("COSTGPU_ATTEMPT") for job in jobs] == ["1", "2", "3", "4"]
    assert [job.secrets.get("COSTGPU_RESUME") for job in jobs] == [None, *[PROGRESS] * 3]
    done = [job.done_before for job in jobs]
    assert done[0] == 0
    assert sorted(done) == done
    worked = [job.finished_at - job.job_at for job in jobs if job.finished_at and job.job_at]
    assert sum(worked) == pytest.approx(1000, abs=1)  # each says goodbye with a checkpoint: nothing is done twice
    assert not (tmp_path / "runs" / "r1" / "checkpoints").exists()


def test_a_job_that_cannot_go_on_gets_no_fourth_machine(world: World) -> None:
    broken = JobScript(seconds=10.0, exit_code=3, saves=1e9)

    def after_the_first() -> None:
        world.cloud.script = broken

    world.cloud.schedule(150, after_the_first)
    driver = world.launch(**GOES_ON)
    world.check_over()
    assert len(world.machines()) == 4  # the first, and three that could not go on
    assert driver.decisive.reason is EndReason.JOB_FAILED
    assert driver.decisive.status is not None
    assert driver.decisive.status.exit_code == 3
    assert any("failed 3 times as soon as it went on" in note for note in world.who.notes)
    assert float((world.work / PROGRESS).read_bytes()) > 100  # the checkpoint is not lost


def test_after_a_machine_whose_gpu_does_not_answer_comes_another_one(world: World) -> None:
    good = world.cloud.machine

    def second_has_none() -> None:
        world.cloud.machine = replace(good, driver_seconds=NEVER)
        world.cloud.schedule(400, lambda: setattr(world.cloud, "machine", good))

    world.cloud.schedule(200, second_has_none)
    driver = world.launch(**GOES_ON, gpu=Accelerator(name="T4", count=1, memory_gib=16))
    world.check_over()
    assert [view.reason for view in driver.views][-2:] == [EndReason.DRIVER_FAILED, EndReason.SUCCEEDED]


def test_what_is_sent_is_what_was_there_at_the_beginning(world: World) -> None:
    sent: list[str] = []

    def edit() -> None:
        (world.work / "train.py").write_text("half of an edit")
        sent.append((world.folder / "runs/r1/sent/files/train.py").read_text())

    world.cloud.schedule(200, edit)
    world.launch(**GOES_ON)
    assert sent == ["train"]
    assert not (world.folder / "runs/r1/sent").exists()


def test_a_budget_keeps_a_job_waiting(world: World) -> None:
    exceeded = BudgetExceeded("The budget team is exceeded.")
    world.tools = replace(world.tools, refusal=lambda view: exceeded if view.is_later_attempt else None)
    with pytest.raises(BudgetExceeded) as caught:
        world.launch(**GOES_ON)
    assert "costgpu attach" in caught.value.hint
    assert world.view.waits
    world.tools = replace(world.tools, refusal=None)
    world.resume()
    world.check_over()


def test_from_the_queue_nobody_waits_for_a_machine(world: World) -> None:
    with pytest.raises(Detached):
        world.launch(**GOES_ON, detach=True)
    world.clock.sleep(350)
    world.cloud.no_capacity()
    world.reap()
    began = world.clock.monotonic()
    assert world.view.waits
    driver = adopt_job(world.view, world.book, world.tools, NullObserver(), {})
    driver.leave_when_running()
    driver.drive()
    assert world.clock.monotonic() - began < 60
    assert driver.view.waits
    assert driver.view.spec.attempt is not None
    assert driver.view.spec.attempt.searches == 1


def test_a_bucket_that_refuses_keeps_a_job_waiting(world: World) -> None:
    refused = AuthError("Access denied to s3://team/runs.")

    def refuses(*_: Any) -> Any:
        raise refused

    bucket: Any = SimpleNamespace(checkpoint=refuses, upload_urls=lambda _: {}, recover=lambda *_: None)
    world.tools = replace(world.tools, bucket=bucket)
    with pytest.raises(AuthError) as caught:
        world.launch(**GOES_ON, bucket="s3://team/runs")
    assert "costgpu attach" in caught.value.hint
    assert world.view.waits
    assert not world.cloud.alive()
