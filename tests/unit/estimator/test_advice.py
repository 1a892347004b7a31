"""Advice: where the right one is known, where none must be given, and that a saving is what the prediction then says.

The properties at the end hold for any mixture of what limits a job. One long file: every kind of advice is a few cases
of the same few workloads, and reads best beside the others.
"""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.advice.advise import advise
from costgpu.estimator.advice.changes import (
    HANDOVER_SECONDS,
    WORKER_START_SECONDS,
    with_batch,
    with_workers,
    worker_seconds,
)
from costgpu.estimator.advice.context import MIN_PROBABILITY, MIN_SAVED_SECONDS, MIN_SAVED_SHARE, MIN_SAVED_USD
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.resize import weight_bytes
from costgpu.estimator.scope import scope_of
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Advice, AdviceKind, Candidate, Choice, MeasuredSpeed, Objective
from costgpu.models.workload import Autocast, Framework, GpuPath, OpRow, Phase, Total, TotalKind, WorkloadProfile
from tests.properties import examples
from tests.unit.estimator.advisable import (
    MIB,
    YEAR,
    advice_of,
    by_kind,
    framework,
    gpu,
    host,
    judged,
    loading,
    phase,
    predictions,
    product,
    profile,
    tensor,
    tiny,
    workload_of,
)
from tests.unit.estimator.builders import GIB

A100, A10G, T4, V100 = gpu("A100", 4.0), gpu("A10G", 1.0), gpu("T4", 0.5), gpu("V100", 2.0)
CPU_HOST = host()
HEAVY = product(4096, 20)  # 2.7 TFLOP a step: arithmetic decides
AMP = Autocast(device="cuda", dtype="bfloat16", enabled=True)


def kinds(advice: tuple[Advice, ...]) -> set[AdviceKind]:
    return {one.kind for one in advice}


# ------------------------------------------------------------------------------------------------------- precision


def test_idle_tensor_cores_of_an_ampere_get_bf16() -> None:
    found = by_kind(advice_of(profile(phase(HEAVY)), [A100, CPU_HOST]))
    advice = found[AdviceKind.MIXED_PRECISION]
    assert "bfloat16" in advice.action
    assert advice.share > 0.5, "312 TFLOP/s instead of 19.5"


def test_a_turing_gets_fp16_and_a_scaler() -> None:
    advice = by_kind(advice_of(profile(phase(HEAVY)), [T4, CPU_HOST]))[AdviceKind.MIXED_PRECISION]
    assert "float16" in advice.action
    assert "bfloat16" not in advice.action
    assert "GradScaler" in advice.action


MIXED, TF32 = AdviceKind.MIXED_PRECISION, AdviceKind.TF32


@pytest.mark.parametrize(
    ("asked", "place", "expected"),
    [
        (framework(), A100, {MIXED, TF32}),
        (framework(), A10G, {MIXED}),  # 35 TFLOP/s in TF32 as in fp32
        (framework(), V100, {MIXED}),  # it has no TF32
        (framework(), gpu("P100", 1.0), set()),
        (framework(autocast=[AMP]), A100, set()),
        (framework(autocast=[replace(AMP, dtype="float16")]), A100, set()),
        (framework(float32_matmul_precision="high", autocast=[AMP]), A100, set()),
        (framework(float32_matmul_precision="high"), A100, {MIXED}),
        (framework(matmul_tf32=True), A100, {MIXED}),
        (framework(autocast=[replace(AMP, enabled=False)]), A100, {MIXED, TF32}),
        (framework(autocast=[replace(AMP, device="cpu")]), A100, {MIXED, TF32}),
        (framework(name="keras (torch)"), A100, set()),  # which chooses it in other words
    ],
)
def test_precision_is_advised_where_it_is_faster_and_not_asked_for(
    asked: Framework, place: Candidate, expected: set[AdviceKind]
) -> None:
    assert kinds(advice_of(profile(phase(HEAVY), framework=asked), [place, CPU_HOST])) == expected


