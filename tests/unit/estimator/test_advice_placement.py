"""Advice on places: spot, regions, other instances, preprocessing elsewhere, and what does not fit."""

from dataclasses import replace

import pytest

from costgpu.estimator.advice.advise import advise
from costgpu.estimator.advice.context import (
    PAIRED_SIGMA,
    cheapest_of_each_type,
    error_between,
    paired,
)
from costgpu.estimator.advice.placement import START_SECONDS
from costgpu.estimator.cost import CPU_READY_SECONDS, billed_usd, hourly_usd
from costgpu.estimator.predict import predict
from costgpu.estimator.verdict import Preferences
from costgpu.models.prediction import AdviceKind, Candidate, Choice
from costgpu.models.workload import Autocast, Extra, ExtraKind, Framework, Rhythm
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import (
    advice_of,
    by_kind,
    checkpoint,
    gpu,
    host,
    judged,
    loading,
    phase,
    predictions,
    product,
    profile,
    tiny,
    workload_of,
)
from tests.unit.estimator.builders import GIB

AMP = [Autocast(device="cuda", dtype="bfloat16", enabled=True)]
TUNED = Framework(version="2.6.0", python="3.11", cuda_build="12.4", autocast=AMP)
WORK = product(4096, 20)
A100, A10G, L4 = gpu("A100", 4.0), gpu("A10G", 1.0), gpu("L4", 0.7)
CPU_HOST = host()


# ------------------------------------------------------------------------------------------------------------- spot


def test_spot_for_a_script_with_checkpoints() -> None:
    saves = profile(phase(WORK, extras=[checkpoint()]), framework=TUNED)
    advice = by_kind(advice_of(saves, [A10G], spot=[gpu("A10G", 0.35, spot=True)]))[AdviceKind.SPOT]
    assert "saves checkpoints" in advice.action
    assert advice.share == pytest.approx(1 - 0.35 / 1.0 * 1.01, abs=0.02), "minutes of the work again"
    epoch = 10_000 * predict(workload_of(saves), A10G).step_seconds
    assert f"every {epoch / 60:.0f} min" in advice.notes[0]
    assert "1 s each, measured" in advice.notes[0]
    assert "best is every 6 min (Young/Daly)" in advice.notes[0], "sqrt(2 x 1 s x 20 h)"
    assert "an advisor, 2026-09-17" in advice.notes[1]


def test_spot_for_a_script_without_checkpoints_says_what_an_interruption_loses() -> None:
    advice = by_kind(advice_of(profile(phase(WORK), framework=TUNED), [A10G], spot=[gpu("A10G", 0.35, spot=True)]))
    assert "none was seen" in advice[AdviceKind.SPOT].action
    note = advice[AdviceKind.SPOT].notes[0]
    assert "Counted is a checkpoint every 6 min (Young/Daly), 1 s each (assumed)" in note
    assert "all since the start: 93 min and $0.57 on average" in note, "5,384 s and e^x"


def test_spot_for_a_job_that_would_not_come_to_its_end_without_checkpoints() -> None:
    """150 h on a machine that is taken back every 20 h: e^7.5 attempts, or checkpoints."""
    long = profile(phase(WORK, steps=10_000_000), framework=TUNED)
    advice = by_kind(advice_of(long, [A10G], spot=[gpu("A10G", 0.35, spot=True)]))[AdviceKind.SPOT]
    assert "would hardly come to its end" in advice.notes[0]
    assert advice.action.startswith("Spot with --recover 1"), "of the 7.6 interruptions that are left with checkpoints"
    assert advice.after.infeasible == ""
    assert advice.share == pytest.approx(1 - 0.35 * 1.02, abs=0.03)


def test_no_spot_where_interruptions_eat_the_saving() -> None:
    """Taken back every ten minutes, the next one needing two."""
    often = builders.interruption_rate(6.0)
    spot = replace(gpu("A10G", 0.7, spot=True), interruptions=often)
    saves = profile(phase(WORK, extras=[checkpoint()]), framework=TUNED)
    assert AdviceKind.SPOT not in by_kind(advice_of(saves, [A10G], spot=[spot]))


def test_a_checkpoint_at_the_end_is_none() -> None:
    saves = profile(phase(WORK, extras=[checkpoint(rhythm=Rhythm.RUN)]), framework=TUNED)
    advice = by_kind(advice_of(saves, [A10G], spot=[gpu("A10G", 0.35, spot=True)]))[AdviceKind.SPOT]
    assert "none was seen" in advice.action


def test_no_spot_that_saves_little_or_is_spot_already() -> None:
    one = profile(phase(WORK), framework=TUNED)
    assert advice_of(one, [A10G], spot=[gpu("A10G", 0.96, spot=True)]) == ()
    cheap = gpu("A10G", 0.35, spot=True)
    assert advice_of(one, [cheap], spot=[gpu("A10G", 0.1, spot=True)]) == ()


