"""The number of steps of real scripts, found while they run, against the truth."""

from pathlib import Path

import pytest

from costgpu.models.workload import TotalKind
from tests.measure.harness import profile_of, request

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]


@pytest.mark.parametrize(
    ("script", "steps", "per_epoch"),
    [
        ("accumulation.py", 3000 * 10, None),
        ("while_counter.py", 600_001, None),
        ("gan.py", 400 * 100, 100),
        ("lbfgs.py", 7000, None),
        ("by_hand.py", 250 * 10, 10),
        ("same_name.py", 5000 * 100, 100),
    ],
)
def test_total_is_exact(script: str, steps: int, per_epoch: int | None, tmp_path: Path) -> None:
    profile, _ = profile_of(request(script, workdir=tmp_path), tmp_path)
    total = profile.phases[-1].total
    assert (total.kind, total.steps) == (TotalKind.EXACT, steps), total
    if per_epoch is not None:
        assert total.steps_per_epoch == per_epoch


def test_the_total_is_what_a_whole_run_takes(tmp_path: Path) -> None:
    arguments = ["--epochs", "5"]
    cut, _ = profile_of(request("loader.py", *arguments, workdir=tmp_path), tmp_path)
    whole, _ = profile_of(request("loader.py", *arguments, steps=None, workdir=tmp_path), tmp_path)
    assert not cut.ended
    assert whole.ended
    assert cut.phases[-1].total.steps == whole.phases[-1].steps_observed == 5 * 20


def test_two_phases_are_both_counted(tmp_path: Path) -> None:
    profile, _ = profile_of(request("two_phases.py", workdir=tmp_path), tmp_path)
    assert profile.phases[-1].total.steps == 2000 * 50
    assert [phase.steps for phase in profile.later_phases] == [3000 * 50]


def test_early_stopping_makes_an_upper_bound(tmp_path: Path) -> None:
    profile, _ = profile_of(request("early_stop.py", workdir=tmp_path), tmp_path)
    total = profile.phases[-1].total
    assert (total.kind, total.steps) == (TotalKind.UPPER_BOUND, 5000 * 20)
    assert "patience" in total.how


def test_an_endless_loop_is_called_unbounded(tmp_path: Path) -> None:
    profile, _ = profile_of(request("for_ever.py", workdir=tmp_path), tmp_path)
    assert profile.phases[-1].total.kind is TotalKind.UNBOUNDED


def test_two_optimizers_are_one_step_and_the_trace_holds_a_whole_turn(tmp_path: Path) -> None:
    profile, _ = profile_of(request("gan.py", workdir=tmp_path), tmp_path)
    phase = profile.phases[-1]
    assert phase.optimizers[0].updates_per_step == pytest.approx(1)
    assert phase.optimizers[1].updates_per_step == pytest.approx(0.2, rel=0.1)
    assert phase.trace_steps in (1, 5)


def test_workers_are_seen_and_ended(tmp_path: Path) -> None:
    profile, outcome = profile_of(request("loader.py", "--workers", "2", workdir=tmp_path), tmp_path)
    assert profile.phases[-1].data.workers == 2
    assert profile.phases[-1].data.fetch_seconds_per_batch is not None
    assert outcome.returncode == 0