def test_no_mixed_precision_for_a_model_in_half_already() -> None:
    one = tensor(4096, 4096, dtype="bfloat16")
    moves = OpRow(op="aten::mul", phase="forward", inputs=[one, one], outputs=[one], count=500)
    half = phase(product(4096, 20, "bfloat16"), moves)
    assert AdviceKind.MIXED_PRECISION not in kinds(advice_of(profile(half), [A100, CPU_HOST]))


def test_no_mixed_precision_where_its_casts_cost_what_it_saves() -> None:
    """Half the bytes would save a little; a cast for each of 1,000 gradients costs more."""
    many = phase(product(2048, 20), optimizers=[replace(phase().optimizers[0], tensors=1000)])
    workload = workload_of(profile(many))
    place = predictions(workload, [A10G])[0]
    half = predict(workload_of(replace(profile(many), framework=framework(autocast=[AMP]))), A10G)
    assert half.cost_usd.value < 0.95 * place.cost_usd.value, "the prediction alone would advise it"
    assert AdviceKind.MIXED_PRECISION not in kinds(advice_of(profile(many), [A10G, CPU_HOST]))


# ---------------------------------------------------------------------------------------------------------- loading


def test_a_step_that_waits_for_data_gets_workers_and_a_bound() -> None:
    slow = profile(phase(product(2048, 10), data=loading(0.4, workers=1)))
    advice = by_kind(advice_of(slow, [A10G]))[AdviceKind.WORKERS]
    assert "instead of 1" in advice.action
    assert any("loading" in note and "no GPU" in note for note in advice.notes)
    assert advice.share > 0.4


def test_workers_come_with_a_host_that_has_the_cores() -> None:
    small, large = gpu("A10G", 1.0, vcpus=4), gpu("A10G", 1.4, vcpus=32)
    slow = profile(phase(product(2048, 10), data=loading(0.8, workers=2)))
    advice = by_kind(advice_of(slow, [small, large]))[AdviceKind.WORKERS]
    assert (advice.before.candidate, advice.after.candidate) == (small, large)
    assert "on a host with 32 vCPUs" in advice.action


def test_no_more_workers_than_do_nearly_the_same() -> None:
    """The step takes 90 ms: four workers make a batch every 50 ms."""
    slow = profile(phase(product(4096, 9), data=loading(0.2, workers=1)), framework=framework(autocast=[]))
    advice = by_kind(advice_of(slow, [gpu("A10G", 1.0, vcpus=64), CPU_HOST]))[AdviceKind.WORKERS]
    assert advice.action.startswith(("2 ", "4 "))


@pytest.mark.parametrize(
    "data",
    [
        loading(0.001, workers=2),
        replace(loading(0.4), fetch_seconds_per_batch=None, wait_seconds_per_step=0.3),
        replace(loading(0.4), batches_per_step=0),
    ],
)
def test_no_workers_where_loading_hides_or_is_not_a_loaders(data: Any) -> None:
    assert AdviceKind.WORKERS not in kinds(advice_of(profile(phase(HEAVY, data=data)), [A10G, CPU_HOST]))


def test_no_workers_where_the_host_has_no_core_for_them() -> None:
    slow = profile(phase(product(2048, 10), data=loading(0.4, workers=2)))
    assert AdviceKind.WORKERS not in kinds(advice_of(slow, [gpu("A10G", 1.0, vcpus=4), CPU_HOST]))


def test_mixed_precision_behind_slow_loading_is_worth_something_only_together() -> None:
    slow = profile(phase(HEAVY, data=loading(1.0, workers=4)))
    found = by_kind(advice_of(slow, [gpu("A100", 4.0, vcpus=32)]))
    assert AdviceKind.MIXED_PRECISION not in found, "the data come no faster"
    both = found[AdviceKind.TOGETHER]
    assert "workers" in both.action
    assert "mixed precision" in both.action
    assert both.saving_usd > found[AdviceKind.WORKERS].saving_usd


def test_the_scripts_own_python_is_named_with_its_share() -> None:
    chatty = profile(phase(product(2048, 10), host_seconds_per_step=0.2))
    advice = by_kind(advice_of(chatty, [A10G]))[AdviceKind.HOST_PYTHON]
    assert advice.at_most
    assert "95 %" in advice.action or "96 %" in advice.action
    assert AdviceKind.HOST_PYTHON not in kinds(advice_of(profile(phase(HEAVY)), [A10G, CPU_HOST]))


