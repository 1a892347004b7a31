"""Changes with which a cheaper GPU holds a training: which are worth a run, and what is said of those that had one."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costgpu.estimator.advice import less_memory
from costgpu.estimator.advice.less_memory import TriedChange, at_best, computes_again, sensible, worth_a_run
from costgpu.estimator.measured_memory import with_shares
from costgpu.estimator.memory import needs_of
from costgpu.models.memory_change import MemoryChange
from costgpu.models.prediction import Advice, AdviceKind
from costgpu.models.workload import MeasuredMemory, MemoryKind, MemoryPeak, OpRow, Phase, WorkloadProfile
from tests.properties import examples
from tests.unit.estimator import builders
from tests.unit.estimator.advisable import ANY, gpu, judged, loading, phase, product, profile, tensor, workload_of
from tests.unit.estimator.builders import GIB

A100, A10G, L40S = gpu("A100", 4.0), gpu("A10G", 0.5), gpu("L40S", 1.9)
CHECKPOINTING, STATES, LORA = MemoryChange.CHECKPOINTING, MemoryChange.EIGHT_BIT_STATES, MemoryChange.LORA
PARAMETERS = 10**9
HALF = product(4096, 20, "bfloat16")
TEXTS = OpRow(
    op="aten::embedding",
    phase="forward",
    inputs=[tensor(100, 8), tensor(4, 512, dtype="int64")],
    outputs=[tensor(4, 512, 8)],
    count=1,
)
ADAM = builders.optimizer("AdamW", parameters=PARAMETERS, state_bytes=8 * PARAMETERS)


def memory(**kinds: float) -> MeasuredMemory:
    """A peak in the backward pass, GiB by kind; weights and states stay."""
    held = {kind: round(size * GIB) for kind, size in kinds.items()}
    return MeasuredMemory(
        peaks=[MemoryPeak(phase="backward", bytes=sum(held.values()), kinds=held)],
        reserved_bytes=sum(held.values()),
        steady_bytes=held.get("weights", 0) + held.get("states", 0),
    )


def training(held: MeasuredMemory, **facts: Any) -> WorkloadProfile:
    """Heavy enough that arithmetic decides, on whatever GPU."""
    known: dict[str, Any] = {"optimizers": [ADAM], "model_bytes": 4 * PARAMETERS, "frozen_bytes": 0}
    own = {name: facts.pop(name) for name in ("weights_bytes",) if name in facts}
    return profile(phase(HALF, **{**known, **facts}), memory=held, without_weights=True, **own)


ACTIVATIONS = memory(weights=4, gradients=4, states=2, activations=20)


def tried(held: MeasuredMemory, *changes: MemoryChange, how: str = "model.checkpoint()") -> TriedChange:
    return TriedChange(changes=changes, how=(how,) * len(changes), workload=workload_of(training(held)))


def advice_on(measured: WorkloadProfile, *changed: TriedChange, places: Any = (A100, A10G)) -> list[Advice]:
    workload = workload_of(measured)
    verdict, offers = judged(workload, places)
    return less_memory.less_memory(workload, verdict.recommended, offers, ANY, changed)


def runs(measured: WorkloadProfile, *places: Any) -> tuple[tuple[MemoryChange, ...], ...]:
    workload = workload_of(measured)
    verdict, offers = judged(workload, places)
    return worth_a_run(workload, verdict.recommended, offers, ANY)


# --------------------------------------------------------------------------------------------- what is worth a run


def test_a_change_is_worth_a_run_where_a_cheaper_gpu_may_hold_what_it_leaves() -> None:
    assert runs(training(ACTIVATIONS), A100, A10G) == ((CHECKPOINTING,),)


def test_none_is_where_the_cheapest_gpu_holds_it_anyway() -> None:
    assert runs(training(memory(weights=1, states=1, activations=4)), A100, A10G) == ()


def test_none_is_where_the_cheaper_gpu_is_too_slow_to_save_anything() -> None:
    slow = gpu("A10G", 3.5)
    assert runs(training(ACTIVATIONS), A100, slow) == ()


def test_two_are_worth_a_run_together_where_neither_alone_is_enough() -> None:
    both = memory(weights=5, gradients=5, states=10, activations=10)
    assert runs(training(both), A100, A10G) == ((CHECKPOINTING, STATES),)


def test_any_gpu_will_do_where_none_fits() -> None:
    large = memory(weights=10, gradients=10, states=5, activations=60)
    assert runs(training(large), A100) == ((CHECKPOINTING,),)


def test_there_are_at_most_three_runs() -> None:
    even = memory(weights=3, gradients=3, states=9, activations=9, logits=8)
    found = runs(
        training(even, weights_bytes=4 * PARAMETERS, ops=[HALF, TEXTS], data=loading(0.01, size=4)),
        A100,
        A10G,
        L40S,
    )
    assert 1 <= len(found) <= 3
    assert len(set(found)) == len(found)


def test_texts_are_cut_only_where_nothing_else_helps() -> None:
    cut = (MemoryChange.HALF_SEQUENCES,)
    of_texts: dict[str, Any] = {"ops": [HALF, TEXTS], "data": loading(0.01, size=4)}
    assert cut in runs(training(memory(weights=4, logits=26), **of_texts), A100, A10G)
    assert cut not in runs(training(ACTIVATIONS, **of_texts), A100, A10G)


SWIGLU = [
    OpRow(op=f"aten::{name}", phase=part, inputs=[tensor(8)], outputs=[tensor(8)], count=1)
    for name, part in (("silu", "forward"), ("silu_backward", "backward"))
]
AGAIN = SWIGLU[0]


def of_ops(*ops: OpRow) -> Phase:
    return training(ACTIVATIONS, ops=[HALF, *ops]).phases[0]


def test_checkpointing_is_seen_by_what_is_computed_again() -> None:
    assert not computes_again(of_ops(*SWIGLU))
    assert computes_again(of_ops(*SWIGLU, AGAIN))


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (training(ACTIVATIONS), {CHECKPOINTING}),
        (training(memory(weights=16, activations=4), ops=[HALF, *SWIGLU]), {CHECKPOINTING}),
        (training(memory(weights=16, activations=4), ops=[HALF, *SWIGLU, AGAIN]), set()),  # it is done already
        (training(ACTIVATIONS, ops=[HALF, *SWIGLU, AGAIN]), {CHECKPOINTING}),  # of another model
        (training(memory(weights=4, gradients=4, states=8)), {STATES}),
        (
            training(memory(weights=4, gradients=4, states=2), optimizers=[replace(ADAM, state_bytes=2 * PARAMETERS)]),
            set(),
        ),
        (
            training(memory(weights=4, gradients=4, states=8), weights_bytes=2 * PARAMETERS),
            {STATES, LORA, MemoryChange.QLORA},
        ),
        (
            training(memory(weights=4, activations=0.1), weights_bytes=4 * PARAMETERS, frozen_bytes=4 * PARAMETERS),
            {MemoryChange.FOUR_BIT_WEIGHTS},
        ),
        (  # in 4 bits they are already
            training(memory(weights=1, activations=0.1), weights_bytes=4 * PARAMETERS, frozen_bytes=4 * PARAMETERS),
            set(),
        ),
        (replace(training(ACTIVATIONS), without_weights=False), set()),
        (replace(training(ACTIVATIONS), memory=None), set()),
    ],
)
def test_only_changes_that_make_sense_are_thought_of(measured: WorkloadProfile, expected: set[MemoryChange]) -> None:
    assert set(sensible(measured)) == expected


@given(
    sizes=st.fixed_dictionaries({kind.value: st.floats(0, 40) for kind in MemoryKind}),
    change=st.sampled_from(MemoryChange),
)
@examples(200)
def test_at_best_no_kind_grows_and_kinds_add_up(sizes: dict[str, float], change: MemoryChange) -> None:
    before = training(memory(**sizes))
    after = at_best(workload_of(before), (change,)).profile.memory
    assert before.memory is not None
    assert after is not None
    assert after.reserved_bytes <= before.memory.reserved_bytes
    for old, new in zip(before.memory.peaks, after.peaks, strict=True):
        assert new.bytes == sum(new.kinds.values())
        assert all(new.kinds[kind] <= size for kind, size in old.kinds.items())


@given(share=st.floats(0, 1))
@examples(50)
def test_what_is_left_of_a_kind_is_its_share(share: float) -> None:
    after = with_shares(ACTIVATIONS, {MemoryKind.ACTIVATIONS: share})
    assert after.peaks[0].kinds["activations"] == round(20 * GIB * share)
    assert after.reserved_bytes == pytest.approx((10 + 20 * share) * GIB, abs=2)


# --------------------------------------------------------------------------------------------- what is said of it


def test_what_it_saves_is_what_the_measured_change_costs() -> None:
    small = memory(weights=4, gradients=4, states=2, activations=2)
    (found,) = advice_on(training(ACTIVATIONS), tried(small, CHECKPOINTING))
    assert found.kind is AdviceKind.LESS_MEMORY
    assert found.action == "Checkpoint activations (model.checkpoint()), 13.0 instead of 31.0 GiB"
    assert found.after is not None
    assert found.after.candidate.accelerator is not None
    assert found.after.candidate.accelerator.name == "A10G"
    assert found.before is not None
    assert found.saving_usd == found.before.cost_usd.value - found.after.cost_usd.value > 0
    assert found.basis == less_memory.BY_SHAPES


def test_nothing_is_said_where_the_run_shows_that_it_does_not_fit() -> None:
    assert advice_on(training(ACTIVATIONS), tried(memory(weights=4, activations=24), CHECKPOINTING)) == []


def test_adapters_make_another_model_and_it_is_said() -> None:
    (found,) = advice_on(training(ACTIVATIONS), tried(memory(weights=4, activations=4), LORA))
    assert any("another model" in note for note in found.notes)


def test_where_nothing_fits_it_is_said_what_then_does() -> None:
    large = memory(weights=10, gradients=10, states=5, activations=60)
    (found,) = advice_on(training(large), tried(memory(weights=25, activations=6), CHECKPOINTING), places=(A100,))
    assert found.before is None
    assert "it fits aws a100-1-8 (A100)" in found.action


def test_several_changes_are_told_with_how_each_is_made() -> None:
    small = memory(weights=4, activations=2)
    call = "checkpoint() around each of the layers"
    (found,) = advice_on(training(ACTIVATIONS), tried(small, CHECKPOINTING, STATES, how=call))
    assert found.action.startswith("Checkpoint activations and hold the optimizer's states in 8 bits, 7.0 ")
    assert f"In the script: {call}; {call}." in found.notes


def test_half_the_samples_at_a_time_are_computed_without_a_run() -> None:
    measured = training(memory(weights=4, gradients=4, states=2, activations=14), data=loading(0.01, size=32))
    (found,) = advice_on(measured)
    assert found.action.startswith("Micro-batches of 16 instead of 32, 2 times as many, ")
    assert found.basis == less_memory.BY_SAMPLE
    workload = workload_of(measured)
    assert max(need.gib for need in needs_of(workload.profile)) == pytest.approx(25)
    assert "18.0 instead of 25.0 GiB" in found.action


def test_samples_of_a_script_without_a_loader_are_those_of_its_texts() -> None:
    places = replace(TEXTS, inputs=[tensor(512, 8), tensor(512, dtype="int64")])
    assert less_memory.samples_of(of_ops(TEXTS, places)) == 4
    assert less_memory.samples_of(of_ops()) is None


def test_the_best_three_are_told_dearest_saving_first() -> None:
    measured = training(memory(weights=2, gradients=4, states=2, activations=22), data=loading(0.01, size=32))
    small = [tried(memory(weights=2, activations=size), CHECKPOINTING) for size in (1, 2, 3)]
    found = advice_on(measured, *small)
    assert len(found) == 3
    assert [one.saving_usd for one in found] == sorted((one.saving_usd for one in found), reverse=True)
