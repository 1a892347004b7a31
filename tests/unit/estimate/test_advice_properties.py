"""Properties of advice over any mixture of what limits a job: real savings, in order, that the prediction confirms."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimate.advice.context import MIN_PROBABILITY, MIN_SAVED_SECONDS, MIN_SAVED_USD
from costgpu.estimate.predict import predict, prepare
from costgpu.estimate.scope import scope_of
from costgpu.estimate.verdict import Preferences
from costgpu.models.prediction import Advice, AdviceKind, Objective
from costgpu.models.workload import Autocast, Phase, WorkloadProfile
from tests.properties import examples
from tests.unit.estimate.advisable import (
    MIB,
    YEAR,
    advice_of,
    framework,
    gpu,
    host,
    loading,
    phase,
    product,
    profile,
    tiny,
)
from tests.unit.estimate.builders import GIB

AMP = Autocast(device="cuda", dtype="bfloat16", enabled=True)


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
        assert one.before is not None
        assert one.after is not None
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
        return _phase(measured, host_seconds_per_step=0.0)
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