def test_what_workers_cost_beside_their_work() -> None:
    """Each is started in every epoch; batches are handed over; without a GPU, training wants the same cores."""
    slow = workload_of(profile(phase(HEAVY, steps=1000, epochs=10, data=loading(0.4, workers=2))))
    there, on_cpu = predictions(slow, [A10G, CPU_HOST])
    assert worker_seconds(slow, 8, there) == pytest.approx(6 * 10 * WORKER_START_SECONDS)
    assert worker_seconds(slow, 8, on_cpu) == pytest.approx(6 * 10 * WORKER_START_SECONDS + 1000 * 0.4 / 4)
    assert worker_seconds(slow, 2, there) == 0, "it has two"
    none = workload_of(profile(phase(HEAVY, steps=1000, epochs=10, data=loading(0.4, workers=0))))
    assert worker_seconds(none, 1, there) == pytest.approx(10 * WORKER_START_SECONDS + 1000 * HANDOVER_SECONDS)


# ---------------------------------------------------------------------------------------------------------- batches

LAUNCHES = tiny(3000)  # 36 ms of launches


def test_launches_are_spread_over_a_larger_batch() -> None:
    small = profile(phase(product(512, 5), LAUNCHES, data=loading(1e-6, size=20)))
    advice = by_kind(advice_of(small, [T4, CPU_HOST]))[AdviceKind.LARGER_BATCH]
    assert advice.at_most
    assert "(80)" in advice.action or "(160)" in advice.action
    assert any("learning rate" in note for note in advice.notes)


def test_no_larger_batch_without_the_memory_or_the_launches() -> None:
    full = profile(phase(product(512, 5), LAUNCHES, saved_tensor_bytes=8 * GIB))
    assert AdviceKind.LARGER_BATCH not in kinds(advice_of(full, [T4, CPU_HOST])), "16 GiB less the margin hold one"
    assert AdviceKind.LARGER_BATCH not in kinds(advice_of(profile(phase(HEAVY)), [T4, CPU_HOST])), "arithmetic decides"
    blind = profile(phase(product(512, 5), LAUNCHES, saved_tensor_bytes=0))
    assert AdviceKind.LARGER_BATCH not in kinds(advice_of(blind, [T4, CPU_HOST])), "its memory is not known"


def test_bytes_of_weights_do_not_grow_with_the_batch() -> None:
    """A layer of 512 x 256 on 20 samples: weight in, gradient out; activations are told by their other shapes."""
    weight, inner, out = tensor(512, 256), tensor(20, 256), tensor(20, 512)
    layer = OpRow(op="aten::mm", phase="forward", inputs=[inner, tensor(256, 512)], outputs=[out], count=2)
    back = OpRow(op="aten::mm", phase="backward", inputs=[tensor(512, 20), inner], outputs=[weight], count=2)
    update = OpRow(op="aten::add_", phase="optimizer", inputs=[weight, weight], outputs=[weight], count=2)
    view = OpRow(op="aten::view", phase="forward", inputs=[weight], outputs=[weight], count=2)
    one = phase(layer, back, update, view, trace_steps=2)
    assert weight_bytes(one) == 2 * 4 * 512 * 256
    base = workload_of(profile(one))
    four = with_batch(base, 4)
    rest = base.units[0].work.bytes_moved - weight_bytes(one)
    assert four.units[0].work.bytes_moved == pytest.approx(weight_bytes(one) + 4 * rest)
    assert four.units[0].work.total_flops == 4 * base.units[0].work.total_flops
    assert four.units[0].work.kernels == base.units[0].work.kernels
    assert list(four.scope.steps) == [25_000]
    sized = replace(one, data=replace(one.data, batch_size=256))
    assert weight_bytes(sized) == 0, "what is it, a weight or a batch?"


