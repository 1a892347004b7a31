"""What inference makes per second and what that costs: by hand, and what it is told for."""

import math
from dataclasses import replace

import pytest

from costgpu.estimator.cost import hourly_usd
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import Scope, scope_of
from costgpu.estimator.throughput import (
    inference_unit,
    measured_prefill_share,
    pays_from,
    price_quantity,
    quantity_words,
    throughputs,
)
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Candidate, Choice, Prediction, Throughput, Verdict
from costgpu.models.workload import Extra, ExtraKind, Phase, Rhythm, WorkloadProfile
from tests.unit.estimator import builders, inferring
from tests.unit.estimator.advisable import MACHINE, gpu, host, product
from tests.unit.estimator.advisable import phase as training_phase

HERE = Candidate(offer=None)
T4, CPU = gpu("T4", 0.5), host(0.2)


def predictions(of: WorkloadProfile, *places: Candidate, scope: Scope | None = None) -> list[Prediction]:
    workload = prepare(of, scope or scope_of(of), year=2026)
    return [predict(workload, place) for place in places]


def made(prediction: Prediction) -> dict[str, Throughput]:
    return {one.name: one for one in throughputs(prediction, prediction.phases[-1])}


def judged(of: WorkloadProfile, *places: Candidate) -> Verdict:
    here, *offers = predictions(of, HERE, *places)
    return decide(scope_of(of), here, offers, Preferences(), ())


def test_items_per_second_and_their_cost_by_hand() -> None:
    """64 images in 5.12 s; a machine of so much an hour needs 80 ms for one."""
    here, there = predictions(inferring.profile(inferring.scoring(64)), HERE, CPU)
    assert made(here)["image"].per_second.value == pytest.approx(12.5)
    assert made(here)["image"].usd_each.value == 0
    rate = made(there)["image"]
    assert rate.usd_each.value == pytest.approx(hourly_usd(CPU) / 3600 / rate.per_second.value)
    assert rate.per_second.low < rate.per_second.value < rate.per_second.high
    assert rate.usd_each.low < rate.usd_each.value < rate.usd_each.high


def test_boot_and_set_up_are_in_the_job_and_not_in_an_item() -> None:
    (short,) = predictions(inferring.profile(inferring.scoring(64, 10)), T4)
    (long,) = predictions(inferring.profile(inferring.scoring(64, 10_000), setup_seconds=500.0), T4)
    assert made(short)["image"] == made(long)["image"]
    assert short.fixed_seconds == pytest.approx(short.overhead_seconds + 10)
    assert long.fixed_seconds == pytest.approx(long.overhead_seconds + 500)


def test_work_beside_the_units_that_recurs_is_in_the_rate() -> None:
    """5 s after every tenth batch of 5.12 s, and a report at the end that comes once."""
    saves = Extra(kind=ExtraKind.CHECKPOINT, seconds_each=5.0, rhythm=Rhythm.STEPS, every=10.0)
    report = Extra(kind=ExtraKind.OTHER, seconds_each=60.0, rhythm=Rhythm.RUN)
    (here,) = predictions(inferring.profile(inferring.scoring(64, extras=[saves, report])), HERE)
    assert made(here)["image"].per_second.value == pytest.approx(64 / (5.12 + 0.5))
    assert here.phases[-1].step_seconds.value == pytest.approx(5.12)


def test_a_spot_price_may_end_at_the_on_demand_price() -> None:
    spot = replace(gpu("T4", 0.2, spot=True), on_demand_usd_per_hour=T4.offer.price_usd_per_hour if T4.offer else None)
    cheap, dear = predictions(inferring.profile(inferring.scoring()), spot, T4)
    assert made(cheap)["image"].usd_each.value < made(dear)["image"].usd_each.value
    assert made(cheap)["image"].usd_each.high == pytest.approx(made(dear)["image"].usd_each.high)


def test_tokens_in_and_out_have_their_own_seconds() -> None:
    """Together they take what the unit takes; the whole of a prompt's cost is that of its tokens."""
    (there,) = predictions(inferring.profile(inferring.chat(batch=4)), T4)
    rates = made(there)
    assert list(rates) == ["prompt", "input token", "output token"]
    seconds = 4 * 256 / rates["input token"].per_second.value + 4 * 128 / rates["output token"].per_second.value
    assert seconds == pytest.approx(there.phases[-1].step_seconds.value)
    usd = 256 * rates["input token"].usd_each.value + 128 * rates["output token"].usd_each.value
    assert usd == pytest.approx(rates["prompt"].usd_each.value)
    assert rates["input token"].per_second.value > 5 * rates["output token"].per_second.value


def test_the_share_of_the_prefill_here_is_the_measured_one() -> None:
    phase = inferring.chat()
    prefill, decode = 4 * 0.4, 4 * 0.01
    assert measured_prefill_share(phase) == pytest.approx(prefill / (prefill + 127 * decode))
    untimed = replace(phase, ops=[replace(row, seconds=0.0) for row in phase.ops])
    assert measured_prefill_share(untimed) is None
    (here,) = predictions(inferring.profile(untimed), HERE)
    assert list(made(here)) == ["prompt", "output token"]
    assert made(here)["output token"].per_second.value == pytest.approx(128 / 20)


def test_beams_make_one_answer() -> None:
    phase = inferring.chat(batch=2)
    assert phase.unit.generation is not None
    beams = replace(phase.unit, generation=replace(phase.unit.generation, sequences=8.0))
    unit = inference_unit(replace(phase, unit=beams))
    assert (unit.items, unit.output_tokens) == (2, 2 * 128)


