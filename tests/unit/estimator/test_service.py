"""A script as a service at a steady rate: machines, cost a month, use and waiting."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.cost import hourly_usd
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.service import as_served, plan, serve
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Candidate, Choice, Objective, Prediction, Provenance, Service
from costgpu.models.workload import Phase
from tests.unit.estimator import inferring
from tests.unit.estimator.advisable import gpu, host, product
from tests.unit.estimator.advisable import phase as training_phase

HERE = Candidate(offer=None)
T4, CPU = gpu("T4", 0.5), host(0.2)


def answered(rate: float, phase: Phase, *places: Candidate, objective: Objective = Objective.CHEAPEST) -> Service:
    profile = inferring.profile(phase)
    workload = prepare(profile, scope_of(profile, per_items=True), year=2026)
    offers = [predict(workload, place) for place in places or (T4, CPU)]
    found = serve(workload, rate, predict(workload, HERE), offers, objective)
    assert found is not None
    return found


def one(phase: Phase, place: Candidate = T4) -> Prediction:
    profile = inferring.profile(phase)
    return predict(prepare(profile, scope_of(profile, per_items=True), year=2026), place)


SCORING = one(inferring.scoring(1))


def test_machines_use_and_waiting_by_hand() -> None:
    """A unit of 100 ms, 26 items a second: 26 / 6.5 = 4 machines, each used 65 % of its time."""
    found = plan(one(inferring.scoring(1, seconds=0.1), HERE), 26.0)
    assert found.machines == 4
    assert found.utilisation == pytest.approx(0.65)
    assert found.wait_seconds == pytest.approx(0.65 / (2 * 10 * 0.35))
    assert found.answer_seconds == pytest.approx(found.wait_seconds + 0.1)
    assert found.usd_per_month.value == 0


@given(rate=st.floats(min_value=0.01, max_value=1e4))
def test_a_service_has_headroom_and_the_fewest_machines(rate: float) -> None:
    found = plan(SCORING, rate)
    assert found.utilisation <= 0.65 * (1 + 1e-6)
    assert found.machines == 1 or rate > 0.65 * found.capacity.value * (found.machines - 1)


def test_a_month_has_730_hours_of_all_machines() -> None:
    prediction = one(inferring.scoring(1))
    found = plan(prediction, 1000.0)
    assert found.machines > 1
    assert found.usd_per_month.value == pytest.approx(found.machines * 730 * hourly_usd(T4))
    assert found.usd_per_month.low <= found.usd_per_month.value <= found.usd_per_month.high
    assert found.utilisation == pytest.approx(1000 / (found.machines * found.capacity.value))


def test_a_batch_is_filled_before_it_is_computed_unless_items_can_come_alone() -> None:
    """64 images at 2 a second take 31.5 / 2 s to come on average: one by one they are answered sooner."""
    together = plan(one(inferring.scoring(64)), 2.0)
    assert together.wait_seconds >= 63 / 2 / 2
    found = answered(2.0, inferring.scoring(64))
    assert found.best_gpu.batch == 1
    assert found.best_gpu.answer_seconds < 1


def test_where_items_cannot_come_alone_the_wait_for_a_full_batch_is_explained() -> None:
    together = inferring.scoring(64)
    together = replace(together, unit=replace(together.unit, independent=False))
    assert any("waits until" in note for note in answered(2.0, together).notes)
    assert not any("waits until" in note for note in answered(2.0, inferring.scoring(64)).notes)


def test_a_load_that_needs_its_batches_keeps_them() -> None:
    found = answered(20_000.0, inferring.scoring(64))
    assert found.best_gpu.batch == 64


def test_little_load_is_a_cpu_s_and_much_of_it_a_gpu_s() -> None:
    """By the price of the machines that it takes, not by a rule."""
    little, much = answered(0.5, inferring.scoring(8)), answered(3000.0, inferring.scoring(8))
    assert (little.choice, much.choice) == (Choice.CPU, Choice.GPU)
    assert little.sentence.startswith("Serve 30 images/min on a CPU: 1 x aws cpu-8")
    assert "The best GPU is 1 x aws t4-1-8 (T4)" in little.sentence
    assert "This machine would carry it as well" in little.sentence
    assert "This machine" not in much.sentence
    assert much.here is None
    assert "autoscaling are not in it" in little.notes[0]


def test_costs_whose_intervals_leave_it_open_are_too_close_to_call() -> None:
    found = answered(500.0, inferring.scoring(8), T4, gpu("A10G", 1.0), host(0.02))
    assert found.best_cpu.usd_per_month.low < found.best_gpu.usd_per_month.high
    assert found.choice is Choice.TOO_CLOSE
    assert found.sentence.startswith("Too close to call on cost for 500 images/s: GPU ")


def test_one_side_or_none() -> None:
    assert "No GPU offer is possible" in answered(1.0, inferring.scoring(1), CPU).sentence
    nowhere = answered(1.0, inferring.scoring(1, model_bytes=10**12), T4)
    assert (nowhere.choice, nowhere.recommended) == (Choice.NOWHERE, None)
    assert nowhere.sentence == "No offer can serve 1 image/s."


def test_the_fastest_answers_soonest() -> None:
    found = answered(1.0, inferring.scoring(1), T4, gpu("A100", 4.0), CPU, objective=Objective.FASTEST)
    assert found.best_gpu is not None
    assert found.recommended is found.best_gpu


def test_a_batch_that_does_not_fit_is_served_by_median() -> None:
    large = inferring.scoring(512)
    large = replace(large, unit=replace(large.unit, activation_bytes=512 * 60_000_000))
    assert one(large).infeasible
    found = answered(5.0, large, T4)
    assert (found.best_gpu.batch, found.best_gpu.prediction.infeasible) == (1, "")


def test_what_is_trained_before_need_not_fit_the_service_s_machines() -> None:
    profile = inferring.profile(training_phase(product(512, 10), saved_tensor_bytes=10**12), inferring.scoring(1))
    workload = prepare(profile, scope_of(profile, per_items=True), year=2026)
    offer = predict(workload, T4)
    assert offer.infeasible
    found = serve(workload, 5.0, predict(workload, HERE), [offer])
    assert len(found.recommended.prediction.phases) == 1


def test_a_batch_that_never_ran_here_is_not_told_as_measured() -> None:
    found = answered(0.5, inferring.scoring(64))
    assert found.here.batch == 1
    assert found.here.prediction.provenance is Provenance.MODELLED
    assert found.here.capacity.high > 1.3 * found.here.capacity.value
    assert "(one by one, which was not measured)" in found.sentence
    measured = answered(0.5, inferring.scoring(1))
    assert measured.here.prediction.provenance is Provenance.MEASURED
    assert "not measured" not in measured.sentence


def test_spot_machines_are_said_to_be_for_batch_jobs() -> None:
    found = answered(5.0, inferring.scoring(1), gpu("T4", 0.2, spot=True))
    assert any("Spot" in note for note in found.notes)


def test_training_cannot_be_served() -> None:
    profile = inferring.profile(training_phase(product(512, 10)))
    workload = prepare(profile, scope_of(profile), year=2026)
    assert serve(workload, 5.0, predict(workload, HERE), [predict(workload, T4)]) is None


def test_the_verdict_becomes_the_service_s() -> None:
    profile = inferring.profile(inferring.scoring(8, None))
    scope = scope_of(profile, per_items=True)
    workload = prepare(profile, scope, year=2026)
    here, offers = predict(workload, HERE), [predict(workload, place) for place in (T4, CPU)]
    found = serve(workload, 0.5, here, offers)
    assert found is not None
    verdict = as_served(decide(scope, here, offers, Preferences(), ("kept",)), found)
    assert (verdict.sentence, verdict.choice) == (found.sentence, Choice.CPU)
    assert verdict.recommended is found.recommended.prediction
    assert verdict.notes == ("kept", *found.notes)
    assert verdict.pays_from == ()
