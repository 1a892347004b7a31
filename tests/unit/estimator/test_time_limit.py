"""Jobs that end by their own clock, and trainings whose length is not known: what is told of them."""

from dataclasses import replace

import pytest

from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Candidate, Choice, Prediction, Verdict
from costgpu.models.workload import Extra, ExtraKind, Rhythm, Total, TotalKind, WorkloadProfile
from costgpu.render.phrases import steps_phrase
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import MACHINE, gpu, host, phase, product

HERE, T4, CPU = Candidate(offer=None), gpu("T4", 0.5), host(0.2)
HOUR = 3600.0


def profile(total: Total, *, size: int = 1024, **facts: object) -> WorkloadProfile:
    trained = replace(phase(product(size, 50), steps=1000), total=total, **facts)  # type: ignore[arg-type]
    return builders.profile(trained, machine=MACHINE, setup_seconds=10.0)


def total(steps: float | None = None, seconds: float | None = 2 * HOUR, epoch: float | None = None) -> Total:
    kind = TotalKind.TIMED if steps is None else TotalKind.UPPER_BOUND
    return Total(kind=kind, steps=steps, steps_per_epoch=epoch, how="max_time=2 h", seconds=seconds)


def predictions(of: WorkloadProfile) -> list[Prediction]:
    workload = prepare(of, scope_of(of), year=2026)
    return [predict(workload, place) for place in (HERE, CPU, T4)]


def judged(of: WorkloadProfile, **wanted: float) -> Verdict:
    here, *offers = predictions(of)
    return decide(scope_of(of), here, offers, Preferences(**wanted), ())  # type: ignore[arg-type]


def test_a_clock_takes_the_same_time_on_every_machine_and_a_faster_one_makes_more_steps() -> None:
    here, cpu, fast = predictions(profile(total()))
    for one in (here, cpu, fast):
        assert one.time_limit.reached
        assert one.run_seconds.value == one.run_seconds.low == one.run_seconds.high == pytest.approx(2 * HOUR + 10)
        made = one.time_limit.steps
        assert made.value == pytest.approx(2 * HOUR / one.step_seconds, rel=1e-6)
        assert made.low < made.value < made.high
        assert sum(one.parts.values()) == pytest.approx(one.run_seconds.value)
    assert fast.cost_usd.value == pytest.approx((2 * HOUR + 10 + fast.overhead_seconds) / HOUR * 0.5, rel=0.1)


def test_work_beside_the_steps_takes_its_share_of_the_clock() -> None:
    plain, _, _ = predictions(profile(total()))
    validation = Extra(kind=ExtraKind.VALIDATION, seconds_each=plain.step_seconds, rhythm=Rhythm.STEPS, every=1.0)
    busy, _, _ = predictions(profile(total(), extras=[validation]))
    assert busy.run_seconds.value == pytest.approx(plain.run_seconds.value)
    assert busy.time_limit.steps.value == pytest.approx(plain.time_limit.steps.value / 2)


def test_of_steps_and_a_clock_the_first_ends_the_job() -> None:
    few, many = profile(total(steps=10)), profile(total(steps=1e9))
    for one in predictions(few):
        assert not one.time_limit.reached
        assert one.run_seconds.value < 2 * HOUR
        assert one.time_limit.steps.value == pytest.approx(10)
    for one in predictions(many):
        assert one.time_limit.reached
        assert one.run_seconds.high == pytest.approx(2 * HOUR + 10)
        assert one.time_limit.steps.high < 1e9
    assert "clock" not in judged(few).sentence


def test_what_pays_is_decided_by_the_steps_that_are_made_for_the_money() -> None:
    found = judged(profile(total()), deadline_seconds=3 * HOUR)
    assert found.choice is Choice.GPU
    assert found.best_gpu.cost_usd.value > found.best_cpu.cost_usd.value
    assert found.speedup is not None
    assert found.speedup > 3
    assert found.sentence.startswith("Its own clock ends it after 2.0 h on any machine. Run it on a GPU: ")
    assert found.sentence.endswith("times the steps of the CPU for 2.5x the price.")
    assert found.sentence.count("This machine makes ") == 1
    assert judged(profile(total()), deadline_seconds=HOUR).recommended is None


def test_the_number_of_steps_that_the_user_gives_may_end_it_first() -> None:
    of = profile(total(epoch=10.0))
    scope = scope_of(of, epochs=1)
    assert scope.steps == (10.0,)
    one = predict(prepare(of, scope, year=2026), HERE)
    assert one.run_seconds.value < 2 * HOUR
    assert scope.total_steps == 10.0
    assert scope_of(of).total_steps is None


def test_words_for_a_clock() -> None:
    assert steps_phrase(profile(total()).phases[0]) == "as many steps as 2.0 h allow"
    assert steps_phrase(profile(total(steps=500)).phases[0]) == "at most 500 steps, or 2.0 h"


def test_a_training_of_unknown_length_is_told_from_where_on_renting_pays() -> None:
    unknown = Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=100.0, how="")
    found = judged(profile(unknown))
    sooner, cheaper = found.pays_from
    assert (sooner.item, cheaper.item) == ("epoch", "epoch")
    assert sooner.against is found.here
    epoch = 100 * found.here.phases[-1].sustained_seconds.value
    assert sooner.seconds == pytest.approx(found.here.fixed_seconds + sooner.items * epoch)
    assert f"Up to {sooner.items:.0f}"[:6] in found.sentence
    assert "is done sooner, boot included" in found.sentence
    steps = judged(profile(replace(unknown, steps_per_epoch=None)))
    assert steps.pays_from[0].item == "step"
    assert steps.pays_from[0].items == pytest.approx(100 * sooner.items)