def test_units_are_counted_where_items_are_not_known() -> None:
    phase = inferring.scoring()
    unknown = replace(phase, unit=replace(phase.unit, items=None))
    unit, call = inference_unit(unknown), inference_unit(replace(unknown, unit=replace(unknown.unit, name="step")))
    assert (unit.item, unit.items) == ("batch", 1.0)
    assert call.item == "call"
    assert inference_unit(training_phase()) is None


def test_the_cheapest_items_are_priced_by_the_million() -> None:
    (there,) = predictions(inferring.profile(inferring.scoring()), T4)
    dear = made(there)["image"]
    cheap = replace(dear, usd_each=dear.usd_each.times(1e-4))
    assert (price_quantity([dear]), price_quantity([dear, cheap])) == (1e3, 1e6)
    assert quantity_words("image", 1e3) == "1,000 images"
    assert quantity_words("output token", 1e6) == "million output tokens"


# ----------------------------------------------------------------------------------------------- unknown number of items


def endless(batch: int = 8) -> Phase:
    return inferring.scoring(batch, None)


def test_without_a_total_the_amounts_are_for_a_thousand_items() -> None:
    scope = scope_of(inferring.profile(endless(8)))
    assert (scope.unit, scope.whole, scope.steps) == ("1,000 images", False, (125.0,))
    assert scope_of(inferring.profile(inferring.scoring()), per_items=True).unit == "1,000 images"
    before = scope_of(inferring.profile(training_phase(product(512, 1)), endless(8)))
    assert before.steps == (0.0, 125.0)
    assert "not in these amounts" in before.notes[0]


def test_no_minimum_charge_is_in_the_cost_of_a_thousand_items() -> None:
    """They take a few seconds of a machine that runs for longer."""
    (there,) = predictions(inferring.profile(endless(64)), T4)
    assert there.run_seconds.value < 60
    assert there.cost_usd.value == pytest.approx(1000 * made(there)["image"].usd_each.value)


def test_from_how_many_items_on_a_boot_pays_by_hand() -> None:
    here, there, cpu = predictions(inferring.profile(endless(8)), HERE, T4, CPU)
    sooner, cheaper = pays_from(there, here), pays_from(there, cpu)
    each, each_here = (p.phases[-1].step_seconds.value / 8 for p in (there, here))
    assert there.fixed_seconds + sooner.items * each == pytest.approx(here.fixed_seconds + sooner.items * each_here)

    def usd(place: Prediction, items: float) -> float:
        seconds = place.fixed_seconds + items * place.phases[-1].step_seconds.value / 8
        return seconds * hourly_usd(place.candidate)

    assert cheaper.items > 0
    assert usd(there, cheaper.items) == pytest.approx(usd(cpu, cheaper.items))
    slower = pays_from(cpu, there)
    assert slower.items == math.inf


def test_the_answer_of_an_endless_loop_says_when_renting_pays() -> None:
    verdict = judged(inferring.profile(endless(64)), T4, CPU)
    assert verdict.choice is Choice.GPU
    assert "for 1,000 images: " in verdict.sentence
    assert "images/s. From " in verdict.sentence
    assert "done sooner than this machine, boot included" in verdict.sentence
    assert [one.against.candidate.offer is None for one in verdict.pays_from] == [True, False]


# ------------------------------------------------------------------------------------------------------------- the answer


def test_the_answer_of_a_job_has_its_rate_and_what_a_thousand_cost() -> None:
    verdict = judged(inferring.profile(inferring.scoring(64, 200_000)), T4, CPU)
    assert verdict.choice is Choice.GPU
    assert " images/s, $" in verdict.sentence
    assert " per 1,000 images. " in verdict.sentence
    assert verdict.pays_from == ()
    tokens = judged(inferring.profile(inferring.chat(8, 100_000, dtype="float32")), gpu("A100", 0.8), host(2.0))
    assert " output tokens/s, " in tokens.sentence
    assert " per million output tokens, " in tokens.sentence
    assert " per million input tokens" in tokens.sentence


def test_training_has_no_throughput() -> None:
    (there,) = predictions(builders.profile(training_phase(product(512, 10)), machine=MACHINE), T4)
    assert throughputs(there, there.phases[-1]) == ()
    assert pays_from(there, there) is None


def test_a_script_that_trains_and_then_scores_is_the_sum_of_its_phases() -> None:
    train = training_phase(product(1024, 50), steps=5000)
    both = inferring.profile(train, inferring.scoring(64, 300))
    (there,) = predictions(both, T4)
    assert there.parts["training"] + there.parts["inference"] == pytest.approx(sum(p.seconds for p in there.phases))
    assert there.run_seconds.value == pytest.approx(sum(p.seconds for p in there.phases) + 10)
    alone = [predictions(inferring.profile(phase), T4)[0] for phase in both.phases]
    for phase, single in zip(there.phases, alone, strict=True):
        assert phase.seconds == pytest.approx(single.phases[0].seconds)
    low, high = (there.run_seconds.low / there.run_seconds.value, there.run_seconds.high / there.run_seconds.value)
    assert max(p.run_seconds.low / p.run_seconds.value for p in alone) >= low
    assert min(p.run_seconds.high / p.run_seconds.value for p in alone) <= high + 1e-9


def test_the_memory_of_phases_is_that_of_the_largest() -> None:
    big = replace(inferring.scoring(), model_bytes=20 * 2**30)
    small = training_phase(product(512, 1))
    assert "GiB of accelerator memory" in predictions(inferring.profile(small, big), T4)[0].infeasible
    assert predictions(inferring.profile(small, inferring.scoring()), T4)[0].infeasible == ""