def test_gradient_accumulation_is_given_up_before_the_training_is_changed() -> None:
    parts = profile(phase(product(512, 5), LAUNCHES, micro_batches=4.0))
    found = by_kind(advice_of(parts, [T4, CPU_HOST]))
    assert "4 times as large" in found[AdviceKind.FEWER_ACCUMULATIONS].action
    assert not found[AdviceKind.FEWER_ACCUMULATIONS].at_most
    assert AdviceKind.LARGER_BATCH not in found


def test_as_few_accumulations_as_the_memory_allows() -> None:
    parts = profile(phase(product(512, 5), LAUNCHES, micro_batches=4.0, saved_tensor_bytes=5 * GIB))
    advice = by_kind(advice_of(parts, [T4, CPU_HOST]))[AdviceKind.FEWER_ACCUMULATIONS]
    assert "2 times as large" in advice.action
    assert "2 accumulations instead of 4" in advice.action


# ---------------------------------------------------------------------------------------------- none, and the limits


def test_nothing_to_say_of_a_job_that_has_it_all() -> None:
    tuned = profile(phase(HEAVY, data=loading(0.01, workers=4)), framework=framework(autocast=[AMP]))
    assert advice_of(tuned, [A100, A10G, CPU_HOST]) == ()


def test_nothing_below_a_cent() -> None:
    short = profile(phase(product(4096, 20), steps=100))
    workload = workload_of(short)
    verdict, offers = judged(workload, [A100, CPU_HOST], Preferences(objective=Objective.FASTEST))
    assert verdict.choice is not Choice.HERE
    for one in advise(workload, verdict, offers, Preferences(objective=Objective.FASTEST)):
        assert one.saving_usd >= MIN_SAVED_USD


def test_of_an_epoch_only_the_share_counts() -> None:
    """No total is known: 1,500 steps are an epoch of which a saved cent would be a lot."""
    total = Total(kind=TotalKind.UNKNOWN, steps=None, steps_per_epoch=1500, how="")
    workload = workload_of(profile(phase(product(2048, 20), total=total)))
    assert workload.scope.unit == "one epoch"
    verdict, offers = judged(workload, [T4])
    advice = by_kind(advise(workload, verdict, offers, Preferences()))[AdviceKind.MIXED_PRECISION]
    assert 0 < advice.saving_usd < 2 * MIN_SAVED_USD
    assert advice.share > MIN_SAVED_SHARE


@pytest.mark.parametrize("path", [GpuPath.TABLE, GpuPath.NONE, GpuPath.COUNTED])
def test_what_was_not_traced_gets_no_advice_on_its_arithmetic(path: GpuPath) -> None:
    untraced = profile(
        phase(gpu=path, trace_steps=0, kind="gradient-boosted-trees"), framework=framework(name="xgboost")
    )
    cheap = (
        replace(CPU_HOST.offer, price_usd_per_hour=CPU_HOST.offer.price_usd_per_hour / 3) if CPU_HOST.offer else None
    )
    found = advice_of(untraced, [A10G, CPU_HOST], spot=[replace(CPU_HOST, offer=_spot(cheap))])
    assert kinds(found) <= {AdviceKind.SPOT}


def _spot(one: Any) -> Any:
    from costgpu.models.offer import PurchaseOption

    return replace(one, purchase_option=PurchaseOption.SPOT)


# ------------------------------------------------------------------------------------------------------ this machine


def waiting_here(steps: float) -> WorkloadProfile:
    """20 ms of training and 40 ms of loading a step, on two cores of which training uses one."""
    facts = profile(phase(product(512, 3), steps=steps, data=loading(0.04, wait=0.04)))
    step = replace(facts.phases[0].step, median_seconds=0.06, mean_seconds=0.06, low_seconds=0.06, high_seconds=0.06)
    return replace(facts, phases=[replace(facts.phases[0], step=step)], machine=replace(facts.machine, threads=1))


def test_where_it_costs_nothing_time_counts() -> None:
    workload = workload_of(waiting_here(9000))
    verdict, offers = judged(workload, [A10G, CPU_HOST])
    assert verdict.choice is Choice.HERE
    (advice,) = advise(workload, verdict, offers, Preferences())
    assert advice.kind is AdviceKind.WORKERS
    assert advice.saving_usd == 0
    assert advice.saving_seconds == pytest.approx(9000 * 0.02, rel=0.6)
    assert advice.saving_seconds >= max(MIN_SAVED_SECONDS, MIN_SAVED_SHARE * verdict.here.wall_seconds.value)
    assert advice.after.candidate.offer is None


