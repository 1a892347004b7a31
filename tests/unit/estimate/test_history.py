"""A prediction from runs that were measured."""

import math
import random
import statistics
from datetime import UTC, datetime

import pytest

from costgpu.estimate.cost import GPU_READY_SECONDS, billed_usd, hourly_usd
from costgpu.estimate.history import applies, as_measured
from costgpu.estimate.interval import Z80, sigma_of_runs
from costgpu.estimate.scope import Scope
from costgpu.models.prediction import MeasuredSpeed, Provenance
from tests.unit.estimate.test_verdict import EPOCH, WHOLE, cpu, gpu, verdict

AT = datetime(2026, 11, 20, tzinfo=UTC)


def speed(seconds: float = 1800.0, runs: int = 1, spread: float = 0.0, steps: float | None = None) -> MeasuredSpeed:
    return MeasuredSpeed(job_seconds=seconds, runs=runs, log_spread=spread, last_at=AT, steps=steps)


def half_width(found: MeasuredSpeed) -> float:
    return math.exp(Z80 * sigma_of_runs(found)) - 1


def test_what_was_measured_takes_the_place_of_the_model() -> None:
    modelled = gpu(3600.0, infeasible="out of memory, the model says")
    found = as_measured(modelled, speed(1800.0, 3))
    assert found.provenance is Provenance.MEASURED
    assert found.run_seconds.value == 1800.0
    assert found.wall_seconds.value == 1800.0 + GPU_READY_SECONDS
    assert found.cost_usd.value == pytest.approx(billed_usd(found.wall_seconds.value, hourly_usd(found.candidate)))
    assert found.cost_usd.low < found.cost_usd.value < found.cost_usd.high
    assert found.step_seconds == pytest.approx(modelled.step_seconds / 2)
    assert found.infeasible == ""
    assert found.notes == ("measured in 3 runs, last 2026-11-20",)
    assert as_measured(modelled, speed()).notes == ("measured in 1 run, last 2026-11-20",)


def test_it_decides_the_verdict() -> None:
    slow, quick = cpu(36_000.0), gpu(36_000.0)
    assert verdict([slow, quick]).recommended is slow
    found = verdict([slow, as_measured(quick, speed(3_600.0, 5))])
    assert found.recommended is not None
    assert found.recommended.candidate is quick.candidate
    assert "measured in 5 runs" in found.recommended.notes[0]


@pytest.mark.parametrize(
    ("steps", "wanted", "meant"),
    [
        (1000.0, WHOLE, True),
        (1005.0, WHOLE, True),  # told approximately
        (2000.0, WHOLE, False),
        (1000.0, EPOCH, False),  # a part of it
        (None, WHOLE, True),
        (None, Scope("the whole job", True, (2000.0,), (20.0,)), False),  # longer than the script makes it
    ],
)
def test_only_the_same_job_counts(steps: float | None, wanted: Scope, meant: bool) -> None:
    assert applies(speed(steps=steps), wanted, WHOLE) is meant


def test_a_script_of_unknown_length_was_not_this_long() -> None:
    assert not applies(speed(steps=None), WHOLE, EPOCH)


def test_the_interval_narrows_with_every_run_and_never_below_five_percent() -> None:
    widths = [half_width(speed(runs=runs, spread=0.01)) for runs in range(1, 9)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(0.15, abs=0.005)
    assert widths[2] == pytest.approx(0.08, abs=0.01)
    assert half_width(speed(runs=1000, spread=0.0)) == pytest.approx(0.05)
    assert half_width(speed(runs=5, spread=0.3)) > 0.3


@pytest.mark.parametrize("spread", [0.02, 0.06, 0.15])
@pytest.mark.parametrize("runs", [1, 2, 3, 5])
def test_the_interval_holds_as_often_as_it_says(spread: float, runs: int) -> None:
    """However steady the job is; only a single run can tell nothing of its spread."""
    random.seed(runs)
    held = 0
    for _ in range(2000):
        seen = [random.gauss(0, spread) for _ in range(runs)]
        found = speed(1.0, runs, statistics.stdev(seen) if runs > 1 else 0.0)
        held += abs(random.gauss(0, spread) - statistics.median(seen)) <= Z80 * sigma_of_runs(found)
    assert held / 2000 >= (0.45 if spread > 0.06 and runs == 1 else 0.77)


def test_nobody_is_told_to_measure_what_was_measured() -> None:
    slow, quick = cpu(36_000.0), gpu(19_000.0)
    assert "would settle it" in verdict([slow, quick]).sentence
    assert "would settle it" not in verdict([slow, as_measured(quick, speed(19_000.0, 3))]).sentence