def test_another_accelerator_on_spot_must_be_surely_cheaper() -> None:
    """Errors of different accelerators do not cancel: a third of the cost does for it, an eighth less does not."""
    one = profile(phase(WORK), framework=TUNED)
    a100 = predict(workload_of(one), A100).run_seconds.value
    a10g = predict(workload_of(one), A10G).run_seconds.value
    same_cost = 1.0 * a10g / a100
    near = gpu("A100", round(same_cost * 0.88, 2), spot=True)
    assert advice_of(one, [A10G], spot=[near]) == ()
    far = gpu("A100", round(same_cost * 0.3, 2), spot=True)
    assert by_kind(advice_of(one, [A10G], spot=[far]))[AdviceKind.SPOT].after is not None


# ---------------------------------------------------------------------------------------- regions and other machines


def test_the_same_machine_in_a_cheaper_region() -> None:
    asked = gpu("A10G", 1.4, region="eu-west-1")
    found = advice_of(profile(phase(WORK), framework=TUNED), [asked], wider=[asked, A10G])
    advice = by_kind(found)[AdviceKind.REGION]
    assert "us-east-1" in advice.action
    assert advice.share == pytest.approx(0.4 / 1.4, abs=0.03)
    assert AdviceKind.OTHER_INSTANCE not in by_kind(found), "it is the same instance"


def test_no_region_that_was_weighed_already_or_saves_nothing() -> None:
    dear = gpu("A10G", 1.4, region="eu-west-1")
    tuned = profile(phase(WORK), framework=TUNED)
    assert advice_of(tuned, [A10G, dear], wider=[A10G, dear]) == ()
    assert advice_of(tuned, [A10G], wider=[A10G, gpu("A10G", 0.97, region="eu-west-1")]) == ()


def test_one_gpu_instead_of_four_of_which_the_script_uses_one() -> None:
    four = gpu("A10G", 4.5, count=4)
    advice = by_kind(advice_of(profile(phase(WORK), framework=TUNED), [four], wider=[four, A10G]))
    one = advice[AdviceKind.OTHER_INSTANCE]
    assert "1x A10G instead of 4x" in one.action
    assert "uses one" in one.action


def test_a_smaller_gpu_for_a_job_of_launches() -> None:
    """36 ms of launches on either: the A100 that was asked for is idle."""
    small = profile(phase(product(512, 5), tiny(3000)), framework=TUNED)
    advice = by_kind(advice_of(small, [A100], wider=[A100, A10G, L4]))[AdviceKind.OTHER_INSTANCE]
    assert advice.action.startswith("L4 instead of A100")
    assert any("waits for its host" in note for note in advice.notes)
    assert any("GiB" in note for note in advice.notes)


def test_a_smaller_host() -> None:
    large = gpu("A10G", 3.0, vcpus=64)
    advice = by_kind(advice_of(profile(phase(WORK), framework=TUNED), [large], wider=[large, A10G]))
    assert "smaller host for the A10G" in advice[AdviceKind.OTHER_INSTANCE].action


def test_no_smaller_gpu_for_a_job_that_needs_the_large_one() -> None:
    heavy = profile(phase(product(8192, 40)), framework=TUNED)
    slow_and_dear = gpu("T4", 1.0)
    assert advice_of(heavy, [gpu("A100", 1.5)], wider=[gpu("A100", 1.5), slow_and_dear]) == ()


# ---------------------------------------------------------------------------------------------------- preprocessing


def test_hours_of_preprocessing_belong_on_a_cheap_cpu_machine() -> None:
    hours = profile(phase(WORK), setup_seconds=3 * 3600.0, framework=TUNED)
    found = advice_of(hours, [A10G, CPU_HOST], wanted=Preferences(deadline_seconds=30 * 3600))
    advice = by_kind(found)[AdviceKind.PREPROCESSING]
    moved = 3 * 3600 - START_SECONDS
    rate = hourly_usd(CPU_HOST)
    assert advice.other_usd == pytest.approx(billed_usd(CPU_READY_SECONDS + moved, rate))
    assert advice.saving_usd == pytest.approx(moved * hourly_usd(A10G) / 3600 - advice.other_usd, abs=0.001)
    assert advice.saving_seconds == pytest.approx(-CPU_READY_SECONDS), "another machine boots"


def test_no_preprocessing_that_is_only_imports_or_without_a_cheap_machine() -> None:
    short = profile(phase(WORK), setup_seconds=START_SECONDS, framework=TUNED)
    assert advice_of(short, [A10G, CPU_HOST], wanted=Preferences(deadline_seconds=30 * 3600)) == ()
    long = profile(phase(WORK), setup_seconds=3 * 3600.0, framework=TUNED)
    assert advice_of(long, [A10G]) == (), "no CPU machine is on offer"
    dear = host(1.2)
    assert AdviceKind.PREPROCESSING not in by_kind(advice_of(long, [A10G, dear])), "a dear one"
    large = replace(long, peak_rss_bytes=60 * GIB)
    assert AdviceKind.PREPROCESSING not in by_kind(advice_of(large, [A10G, host(memory=32)])), "it does not hold it"