def test_a_small_gain_of_workers_that_share_the_cores_is_not_said() -> None:
    """Training keeps both cores busy: of 60 ms 12 ms could be saved, which is within the error."""
    facts = waiting_here(9000)
    busy = replace(facts.phases[0], data=loading(0.024, wait=0.024))
    workload = workload_of(replace(facts, phases=[busy], machine=replace(facts.machine, threads=2)))
    here = Candidate(offer=None)
    now, then = predict(workload, here), predict(with_workers(workload, 2), here)
    assert then.wall_seconds.value / now.wall_seconds.value == pytest.approx(0.8, abs=0.02)
    verdict, offers = judged(workload, [A10G, CPU_HOST])
    assert verdict.choice is Choice.HERE
    assert advise(workload, verdict, offers, Preferences()) == ()


@pytest.mark.parametrize(
    "measured",
    [
        replace(
            waiting_here(9000), machine=replace(waiting_here(9000).machine, gemm_gflops_low=60)
        ),  # neighbours' cores
        waiting_here(1000),  # less than a minute could be saved
        replace(waiting_here(9000), ended=True, wall_seconds=550.0),
    ],
)
def test_nothing_is_said_of_workers_here(measured: WorkloadProfile) -> None:
    workload = workload_of(measured)
    verdict, offers = judged(workload, [A10G, CPU_HOST])
    assert verdict.choice is Choice.HERE
    assert advise(workload, verdict, offers, Preferences()) == ()


# --------------------------------------------------------------------------------------------- what the ledger knows


def test_a_saving_is_of_the_measured_run_where_there_is_one() -> None:
    """It took twice what the model says: the changed job is taken to take twice its prediction, too."""
    workload = workload_of(profile(phase(HEAVY)))
    modelled = predict(workload, A10G)
    speed = MeasuredSpeed(
        job_seconds=2 * modelled.run_seconds.value,
        runs=3,
        log_spread=0.02,
        last_at=datetime(2026, 11, 1, tzinfo=UTC),
        steps=100_000,
    )
    offers = [predict(workload, A10G, speed)]
    verdict = decide(workload.scope, predict(workload, Candidate(offer=None)), offers, Preferences(), ())
    assert verdict.recommended is offers[0]
    advice = by_kind(advise(workload, verdict, offers, Preferences()))[AdviceKind.MIXED_PRECISION]
    plain = by_kind(advice_of(profile(phase(HEAVY)), [A10G]))[AdviceKind.MIXED_PRECISION]
    assert advice.after.run_seconds.value == pytest.approx(2 * plain.after.run_seconds.value)
    assert advice.saving_usd == pytest.approx(2 * plain.saving_usd, rel=0.01)


# ----------------------------------------------------------------------------------------------------- any workload


def profiles() -> st.SearchStrategy[WorkloadProfile]:
    """Any mixture of arithmetic, launches, loading, Python, accumulation and precision."""

    def build(
        size: int,
        count: int,
        launches: int,
        fetch: float,
        workers: int,
        python: float,
        micro: int,
        saved: int,
        setup: float,
        half: bool,
    ) -> WorkloadProfile:
        one = phase(
            product(size, count),
            tiny(launches),
            host_seconds_per_step=python,
            micro_batches=float(micro),
            saved_tensor_bytes=saved,
            data=loading(fetch, workers, wait=min(fetch, 1.0 - python)),  # a step takes one second
        )
        return profile(one, setup_seconds=setup, framework=framework(autocast=[AMP] if half else []))

    return st.builds(
        build,
        st.sampled_from([128, 512, 2048, 4096]),
        st.integers(1, 30),
        st.integers(1, 5000),
        st.floats(1e-4, 1),
        st.integers(0, 8),
        st.floats(0, 0.5),
        st.sampled_from([1, 2, 3, 4, 8]),
        st.sampled_from([0, MIB, 3 * GIB, 30 * GIB]),
        st.floats(0, 20_000),
        st.booleans(),
    )


PLACES = [
    gpu("A100", 4.0),
    gpu("A10G", 1.0),
    gpu("T4", 0.5),
    gpu("A10G", 1.7, vcpus=32),
    gpu("H100", 9.0, vcpus=24),
    host(),
    host(0.8, 32),
]
SPOT = [gpu("A10G", 0.4, spot=True), gpu("T4", 0.2, spot=True)]
WIDER = [gpu("A10G", 0.8, region="us-west-2", type_="a10g-1-8"), gpu("L4", 0.7)]
objectives = st.sampled_from(list(Objective))


@examples(60)
@given(profiles(), objectives)
def test_savings_are_real_and_ranked(measured: WorkloadProfile, objective: Objective) -> None:
    advice = advice_of(measured, PLACES, spot=SPOT, wider=WIDER, wanted=Preferences(objective=objective))
    assert [one.saving_usd for one in advice] == sorted((one.saving_usd for one in advice), reverse=True)
    for one in advice:
        assert one.saving_usd >= 0
        assert one.probability >= MIN_PROBABILITY
        if one.kind is AdviceKind.DOES_NOT_FIT and one.after is None:
            continue
        assert not one.after.infeasible
        left = one.after.cost_usd.value + one.other_usd
        assert one.saving_usd == pytest.approx(one.before.cost_usd.value - left)
        assert one.saving_usd > 0 or one.saving_seconds >= MIN_SAVED_SECONDS
        assert one.saving_usd >= MIN_SAVED_USD or one.before.cost_usd.value == 0
        assert 0 < one.share <= 1


def carried_out(measured: WorkloadProfile, advice: Advice) -> WorkloadProfile | None:
    """The profile of the script after the change, made by hand from the words of the advice; None for the other kinds."""
    words = advice.action
    if advice.kind is AdviceKind.MIXED_PRECISION:
        dtype = "bfloat16" if "bfloat16" in words else "float16"
        return replace(measured, framework=framework(autocast=[Autocast(device="cuda", dtype=dtype, enabled=True)]))
    if advice.kind is AdviceKind.TF32:
        return replace(measured, framework=framework(float32_matmul_precision="high"))
    if advice.kind is AdviceKind.WORKERS:
        number = int(words.split()[0])
        return _phase(measured, data=replace(measured.phases[0].data, workers=number))
    if advice.kind is AdviceKind.HOST_PYTHON:
        python, step = measured.phases[0].host_seconds_per_step, measured.phases[0].step
        shorter = {name: seconds - python for name, seconds in asdict(step).items() if name.endswith("_seconds")}
        return _phase(measured, host_seconds_per_step=0.0, step=replace(step, **shorter))
    return None


def _phase(measured: WorkloadProfile, **changed: Any) -> WorkloadProfile:
    one: Phase = replace(measured.phases[0], **changed)
    return replace(measured, phases=[one])


@examples(60)
@given(profiles())
def test_the_prediction_of_the_changed_script_is_what_the_advice_says(measured: WorkloadProfile) -> None:
    for one in advice_of(measured, PLACES):
        changed = carried_out(measured, one)
        if changed is None or one.after is None or one.before is None or not one.before.candidate.is_gpu:
            continue
        then = predict(prepare(changed, scope_of(changed), year=YEAR), one.after.candidate)
        assert then.cost_usd.value == pytest.approx(one.after.cost_usd.value, rel=1e-6)
        assert then.wall_seconds.value == pytest.approx(one.after.wall_seconds.value, rel=1e-6)


@examples(60)
@given(profiles())
def test_never_what_is_done_already(measured: WorkloadProfile) -> None:
    """A second round of advice, on the changed script, does not say the same again for mixed precision and Python."""
    for one in advice_of(measured, PLACES):
        changed = carried_out(measured, one)
        if changed is not None and one.kind in (AdviceKind.MIXED_PRECISION, AdviceKind.TF32, AdviceKind.HOST_PYTHON):
            assert one.kind not in {two.kind for two in advice_of(changed, PLACES)}