def test_work_before_every_epoch_done_once() -> None:
    again = Extra(kind=ExtraKind.EPOCH_START, seconds_each=1200.0, rhythm=Rhythm.EPOCH)
    one = profile(phase(WORK, extras=[again], data=loading(0.001, workers=2)), framework=TUNED)
    found = advice_of(one, [A10G, CPU_HOST], wanted=Preferences(deadline_seconds=30 * 3600))
    advice = by_kind(found)[AdviceKind.BETWEEN_EPOCHS]
    assert advice.saving_usd == pytest.approx(10 * 1200 * hourly_usd(A10G) / 3600 - advice.other_usd, abs=0.001)
    assert advice.at_most
    assert "persistent_workers=True" in advice.action


# ------------------------------------------------------------------------------------------------------ does not fit

LARGE = profile(phase(WORK, saved_tensor_bytes=40 * GIB), framework=TUNED, peak_rss_bytes=GIB)  # 26 GiB under AMP


def test_the_cheapest_accelerator_that_holds_it() -> None:
    a100, h100 = gpu("A100-80GB", 5.0), gpu("H100", 16.0)
    slow = replace(LARGE, phases=[replace(LARGE.phases[0], step=builders.step_times(40.0))])  # what two cores can do
    found = advice_of(slow, [A10G, CPU_HOST], wider=[A10G, a100, h100])
    advice = by_kind(found)[AdviceKind.DOES_NOT_FIT]
    assert "26.3 GiB" in advice.action
    assert advice.after.candidate == a100
    assert advice.saving_usd > 0, "against the CPU"


def test_where_nothing_else_is_possible_it_is_said_without_a_saving() -> None:
    a100 = gpu("A100-80GB", 5.0)
    workload = workload_of(LARGE)
    verdict, offers = judged(workload, [A10G], Preferences(deadline_seconds=40 * 3600))
    assert verdict.choice is Choice.NOWHERE
    wide = predictions(workload, [a100])
    (advice,) = advise(workload, verdict, offers, Preferences(deadline_seconds=40 * 3600), wider_offers=wide)
    assert advice.kind is AdviceKind.DOES_NOT_FIT
    assert (advice.before, advice.saving_usd, advice.after) == (None, 0.0, wide[0])


def test_several_accelerators_need_a_script_that_shards() -> None:
    huge = replace(LARGE, phases=[replace(LARGE.phases[0], saved_tensor_bytes=200 * GIB)])
    four, eight = gpu("A100-80GB", 20.0, count=4), gpu("A100-80GB", 33.0, count=8)
    found = advice_of(huge, [A10G, four, eight, CPU_HOST])
    advice = by_kind(found)[AdviceKind.DOES_NOT_FIT]
    assert four.offer.instance_type in advice.action
    assert advice.after is None
    assert any("shard" in note for note in advice.notes)
    assert (advice.saving_usd, advice.saving_seconds) == (0.0, 0.0)


def test_more_than_anything_on_offer() -> None:
    absurd = replace(LARGE, phases=[replace(LARGE.phases[0], saved_tensor_bytes=5000 * GIB)])
    advice = by_kind(advice_of(absurd, [A10G, gpu("A100-80GB", 33.0, count=8), CPU_HOST]))[AdviceKind.DOES_NOT_FIT]
    assert "together" in advice.action
    assert advice.after is None


def test_it_fits_so_nothing_is_said() -> None:
    assert AdviceKind.DOES_NOT_FIT not in by_kind(advice_of(LARGE, [A10G, gpu("A100-80GB", 5.0), CPU_HOST]))
    old = gpu("K80", 0.3)  # left out for its software, not for its memory
    assert AdviceKind.DOES_NOT_FIT not in by_kind(advice_of(profile(phase(WORK), framework=TUNED), [old, CPU_HOST]))


# -------------------------------------------------------------------------------------------------- the comparison


def test_errors_cancel_on_one_kind_of_machine() -> None:
    assert paired(A10G, gpu("A10G", 5.0, count=4))
    assert paired(CPU_HOST, host(0.8, 32))
    assert paired(Candidate(offer=None), Candidate(offer=None))
    assert not any(paired(A10G, place) for place in (A100, CPU_HOST, Candidate(offer=None)))
    workload = workload_of(profile(phase(WORK)))
    one, other = predictions(workload, [A10G, A100])
    assert error_between(one, one) == PAIRED_SIGMA
    assert error_between(one, other) == pytest.approx((one.sigma**2 + other.sigma**2) ** 0.5)


def test_one_place_of_each_type_is_weighed() -> None:
    workload = workload_of(profile(phase(WORK)))
    places = [A10G, gpu("A10G", 0.8, region="r2", type_="a10g-1-8"), gpu("A10G", 0.3, spot=True), Candidate(offer=None)]
    offers = predictions(workload, places)
    assert cheapest_of_each_type(offers, None) == (offers[1], offers[2])
    assert cheapest_of_each_type(offers, offers[0]) == (offers[0], offers[2]), "the recommended one stays"
    assert offers[0] in cheapest_of_each_type(offers[1:], offers[0])
